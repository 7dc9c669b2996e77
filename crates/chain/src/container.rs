//! A container at a data server: in which epoch of its chain it acts, and how it goes from one to the next.
//!
//! ```text
//! no chain ──Install──► acting ──Prepare / Grant──► sealed ──still, hands off──► reported ──Install──► acting
//! ```
//! Sealed means: no call is answered, nothing is served, no message of the older epoch is obeyed.

use crate::limits::{Limits, Moment};
use crate::message::{Install, Report, ToLeader};
use crate::repair::Repair;
use crate::replica::{Cx, Replica};
use crate::server::Command;
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// What was lost is forgotten if the epoch comes within so many times [`Limits::silent`]; the leader looks at the others' copies right before
/// it begins one, and what it saw is true for a moment only.
const LOST_FOR: u32 = 5;

#[derive(Clone, Debug, Default)]
pub(crate) struct Container {
    /// Nothing older is obeyed.
    promised: ChainEpoch,
    /// What it acts in, if its epoch is the promised one.
    chain: Option<Chain>,
    /// Descriptors of this epoch and older ones are back.
    hands_off: ChainEpoch,
    /// The report for the promised epoch is not sent yet.
    owes_report: bool,
    install: Option<Install>,
    pub replicas: BTreeMap<ChunkId, Replica>,
    /// Deleted since the process started: nothing late of this epoch brings them back. Ids are never used again, and a
    /// container has 256 chunks at most.
    deleted: BTreeSet<ChunkId>,
    /// Their content is gone from the disk: see [`Container::lose`].
    lost: BTreeMap<ChunkId, Moment>,
    /// Those that are forgotten by now, until they are whole again: whoever asks what is here is told of them.
    without: BTreeMap<ChunkId, ChainEpoch>,
    /// When the leader was last told that there is no room.
    full_said: Moment,
}

#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub epoch: ChainEpoch,
    members: Vec<ServerId>,
    copies: usize,
    min_copies: usize,
}

