//! The owner: orders writes, tells the members what changed, and answers when what was asked for is so.

use super::{Cx, Replica};
use crate::BlockSet;
use crate::answer::{Answer, Refusal, Until, Waits};
use crate::changes::Group;
use crate::limits::Moment;
use crate::message::{Body, Told};
use crate::server::Command;
use braid_types::{ServerId, Version};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Hash)]
pub(super) struct Owning {
    /// The last version given, and the last whose write is in the store together with all before it.
    assigned: Version,
    applied: Version,
    pub applying: BTreeMap<Version, Applying>,
    /// Blocks changed since the members were last told.
    pub open: BlockSet,
    open_since: Moment,
    open_last: Moment,
    pub peers: BTreeMap<ServerId, Peer>,
    pub waiting: Vec<Waiting>,
    /// What others have and this copy must have first.
    pub fetch: Vec<(ServerId, Version, BlockSet)>,
    fetch_asked: Option<Moment>,
    /// `min_copies` hold the start of the epoch, and the leader has written that down.
    pub opened: bool,
    /// Ownership came by migration: members are told so until they greet.
    pub took: bool,
    agreed: Version,
    agreed_sent: Version,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Applying {
    op: u64,
    blocks: BlockSet,
    until: Until,
    done: bool,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Waiting {
    op: u64,
    version: Version,
    until: Until,
}

/// What is known of a member.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Peer {
    /// It has said what it was told before this epoch and term.
    pub greeted: bool,
    /// Sent, acknowledged as invalid, here in memory, here on stable storage.
    sent: Version,
    pub told: Version,
    pub complete: Version,
    stable: Version,
    /// Since when an answer is missing.
    pub asked: Option<Moment>,
    pub sent_at: Moment,
    removal_asked: Moment,
}

impl Owning {
    pub fn new(cx: &Cx, start: Version, opened: bool, fetch: Vec<(ServerId, Version, BlockSet)>) -> Owning {
        // In an epoch that begins with nothing there is nothing a member could have been told before.
        let peer = Peer { greeted: start == Version::default(), asked: None, ..Peer::default() };
        let peer = Peer { asked: (!peer.greeted).then_some(cx.now), ..peer };
        Owning {
            assigned: start,
            applied: start,
            applying: BTreeMap::new(),
            open: BlockSet::new(),
            open_since: cx.now,
            open_last: cx.now,
            peers: cx.others().map(|member| (member, peer.clone())).collect(),
            waiting: Vec::new(),
            fetch,
            fetch_asked: None,
            opened,
            took: false,
            agreed: Version::default(),
            agreed_sent: Version::default(),
        }
    }
}

impl Owning {
    /// In the next term of an open epoch, with everything the owner before had: no member knows of it yet.
    pub fn taken(cx: &Cx, told: Version) -> Owning {
        let mut owning = Owning { took: true, ..Owning::new(cx, told, true, Vec::new()) };
        owning.peers.values_mut().for_each(|peer| *peer = Peer { asked: Some(cx.now), ..Peer::default() });
        owning
    }
}

/// The version that `count` of these have reached.
fn reached(versions: impl Iterator<Item = Version>, count: usize) -> Version {
    let mut versions: Vec<Version> = versions.collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.get(count.max(1) - 1).copied().unwrap_or_default()
}

impl Replica {
    pub(crate) fn may_order(&self) -> Result<(), Refusal> {
        match &self.owning {
            _ if self.is_moving() => Err(Refusal::Moving),
            None => Err(Refusal::NotOwner { owner: self.owner }),
            Some(owning) if !owning.fetch.is_empty() => Err(Refusal::NotReady),
            Some(_) => Ok(()),
        }
    }

    pub(crate) fn write(&mut self, cx: &mut Cx, op: u64, blocks: BlockSet, until: Until) {
        let is_bad = self.is_better_mended_first(cx, &blocks);
        if let Some(refusal) = self.may_order().err().or(is_bad.then_some(Refusal::NotReady)) {
            return cx.out.push(Command::Answer { op, result: Err(refusal) });
        }
        // Who does not own it may not order.
        let Some(owning) = &mut self.owning else { return };
        let counter = owning.assigned.counter.saturating_add(1);
        let version = Version { chain_epoch: cx.epoch, owner_term: self.term, counter };
        owning.assigned = version;
        self.since_sync.union(&blocks);
        owning.applying.insert(version, Applying { op, blocks: blocks.clone(), until, done: false });
        cx.out.push(Command::Apply { op, container: cx.container, chunk: self.chunk, version, blocks });
    }

