//! Data servers as the metadata server knows them: registered in rows, alive by heartbeats.

use braid_api::meta::{Duty, Heartbeat, ServerInfo, ServerState};
use braid_env::Monotonic;
use braid_meta_namespace::rows::ServerRow;
use braid_placement::{Candidate, Domain, unite_disks};
use braid_types::ServerId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Debug)]
struct Known {
    row: ServerRow,
    incarnation: u64,
    /// `None` until it is heard of after this server's start.
    seen: Option<Monotonic>,
    up: bool,
    room: Room,
}

/// As its last heartbeat told.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Of its host; 0 if that is not known.
    disk: u64,
    filesystem: u64,
    bytes_total: u64,
    bytes_free: u64,
    chunks: u64,
}

#[derive(Default)]
struct State {
    known: BTreeMap<ServerId, Known>,
    /// Decommissioned.
    gone: BTreeSet<ServerId>,
    version: u64,
}

#[derive(Default)]
pub struct DataServers {
    state: Mutex<State>,
}

impl DataServers {
    /// Read from rows: known, but not heard of.
    pub fn learn(&self, id: ServerId, row: ServerRow) {
        let known = Known { row, incarnation: 0, seen: None, up: false, room: Room::default() };
        let mut state = self.state.lock();
        state.known.insert(id, known);
        state.version += 1;
    }

    /// True if this is a start of the data server that was not heard of.
    pub fn registered(&self, id: ServerId, row: ServerRow, incarnation: u64, now: Monotonic) -> bool {
        let mut state = self.state.lock();
        let old = state.known.get(&id);
        let new = old.is_none_or(|k| k.incarnation != incarnation);
        let room = old.map_or(Room::default(), |k| k.room);
        let known = Known { row, incarnation, seen: Some(now), up: true, room };
        state.known.insert(id, known);
        state.version += 1;
        new
    }

    /// False if the server must register first; also one that was taken for down, for sessions may have ended without it.
    pub fn heartbeat(&self, beat: &Heartbeat, now: Monotonic) -> bool {
        let mut state = self.state.lock();
        let Some(known) = state.known.get_mut(&beat.id).filter(|k| k.up && k.incarnation == beat.incarnation) else {
            return false;
        };
        known.seen = Some(now);
        let Heartbeat { disk, filesystem, bytes_total, bytes_free, chunks, .. } = *beat;
        known.room = Room { disk, filesystem, bytes_total, bytes_free, chunks };
        true
    }

    /// Marks those silent for longer than the lease as down; answers them.
    pub fn expire(&self, lease: Duration, now: Monotonic) -> Vec<ServerId> {
        let mut state = self.state.lock();
        let mut lost = Vec::new();
        for (id, known) in &mut state.known {
            if known.up && known.seen.is_none_or(|seen| now.since(seen) > lease) {
                known.up = false;
                lost.push(*id);
            }
        }
        if !lost.is_empty() {
            state.version += 1;
        }
        lost
    }

    pub fn candidates(&self) -> Vec<Candidate> {
        let mut all: Vec<Candidate> = self.state.lock().known.iter().map(|(id, known)| candidate(*id, known)).collect();
        unite_disks(&mut all);
        all
    }

    pub fn duty(&self, id: ServerId) -> Option<Duty> {
        self.state.lock().known.get(&id).map(|known| known.row.duty)
    }

    /// As its row says now.
    pub fn set_duty(&self, id: ServerId, duty: Duty) {
        let mut state = self.state.lock();
        if let Some(known) = state.known.get_mut(&id) {
            known.row.duty = duty;
        }
        if duty == Duty::Decommissioned {
            state.known.remove(&id);
            state.gone.insert(id);
        }
        state.version += 1;
    }

    /// Their rows say that they are no more.
    pub fn gone(&self) -> BTreeSet<ServerId> {
        self.state.lock().gone.clone()
    }

    /// Those that are not to serve, with what they do instead.
    pub fn leaving(&self) -> BTreeMap<ServerId, Duty> {
        let state = self.state.lock();
        let leaving = state.known.iter().filter(|(_, known)| !known.row.duty.takes_new());
        leaving.map(|(id, known)| (*id, known.row.duty)).collect()
    }

    /// For placing chunks. Until its first heartbeat after a start of this server nobody knows a data server's room: it
    /// is not full, it is not there yet, and whoever asks waits.
    pub fn places(&self) -> Vec<Candidate> {
        let mut candidates = self.candidates();
        let state = self.state.lock();
        for candidate in &mut candidates {
            candidate.up &= state.known.get(&candidate.id).is_some_and(|k| k.room.bytes_total > 0);
        }
        candidates
    }

    pub fn version(&self) -> u64 {
        self.state.lock().version
    }

    pub fn infos(&self, now: Monotonic) -> Vec<ServerInfo> {
        self.state.lock().known.iter().map(|(id, k)| info(*id, k, now)).collect()
    }

    pub fn info(&self, id: ServerId, now: Monotonic) -> Option<ServerInfo> {
        self.state.lock().known.get(&id).map(|k| info(id, k, now))
    }

    /// (bytes in all, bytes free) of the file systems of the servers that are up: servers of a host that are on one share it.
    pub fn space(&self) -> (u64, u64) {
        let state = self.state.lock();
        let mut shares: BTreeMap<(&str, u64), Room> = BTreeMap::new();
        let mut own = Vec::new();
        for known in state.known.values().filter(|k| k.up) {
            match known.room.filesystem {
                0 => own.push(known.room),
                filesystem => {
                    let shared = shares.entry((&known.row.host, filesystem)).or_insert(known.room);
                    shared.bytes_total = shared.bytes_total.max(known.room.bytes_total);
                    // The least is what is left when each has set aside what it promised.
                    shared.bytes_free = shared.bytes_free.min(known.room.bytes_free);
                }
            }
        }
        let all = own.iter().chain(shares.values());
        all.fold((0, 0), |(total, free), room| (total + room.bytes_total, free + room.bytes_free))
    }
}

fn candidate(id: ServerId, known: &Known) -> Candidate {
    let (rack, host, disk) = (known.row.rack.clone(), known.row.host.clone(), known.room.disk);
    let (bytes_free, up, takes_new) = (known.room.bytes_free, known.up, known.row.duty.takes_new());
    let filesystem = known.room.filesystem;
    Candidate { id, domain: Domain { rack, host, disk }, filesystem, bytes_free, up, takes_new }
}

fn info(id: ServerId, known: &Known, now: Monotonic) -> ServerInfo {
    ServerInfo {
        id,
        addresses: known.row.addresses.clone(),
        host: known.row.host.clone(),
        state: if known.up { ServerState::Up } else { ServerState::Down },
        bytes_total: known.room.bytes_total,
        bytes_free: known.room.bytes_free,
        chunks: known.room.chunks,
        silent_ms: known.seen.map_or(u64::MAX, |seen| now.since(seen).as_millis() as u64),
        rack: known.row.rack.clone(),
        disk: known.room.disk,
        duty: known.row.duty,
    }
}
