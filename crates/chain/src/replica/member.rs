//! A copy that follows the owner: is told, acknowledges, pulls.

use super::{Cx, Replica};
use crate::BlockSet;
use crate::changes::Group;
use crate::limits::Moment;
use crate::message::{Body, Envelope, Told};
use crate::repair::Need;
use crate::server::Command;
use braid_types::{OwnerTerm, ServerId, Version};

/// Versions remembered of blocks that are ahead of what was told.
const AHEAD_MAX: usize = 8;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Following {
    /// When blocks were last asked for, and which.
    pulled: Option<(Moment, BlockSet)>,
    /// Groups up to these versions were pushed: their blocks are expected without asking, until nothing has come for a while.
    /// Not for longer than the last moment each.
    pushed: Vec<(Version, Moment, Moment)>,
    /// Whole copies, as the owner last said.
    copies: u8,
    /// The owner has been greeted in this epoch.
    greeted: Option<Moment>,
    greeting: bool,
}

impl Replica {
    /// The epoch is new and so is the owner's map: ask for it until it comes.
    pub(super) fn greet(&mut self, cx: &mut Cx) {
        self.member = Following { greeting: true, greeted: Some(cx.now), ..Following::default() };
        self.send(cx, self.owner, Body::Hello { told: self.invalidated });
    }

    pub(crate) fn on_tell(&mut self, cx: &mut Cx, tell: Body) {
        let Body::Tell { groups, agreed, want_stable, pushed, copies, end } = tell else { return };
        let mut gap = false;
        let mut changed = BlockSet::new();
        let before = self.told();
        for Told { base, upto, blocks } in groups {
            let told = self.told();
            if upto <= told {
                continue;
            }
            // Base of a later group than was told: something between was lost.
            if base > told {
                gap = true;
                break;
            }
            changed.union(&blocks);
            let group = Group { base: told, upto, missing: blocks.clone(), blocks };
            gap |= !self.claims.changes.append(group, cx.limits.groups_max);
        }
        self.member.copies = copies;
        self.claims.end = self.claims.end.max(end);
        self.want_stable = self.want_stable.max(want_stable);
        self.claims.changes.forget(agreed);
        if self.told() >= self.opening {
            self.member.greeting = false;
        }
        let told = self.told();
        self.claims.ahead.retain(|(upto, _)| *upto > told);
        self.member.pushed.retain(|(_, until, _)| cx.now < *until);
        if pushed && told > before {
            self.member.pushed.push((told, cx.now + cx.limits.resend, cx.now + cx.limits.silent));
        }
        if self.told() > before {
            let (container, chunk, upto) = (cx.container, self.chunk, self.told());
            cx.out.push(Command::Invalidate { container, chunk, upto, blocks: changed });
        }
        self.acknowledge(cx, gap);
        self.follow(cx);
    }

    pub(crate) fn on_blocks(&mut self, cx: &mut Cx, at: Version, upto: Version, blocks: &BlockSet) {
        self.store(cx, at, blocks);
        if upto > self.told() {
            // Also if they are not wanted any more when they come: one entry too many costs a block copied in vain.
            match self.claims.ahead.iter_mut().find(|(other, _)| *other == upto) {
                Some((_, ahead)) => ahead.union(blocks),
                None => self.claims.ahead.push((upto, blocks.clone())),
            }
            // Few versions are remembered: the highest stands for all that are merged.
            if self.claims.ahead.len() > AHEAD_MAX {
                let highest = self.claims.ahead.iter().map(|(upto, _)| *upto).max().unwrap_or(upto);
                let mut all = BlockSet::new();
                self.claims.ahead.drain(..).for_each(|(_, blocks)| all.union(&blocks));
                self.claims.ahead.push((highest, all));
            }
        }
        // Content is coming: what is behind it in the queue is not lost because it is much.
        let until = cx.now + cx.limits.resend;
        self.member.pushed.iter_mut().for_each(|(_, own, last)| *own = until.clamp(*own, *last));
        if let Some((_, pulled)) = &mut self.member.pulled {
            pulled.subtract(blocks);
            if pulled.is_empty() {
                self.member.pulled = None;
            }
        }
        self.follow(cx);
    }