    /// A close, an fsync or a flush: waits for everything ordered before it.
    pub(crate) fn wait(&mut self, cx: &mut Cx, op: u64, until: Until) {
        if self.hold(op, until) {
            return;
        }
        let owner = self.owner;
        let Some(owning) = &mut self.owning else {
            return cx.out.push(Command::Answer { op, result: Err(Refusal::NotOwner { owner }) });
        };
        let version = owning.assigned;
        owning.waiting.push(Waiting { op, version, until });
        self.announce_if_waited_for(cx);
        if until.stable && version <= self.told() {
            self.hurry(cx, version);
        }
        self.settle(cx);
    }

    /// A wait for a chunk of which nothing is here: nothing was ordered before it, and nothing is done for it.
    pub(crate) fn answer_of_nothing(&self, cx: &mut Cx, op: u64) {
        let owner = self.owner;
        let result = match &self.owning {
            Some(owning) => Ok(Answer { version: owning.assigned, kept: self.kept(cx) }),
            None => Err(Refusal::NotOwner { owner }),
        };
        cx.out.push(Command::Answer { op, result });
    }

    /// All have been told what changed; those whose stable storage is behind are told that somebody waits for it, or they
    /// would sync in their own time.
    fn hurry(&mut self, cx: &mut Cx, version: Version) {
        for member in cx.others().collect::<Vec<_>>() {
            let peer = self.owning.as_ref().and_then(|owning| owning.peers.get(&member));
            if peer.is_some_and(|peer| peer.stable < version) {
                self.tell(cx, member, false);
            }
        }
    }

    /// Of the write, the store took only these blocks.
    pub(crate) fn unchanged(&mut self, version: Version, kept: &BlockSet) {
        if let Some(applying) = self.owning.as_mut().and_then(|owning| owning.applying.get_mut(&version)) {
            applying.blocks = kept.clone();
        }
    }

    /// The write is in the store: it survives the death of the process.
    pub(crate) fn applied(&mut self, cx: &mut Cx, version: Version) {
        let Some(owning) = &mut self.owning else { return };
        if let Some(applying) = owning.applying.get_mut(&version) {
            applying.done = true;
            let blocks = applying.blocks.clone();
            self.is_whole(&blocks);
        }
        let Some(owning) = &mut self.owning else { return };
        while let Some(first) = owning.applying.first_entry().filter(|first| first.get().done) {
            let (version, Applying { op, blocks, until, .. }) = first.remove_entry();
            if owning.open.is_empty() {
                owning.open_since = cx.now;
            }
            owning.open_last = cx.now;
            owning.open.union(&blocks);
            owning.applied = version;
            owning.waiting.push(Waiting { op, version, until });
        }
        self.announce_if_waited_for(cx);
        self.announce_if_large(cx);
        self.settle(cx);
        self.go_on_moving(cx);
    }

    /// A large group is pushed while more is written, one at a time: who writes alone waits for nobody, and content that comes
    /// faster than it is taken would be dropped on the way.
    fn announce_if_large(&mut self, cx: &mut Cx) {
        let (told, targets) = (self.told(), self.push_targets(cx));
        let Some(owning) = &self.owning else { return };
        let has_all = |member: &ServerId| owning.peers.get(member).is_some_and(|peer| peer.complete >= told);
        if owning.open.len() >= cx.limits.announce_blocks && targets.iter().all(has_all) {
            self.announce(cx, true);
        }
    }

    /// Changed, or about to be, and told to nobody.
    pub(crate) fn unannounced_blocks(&self) -> BlockSet {
        let Some(owning) = &self.owning else { return BlockSet::new() };
        let mut blocks = owning.open.clone();
        owning.applying.values().for_each(|applying| blocks.union(&applying.blocks));
        blocks
    }

