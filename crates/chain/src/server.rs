//! The chain's side of a data server: all its containers, its lease, its repair.
//!
//! The loop around it is thin: it hands in what happened and carries out what comes back. Content never passes through
//! here, only which blocks it is of.

use crate::BlockSet;
use crate::answer::{Refusal, Waits};
use crate::container::Container;
use crate::event::Event;
use crate::lease::ServerLease;
use crate::limits::{Limits, Moment};
use crate::message::{Body, Envelope, FromLeader, ToLeader};
use crate::record::ChunkRecord;
use crate::repair::Repair;
use crate::replica::{Cx, Replica};
use braid_types::{ChainEpoch, ChunkId, ContainerId, LeaderEpoch, OwnerTerm, ServerId, Version};
use std::collections::BTreeMap;

/// What is to be done. Commands of one chunk are carried out in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Write what the call brought, under this version.
    Apply {
        op: u64,
        container: ContainerId,
        chunk: ChunkId,
        version: Version,
        blocks: BlockSet,
    },
    Answer {
        op: u64,
        result: Result<crate::answer::Answer, Refusal>,
    },
    Send {
        to: ServerId,
        envelope: Envelope,
    },
    /// Read the blocks the body names, before any later `Apply` of the chunk, and send them with it.
    SendContent {
        to: ServerId,
        envelope: Envelope,
    },
    /// Write these blocks of the content that came with the event at hand.
    Store {
        number: u64,
        container: ContainerId,
        chunk: ChunkId,
        blocks: BlockSet,
    },
    /// Take back descriptors and cached pages of these blocks.
    Invalidate {
        container: ContainerId,
        chunk: ChunkId,
        upto: Version,
        blocks: BlockSet,
    },
    /// Make all that is applied and stored of the chunk stable.
    Sync {
        number: u64,
        container: ContainerId,
        chunk: ChunkId,
    },
    /// Keep this record, durably, in the place of the chunk's last one.
    Persist {
        number: u64,
        container: ContainerId,
        chunk: ChunkId,
        record: Vec<u8>,
    },
    /// Take back every descriptor and cached page of the container; reads of it are refused from now on.
    HandsOff {
        container: ContainerId,
        epoch: ChainEpoch,
    },
    /// The chunk's content is to be zeros.
    Discard {
        container: ContainerId,
        chunk: ChunkId,
    },
    /// Ask the leader to remove a member that does not answer.
    Remove {
        container: ContainerId,
        epoch: ChainEpoch,
        server: ServerId,
    },
    ToLeader(ToLeader),
    /// Nothing to do: here, at the owner, it came to be known that all members have this much of a chunk on stable storage. A
    /// checkpoint of it (AwareFS, section 4), which members are told of next.
    Agreed {
        chunk: ChunkId,
        upto: Version,
    },
}

/// What a data server keeps in memory of its chains.
#[derive(Clone, Debug)]
pub struct DataServer {
    me: ServerId,
    /// Of this start of the process.
    incarnation: u64,
    limits: Limits,
    lease: ServerLease,
    renewed: Option<Moment>,
    /// The leader that knows our chains.
    known_to: Option<LeaderEpoch>,
    containers: BTreeMap<ContainerId, Container>,
    repair: Repair,
    open_asked: Moment,
    number: u64,
}

/// A chunk found on the disk when the process starts.
#[derive(Clone, Debug)]
pub struct Found {
    pub container: ContainerId,
    pub chunk: ChunkId,
    pub record: ChunkRecord,
    /// Blocks that may have changed since the sync the record speaks of began: extents in the activity log, and what
    /// lies beyond the synced length.
    pub suspect: BlockSet,
    /// Of these, what does not match its checksum.
    pub bad: BlockSet,
}

