//! One copy of a chunk at one data server: as the owner that orders writes, or as a member that follows.
//!
//! Both are one structure, because ownership moves and what a copy holds does not: an owner is a copy that lacks
//! nothing and makes the next version.

mod change;
pub(crate) use change::sources;
mod member;
mod mend;
mod migrate;
mod owner;
mod room;

use crate::answer::Refusal;
use crate::limits::{Limits, Moment};
use crate::message::{Body, Envelope};
use crate::record::{ChunkRecord, Claims};
use crate::server::Command;
use crate::{BlockSet, Lineage};
use braid_types::{ChainEpoch, ChunkId, ContainerId, OwnerTerm, ServerId, Version};
use owner::Owning;

/// What a replica acts under, and where its commands go.
pub(crate) struct Cx<'a> {
    pub now: Moment,
    pub me: ServerId,
    pub container: ContainerId,
    pub epoch: ChainEpoch,
    pub members: &'a [ServerId],
    pub copies: usize,
    pub min_copies: usize,
    pub limits: &'a Limits,
    pub lease: bool,
    pub number: &'a mut u64,
    pub out: &'a mut Vec<Command>,
}

impl Cx<'_> {
    pub fn next_number(&mut self) -> u64 {
        *self.number += 1;
        *self.number
    }

    fn others(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.members.iter().copied().filter(|member| *member != self.me)
    }
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Replica {
    pub chunk: ChunkId,
    pub term: OwnerTerm,
    pub owner: ServerId,
    pub claims: Claims,
    /// First version of the epoch: who was told of less has not got the owner's map yet.
    opening: Version,
    /// This copy's prefix.
    stable: Version,
    /// Everything told up to here is invalid here, descriptors and caches included.
    invalidated: Version,
    /// Content on its way into the store: number, every write up to which version, blocks.
    storing: Vec<(u64, Version, BlockSet)>,
    sync: Option<Sync>,
    /// Blocks that were changed, or began to, since the sync on its way was asked for. It may make them stable, and so
    /// end their being logged as active, but its record does not speak of them: it has to call them suspect.
    since_sync: BlockSet,
    synced_at: Moment,
    want_stable: Version,
    /// The record on stable storage is of an older epoch than the copy.
    unrecorded: bool,
    mend: mend::Mend,
    /// Whether content finds room here, and whether records do.
    room: room::Room,
    record_room: room::Room,
    member: member::Following,
    owning: Option<Owning>,
    migration: migrate::Migration,
}

/// A sync on its way, and what it will have made stable.
#[derive(Clone, Debug, Hash)]
struct Sync {
    number: u64,
    complete: Version,
    record: ChunkRecord,
}

impl Replica {
    /// A chunk nothing is known of: in this epoch it begins with nothing, at the first member.
    pub fn fresh(chunk: ChunkId, cx: &Cx) -> Replica {
        let claims = Claims { lineage: Lineage::new(cx.epoch), ..Claims::default() };
        let owner = cx.members.first().copied().unwrap_or_default();
        let mut replica = Replica::with(chunk, owner, claims);
        if owner == cx.me {
            replica.owning = Some(Owning::new(cx, Version::default(), true, Vec::new()));
        }
        replica
    }

    /// After a restart: what the record says, and the blocks that were changed since or do not verify.
    pub fn loaded(chunk: ChunkId, record: ChunkRecord, suspect: &BlockSet, bad: &BlockSet) -> Replica {
        let mut claims = record.claims;
        claims.sure = claims.complete();
        claims.suspect.union(suspect);
        claims.bad.union(bad);
        claims.end = claims.end.max(suspect.end());
        let (stable, owner, term) = (claims.complete(), record.owner, record.term);
        Replica { stable, term, ..Replica::with(chunk, owner, claims) }
    }

    fn with(chunk: ChunkId, owner: ServerId, claims: Claims) -> Replica {
        Replica {
            chunk,
            term: OwnerTerm(1),
            owner,
            claims,
            opening: Version::default(),
            stable: Version::default(),
            invalidated: Version::default(),
            storing: Vec::new(),
            sync: None,
            since_sync: BlockSet::new(),
            synced_at: Moment::ZERO,
            want_stable: Version::default(),
            unrecorded: true,
            mend: mend::Mend::default(),
            room: room::Room::default(),
            record_room: room::Room::default(),
            member: member::Following::default(),
            owning: None,
            migration: migrate::Migration::default(),
        }
    }

    /// Nothing is here yet.
    pub fn empty(chunk: ChunkId) -> Replica {
        Replica::with(chunk, ServerId::default(), Claims::default())
    }

    pub fn told(&self) -> Version {
        self.claims.changes.told()
    }

    pub fn stable(&self) -> Version {
        self.stable
    }

    pub fn is_owner(&self) -> bool {
        self.owning.is_some()
    }