    pub(super) fn is_applying(&self) -> bool {
        self.owning.as_ref().is_some_and(|owning| !owning.applying.is_empty())
    }

    fn announce_if_waited_for(&mut self, cx: &mut Cx) {
        let told = self.told();
        let Some(owning) = &self.owning else { return };
        let asks = |w: &Waiting| (w.until.shared || w.until.stable) && w.version > told && w.version <= owning.applied;
        if owning.waiting.iter().any(asks) {
            self.announce(cx, true);
        }
    }

    /// Ends the open group. What changed is in the map from now on.
    pub(super) fn close_group(&mut self, cx: &Cx) -> Option<BlockSet> {
        let base = self.told();
        let owning = self.owning.as_mut().filter(|owning| !owning.open.is_empty())?;
        let blocks = std::mem::take(&mut owning.open);
        self.claims.end = self.claims.end.max(blocks.end());
        let group = Group { base, upto: owning.applied, blocks: blocks.clone(), missing: BlockSet::new() };
        // It follows the last one by construction.
        let _ = self.claims.changes.append(group, cx.limits.groups_max);
        self.invalidated = self.told();
        Some(blocks)
    }

    /// Tells the members what changed, and pushes it to as many as must have it.
    fn announce(&mut self, cx: &mut Cx, push: bool) {
        let targets = if push { self.push_targets(cx) } else { Vec::new() };
        self.announce_to(cx, &targets);
    }

    /// Tells the members what changed, and pushes it to these.
    pub(super) fn announce_to(&mut self, cx: &mut Cx, targets: &[ServerId]) {
        let Some(blocks) = self.close_group(cx) else { return };
        for member in cx.others().collect::<Vec<_>>() {
            let is_target = targets.contains(&member);
            self.tell(cx, member, is_target);
            if is_target {
                self.send_blocks(cx, member, &blocks);
            }
        }
        self.sync_if_wanted(cx);
    }

    /// The members that need it to make `min_copies`: those that answer, the most complete first.
    fn push_targets(&self, cx: &Cx) -> Vec<ServerId> {
        let Some(owning) = &self.owning else { return Vec::new() };
        let late = |peer: &Peer| peer.asked.is_some_and(|since| cx.now >= since + cx.limits.resend * 2);
        let mut ranked: Vec<ServerId> = cx.others().collect();
        ranked
            .sort_by_key(|member| owning.peers.get(member).map(|peer| (late(peer), std::cmp::Reverse(peer.complete))));
        ranked.truncate(cx.min_copies.saturating_sub(1));
        ranked
    }

    fn send_blocks(&self, cx: &mut Cx, to: ServerId, blocks: &BlockSet) {
        let Some(owning) = &self.owning else { return };
        let mut rest = blocks.without(&self.claims.invalid());
        while !rest.is_empty() {
            let blocks = rest.first(cx.limits.pull_blocks);
            rest.subtract(&blocks);
            let envelope = self.envelope(cx, Body::Blocks { at: owning.applied, upto: owning.assigned, blocks });
            cx.out.push(Command::SendContent { to, envelope });
        }
    }

    /// One message to a member: all it was not sent yet. Without anything new it asks how far the member is.
    fn tell(&mut self, cx: &mut Cx, member: ServerId, pushed: bool) {
        let copies = self.whole_copies(cx);
        let Some(owning) = &mut self.owning else { return };
        let want = owning.waiting.iter().filter(|w| w.until.stable).map(|w| w.version).max().unwrap_or_default();
        let want_stable = if owning.opened { want } else { want.max(self.opening) };
        let Some(peer) = owning.peers.get_mut(&member).filter(|peer| peer.greeted) else { return };
        let changes = &self.claims.changes;
        let groups = match changes.since(peer.sent) {
            Some(groups) => groups,
            // What changed since is forgotten: everything may have.
            None => vec![(peer.sent, changes.told(), BlockSet::of(0..self.claims.end))],
        };
        let groups = groups.into_iter().map(|(base, upto, blocks)| Told { base, upto, blocks }).collect();
        peer.sent = changes.told();
        peer.sent_at = cx.now;
        peer.asked.get_or_insert(cx.now);
        let body = Body::Tell { groups, agreed: owning.agreed, want_stable, pushed, copies, end: self.claims.end };
        self.send(cx, member, body);
    }

