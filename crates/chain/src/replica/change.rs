//! A copy between two epochs: it stops, says what it has, and goes on as it is told.

use super::member::Following;
use super::migrate::Migration;
use super::owner::Owning;
use super::{Cx, Replica};
use crate::changes::Group;
use crate::lineage::common;
use crate::record::Claims;
use crate::{BlockSet, Changes, Decision};
use braid_types::{ServerId, Version};

impl Replica {
    /// No call is answered and nothing is told any more. What is on its way into the store still arrives.
    pub(crate) fn seal(&mut self, cx: &mut Cx) {
        self.resign(cx);
    }

    /// Nothing is on its way into the store: what this copy holds is what it will report.
    pub(crate) fn is_still(&self) -> bool {
        self.storing.is_empty() && !self.is_applying()
    }

    /// What it holds, once it is still.
    pub(crate) fn report(&mut self, cx: &Cx) -> Claims {
        self.close_group(cx);
        self.claims.clone()
    }

    /// How this chunk goes on.
    pub(crate) fn install(&mut self, cx: &mut Cx, decision: &Decision) {
        self.close_group(cx);
        self.owning = None;
        (self.sync, self.unrecorded) = (None, true);
        self.synced_at = cx.now.saturating_sub(cx.limits.sync_every);
        self.want_stable = Version::default();
        // Nothing it asked for as a member comes any more; an owner would take it to be on its way for ever, and keep a
        // place for repair.
        self.member = Following::default();
        self.migration = Migration::default();
        let lineage = &decision.lineage;
        (self.term, self.owner, self.opening) = (decision.term, decision.owner, decision.opening_version());
        let fork = common(&self.claims.lineage, self.told(), lineage);
        self.claims.end = self.claims.end.max(decision.end);
        if self.owner == cx.me {
            self.succeed(cx, decision);
        } else {
            self.part(fork);
            self.claims.lineage = lineage.clone();
            // Nothing that was handed out in an older epoch is used any more.
            self.invalidated = self.told();
            self.greet(cx);
        }
        self.mend_in_new_epoch();
        self.stable = self.stable.min(self.claims.complete());
        self.invalidated = self.told();
    }

    /// Goes back to where this copy and the chain part. Its own later content is still on its disk: it is stale.
    fn part(&mut self, fork: Version) {
        let claims = &mut self.claims;
        let was_clean = claims.stale.is_empty() && claims.suspect.is_empty() && claims.bad.is_empty();
        claims.sure = if was_clean { fork } else { claims.sure.min(fork) };
        // What it was not told of the chain may have left behind.
        claims.ahead.drain(..).for_each(|(_, blocks)| claims.suspect.union(&blocks));
        let later = claims.changes.held_above(fork, claims.end);
        claims.stale.extend(later.into_iter().filter(|(_, blocks)| !blocks.is_empty()));
        match fork < claims.changes.floor() {
            // What came after the fork is forgotten: it may be anywhere.
            true => claims.changes = Changes::from(fork),
            false => claims.changes.go_back(fork),
        }
    }

    /// This copy is the one the chain goes on from.
    fn succeed(&mut self, cx: &mut Cx, decision: &Decision) {
        let claims = &mut self.claims;
        claims.changes.go_back(decision.start);
        claims.lineage = decision.lineage.clone();
        let mut missing = BlockSet::new();
        decision.fetch.iter().for_each(|(_, _, blocks)| missing.union(blocks));
        // What is to be fetched is not here yet: until then it is what it was, for a take-over that comes before.
        claims.ahead.drain(..).for_each(|(_, blocks)| claims.suspect.union(&blocks));
        claims.suspect = claims.suspect.intersection(&missing);
        claims.bad = claims.bad.intersection(&missing);
        claims.stale.iter_mut().for_each(|(_, blocks)| *blocks = blocks.intersection(&missing));
        claims.stale.retain(|(_, blocks)| !blocks.is_empty());
        claims.sure = decision.start;
        let opening = decision.opening_version();
        let blocks = decision.opening.clone();
        let group = Group { base: decision.start, upto: opening, blocks, missing };
        if !self.claims.changes.append(group, cx.limits.groups_max) {
            // The leader decided from this copy's own report, so its map reaches exactly to the start. If not, nothing
            // is known of it: everything is taken from the others, or not at all.
            self.claims.changes = Changes::from(decision.start);
            self.claims.suspect = BlockSet::of(0..self.claims.end);
            self.claims.sure = Version::default();
        }
        self.owning = Some(Owning::new(cx, opening, false, decision.fetch.clone()));
        self.ask_for_newer_blocks(cx);
    }
}

/// Members of a chain that hold a decision's blocks: its sources.
pub(crate) fn sources(decision: &Decision) -> impl Iterator<Item = ServerId> + '_ {
    decision.fetch.iter().map(|(server, _, _)| *server)
}
