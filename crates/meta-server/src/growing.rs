//! Servers that are drained: what is theirs goes to others, and each replacement is verified before anything of it is deleted.
//!
//! The leader of chains gives their places away, one more member first (`braid_chain::Leader`, `places.rs`). Here is asked whether all
//! members have everything, the new one's bytes are compared with their checksums, and the leader is told. What is under way is in
//! the rows of containers and data servers, so a metadata server that starts goes on with it.

use crate::plain::Movers;
use crate::server::MetaServer;
use braid_api::admin::{Drain, Load, Taker};
use braid_api::data::{ChunkStatus, CopyState, GetCopies, ListChunks};
use braid_api::meta::Duty;
use braid_api::{Code, Error, Result};
use braid_chain::{LeaderEvent, Leaving, Place};
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::{reclaim, servers, spares};
use braid_placement::{Candidate, successor};
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Between two looks at what is moved.
const PAUSE: Duration = Duration::from_millis(500);
/// Chunks in one list.
const PAGE: u32 = 1024;
/// Reasons named in one answer.
const REASONS: usize = 8;
type Copies = BTreeMap<ContainerId, BTreeMap<ChunkId, CopyState>>;

pub(crate) struct Growing {
    /// Bytes a second for all moves.
    rate: AtomicU64,
    /// Of chains with a member more: chunks of the new member that were read and match their checksums, since this epoch began.
    verified: Mutex<BTreeMap<ContainerId, (ChainEpoch, BTreeSet<ChunkId>)>>,
    pub movers: Movers,
}

/// What a data server has of a container.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held {
    pub load: Load,
    /// What the smallest chunk occupies that occupies anything.
    pub least: u64,
}

/// What the row of a container says of it.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    /// Given and not freed, spares among them.
    pub chunks: u64,
    /// Each of its chunks has one copy.
    pub is_plain: bool,
}

impl Growing {
    pub fn new(rate: u64) -> Growing {
        Growing { rate: AtomicU64::new(rate), verified: Mutex::default(), movers: Movers::default() }
    }

    pub fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Relaxed);
    }
}

impl MetaServer {
    /// The leader of chains hears it from here, and only from here.
    pub(crate) fn tell_who_leaves(&self) {
        let leaving = self.servers.leaving();
        let paused = leaving.iter().filter(|(_, duty)| **duty == Duty::Paused).map(|(id, _)| *id).collect();
        let drained = leaving.iter().filter(|(_, duty)| **duty == Duty::Drained).map(|(id, _)| *id);
        let gone: BTreeSet<ServerId> = drained.chain(self.servers.gone()).collect();
        let servers: BTreeSet<ServerId> = leaving.into_keys().collect();
        if let Some(copies) = &self.copies {
            copies.leaves(servers.clone(), gone);
        }
        let ((moves, moves_paused), at_once) = (self.rebalancing.moves(), self.config.moves_at_once);
        self.leader_event(LeaderEvent::Leaving(Leaving { servers, paused, moves, moves_paused, at_once }));
    }

    /// What one server may be sent a second: the operator's number is for all of them together.
    pub(crate) fn move_share(&self) -> u64 {
        let leaving = self.servers.leaving();
        let is_any = |duty: Duty| leaving.values().any(|its| *its == duty);
        let is_paused = is_any(Duty::Paused) || self.rebalancing.is_paused();
        if is_paused && !is_any(Duty::Drains) && !self.rebalancing.is_moving() {
            return 0;
        }
        let takers: BTreeSet<ServerId> =
            self.chains.grown().into_iter().filter_map(|(_, _, members)| members.last().copied()).collect();
        // Chunks with one copy are moved beside them, at one such share in all.
        let movers = usize::from(self.growing.movers.are_at_work(self.env.clock.now()));
        self.growing.rate.load(Relaxed) / (takers.len() + movers).max(1) as u64
    }

    pub(crate) fn keep_moving(self: Arc<Self>) {
        let env = self.env.clone();
        env.spawn("moves", async move {
            while !self.stopping.load(Relaxed) {
                self.env.sleep(PAUSE).await;
                if let Err(error) = self.look_at_moves().await {
                    tracing::warn!("moves go on later: {error}");
                }
            }
        });
    }

    pub(crate) fn move_rate(&self) -> u64 {
        self.growing.rate.load(Relaxed)
    }