    pub(crate) fn on_hello(&mut self, cx: &mut Cx, from: ServerId, told: Version) {
        let Some(peer) = self.owning.as_mut().and_then(|owning| owning.peers.get_mut(&from)) else { return };
        if !peer.greeted {
            *peer = Peer { greeted: true, told, sent: told, ..peer.clone() };
        }
        peer.asked = None;
        peer.sent = peer.told.min(peer.sent);
        self.tell(cx, from, false);
    }

    pub(crate) fn on_ack(&mut self, cx: &mut Cx, from: ServerId, ack: &Body) {
        let Body::Ack { told, complete, stable, gap } = *ack else { return };
        let Some(peer) = self.owning.as_mut().and_then(|owning| owning.peers.get_mut(&from)) else { return };
        if !peer.greeted {
            return;
        }
        peer.asked = None;
        peer.told = peer.told.max(told);
        peer.complete = peer.complete.max(complete);
        peer.stable = peer.stable.max(stable);
        if gap && peer.told < peer.sent {
            peer.sent = peer.told;
            self.tell(cx, from, false);
        }
        self.announce_if_large(cx);
        self.settle(cx);
        self.go_on_moving(cx);
    }

    pub(crate) fn on_pull(&mut self, cx: &mut Cx, from: ServerId, blocks: &BlockSet) {
        if self.owning.as_ref().is_some_and(|owning| owning.peers.contains_key(&from)) {
            self.send_blocks(cx, from, blocks);
        }
    }

    /// Newer blocks came from a server that had them.
    pub(crate) fn on_fetched(&mut self, cx: &mut Cx, blocks: &BlockSet) {
        self.store(cx, self.opening, blocks);
    }

    pub(super) fn fetched(&mut self, cx: &mut Cx, blocks: &BlockSet) {
        let Some(owning) = &mut self.owning else { return };
        owning.fetch.iter_mut().for_each(|(_, _, rest)| rest.subtract(blocks));
        owning.fetch.retain(|(_, _, rest)| !rest.is_empty());
        self.settle(cx);
    }

    pub(super) fn ask_for_newer_blocks(&mut self, cx: &mut Cx) {
        let Some(owning) = self.owning.as_mut().filter(|_| self.room.may_try(cx.now)) else { return };
        if owning.fetch.is_empty() || owning.fetch_asked.is_some_and(|at| cx.now < at + cx.limits.resend) {
            return;
        }
        owning.fetch_asked = Some(cx.now);
        let asks: Vec<_> =
            owning.fetch.iter().map(|(from, _, rest)| (*from, rest.first(cx.limits.pull_blocks))).collect();
        asks.into_iter().for_each(|(from, blocks)| self.send(cx, from, Body::Fetch { blocks }));
    }

    /// All of the epoch's start is in so many copies.
    fn whole_copies(&self, cx: &Cx) -> u8 {
        let Some(owning) = &self.owning else { return 0 };
        let own = self.claims.complete() >= self.opening;
        let others = cx.others().filter(|m| owning.peers.get(m).is_some_and(|p| p.complete >= self.opening)).count();
        (others + usize::from(own)).min(255) as u8
    }

    /// Of an owner: up to where each member has everything, itself included. `None`: not known, or something is missing in between.
    fn whole_upto(&self) -> Option<impl Iterator<Item = Option<Version>> + '_> {
        let own = self.claims.invalid().is_empty().then(|| self.claims.complete());
        let peers = self.owning.as_ref()?.peers.values().map(|peer| peer.greeted.then_some(peer.complete));
        Some(peers.chain([own]))
    }

    /// Of an owner: members, itself included, that have everything the chain was told of, and all members.
    pub(crate) fn whole_members(&self) -> Option<(u64, u64)> {
        let told = Some(self.told());
        Some(self.whole_upto()?.fold((0, 0), |(whole, all), upto| (whole + u64::from(upto >= told), all + 1)))
    }