impl DataServer {
    /// After a restart it owns nothing and serves nothing until the leader has put it into new epochs.
    pub fn new(me: ServerId, incarnation: u64, limits: Limits, found: impl IntoIterator<Item = Found>) -> DataServer {
        let mut containers: BTreeMap<ContainerId, Container> = BTreeMap::new();
        for Found { container, chunk, record, suspect, bad } in found {
            let container = containers.entry(container).or_default();
            container.seen(record.epoch);
            container.replicas.insert(chunk, Replica::loaded(chunk, record, &suspect, &bad));
        }
        DataServer {
            me,
            incarnation,
            limits,
            lease: ServerLease::default(),
            renewed: None,
            known_to: None,
            containers,
            repair: Repair::default(),
            open_asked: Moment::ZERO,
            number: 0,
        }
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub fn lease(&self) -> &ServerLease {
        &self.lease
    }

    /// May this server answer a read of these blocks, or of the whole chunk if there are none? `at_least` is the last
    /// version of the chunk the reader knows of. To be asked when the read begins and again before it is answered from memory that outlives it.
    pub fn may_serve(
        &self,
        now: Moment,
        container: ContainerId,
        chunk: ChunkId,
        blocks: Option<&BlockSet>,
        at_least: Version,
    ) -> Result<(), Refusal> {
        if !self.lease.is_held(now) {
            return Err(Refusal::NoLease);
        }
        let known = self.containers.get(&container).ok_or(Refusal::NotInChain)?;
        known.chain().ok_or(Refusal::NotInChain)?;
        known.replicas.get(&chunk).ok_or(Refusal::UnknownChunk)?.may_serve(blocks, at_least)
    }

    /// Could a write to the chunk be acknowledged by this server now?
    pub fn may_acknowledge(&self, now: Moment, container: ContainerId, chunk: ChunkId) -> bool {
        let known = self.containers.get(&container).filter(|known| known.chain().is_some());
        self.lease.is_held(now) && known.and_then(|known| known.replicas.get(&chunk)).is_some_and(Replica::is_open)
    }

    /// The epoch this server acts in; `None` while it acts in none.
    pub fn epoch(&self, container: ContainerId) -> Option<ChainEpoch> {
        self.containers.get(&container).and_then(|known| known.chain()).map(|chain| chain.epoch)
    }

    /// Blocks of a copy that are bad here and are being fetched.
    pub fn flaws(&self, container: ContainerId, chunk: ChunkId) -> BlockSet {
        let replica = self.containers.get(&container).and_then(|known| known.replicas.get(&chunk));
        replica.map(|replica| replica.flaws().clone()).unwrap_or_default()
    }

    /// Nothing older is obeyed in this container.
    pub fn promised(&self, container: ContainerId) -> ChainEpoch {
        self.containers.get(&container).map_or(ChainEpoch(0), |known| known.promised())
    }

    /// How a copy stands, for status and checks.
    pub fn copy(&self, container: ContainerId, chunk: ChunkId) -> Option<CopyStatus> {
        let known = self.containers.get(&container)?;
        let replica = known.replicas.get(&chunk)?;
        Some(CopyStatus {
            epoch: known.chain().map(|chain| chain.epoch),
            term: replica.term,
            owner: replica.owner,
            is_owner: replica.is_owner(),
            is_open: replica.is_open(),
            told: replica.told(),
            unannounced: replica.unannounced_blocks().len(),
            complete: replica.claims.complete(),
            stable: replica.stable(),
            invalid: replica.claims.invalid(),
            groups: replica.claims.changes.groups().len(),
        })
    }

    /// Is ownership of the chunk on its way from this server to another?
    pub fn is_moving(&self, container: ContainerId, chunk: ChunkId) -> bool {
        let replica = self.containers.get(&container).and_then(|known| known.replicas.get(&chunk));
        replica.is_some_and(Replica::is_moving)
    }

    /// What copies lack of what the chains were told of, as this server knows it.
    pub fn lacks(&self) -> Lacks {
        let mut lacks = Lacks::default();
        for replica in self.containers.values().flat_map(|known| known.replicas.values()) {
            lacks.blocks += replica.claims.invalid().len();
            if let Some((whole, members)) = replica.whole_members().filter(|(whole, members)| whole < members) {
                lacks.chunks += 1;
                lacks.copies += members - whole;
            }
        }
        lacks
    }

    /// Chunks owned here of which some copy lacks something: what all copies have, and what the chain was told of.
    pub(crate) fn behind(&self) -> impl Iterator<Item = (ChunkId, Version, Version)> {
        let all = self.containers.values().flat_map(|known| &known.replicas);
        all.filter_map(|(chunk, replica)| replica.behind().map(|(whole, told)| (*chunk, whole, told)))
    }

    /// What calls wait for.
    pub fn waits(&mut self, now: Moment) -> Vec<Waits> {
        let mut all = Vec::new();
        let ids: Vec<ContainerId> = self.containers.keys().copied().collect();
        for id in ids {
            self.with(now, id, &mut Vec::new(), |container, cx| {
                all.extend(container.replicas.values().flat_map(|replica| replica.waits(cx)));
            });
        }
        all
    }

    pub fn memory_bytes(&self) -> u64 {
        let replicas = self.containers.values().flat_map(|container| container.replicas.values());
        replicas.map(Replica::memory_bytes).sum()
    }

    pub fn on(&mut self, now: Moment, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        match event {
            Event::Tick => self.tick(now, &mut out),
            Event::Registered => self.renew(now, &mut out),
            Event::MoveRate(bytes_per_s) => self.limits.move_bytes_per_s = bytes_per_s,
            Event::Write { op, container, chunk, blocks, until } => {
                if let Err(refusal) = self.may_begin(now, container, chunk) {
                    out.push(Command::Answer { op, result: Err(refusal) });
                    return out;
                }
                self.with(now, container, &mut out, |known, cx| {
                    known.replica(cx, chunk).write(cx, op, blocks, until);
                });
            }
            Event::Wait { op, container, chunk, until } => {
                if let Err(refusal) = self.may_begin(now, container, chunk) {
                    out.push(Command::Answer { op, result: Err(refusal) });
                    return out;
                }
                self.with(now, container, &mut out, |known, cx| match known.replicas.get_mut(&chunk) {
                    Some(replica) => replica.wait(cx, op, until),
                    // Nothing of it was changed, so there is nothing to wait for; and nothing begins to be here because it
                    // is asked for, or a chunk deleted before a restart would be back with nobody to delete it again.
                    None => Replica::fresh(chunk, cx).answer_of_nothing(cx, op),
                });
            }
            Event::Want { container, chunk } => {
                if self.may_begin(now, container, chunk).is_ok() {
                    self.replica(now, container, chunk, &mut out, |replica, cx| replica.want(cx));
                }
            }
            Event::Flawed { container, chunk, blocks } => {
                self.replica(now, container, chunk, &mut out, |replica, cx| replica.flawed(cx, &blocks));
            }
            Event::Unchanged { container, chunk, version, kept } => {
                self.replica(now, container, chunk, &mut out, |replica, cx| {
                    replica.unchanged(version, &kept);
                    replica.applied(cx, version);
                });
                self.go_on(now, container, &mut out);
            }
            Event::Applied { container, chunk, version } => {
                self.replica(now, container, chunk, &mut out, |replica, cx| replica.applied(cx, version));
                self.go_on(now, container, &mut out);
            }
            Event::Stored { container, chunk, number } => {
                self.replica(now, container, chunk, &mut out, |replica, cx| replica.stored(cx, number));
                self.go_on(now, container, &mut out);
            }
            Event::Unstored { container, chunk, number } => {
                self.replica(now, container, chunk, &mut out, |replica, cx| replica.unstored(cx, number));
                self.go_on(now, container, &mut out);
            }
            Event::Unsynced { container, chunk, number } => {
                self.replica(now, container, chunk, &mut out, |replica, cx| replica.unsynced(cx, number));
            }
            Event::Invalidated { container, chunk, upto } => {
                self.replica(now, container, chunk, &mut out, |replica, cx| replica.on_invalidated(cx, upto));
            }
            Event::Synced { container, chunk, number } => {
                self.replica(now, container, chunk, &mut out, |replica, cx| replica.synced(cx, number));
            }
            Event::Persisted { container, chunk, number } => {
                self.replica(now, container, chunk, &mut out, |replica, cx| replica.persisted(cx, number));
            }
            Event::HandsOff { container, epoch } => {
                if let Some(known) = self.containers.get_mut(&container) {
                    known.hands_off(epoch);
                }
                self.go_on(now, container, &mut out);
            }
            Event::FromPeer { from, envelope } => self.heard_of_peer(now, from, envelope, &mut out),
            Event::FromLeader { incarnation, message } if incarnation == self.incarnation => {
                self.heard_of_leader(now, message, &mut out);
            }
            Event::FromLeader { .. } => {}
        }
        out
    }

    /// May this server order changes of the chunk? Then what it has of the chunk says how it is now: an owner that fetches newer
    /// blocks does not know yet what it owns. To be asked before a change is made of what is here; a write is asked again.
    pub fn may_order(&self, now: Moment, container: ContainerId, chunk: ChunkId) -> Result<(), Refusal> {
        self.may_begin(now, container, chunk)?;
        let replica = self.containers.get(&container).and_then(|known| known.replicas.get(&chunk));
        replica.map_or(Ok(()), Replica::may_order)
    }

    fn may_begin(&self, now: Moment, container: ContainerId, chunk: ChunkId) -> Result<(), Refusal> {
        let known = self.containers.get(&container).ok_or(Refusal::NotInChain)?;
        known.chain().ok_or(Refusal::NotInChain)?;
        if !self.lease.is_held(now) {
            // What it knows may be old: also that the chunk was deleted.
            return Err(Refusal::NoLease);
        }
        if known.is_deleted(chunk) { Err(Refusal::UnknownChunk) } else { Ok(()) }
    }

    /// The chunk is deleted here: nothing of it is told, asked for or answered any more.
    pub fn forget(&mut self, now: Moment, container: ContainerId, chunk: ChunkId) -> Vec<Command> {
        let mut out = Vec::new();
        self.containers.entry(container).or_default();
        self.with(now, container, &mut out, |known, cx| known.forget(cx, chunk));
        self.repair.done((container, chunk));
        self.go_on(now, container, &mut out);
        // What it occupied will be room for others.
        let soon = now + self.limits.room_pause;
        self.containers.values_mut().flat_map(|known| known.replicas.values_mut()).for_each(|it| it.try_by(soon));
        out
    }

    /// The content of a copy is gone from the disk: with the next epoch of its chain, if that begins soon, this server begins with nothing
    /// of it. False if it knows of no such copy.
    pub fn lose(&mut self, now: Moment, container: ContainerId, chunk: ChunkId) -> bool {
        let known = self.containers.get(&container).is_some_and(|known| known.replicas.contains_key(&chunk));
        if known {
            self.with(now, container, &mut Vec::new(), |known, cx| known.lose(cx, chunk));
        }
        known
    }

    pub fn is_deleted(&self, container: ContainerId, chunk: ChunkId) -> bool {
        self.containers.get(&container).is_some_and(|known| known.is_deleted(chunk))
    }

    /// Of a chunk of which a copy is known here.
    pub fn container_of(&self, chunk: ChunkId) -> Option<ContainerId> {
        let found = self.containers.iter().find(|(_, known)| known.replicas.contains_key(&chunk));
        found.map(|(id, _)| *id)
    }

    /// Chunks of which a copy is known here, with their containers, in order.
    pub fn chunks(&self) -> impl Iterator<Item = (ContainerId, ChunkId)> + '_ {
        self.containers.iter().flat_map(|(id, known)| known.replicas.keys().map(|chunk| (*id, *chunk)))
    }