    /// May this copy be read there? `at_least` is the last version the reader knows of. The caller has looked at the
    /// lease and at the chain.
    pub fn may_serve(&self, blocks: Option<&BlockSet>, at_least: Version) -> Result<(), Refusal> {
        let is_confirmed = self.told() >= self.opening;
        let is_new_enough = self.is_owner() || self.told() >= at_least;
        let is_valid = match blocks {
            Some(blocks) => !self.claims.is_invalid(blocks),
            None => self.claims.invalid().is_empty(),
        };
        if is_confirmed && is_new_enough && is_valid { Ok(()) } else { Err(Refusal::Invalid) }
    }

    fn send(&self, cx: &mut Cx, to: ServerId, body: Body) {
        let envelope = self.envelope(cx, body);
        cx.out.push(Command::Send { to, envelope });
    }

    fn envelope(&self, cx: &Cx, body: Body) -> Envelope {
        Envelope { container: cx.container, chunk: self.chunk, epoch: cx.epoch, term: self.term, body }
    }

    /// Content that came goes into the store, as far as it is wanted and not on its way already.
    fn store(&mut self, cx: &mut Cx, at: Version, blocks: &BlockSet) {
        let mut wanted = self.claims.invalid().intersection(blocks);
        wanted.union(&self.mended_by(at, blocks));
        let newer = self.claims.changes.groups().iter().filter(|group| group.upto > at);
        newer.for_each(|group| wanted.subtract(&group.missing));
        self.storing.iter().filter(|(_, newer, _)| *newer >= at).for_each(|(_, _, blocks)| wanted.subtract(blocks));
        self.store_wanted(cx, at, wanted);
    }

    fn store_wanted(&mut self, cx: &mut Cx, at: Version, wanted: BlockSet) {
        if wanted.is_empty() {
            return;
        }
        let number = cx.next_number();
        let (container, chunk) = (cx.container, self.chunk);
        cx.out.push(Command::Store { number, container, chunk, blocks: wanted.clone() });
        self.since_sync.union(&wanted);
        self.storing.push((number, at, wanted));
    }

    /// Content is in the store: survives the death of the process.
    pub fn stored(&mut self, cx: &mut Cx, number: u64) {
        let Some(at) = self.storing.iter().position(|(stored, _, _)| *stored == number) else { return };
        let (_, version, blocks) = self.storing.remove(at);
        let complete = self.claims.complete();
        self.claims.changes.arrived(&blocks, version);
        self.claims.overwritten(&blocks);
        self.is_whole(&blocks);
        self.found_room(&blocks);
        if self.is_owner() {
            return self.fetched(cx, &blocks);
        }
        // At once: a write that waits for the bytes to be on enough servers waits for this.
        if self.claims.complete() > complete {
            self.acknowledge(cx, false);
        }
        self.follow(cx);
    }

    /// Starts a sync if somebody wants it, or if the copy has been dirty for long enough.
    fn sync_if_wanted(&mut self, cx: &mut Cx) {
        let complete = self.claims.complete();
        let is_dirty = complete > self.stable || self.unrecorded;
        let is_wanted = self.want_stable > self.stable && complete > self.stable;
        let is_time = cx.now >= self.synced_at + cx.limits.sync_every;
        if self.sync.is_some() || !is_dirty || !(is_wanted || is_time) || !self.record_room.may_try(cx.now) {
            return;
        }
        let number = cx.next_number();
        self.sync = Some(Sync { number, complete, record: self.record(cx) });
        self.since_sync = self.unannounced_blocks();
        self.storing.iter().for_each(|(_, _, blocks)| self.since_sync.union(blocks));
        self.synced_at = cx.now;
        self.unrecorded = false;
        cx.out.push(Command::Sync { number, container: cx.container, chunk: self.chunk });
    }

    fn record(&self, cx: &Cx) -> ChunkRecord {
        ChunkRecord { epoch: cx.epoch, term: self.term, owner: self.owner, claims: self.claims.clone() }
    }

    /// The data is stable; the record that says so is to be.
    pub fn synced(&mut self, cx: &mut Cx, number: u64) {
        if let Some(sync) = self.sync.as_mut().filter(|sync| sync.number == number) {
            let claims = &mut sync.record.claims;
            claims.sure = sync.complete;
            claims.suspect.union(&self.since_sync);
            claims.end = claims.end.max(self.since_sync.end());
            let record = sync.record.encode();
            cx.out.push(Command::Persist { number, container: cx.container, chunk: self.chunk, record });
        }
    }

    pub fn persisted(&mut self, cx: &mut Cx, number: u64) {
        let Some(sync) = self.sync.take_if(|sync| sync.number == number) else { return };
        self.stable = self.stable.max(sync.complete);
        self.record_room = room::Room::default();
        match self.is_owner() {
            true => self.settle(cx),
            false => self.acknowledge(cx, false),
        }
        self.sync_if_wanted(cx);
    }

    /// About what it occupies in memory.
    pub fn memory_bytes(&self) -> u64 {
        let claims = &self.claims;
        let sets = claims.suspect.memory_bytes() + claims.bad.memory_bytes();
        let stale: u64 = claims.stale.iter().map(|(_, blocks)| blocks.memory_bytes()).sum();
        size_of::<Replica>() as u64 + claims.changes.memory_bytes() + sets + stale
    }
}