    /// Of an owner with members that lack something: what all have, and what the chain was told of.
    pub(crate) fn behind(&self) -> Option<(Version, Version)> {
        let (whole, told) = (self.whole_upto()?.min()?, self.told());
        (whole < Some(told)).then(|| (whole.unwrap_or_default(), told))
    }

    /// (told by all and in `min_copies` memories, on `min_copies` stable storages)
    pub(super) fn horizons(&self, cx: &Cx) -> (Version, Version) {
        let Some(owning) = &self.owning else { return Default::default() };
        let peers = || cx.others().map(|member| owning.peers.get(&member).cloned().unwrap_or_default());
        let complete = self.claims.complete();
        let told = peers().map(|peer| peer.told).min().unwrap_or(complete);
        let bytes = reached(peers().map(|peer| peer.complete).chain([complete]), cx.min_copies);
        let stable = reached(peers().map(|peer| peer.stable).chain([self.stable]), cx.min_copies);
        (told.min(bytes), stable)
    }

    /// Writes up to here need not be repeated by a client: `min_copies` have them; with one, its stable storage.
    pub(crate) fn kept(&self, cx: &Cx) -> Version {
        let Some(owning) = &self.owning else { return Version::default() };
        let peers = cx.others().map(|m| owning.peers.get(&m).map_or(Version::default(), |peer| peer.complete));
        let kept = match cx.min_copies {
            0 | 1 => self.stable,
            count => reached(peers.chain([self.claims.complete()]), count),
        };
        if owning.opened { kept } else { Version::default() }
    }

    /// Answers what can be answered: under the lease, in an open epoch, and never for less than was asked.
    pub(super) fn settle(&mut self, cx: &mut Cx) {
        let (shared, stable) = self.horizons(cx);
        let kept = self.kept(cx);
        let prefix = self.stable;
        let Some(owning) = &mut self.owning else { return };
        let wants_stable = |w: &Waiting| w.until.stable && w.version > prefix;
        if let Some(version) = owning.waiting.iter().filter(|w| wants_stable(w)).map(|w| w.version).max() {
            self.want_stable = self.want_stable.max(version);
        }
        if owning.opened && cx.lease && owning.fetch.is_empty() {
            let is_so = |w: &Waiting| {
                w.version <= owning.applied
                    && (!w.until.shared || w.version <= shared)
                    && (!w.until.stable || w.version <= stable)
            };
            let (answered, waiting) = owning.waiting.drain(..).partition(is_so);
            owning.waiting = waiting;
            let answered: Vec<Waiting> = answered;
            for Waiting { op, version, .. } in answered {
                cx.out.push(Command::Answer { op, result: Ok(Answer { version, kept }) });
            }
        }
        self.sync_if_wanted(cx);
    }

    pub(crate) fn owner_tick(&mut self, cx: &mut Cx) {
        let Some(owning) = &mut self.owning else { return };
        let is_quiet = cx.now >= owning.open_last + cx.limits.quiet;
        let is_old = cx.now >= owning.open_since + cx.limits.announce_age;
        if !owning.open.is_empty() && (is_quiet || is_old) {
            self.announce(cx, true);
        }
        self.ask_for_newer_blocks(cx);
        self.ask_to_mend(cx);
        if !self.owning.as_ref().is_some_and(|owning| owning.opened) {
            self.want_stable = self.want_stable.max(self.opening);
        }
        self.agree(cx);
        for member in cx.others().collect::<Vec<_>>() {
            self.look_after(cx, member);
        }
        self.settle(cx);
        self.migration_tick(cx);
    }

    /// What all members have on stable storage needs no history, unless the chain is short of members: who comes back
    /// or is added is then told what changed since.
    fn agree(&mut self, cx: &mut Cx) {
        let Some(owning) = &mut self.owning else { return };
        if !owning.opened || cx.members.len() < cx.copies {
            return;
        }
        let others = cx.members.iter().filter(|member| **member != cx.me);
        let stable = others.map(|member| owning.peers.get(member).map_or(Version::default(), |peer| peer.stable));
        let agreed = stable.chain([self.stable]).min().unwrap_or_default();
        if owning.agreed < agreed {
            owning.agreed = agreed;
            cx.out.push(Command::Agreed { chunk: self.chunk, upto: agreed });
        }
        self.claims.changes.forget(agreed);
    }