    async fn look_at_moves(&self) -> Result<()> {
        self.confirm_whole().await?;
        self.rebalance_on().await?;
        for (server, duty) in self.servers.leaving() {
            if duty == Duty::Drains {
                self.drop_empty(server).await?;
            }
            if duty == Duty::Drains && self.nothing_left(server).await? {
                self.change_duty(server, Duty::Drained, None).await?;
                tracing::info!(server = server.0, "data server is drained: nothing of it is needed any more");
            }
        }
        Ok(())
    }

    /// Containers without chunks have nothing to be moved, and nobody gets a chunk of them while the server leaves.
    async fn drop_empty(&self, server: ServerId) -> Result<()> {
        let rows = self.rows_of(server).await?;
        let empty = rows.into_iter().filter(|(_, row)| row.chunks == 0).map(|(id, _)| id).take(PAGE as usize);
        let containers: Vec<ContainerId> = empty.collect();
        if containers.is_empty() {
            return Ok(());
        }
        let dropped = self.engine.transact(0, reclaim::DropEmpty { containers }).await.map_err(Error::from)?;
        for container in dropped {
            self.containers.forget(container);
            self.leader_event(LeaderEvent::Gone { container });
        }
        Ok(())
    }

    /// Tells the leader which chains have everything at every member.
    async fn confirm_whole(&self) -> Result<()> {
        let grown = self.chains.grown();
        self.growing.verified.lock().retain(|id, _| grown.iter().any(|(grown, _, _)| grown == id));
        let mut held: BTreeMap<ServerId, Copies> = BTreeMap::new();
        for (container, epoch, members) in grown {
            let (Some(epoch), Some(newest)) = (epoch, members.last().copied()) else { continue };
            // The new one has least, and is asked first: as long as it lacks something nobody else is asked.
            let mut chunks: BTreeSet<ChunkId> = BTreeSet::new();
            let mut is_whole = true;
            for member in members.iter().rev() {
                if !held.contains_key(member) {
                    // One that does not answer is no reason for the others to wait.
                    let Ok(copies) = self.copies_at(*member).await else {
                        is_whole = false;
                        break;
                    };
                    held.insert(*member, copies);
                }
                let here = held.get(member).and_then(|copies| copies.get(&container));
                let here: BTreeMap<ChunkId, bool> =
                    here.into_iter().flatten().map(|(chunk, copy)| (*chunk, has_all(copy, epoch))).collect();
                chunks.extend(here.keys());
                is_whole &= here.values().all(|whole| *whole) && (*member == newest || here.len() == chunks.len());
                if !is_whole {
                    break;
                }
            }
            let of_newest = held.get(&newest).and_then(|copies| copies.get(&container)).map_or(0, BTreeMap::len);
            if is_whole && of_newest == chunks.len() && self.verify(container, epoch, newest, &chunks).await? {
                self.read_back.all_have(container, epoch, members);
                self.leader_event(LeaderEvent::Whole { container, epoch });
            }
        }
        Ok(())
    }

    /// Every copy that is known of at a data server.
    async fn copies_at(&self, server: ServerId) -> Result<Copies> {
        let (mut found, mut after) = (Copies::new(), ChunkId(0));
        loop {
            let page = self.on_server(server, GetCopies::after(after, PAGE)).await?;
            let Some(last) = page.last() else { return Ok(found) };
            after = last.chunk;
            for copy in page {
                found.entry(copy.container).or_default().insert(copy.chunk, copy);
            }
        }
    }

    /// Reads what the new member has. False if a block does not match its checksum: it is mended from another copy, and looked
    /// at again.
    async fn verify(
        &self,
        container: ContainerId,
        epoch: ChainEpoch,
        server: ServerId,
        chunks: &BTreeSet<ChunkId>,
    ) -> Result<bool> {
        for chunk in chunks {
            let is_known = {
                let mut verified = self.growing.verified.lock();
                let of_container = verified.entry(container).or_default();
                if of_container.0 != epoch {
                    *of_container = (epoch, BTreeSet::new());
                }
                of_container.1.contains(chunk)
            };
            if is_known {
                continue;
            }
            if !self.reads_back(server, *chunk).await? {
                return Ok(false);
            }
            let mut verified = self.growing.verified.lock();
            if let Some((_, done)) = verified.get_mut(&container).filter(|(of, _)| *of == epoch) {
                done.insert(*chunk);
            }
        }
        Ok(true)
    }

