//! The leader's side: who is in which chain, from which epoch on.
//!
//! For each container one change at a time:
//! ```text
//! acting ──► raising (row: epoch + 1) ──► collecting (stop, report) ──► settling (row: who goes on) ──► acting
//!                                                                                  acting ──► opening (row) ──► acting
//! ```
//! Nothing is sent that the row does not have yet; so another leader that reads the rows knows at least as much as any
//! data server. What it cannot know from rows (who owns, what was decided) it finds out with a new epoch.

mod change;
mod places;
mod row;
#[cfg(test)]
mod testing;
mod waits;
mod without;

pub use places::{Leaving, Place};
pub use row::{ChainRow, ContainerRow};
pub use waits::{LeaderWaits, Step};

use crate::lease::LeaseBook;
use crate::limits::{Limits, Moment};
use crate::message::{FromLeader, Report, ToLeader};
use crate::takeover::Decision;
use braid_types::{BLOCK_BYTES, ChainEpoch, ChunkId, ContainerId, LeaderEpoch, ServerId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub enum LeaderEvent {
    /// Time has passed; every 50 ms or so.
    Tick,
    FromServer {
        server: ServerId,
        incarnation: u64,
        message: ToLeader,
    },
    /// A container was made: its row is committed.
    Made {
        container: ContainerId,
        row: ContainerRow,
    },
    /// All its chunks were deleted, and its row.
    Gone {
        container: ContainerId,
    },
    /// The chunk was deleted at every member: it need not be opened any more.
    Deleted {
        container: ContainerId,
        chunk: ChunkId,
    },
    /// Done what [`LeaderCommand::Commit`] says.
    Committed {
        container: ContainerId,
        number: u64,
    },
    /// Members have lost copies, and will say so in a new epoch: others have all of them.
    Lost {
        container: ContainerId,
    },
    /// Which servers are to have no place in any chain, from now on.
    Leaving(Leaving),
    /// Every member of the chain of this epoch has all of every chunk, as it was when the epoch began, on stable storage:
    /// asked of the members, after all of them acted in it. See `places.rs`.
    Whole {
        container: ContainerId,
        epoch: ChainEpoch,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderCommand {
    Send {
        to: ServerId,
        incarnation: u64,
        message: FromLeader,
    },
    /// Write the row, if it still is as this leader read it and this leader still leads; else stop leading. Rows of one
    /// round may share a transaction.
    Commit {
        container: ContainerId,
        number: u64,
        row: ContainerRow,
    },
    /// For the log and for counters: how a chunk goes on, and what it lost.
    Decided {
        container: ContainerId,
        decision: Decision,
    },
}

/// Who takes the place of a server that is gone.
pub trait Spares {
    /// A server that is not in the chain, of those that are live, with room for so much if that is known.
    fn successor(
        &mut self,
        container: ContainerId,
        chain: &[ServerId],
        live: &[ServerId],
        bytes: u64,
    ) -> Option<ServerId>;
}

#[derive(Clone, Debug)]
pub struct Leader {
    epoch: LeaderEpoch,
    limits: Limits,
    book: LeaseBook,
    servers: BTreeMap<ServerId, Server>,
    containers: BTreeMap<ContainerId, Held>,
    number: u64,
    leaving: Leaving,
    /// Chains with more members than they should have: counted at each tick, and with each that is begun.
    growing: usize,
}

#[derive(Clone, Debug, Default)]
struct Server {
    /// 0 until this leader has met it.
    incarnation: u64,
    /// Epochs it has not acknowledged, and since when.
    owes: BTreeMap<ContainerId, (ChainEpoch, Moment)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Acting,
    Raising(u64),
    Collecting,
    Settling(u64),
    Opening(u64),
}

#[derive(Clone, Debug)]
struct Held {
    row: ContainerRow,
    /// The row that is being committed.
    next: Option<ContainerRow>,
    phase: Phase,
    reports: BTreeMap<ServerId, (u64, Vec<Report>)>,
    /// Copies that some of these have lost since they acknowledged them, in that epoch or an older one.
    without: BTreeMap<ServerId, Vec<(ChunkId, ChainEpoch)>>,
    /// `None`: made by a leader before.
    decisions: Option<Vec<Decision>>,
    /// By this leader.
    decided: Option<without::Decided>,
    installed: BTreeSet<ServerId>,
    /// The processes that may go into the newest epoch as it was decided: those that reported, and those that were
    /// first told of it. One that restarted since has lost what the decision rests on.
    invited: BTreeMap<ServerId, u64>,
    sent_at: Moment,
    /// The members that stay were asked to stop, not only those that are removed.
    asked_all: bool,
    /// Does not answer others, until when it counts so.
    shunned: BTreeMap<ServerId, Moment>,
    /// Has no room, until when it counts so, and how much the container may take.
    full: BTreeMap<ServerId, (Moment, u64)>,
    /// To be written down as open, and who asked.
    opening: BTreeMap<ChunkId, ServerId>,
    /// The newest epoch of which every member is known to have the whole start.
    whole: Option<ChainEpoch>,
    /// When there was last nobody for the place of a member that leaves.
    stuck: Option<Moment>,
    /// A member lost what it knew: another epoch is needed.
    dirty: bool,
    /// Members that began anew since it was last decided.
    anew: BTreeSet<ServerId>,
    /// Since when writes may wait; looked at with each tick.
    waits_since: Option<Moment>,
}

impl Held {
    fn new(row: ContainerRow, is_new: bool) -> Held {
        let dirty = !row.settled || !row.last_open.is_empty();
        Held {
            row,
            next: None,
            phase: Phase::Acting,
            reports: BTreeMap::new(),
            without: BTreeMap::new(),
            decisions: is_new.then(Vec::new),
            decided: None,
            installed: BTreeSet::new(),
            invited: BTreeMap::new(),
            sent_at: Moment::ZERO,
            asked_all: false,
            shunned: BTreeMap::new(),
            full: BTreeMap::new(),
            opening: BTreeMap::new(),
            whole: None,
            stuck: None,
            dirty: dirty && !is_new,
            anew: BTreeSet::new(),
            waits_since: None,
        }
    }

    /// What its chunks may take at a server, holes counted, as far as that is known: of the last take-over.
    fn bytes_at_most(&self) -> u64 {
        let ends = self.decisions.iter().flatten().map(|decision| decision.end.saturating_mul(BLOCK_BYTES));
        ends.fold(0, u64::saturating_add)
    }
}

impl Leader {
    /// `rows` are all rows of containers. It must have become leader, under this epoch, before it read them.
    pub fn new(
        now: Moment,
        epoch: LeaderEpoch,
        limits: Limits,
        rows: impl IntoIterator<Item = (ContainerId, ContainerRow)>,
    ) -> Leader {
        let containers = rows.into_iter().map(|(id, row)| (id, Held::new(row, false))).collect();
        let book = LeaseBook::new(now, &limits);
        let (servers, leaving) = (BTreeMap::new(), Leaving::default());
        Leader { epoch, limits, book, servers, containers, number: 0, leaving, growing: 0 }
    }

    pub fn row(&self, container: ContainerId) -> Option<&ContainerRow> {
        self.containers.get(&container).map(|held| &held.row)
    }

    pub fn containers(&self) -> impl Iterator<Item = ContainerId> + '_ {
        self.containers.keys().copied()
    }

    pub fn is_live(&self, server: ServerId, now: Moment) -> bool {
        self.book.is_live(server, now)
    }

    /// Nothing is being changed, and every chunk is open in the newest epoch.
    pub fn is_settled(&self, container: ContainerId) -> bool {
        self.containers.get(&container).is_some_and(|held| {
            held.phase == Phase::Acting && held.row.settled && held.row.last_open.is_empty() && !held.dirty
        })
    }

    /// How many of the container's copies are on live servers of its newest chain, and how many there should be.
    pub fn live_copies(&self, container: ContainerId, now: Moment) -> Option<(u8, u8)> {
        let row = self.row(container)?;
        let live = row.members().iter().filter(|member| self.is_live(**member, now)).count();
        Some((live.min(usize::from(u8::MAX)) as u8, row.copies))
    }

    /// The epoch in which every member acts, if all of them act in the newest. What was deleted at all of them while this
    /// was and stayed so is nowhere, and no take-over finds it again, unless the row lists it as not open: see [`LeaderEvent::Deleted`].
    pub fn acts_in(&self, container: ContainerId) -> Option<ChainEpoch> {
        let held = self.containers.get(&container)?;
        let acts = matches!(held.phase, Phase::Acting | Phase::Opening(_)) && held.row.settled && !held.dirty;
        let all = held.row.members().iter().all(|member| held.installed.contains(member));
        (acts && all).then_some(held.row.epoch())
    }

    pub fn on(&mut self, now: Moment, event: LeaderEvent, spares: &mut dyn Spares) -> Vec<LeaderCommand> {
        let mut out = Vec::new();
        match event {
            LeaderEvent::Tick => {
                self.growing = self.grown().count();
                for id in self.containers.keys().copied().collect::<Vec<_>>() {
                    self.look_after(now, id, spares, &mut out);
                }
                self.note_waits(now);
            }
            LeaderEvent::FromServer { server, incarnation, message } => {
                self.heard(now, server, incarnation, message, &mut out);
            }
            LeaderEvent::Made { container, row } => {
                self.containers.insert(container, Held::new(row, true));
                self.send_installs(now, container, &mut out);
            }
            LeaderEvent::Gone { container } => {
                self.containers.remove(&container);
                self.servers.values_mut().for_each(|server| server.owes.retain(|owed, _| *owed != container));
            }
            LeaderEvent::Deleted { container, chunk } => {
                if let Some(held) = self.containers.get_mut(&container)
                    && held.row.last_open.contains_key(&chunk)
                {
                    held.opening.insert(chunk, ServerId::default());
                }
                self.write_down_open(container, &mut out);
            }
            LeaderEvent::Committed { container, number } => self.committed(now, container, number, &mut out),
            LeaderEvent::Lost { container } => {
                // While another change is under way it is said again.
                if let Some(held) = self.containers.get_mut(&container).filter(|held| held.phase == Phase::Acting) {
                    held.dirty = true;
                }
            }
            LeaderEvent::Leaving(leaving) => self.leaving = leaving,
            LeaderEvent::Whole { container, epoch } => self.is_whole(container, epoch),
        }
        out
    }

    fn heard(
        &mut self,
        now: Moment,
        server: ServerId,
        incarnation: u64,
        message: ToLeader,
        out: &mut Vec<LeaderCommand>,
    ) {
        let is_known = self.servers.get(&server).is_some_and(|known| known.incarnation == incarnation);
        match message {
            ToLeader::Renew { asked, chains } => match chains {
                None if !is_known => {
                    let message = FromLeader::TellChains { leader: self.epoch };
                    out.push(LeaderCommand::Send { to: server, incarnation, message });
                }
                None => self.grant(now, server, asked, out),
                Some(chains) => {
                    if !is_known && !self.register(now, server, incarnation) {
                        return;
                    }
                    self.learn_chains(now, server, !is_known, &chains);
                    self.grant(now, server, asked, out);
                }
            },
            // Of a process that is no more, or that this leader has not met.
            _ if !is_known => {}
            ToLeader::Prepared { container, epoch, reports } => {
                self.reported(now, (server, incarnation), (container, epoch), (reports, Vec::new()), out);
            }
            ToLeader::PreparedWithout { container, epoch, reports, lost } => {
                self.reported(now, (server, incarnation), (container, epoch), (reports, lost), out);
            }
            ToLeader::Installed { container, epoch } => {
                // Who acts in the new one has let go of the old ones.
                if let Some(known) = self.servers.get_mut(&server) {
                    known.owes.retain(|owed, (raised, _)| *owed != container || *raised > epoch);
                }
                if let Some(held) = self.containers.get_mut(&container)
                    && held.row.epoch() == epoch
                {
                    held.installed.insert(server);
                }
            }
            ToLeader::Open { container, epoch, chunks } => {
                self.open(container, epoch, server, incarnation, chunks, out);
            }
            ToLeader::Remove { container, epoch, server: silent } => {
                if let Some(held) = self.containers.get_mut(&container)
                    && held.row.epoch() == epoch
                    && held.row.members().contains(&server)
                    && silent != server
                {
                    held.shunned.insert(silent, now + self.limits.shun);
                }
            }
            ToLeader::Full { container, epoch, bytes } => {
                if let Some(held) = self.containers.get_mut(&container)
                    && held.row.epoch() == epoch
                    && held.row.members().contains(&server)
                {
                    // It says so each second, for as long as it is so.
                    held.full.insert(server, (now + self.limits.renew * 3, bytes));
                }
            }
        }
    }

    /// It has stopped acting in older epochs, and this is what it has.
    fn reported(
        &mut self,
        now: Moment,
        (server, incarnation): (ServerId, u64),
        (container, epoch): (ContainerId, ChainEpoch),
        (reports, lost): (Vec<Report>, Vec<(ChunkId, ChainEpoch)>),
        out: &mut Vec<LeaderCommand>,
    ) {
        if let Some(known) = self.servers.get_mut(&server) {
            known.owes.retain(|owed, (raised, _)| *owed != container || *raised > epoch);
        }
        if let Some(held) = self.containers.get_mut(&container)
            && held.phase == Phase::Collecting
            && held.row.epoch() == epoch
        {
            held.reports.insert(server, (incarnation, reports));
            held.without.insert(server, lost);
            self.collect(now, container, out);
        }
    }

    /// A process this leader has not met. Numbers of incarnations rise, so that a message of one that is over is known.
    fn register(&mut self, now: Moment, server: ServerId, incarnation: u64) -> bool {
        let known = self.servers.entry(server).or_default();
        if incarnation < known.incarnation {
            return false;
        }
        let is_restart = known.incarnation != 0;
        *known = Server { incarnation, ..Server::default() };
        if is_restart {
            self.book.ended(server);
        }
        for held in self.containers.values_mut() {
            held.reports.remove(&server);
            held.without.remove(&server);
            held.installed.remove(&server);
            if is_restart && held.row.members().contains(&server) {
                held.anew.insert(server);
                held.dirty |= held.phase != Phase::Collecting;
            }
            // What it was to give to a successor may be gone as well.
            let is_source = |decision: &Decision| crate::replica::sources(decision).any(|source| source == server);
            if is_restart && held.decisions.iter().flatten().any(is_source) && !held.row.last_open.is_empty() {
                held.dirty = true;
            }
            if let (Phase::Collecting | Phase::Raising(_), true) = (held.phase, held.row.knows(server)) {
                known.owes.insert(held.row.id, (held.row.epoch(), now));
            }
        }
        true
    }

    /// A server says in which epochs it acts. It must not act in older ones; and a member that does not act in the
    /// newest, though nobody here remembers how to put it there, needs another.
    fn learn_chains(&mut self, now: Moment, server: ServerId, is_new: bool, chains: &[(ContainerId, ChainEpoch)]) {
        let Some(known) = self.servers.get_mut(&server) else { return };
        for (id, acts_in) in chains {
            if let Some(held) = self.containers.get(id)
                && held.row.epoch() > *acts_in
            {
                known.owes.entry(*id).or_insert((held.row.epoch(), now));
            }
        }
        for (id, held) in &mut self.containers {
            let acts = chains.contains(&(*id, held.row.epoch()));
            let is_member = held.row.members().contains(&server);
            if acts {
                held.installed.insert(server);
            } else if is_new && is_member && held.phase == Phase::Acting && held.decisions.is_none() {
                held.dirty = true;
                held.anew.insert(server);
            }
        }
    }

    fn grant(&mut self, now: Moment, server: ServerId, asked: Moment, out: &mut Vec<LeaderCommand>) {
        let Some(known) = self.servers.get(&server) else { return };
        // Who does not let go of an old epoch gets no lease to act under it, and is asked again to let go.
        if known.owes.values().any(|(_, since)| now >= *since + self.limits.server_lease) {
            let prepare = |(id, (epoch, _)): (&ContainerId, &(ChainEpoch, Moment))| FromLeader::Prepare {
                container: *id,
                epoch: *epoch,
            };
            let asks: Vec<FromLeader> = known.owes.iter().map(prepare).collect();
            asks.into_iter().for_each(|message| self.send(server, message, out));
            return;
        }
        let raised = known.owes.iter().map(|(id, (epoch, _))| (*id, *epoch)).collect();
        let incarnation = known.incarnation;
        self.book.grant(server, now, &self.limits);
        let message = FromLeader::Grant { asked, leader: self.epoch, raised };
        out.push(LeaderCommand::Send { to: server, incarnation, message });
    }

    fn send(&self, to: ServerId, message: FromLeader, out: &mut Vec<LeaderCommand>) {
        if let Some(known) = self.servers.get(&to).filter(|known| known.incarnation != 0) {
            out.push(LeaderCommand::Send { to, incarnation: known.incarnation, message });
        }
    }

    fn commit(&mut self, id: ContainerId, row: ContainerRow, phase: fn(u64) -> Phase, out: &mut Vec<LeaderCommand>) {
        self.number += 1;
        let number = self.number;
        let Some(held) = self.containers.get_mut(&id) else { return };
        held.phase = phase(number);
        held.next = Some(row.clone());
        out.push(LeaderCommand::Commit { container: id, number, row });
    }

    fn committed(&mut self, now: Moment, id: ContainerId, number: u64, out: &mut Vec<LeaderCommand>) {
        let Some(held) = self.containers.get_mut(&id) else { return };
        let phase = held.phase;
        if !matches!(phase, Phase::Raising(n) | Phase::Settling(n) | Phase::Opening(n) if n == number) {
            return;
        }
        let Some(row) = held.next.take() else { return };
        held.row = row;
        match phase {
            Phase::Raising(_) => {
                (held.phase, held.asked_all) = (Phase::Collecting, false);
                held.reports.clear();
                held.without.clear();
                held.opening.clear();
                let epoch = held.row.epoch();
                for server in held.row.known() {
                    self.servers.entry(server).or_default().owes.insert(id, (epoch, now));
                }
                self.send_prepares(now, id, out);
            }
            Phase::Settling(_) => {
                held.phase = Phase::Acting;
                held.installed.clear();
                self.send_installs(now, id, out);
            }
            Phase::Opening(_) => {
                held.phase = Phase::Acting;
                let is_open = |chunk: &ChunkId| !held.row.last_open.contains_key(chunk);
                let opened: Vec<(ChunkId, ServerId)> =
                    held.opening.iter().filter(|(chunk, _)| is_open(chunk)).map(|(c, s)| (*c, *s)).collect();
                held.opening.retain(|chunk, _| !opened.iter().any(|(open, _)| open == chunk));
                let epoch = held.row.epoch();
                for (chunk, owner) in opened {
                    self.send(owner, FromLeader::Opened { container: id, epoch, chunks: vec![chunk] }, out);
                }
            }
            Phase::Acting | Phase::Collecting => {}
        }
    }

    /// `min_copies` members of the newest chain hold its start.
    fn open(
        &mut self,
        id: ContainerId,
        epoch: ChainEpoch,
        server: ServerId,
        incarnation: u64,
        chunks: Vec<ChunkId>,
        out: &mut Vec<LeaderCommand>,
    ) {
        let Some(held) = self.containers.get_mut(&id) else { return };
        let may_open = matches!(held.phase, Phase::Acting | Phase::Opening(_));
        if !may_open || held.row.epoch() != epoch || !held.row.settled {
            return;
        }
        let (waiting, open): (Vec<ChunkId>, Vec<ChunkId>) =
            chunks.into_iter().partition(|chunk| held.row.last_open.contains_key(chunk));
        held.opening.extend(waiting.into_iter().map(|chunk| (chunk, server)));
        if !open.is_empty() {
            let message = FromLeader::Opened { container: id, epoch, chunks: open };
            out.push(LeaderCommand::Send { to: server, incarnation, message });
        }
        self.write_down_open(id, out);
    }

    fn write_down_open(&mut self, id: ContainerId, out: &mut Vec<LeaderCommand>) {
        let Some(held) = self.containers.get(&id) else { return };
        if held.phase == Phase::Acting && !held.opening.is_empty() {
            let row = held.row.opened(held.opening.keys());
            self.commit(id, row, Phase::Opening, out);
        }
    }
}