    /// Repeats what was not answered; asks for the removal of a member that does not answer at all.
    fn look_after(&mut self, cx: &mut Cx, member: ServerId) {
        let told = self.told();
        let Some(owning) = &mut self.owning else { return };
        let wants_stable = owning.waiting.iter().any(|w| w.until.stable) || !owning.opened;
        let Some(peer) = owning.peers.get_mut(&member) else { return };
        let is_behind = peer.told < told || peer.complete < told;
        let is_waited_for = is_behind || (wants_stable && peer.stable < told);
        let is_late = cx.now >= peer.sent_at + cx.limits.resend;
        let is_idle = cx.now >= peer.sent_at + cx.limits.sync_every;
        let has_news = peer.stable < told || owning.agreed > owning.agreed_sent;
        if peer.greeted && ((is_late && (is_waited_for || peer.asked.is_some())) || (is_idle && has_news)) {
            peer.sent = peer.told.min(peer.sent);
            owning.agreed_sent = owning.agreed;
            self.tell(cx, member, false);
        }
        let Some(peer) = self.owning.as_mut().and_then(|owning| owning.peers.get_mut(&member)) else { return };
        let is_silent = peer.asked.is_some_and(|since| cx.now >= since + cx.limits.silent);
        if is_silent && cx.now >= peer.removal_asked + cx.limits.renew {
            peer.removal_asked = cx.now;
            cx.out.push(Command::Remove { container: cx.container, epoch: cx.epoch, server: member });
        }
    }

    /// `min_copies` members hold the start of the epoch, and the leader does not know yet.
    pub(crate) fn is_to_be_opened(&self, cx: &Cx) -> bool {
        self.owning.as_ref().is_some_and(|owning| !owning.opened && owning.fetch.is_empty())
            && self.horizons(cx).1 >= self.opening
    }

    pub(crate) fn is_open(&self) -> bool {
        self.owning.as_ref().is_some_and(|owning| owning.opened)
    }

    pub(crate) fn open(&mut self, cx: &mut Cx) {
        if let Some(owning) = &mut self.owning {
            owning.opened = true;
            self.settle(cx);
        }
    }

    /// Stops owning: whoever waits is told to look for the new owner.
    pub(super) fn resign(&mut self, cx: &mut Cx) {
        self.answer_held(cx, Refusal::NotInChain);
        let Some(owning) = &mut self.owning else { return };
        let ops = owning.waiting.drain(..).map(|w| w.op).collect::<Vec<_>>();
        let ops = ops.into_iter().chain(owning.applying.values().map(|a| a.op)).collect::<Vec<_>>();
        // What is being applied keeps its place, or the map would miss it; its call has its answer.
        for op in ops {
            cx.out.push(Command::Answer { op, result: Err(Refusal::NotInChain) });
        }
    }

    pub(crate) fn waits(&self, cx: &Cx) -> Vec<Waits> {
        let Some(owning) = &self.owning else { return Vec::new() };
        let behind = |version: Version, of: fn(&Peer) -> Version, own: Version| {
            let late: Vec<ServerId> = owning.peers.iter().filter(|(_, p)| of(p) < version).map(|(id, _)| *id).collect();
            let here = owning.peers.len() - late.len() + usize::from(own >= version);
            (late, cx.min_copies.saturating_sub(here))
        };
        let wait = |w: &Waiting| Waits {
            op: w.op,
            container: cx.container,
            chain_epoch: cx.epoch,
            chunk: self.chunk,
            version: w.version,
            invalidation: if w.until.shared { behind(w.version, |p| p.told, w.version).0 } else { Vec::new() },
            bytes: if w.until.shared { behind(w.version, |p| p.complete, self.told()) } else { Default::default() },
            stable: if w.until.stable { behind(w.version, |p| p.stable, self.stable) } else { Default::default() },
            epoch: !owning.opened || !cx.lease,
        };
        owning.waiting.iter().map(wait).collect()
    }
}