    /// Rows say so, and not the leader: a container whose chunks were all freed has none, and may still be known there.
    async fn nothing_left(&self, server: ServerId) -> Result<bool> {
        // What lies on one that is down is not there for anybody, and it deletes it when it is back.
        let is_up = self.servers.candidates().iter().any(|candidate| candidate.id == server && candidate.up);
        if self.keeps_metadata(server) || (is_up && self.chains.may_have_strays_at(server)) {
            return Ok(false);
        }
        Ok(self.rows_of(server).await?.is_empty())
    }

    fn keeps_metadata(&self, server: ServerId) -> bool {
        self.copies.as_ref().is_some_and(|copies| copies.is_member(server))
    }

    /// Containers whose rows count the server, read anew.
    pub(crate) async fn rows_of(&self, server: ServerId) -> Result<BTreeMap<ContainerId, Counted>> {
        let (mut found, mut after) = (BTreeMap::new(), None);
        loop {
            let page = spares::ListContainers { after, limit: PAGE as usize };
            let rows = self.engine.read(0, page).await.map_err(Error::from)?;
            let Some((last, _)) = rows.last() else { return Ok(found) };
            after = Some(*last);
            for (id, row) in rows {
                if row.chain.contains(&server) || row.older.iter().any(|(_, members)| members.contains(&server)) {
                    let chunks = u64::from(row.given.saturating_sub(row.freed));
                    found.insert(id, Counted { chunks, is_plain: row.copies.is_none() });
                }
            }
        }
    }

    pub(crate) async fn set_duty(&self, server: ServerId, duty: Duty, move_rate: Option<u64>) -> Result<Drain> {
        if duty == Duty::Decommissioned {
            // Looked at before: then nobody knows it any more.
            let left = self.drain(server).await?;
            self.may_go(server).await?;
            self.change_duty(server, duty, move_rate).await?;
            return Ok(Drain { duty, ..left });
        }
        self.change_duty(server, duty, move_rate).await?;
        self.drain(server).await
    }

    async fn change_duty(&self, server: ServerId, duty: Duty, move_rate: Option<u64>) -> Result<()> {
        let set = servers::SetDuty { id: server, duty, move_rate };
        let row = self.engine.transact(0, set).await.map_err(Error::from)?;
        self.servers.set_duty(server, row.duty);
        if let Some(rate) = move_rate {
            self.growing.set_rate(rate);
        }
        self.tell_who_leaves();
        Ok(())
    }

    /// A server is forgotten only when nothing of it is needed; what says that are rows, read now.
    async fn may_go(&self, server: ServerId) -> Result<()> {
        let subject = format!("data server {server}");
        let no = |cause: String| Err(Error::new(Code::Invalid, &subject, cause));
        match self.servers.duty(server) {
            None | Some(Duty::Drained) => {}
            Some(_) => return no(format!("it has not been drained: braid admin drain {server} comes first")),
        }
        let rows = self.rows_of(server).await?;
        if let Some((first, _)) = rows.first_key_value() {
            return no(format!("{} containers count it, the first is {first}", rows.len()));
        }
        if self.keeps_metadata(server) {
            return no("it keeps a copy of the metadata".to_owned());
        }
        // A recovery of the metadata asks a majority of those that have one.
        if self.copies.as_ref().is_some_and(|copies| copies.is_voter(server)) {
            let cause = "it still has a vote in who leads the metadata: in a moment it has none, unless it is the last";
            return Err(Error::new(Code::Busy, &subject, cause));
        }
        Ok(())
    }

