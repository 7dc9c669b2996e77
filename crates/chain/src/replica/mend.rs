//! Blocks of a copy that do not match their checksum although nothing happened to it: found when they were read, by scrub
//! or for somebody. They are fetched from another copy and written again.
//!
//! What the copy claims stays as it is: no version is lost, only a disk has forgotten. So prefixes do not fall, nobody waits,
//! and a take-over need not know: whoever has such a block in the next epoch goes on mending it there. What comes is only
//! taken if it is surely what was there, because a message may be late.

use super::{Cx, Replica};
use crate::BlockSet;
use crate::limits::Moment;
use crate::message::Body;
use crate::server::Command;
use braid_types::{ServerId, Version};

/// The pause between two questions doubles up to 64 times the first, 19 s: what no copy has whole stays bad.
const DOUBLED_MAX: u32 = 6;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Mend {
    blocks: BlockSet,
    /// Content must have every write up to here to be taken: what was known of when the block was found bad.
    since: Version,
    found: Moment,
    asked: Option<Moment>,
    tries: u32,
}

impl Replica {
    /// These blocks do not verify here.
    pub(crate) fn flawed(&mut self, cx: &mut Cx, blocks: &BlockSet) {
        // What is not served anyway is pulled anyway.
        let new = blocks.without(&self.claims.invalid()).without(&self.mend.blocks);
        if new.is_empty() {
            return;
        }
        let ahead = self.claims.ahead.iter().map(|(upto, _)| *upto).max().unwrap_or_default();
        let storing = self.storing.iter().map(|(_, at, _)| *at).max().unwrap_or_default();
        let Mend { blocks, since, found, asked, tries } = &mut self.mend;
        *since = self.claims.changes.told().max(ahead).max(storing).max(*since);
        if blocks.is_empty() {
            *found = cx.now;
        }
        blocks.union(&new);
        (*asked, *tries) = (None, 0);
        self.ask_to_mend(cx);
    }

    /// Blocks that are bad here and are to be fetched.
    pub(crate) fn flaws(&self) -> &BlockSet {
        &self.mend.blocks
    }

    /// A write of these blocks is better repeated in a moment: a bad one among them is being mended, and a part of it
    /// could not be written.
    pub(super) fn is_better_mended_first(&self, cx: &Cx, blocks: &BlockSet) -> bool {
        self.mend.blocks.touches_any(blocks) && cx.now < self.mend.found + cx.limits.silent
    }

    /// Content came, or was written, for these blocks.
    pub(super) fn is_whole(&mut self, blocks: &BlockSet) {
        if self.mend.blocks.touches_any(blocks) {
            self.mend.blocks.subtract(blocks);
            // There is somebody who has them: the next are asked for at once.
            (self.mend.asked, self.mend.tries) = (None, 0);
        }
    }

    pub(super) fn ask_to_mend(&mut self, cx: &mut Cx) {
        let pause = cx.limits.resend * (1 << self.mend.tries.min(DOUBLED_MAX));
        if self.mend.blocks.is_empty() || self.mend.asked.is_some_and(|at| cx.now < at + pause) {
            return;
        }
        let others: Vec<ServerId> = cx.others().collect();
        let asked = match self.is_owner() {
            // One after the other: the block may be bad there too, or not be there yet.
            true => others.get(self.mend.tries as usize % others.len().max(1)).copied(),
            false => Some(self.owner),
        };
        let Some(asked) = asked else { return };
        (self.mend.asked, self.mend.tries) = (Some(cx.now), self.mend.tries.saturating_add(1));
        let blocks = self.mend.blocks.first(cx.limits.pull_blocks);
        self.send(cx, asked, Body::Pull { blocks });
    }

    /// A member is asked by the owner, whose block is bad.
    pub(crate) fn on_pull_of_owner(&self, cx: &mut Cx, blocks: &BlockSet) {
        if self.told() < self.opening {
            return;
        }
        let blocks = blocks.without(&self.claims.invalid()).without(&self.mend.blocks);
        if !blocks.is_empty() {
            let (at, upto) = (self.claims.complete(), self.told());
            let envelope = self.envelope(cx, Body::Blocks { at, upto, blocks });
            cx.out.push(Command::SendContent { to: self.owner, envelope });
        }
    }

    /// The member's answer. It has every write up to `at`: so it is what was here if nothing was written since.
    pub(crate) fn on_blocks_of_member(&mut self, cx: &mut Cx, at: Version, blocks: &BlockSet) {
        if at < self.claims.changes.floor() {
            return;
        }
        let mut wanted = self.mend.blocks.intersection(blocks).without(&self.unannounced_blocks());
        let newer = self.claims.changes.groups().iter().filter(|group| group.upto > at);
        newer.for_each(|group| wanted.subtract(&group.blocks));
        self.storing.iter().for_each(|(_, _, blocks)| wanted.subtract(blocks));
        self.store_wanted(cx, at, wanted);
    }

    /// Of the content that came from the owner, what mends.
    pub(super) fn mended_by(&self, at: Version, blocks: &BlockSet) -> BlockSet {
        if at >= self.mend.since { self.mend.blocks.intersection(blocks) } else { BlockSet::new() }
    }

    /// In a new epoch versions are others.
    pub(super) fn mend_in_new_epoch(&mut self) {
        self.mend.since = self.opening;
        (self.mend.asked, self.mend.tries) = (None, 0);
    }
}