    fn with<T>(
        &mut self,
        now: Moment,
        id: ContainerId,
        out: &mut Vec<Command>,
        work: impl FnOnce(&mut Container, &mut Cx) -> T,
    ) -> Option<T> {
        let container = self.containers.get_mut(&id)?;
        let lease = self.lease.is_held(now);
        Some(container.with(now, self.me, id, lease, &self.limits, &mut self.number, out, work))
    }

    fn replica(
        &mut self,
        now: Moment,
        container: ContainerId,
        chunk: ChunkId,
        out: &mut Vec<Command>,
        work: impl FnOnce(&mut Replica, &mut Cx),
    ) {
        self.with(now, container, out, |known, cx| known.replicas.get_mut(&chunk).map(|replica| work(replica, cx)));
    }

    fn heard_of_peer(&mut self, now: Moment, from: ServerId, envelope: Envelope, out: &mut Vec<Command>) {
        let Envelope { container, chunk, epoch, term, body } = envelope;
        self.with(now, container, out, |known, cx| {
            if let Body::Fetch { blocks } = body {
                // Also between two epochs: what this copy reported stays as it is until it is told of the new one.
                if known.promised() == epoch
                    && let Some(replica) = known.replicas.get(&chunk)
                {
                    replica.on_fetch(&mut Cx { epoch, ..known_cx(cx) }, from, term, blocks);
                }
                return;
            }
            if known.chain().map(|chain| chain.epoch) != Some(epoch) || known.is_deleted(chunk) {
                return;
            }
            let replica = known.replica(cx, chunk);
            if matches!(body, Body::Owns) {
                return replica.on_owns(cx, from, term);
            }
            if replica.term != term {
                return;
            }
            let is_owner = replica.is_owner();
            match body {
                Body::Tell { .. } if from == replica.owner && !is_owner => replica.on_tell(cx, body),
                Body::Blocks { at, upto, blocks } if from == replica.owner && !is_owner => {
                    replica.on_blocks(cx, at, upto, &blocks);
                }
                Body::Want if is_owner => replica.on_want(cx, from),
                Body::Hand { told, moves } | Body::HandQueue { told, moves, .. }
                    if from == replica.owner && !is_owner =>
                {
                    replica.on_hand(cx, told, moves);
                }
                Body::Hello { told } if is_owner => replica.on_hello(cx, from, told),
                Body::Ack { .. } if is_owner => replica.on_ack(cx, from, &body),
                Body::Pull { blocks } if is_owner => replica.on_pull(cx, from, &blocks),
                Body::Pull { blocks } if from == replica.owner => replica.on_pull_of_owner(cx, &blocks),
                Body::Blocks { at, blocks, .. } if is_owner => replica.on_blocks_of_member(cx, at, &blocks),
                Body::Fetched { blocks } if is_owner => replica.on_fetched(cx, &blocks),
                _ => {}
            }
        });
    }