    /// How a drain stands, or what one would do.
    pub(crate) async fn drain(&self, server: ServerId) -> Result<Drain> {
        let Some(duty) = self.servers.duty(server) else { return Err(self.unknown(server).await) };
        let mut drain = Drain {
            server,
            duty,
            left: Load::default(),
            is_known: true,
            moving: Load::default(),
            stuck: Load::default(),
            reasons: Vec::new(),
            takers: Vec::new(),
            strays: self.chains.may_have_strays_at(server),
            keeps_metadata: self.keeps_metadata(server),
            move_rate: self.growing.rate.load(Relaxed),
        };
        let held = self.chunks_at(server).await;
        drain.is_known = held.is_ok();
        let held = held.unwrap_or_default();
        let rows = self.rows_of(server).await?;
        let places = self.chains.places(server);
        let mut candidates = self.servers.places();
        candidates.iter_mut().filter(|c| c.id == server).for_each(|c| c.takes_new = false);
        let mut takers: BTreeMap<ServerId, Load> = BTreeMap::new();
        let moves_plain = duty == Duty::Drains && self.growing.movers.are_at_work(self.env.clock.now());
        for (container, counted) in rows {
            let load = held.get(&container).copied().unwrap_or(Load { containers: 1, ..Load::default() });
            drain.left.add(load);
            let place = places.get(&container).copied();
            let why = counted.is_plain.then(|| self.growing.movers.why_stuck(container)).flatten();
            if place == Some(Place::Moves) || (counted.is_plain && moves_plain && why.is_none()) {
                drain.moving.add(load);
                continue;
            }
            let row = self.chains.row(container);
            let chain: Vec<ServerId> =
                row.iter().flat_map(|row| row.members().to_vec()).filter(|member| *member != server).collect();
            // Chunks with one copy go to whichever servers have room for them.
            let needed = if counted.is_plain { 0 } else { load.bytes }.max(self.config.chunk_reserve_bytes);
            match successor(&chain, &candidates, needed).filter(|_| why.is_none()) {
                Some(taker) => {
                    takers.entry(taker).or_default().add(load);
                    let taken = candidates.iter_mut().filter(|candidate| candidate.id == taker);
                    taken.for_each(|candidate| candidate.bytes_free = candidate.bytes_free.saturating_sub(load.bytes));
                }
                None => {
                    drain.stuck.add(load);
                    if drain.reasons.len() < REASONS {
                        let why = why.unwrap_or_else(|| why_nobody(server, &chain, &candidates, needed));
                        drain.reasons.push(format!("container {container}: {why}"));
                    }
                }
            }
        }
        drain.takers = takers.into_iter().map(|(server, load)| Taker { server, load }).collect();
        Ok(drain)
    }

    /// Why there is no such data server.
    async fn unknown(&self, server: ServerId) -> Error {
        match self.engine.read(0, servers::CheckServer(server)).await {
            Ok(()) => Error::new(Code::Internal, format_args!("data server {server}"), "its row is not known here"),
            Err(error) => error.into(),
        }
    }

    /// What a data server has of each container.
    pub(crate) async fn chunks_at(&self, server: ServerId) -> Result<BTreeMap<ContainerId, Load>> {
        let found = self.held_at(server, &BTreeSet::new()).await?;
        Ok(found.into_iter().map(|(container, held)| (container, held.load)).collect())
    }

    /// `besides`: chunks that do not count.
    pub(crate) async fn held_at(
        &self,
        server: ServerId,
        besides: &BTreeSet<ChunkId>,
    ) -> Result<BTreeMap<ContainerId, Held>> {
        let (mut found, mut after) = (BTreeMap::new(), ChunkId(0));
        loop {
            let page = self.on_server(server, ListChunks { after, limit: PAGE }).await?;
            let Some(last) = page.last() else { return Ok(found) };
            after = last;
            for ChunkStatus { chunk, container, occupied, .. } in page.chunks {
                if besides.contains(&chunk) {
                    continue;
                }
                let held: &mut Held = found.entry(container).or_default();
                held.load.containers = 1;
                held.load.chunks += 1;
                held.load.bytes += occupied;
                if occupied > 0 && (held.least == 0 || occupied < held.least) {
                    held.least = occupied;
                }
            }
            if !page.more {
                return Ok(found);
            }
        }
    }
}

/// It has every write up to the start of the epoch, and all of that is on stable storage.
fn has_all(copy: &CopyState, epoch: ChainEpoch) -> bool {
    copy.epoch == epoch && copy.stable.chain_epoch == epoch
}

/// Why no server takes the place, in words.
fn why_nobody(server: ServerId, chain: &[ServerId], candidates: &[Candidate], bytes_needed: u64) -> String {
    let others = candidates.iter().filter(|candidate| candidate.id != server);
    let why = |candidate: &Candidate| match candidate {
        _ if chain.contains(&candidate.id) => format!("{} has a copy", candidate.id),
        _ if !candidate.up => format!("{} is down", candidate.id),
        _ if !candidate.takes_new => format!("{} is drained itself", candidate.id),
        _ => format!("{} has {} MiB free and needs {}", candidate.id, candidate.bytes_free >> 20, bytes_needed >> 20),
    };
    let all: Vec<String> = others.map(why).collect();
    match all.is_empty() {
        true => "there is no other data server".to_owned(),
        false => format!("no data server for its place: {}", all.join(", ")),
    }
}