impl Container {
    /// What it acts in now.
    pub fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref().filter(|chain| chain.epoch == self.promised)
    }

    pub fn promised(&self) -> ChainEpoch {
        self.promised
    }

    /// Found on the disk: older epochs are over.
    pub fn seen(&mut self, epoch: ChainEpoch) {
        self.promised = self.promised.max(epoch);
    }

    #[expect(clippy::too_many_arguments, reason = "takes apart what the server holds")]
    pub fn with<T>(
        &mut self,
        now: Moment,
        me: ServerId,
        id: ContainerId,
        lease: bool,
        limits: &Limits,
        number: &mut u64,
        out: &mut Vec<Command>,
        work: impl FnOnce(&mut Container, &mut Cx) -> T,
    ) -> T {
        let acts = self.chain().is_some();
        let chain = self.chain.clone();
        let (members, copies, min_copies) =
            chain.as_ref().map_or((&[][..], 1, 1), |chain| (&chain.members, chain.copies, chain.min_copies));
        let epoch = chain.as_ref().map_or(ChainEpoch(0), |chain| chain.epoch);
        let lease = lease && acts;
        let container = id;
        work(self, &mut Cx { now, me, container, epoch, members, copies, min_copies, limits, lease, number, out })
    }

    /// The chunk's copy; made if this is the first that is heard of it.
    pub fn replica(&mut self, cx: &Cx, chunk: ChunkId) -> &mut Replica {
        self.replicas.entry(chunk).or_insert_with(|| Replica::fresh(chunk, cx))
    }

    pub fn is_deleted(&self, chunk: ChunkId) -> bool {
        self.deleted.contains(&chunk)
    }

    /// Nothing of the chunk is known here any more; whoever waits is told.
    pub fn forget(&mut self, cx: &mut Cx, chunk: ChunkId) {
        self.deleted.insert(chunk);
        self.without.remove(&chunk);
        if let Some(mut replica) = self.replicas.remove(&chunk) {
            replica.seal(cx);
        }
    }

    /// What is known of the copy here is worth nothing any more: it is gone when the next epoch begins, if that is soon. Until then it stays:
    /// others count on what it has acknowledged, and only a new epoch makes them look for it elsewhere.
    pub fn lose(&mut self, cx: &Cx, chunk: ChunkId) {
        if self.replicas.contains_key(&chunk) {
            self.lost.insert(chunk, cx.now + cx.limits.silent * LOST_FOR);
        }
    }

    /// Nothing is on its way into the store any more.
    fn drop_lost(&mut self, cx: &mut Cx) {
        for (chunk, until) in std::mem::take(&mut self.lost) {
            if cx.now < until && self.replicas.remove(&chunk).is_some() {
                cx.out.push(Command::Discard { container: cx.container, chunk });
                self.without.insert(chunk, self.chain.as_ref().map_or(ChainEpoch(0), |chain| chain.epoch));
            }
        }
    }

    /// From now on nothing older than this epoch is obeyed.
    pub fn prepare(&mut self, cx: &mut Cx, epoch: ChainEpoch) {
        if epoch < self.promised {
            return;
        }
        if self.chain().is_some_and(|chain| chain.epoch == epoch) {
            let container = cx.container;
            return cx.out.push(Command::ToLeader(ToLeader::Installed { container, epoch }));
        }
        if epoch > self.promised {
            self.promised = epoch;
            self.install = None;
            self.replicas.values_mut().for_each(|replica| replica.seal(cx));
            cx.out.push(Command::HandsOff { container: cx.container, epoch });
        }
        // Asked again: the answer was lost.
        self.owes_report = true;
    }

    pub fn hands_off(&mut self, epoch: ChainEpoch) {
        self.hands_off = self.hands_off.max(epoch);
    }

    pub fn receive(&mut self, cx: &mut Cx, install: Install) {
        let epoch = install.epoch;
        if epoch < self.promised {
            return;
        }
        if self.chain().is_some_and(|chain| chain.epoch == epoch) {
            let container = cx.container;
            return cx.out.push(Command::ToLeader(ToLeader::Installed { container, epoch }));
        }
        if epoch > self.promised {
            // The leader did not wait for this server, whose lease was over.
            self.prepare(cx, epoch);
            self.owes_report = false;
        }
        self.install = Some(install);
    }

    fn is_still(&self) -> bool {
        self.hands_off >= self.promised && self.replicas.values().all(Replica::is_still)
    }

    /// Says what is here, if that is owed and will not change any more. True if a new epoch can begin.
    pub fn report(&mut self, cx: &mut Cx) -> bool {
        if self.chain().is_some() || !self.is_still() {
            return false;
        }
        self.drop_lost(cx);
        if self.owes_report {
            self.owes_report = false;
            let (container, epoch) = (cx.container, self.promised);
            let acted = self.chain.is_some();
            let report = |replica: &mut Replica| Report {
                chunk: replica.chunk,
                claims: replica.report(cx),
                owns: acted && replica.is_owner(),
            };
            let reports = self.replicas.values_mut().map(report).collect();
            let lost: Vec<(ChunkId, ChainEpoch)> = self.without.iter().map(|(chunk, since)| (*chunk, *since)).collect();
            cx.out.push(Command::ToLeader(match lost.is_empty() {
                true => ToLeader::Prepared { container, epoch, reports },
                false => ToLeader::PreparedWithout { container, epoch, reports, lost },
            }));
        }
        self.install.is_some()
    }

    /// Goes into the epoch it was told of.
    pub fn install(&mut self, cx: &mut Cx) {
        let Some(install) = self.install.take() else { return };
        let Install { epoch, members, copies, min_copies, decisions } = install;
        let chain = Chain { epoch, members, copies: copies.into(), min_copies: min_copies.into() };
        let cx = &mut Cx {
            epoch,
            members: &chain.members,
            copies: chain.copies,
            min_copies: chain.min_copies,
            number: cx.number,
            out: cx.out,
            ..*cx
        };
        for decision in &decisions {
            // Some member has it: it was deleted here as a stray, or will be deleted again.
            self.deleted.remove(&decision.chunk);
            self.replicas.entry(decision.chunk).or_insert_with(|| Replica::empty(decision.chunk));
        }
        self.replicas.retain(|chunk, replica| match decisions.iter().find(|decision| decision.chunk == *chunk) {
            Some(decision) => {
                replica.install(cx, decision);
                true
            }
            // Nobody whose answer counts knew the chunk, so nothing of it was ever promised, or it was deleted: what is
            // here goes, and who writes to it begins with nothing at the first member.
            None => {
                cx.out.push(Command::Discard { container: cx.container, chunk: *chunk });
                false
            }
        });
        cx.out.push(Command::ToLeader(ToLeader::Installed { container: cx.container, epoch }));
        self.chain = Some(chain);
    }

    pub fn tick(&mut self, cx: &mut Cx, ask_open: bool, repair: &mut Repair) {
        if self.chain().is_none() {
            return;
        }
        let Container { without, replicas, .. } = self;
        without.retain(|chunk, _| replicas.get(chunk).is_some_and(Replica::needs_repair));
        let mut open = Vec::new();
        for (chunk, replica) in &mut self.replicas {
            let key = (cx.container, *chunk);
            match replica.is_owner() {
                true => replica.owner_tick(cx),
                false => replica.member_tick(cx),
            }
            match replica.awaits_repair(cx) {
                Some(need) => repair.want(key, need, cx.members.len() > cx.copies),
                None if !replica.is_pulling() => repair.done(key),
                None => {}
            }
            if !replica.is_pulling() {
                repair.answered(key);
            }
            if ask_open && replica.is_to_be_opened(cx) {
                open.push(*chunk);
            }
        }
        let (container, epoch) = (cx.container, cx.epoch);
        if cx.now >= self.full_said + cx.limits.renew && self.replicas.values().any(|replica| replica.is_full(cx)) {
            self.full_said = cx.now;
            let bytes = self.replicas.values().map(Replica::bytes_at_most).fold(0, u64::saturating_add);
            cx.out.push(Command::ToLeader(ToLeader::Full { container, epoch, bytes }));
        }
        if !open.is_empty() {
            cx.out.push(Command::ToLeader(ToLeader::Open { container, epoch, chunks: open }));
        }
    }
}