    fn heard_of_leader(&mut self, now: Moment, message: FromLeader, out: &mut Vec<Command>) {
        match message {
            FromLeader::TellChains { leader } => {
                if leader >= self.lease.leader() {
                    self.known_to = None;
                    self.renew(now, out);
                }
            }
            FromLeader::Grant { asked, leader, raised } => {
                // The epochs first: nothing is done under the new lease that one of them forbids.
                for (container, epoch) in raised {
                    self.prepare(now, container, epoch, out);
                }
                if self.lease.granted(asked, leader, &self.limits) {
                    self.known_to = Some(leader);
                }
            }
            FromLeader::Prepare { container, epoch } => self.prepare(now, container, epoch, out),
            FromLeader::Install { container, install } => {
                if install.members.contains(&self.me) {
                    self.containers.entry(container).or_default();
                    self.with(now, container, out, |known, cx| known.receive(cx, install));
                    self.go_on(now, container, out);
                }
            }
            FromLeader::Opened { container, epoch, chunks } => {
                self.with(now, container, out, |known, cx| {
                    if known.chain().map(|chain| chain.epoch) == Some(epoch) {
                        for chunk in chunks {
                            if let Some(replica) = known.replicas.get_mut(&chunk) {
                                replica.open(cx);
                            }
                        }
                    }
                });
            }
        }
    }

