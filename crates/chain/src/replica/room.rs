//! A disk without room for what this copy is to have.
//!
//! Nothing waits for room in a queue: what found none is given up, so that the copy can be reported, deleted and read
//! meanwhile, and is asked for again later. Whoever stays without says so, and the leader may know a server that has some.

use super::{Cx, Replica};
use crate::BlockSet;
use crate::limits::{Limits, Moment};
use braid_types::BLOCK_BYTES;

/// The pause between two tries doubles up to eight times the first.
const DOUBLED_MAX: u32 = 3;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Room {
    /// Since when there was none, and before when nothing is tried again.
    none: Option<(Moment, Moment)>,
    tries: u32,
    /// How many blocks found none. Fewer may find some without anything having changed.
    blocks: u64,
}

impl Room {
    fn found_none(&mut self, now: Moment, limits: &Limits, blocks: u64) {
        let (since, again) = self.none.unwrap_or((now, now));
        self.blocks = if self.none.is_some() { self.blocks.min(blocks) } else { blocks };
        // What is sent unasked may fail as well, and says nothing new.
        if now >= again {
            self.none = Some((since, now + limits.room_pause * (1 << self.tries.min(DOUBLED_MAX))));
            self.tries += 1;
        }
    }

    pub fn may_try(&self, now: Moment) -> bool {
        self.none.is_none_or(|(_, again)| now >= again)
    }

    fn try_by(&mut self, moment: Moment) {
        if let Some((_, again)) = &mut self.none {
            (*again, self.tries) = (moment.min(*again), 0);
        }
    }

    fn is_full(&self, now: Moment, limits: &Limits) -> bool {
        self.none.is_some_and(|(since, _)| now >= since + limits.full)
    }
}

impl Replica {
    /// The disk has no room for content that came. What of it is there nobody knows, as after a crash.
    pub(crate) fn unstored(&mut self, cx: &mut Cx, number: u64) {
        let Some(at) = self.storing.iter().position(|(stored, _, _)| *stored == number) else { return };
        let (_, _, blocks) = self.storing.remove(at);
        self.room.found_none(cx.now, cx.limits, blocks.len());
        // Blocks that were to be mended hold what they held: only that was to be written.
        let unknown = blocks.intersection(&self.claims.invalid());
        let claims = &mut self.claims;
        let was_clean = claims.stale.is_empty() && claims.suspect.is_empty() && claims.bad.is_empty();
        if was_clean {
            claims.sure = claims.complete();
        }
        claims.suspect.union(&unknown);
    }

    /// The disk has no room for the record. The one before is true, and less is stable.
    pub(crate) fn unsynced(&mut self, cx: &mut Cx, number: u64) {
        if self.sync.take_if(|sync| sync.number == number).is_some() {
            self.unrecorded = true;
            self.record_room.found_none(cx.now, cx.limits, 0);
        }
    }

    pub(super) fn found_room(&mut self, blocks: &BlockSet) {
        if self.room.none.is_some() && (blocks.len() >= self.room.blocks || self.claims.invalid().is_empty()) {
            self.room = Room::default();
        }
    }

    /// There may be room again: it is tried by then.
    pub(crate) fn try_by(&mut self, moment: Moment) {
        self.room.try_by(moment);
        self.record_room.try_by(moment);
    }

    pub(crate) fn is_full(&self, cx: &Cx) -> bool {
        [&self.room, &self.record_room].iter().any(|room| room.is_full(cx.now, cx.limits))
    }

    /// What the whole copy may take, holes counted.
    pub(crate) fn bytes_at_most(&self) -> u64 {
        self.claims.end.saturating_mul(BLOCK_BYTES)
    }
}