    /// No reader of this server sees anything older any more.
    pub(crate) fn on_invalidated(&mut self, cx: &mut Cx, upto: Version) {
        self.invalidated = self.invalidated.max(upto.min(self.told()));
        if !self.is_owner() {
            self.acknowledge(cx, false);
        }
    }

    pub(super) fn acknowledge(&mut self, cx: &mut Cx, gap: bool) {
        let complete = self.claims.complete();
        let body = Body::Ack { told: self.invalidated, complete, stable: self.stable.min(complete), gap };
        self.send(cx, self.owner, body);
    }

    /// Whatever is to be done next.
    pub(super) fn follow(&mut self, cx: &mut Cx) {
        self.sync_if_wanted(cx);
        if let Some((since, _)) = &self.member.pulled
            && cx.now >= *since + cx.limits.resend
        {
            self.member.pulled = None;
        }
        if self.is_behind(cx) && !self.needs_repair() {
            self.pull(cx);
        }
        if !self.member.greeting {
            self.ask_to_mend(cx);
        }
    }

    pub(crate) fn member_tick(&mut self, cx: &mut Cx) {
        if self.member.greeting && self.member.greeted.is_none_or(|at| cx.now >= at + cx.limits.resend) {
            self.member.greeted = Some(cx.now);
            self.send(cx, self.owner, Body::Hello { told: self.invalidated });
        }
        self.migration_tick(cx);
        self.follow(cx);
    }

    /// It lacks blocks and may ask for them now.
    fn is_behind(&self, cx: &Cx) -> bool {
        let may_ask = self.member.pulled.is_none() && !self.member.greeting && self.storing.is_empty();
        may_ask && self.room.may_try(cx.now) && !self.to_be_pulled(cx).is_empty()
    }

    /// What it lacks, but for what is on its way unasked.
    fn to_be_pulled(&self, cx: &Cx) -> BlockSet {
        let mut lacks = self.claims.invalid();
        let expected =
            |group: &Group| self.member.pushed.iter().any(|(upto, until, _)| group.upto == *upto && cx.now < *until);
        for group in self.claims.changes.groups().iter().filter(|group| expected(group)) {
            lacks.subtract(&group.missing);
        }
        lacks
    }

    /// It lacks something of what was there when the epoch began: there may be thousands of such chunks, and another comes first.
    /// What was written since is followed as fast as it is written: calls may wait for it.
    pub(crate) fn needs_repair(&self) -> bool {
        self.claims.complete() < self.opening
    }

    /// Waits for the scheduler of repair.
    pub(crate) fn awaits_repair(&self, cx: &Cx) -> Option<Need> {
        let blocks = self.claims.invalid().len();
        (!self.is_owner() && self.is_behind(cx) && self.needs_repair())
            .then_some(Need { copies: self.member.copies, blocks })
    }

    pub(crate) fn is_pulling(&self) -> bool {
        self.member.pulled.is_some() || !self.storing.is_empty()
    }

    pub(crate) fn pull(&mut self, cx: &mut Cx) {
        let blocks = self.to_be_pulled(cx).first(cx.limits.pull_blocks);
        self.member.pulled = Some((cx.now, blocks.clone()));
        self.send(cx, self.owner, Body::Pull { blocks });
    }

    /// A successor asks for what this copy has and it has not. It is answered in its own term: this copy may be of an older epoch still, in which
    /// ownership has moved.
    pub(crate) fn on_fetch(&self, cx: &mut Cx, from: ServerId, term: OwnerTerm, blocks: BlockSet) {
        let envelope = Envelope { term, ..self.envelope(cx, Body::Fetched { blocks }) };
        cx.out.push(Command::SendContent { to: from, envelope });
    }
}