    fn prepare(&mut self, now: Moment, id: ContainerId, epoch: ChainEpoch, out: &mut Vec<Command>) {
        self.containers.entry(id).or_default();
        self.with(now, id, out, |known, cx| known.prepare(cx, epoch));
        self.go_on(now, id, out);
    }

    /// Reports, and goes into a new epoch, when nothing is on its way into the store any more.
    fn go_on(&mut self, now: Moment, id: ContainerId, out: &mut Vec<Command>) {
        let installed = self.with(now, id, out, |known, cx| known.report(cx)).unwrap_or(false);
        if installed {
            self.with(now, id, out, |known, cx| known.install(cx));
        }
    }

    fn renew(&mut self, now: Moment, out: &mut Vec<Command>) {
        self.renewed = Some(now);
        let chains = self.containers.iter().filter_map(|(id, known)| known.chain().map(|chain| (*id, chain.epoch)));
        let chains = self.known_to.is_none().then(|| chains.collect());
        out.push(Command::ToLeader(ToLeader::Renew { asked: now, chains }));
    }

    fn tick(&mut self, now: Moment, out: &mut Vec<Command>) {
        if self.renewed.is_none_or(|at| now >= at + self.limits.renew) {
            self.renew(now, out);
        }
        let ask_open = now >= self.open_asked + self.limits.resend;
        if ask_open {
            self.open_asked = now;
        }
        let ids: Vec<ContainerId> = self.containers.keys().copied().collect();
        let mut repair = std::mem::take(&mut self.repair);
        for id in &ids {
            self.with(now, *id, out, |known, cx| known.tick(cx, ask_open, &mut repair));
        }
        // A container whose chain this server has left is not looked after any more: what was asked for it never comes.
        repair.keep(|(id, chunk)| {
            let known = self.containers.get(id).filter(|known| known.chain().is_some());
            known.is_some_and(|known| known.replicas.contains_key(chunk))
        });
        while let Some((container, chunk)) = repair.take(now, &self.limits) {
            self.replica(now, container, chunk, out, |replica, cx| replica.pull(cx));
        }
        self.repair = repair;
    }
}

/// The same place for another borrower.
fn known_cx<'a>(cx: &'a mut Cx) -> Cx<'a> {
    Cx { number: cx.number, out: cx.out, ..*cx }
}

/// What is still to be copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Chunks owned here of which not every member of the chain has everything, and how many copies that are.
    pub chunks: u64,
    pub copies: u64,
    /// Blocks that this server is to have and has not.
    pub blocks: u64,
}

/// How a copy stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStatus {
    /// `None` between two epochs.
    pub epoch: Option<ChainEpoch>,
    pub term: OwnerTerm,
    pub owner: ServerId,
    pub is_owner: bool,
    pub is_open: bool,
    pub told: Version,
    /// Blocks the owner has changed and told nobody of yet.
    pub unannounced: u64,
    pub complete: Version,
    pub stable: Version,
    pub invalid: BlockSet,
    pub groups: usize,
}
