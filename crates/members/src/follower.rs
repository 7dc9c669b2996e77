//! What the leader knows of one member: until when it may answer, and for what.
//!
//! Promises: what a member may answer for at any moment is within `may_hold`, or `over_at` has passed.

use crate::Moment;
use braid_types::SlotSet;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Follower {
    /// Whatever it was granted is over then, on any clock. [`Moment::MAX`] for the leader itself: its successor counts it out.
    pub over_at: Moment,
    /// Its slots under the row.
    pub share: SlotSet,
    may_hold: SlotSet,
    /// When the newest answer was given of which it has said that it was heard.
    pub proven: Moment,
    /// This leader has granted it something.
    was_answered: bool,
    /// It has said that it follows the row as it stands.
    pub follows: bool,
    /// It said that it answers nothing any more.
    pub has_left: bool,
}

impl Follower {
    /// New in the row: it has been granted nothing, and never will be before it asks.
    pub fn new(over_at: Moment, now: Moment) -> Follower {
        let none = SlotSet::none;
        Follower {
            over_at,
            share: none(),
            may_hold: none(),
            proven: now,
            was_answered: true,
            follows: false,
            has_left: false,
        }
    }

    /// Was a member under somebody else, who may have granted it anything.
    pub fn of_others(now: Moment) -> Follower {
        Follower { may_hold: SlotSet::all(), was_answered: false, ..Follower::new(Moment::ZERO, now) }
    }

    fn is_over(&self, now: Moment) -> bool {
        self.has_left || now >= self.over_at
    }

    /// It is still to hear of the row, and may go on by the one before.
    pub fn is_behind(&self, now: Moment) -> bool {
        !self.follows && !self.is_over(now)
    }

    /// It does not answer for what is another's.
    pub fn is_settled(&self, now: Moment) -> bool {
        self.is_over(now) || self.may_hold.is_within(&self.share)
    }

    /// It says that it follows the row that was there before this leader's first, which gives it so much. All that a predecessor granted was
    /// under that row or an older one, so as long as this leader has granted nothing it holds no more.
    pub fn follows_before(&mut self, share: &SlotSet) {
        if !self.was_answered {
            self.may_hold = share.clone();
        }
    }

    /// It is answered `now`, under the row, and may answer for `lease` from when it asked.
    ///
    /// One that follows the row already, or had no lease any more, holds at most its share from now on: what was granted before is either
    /// under an older row, which it does not listen to any more, or over. Of any other what it held before is still to be feared.
    pub fn is_answered(&mut self, follows: bool, lease: Duration, believed: Duration, now: Moment) {
        self.follows |= follows;
        if follows || self.is_over(now) {
            self.may_hold = self.share.clone();
        }
        self.was_answered = true;
        if !lease.is_zero() {
            self.over_at = self.over_at.max(now.saturating_add(believed));
        }
    }

    /// It may take all that is its.
    pub fn is_told_that_all_is_settled(&mut self) {
        self.may_hold = self.share.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::{Slot, SlotSet};

    /// What it asked before it was answered comes again, late: it may have taken more since.
    #[test]
    fn the_row_before_counts_until_the_first_answer() {
        let (few, more): (SlotSet, SlotSet) = ((0..5).map(Slot).collect(), (0..9).map(Slot).collect());
        let second = Duration::from_secs(1);
        let mut follower = Follower { share: more.clone(), over_at: second * 9, ..Follower::of_others(Moment::ZERO) };
        assert!(!follower.is_settled(second), "it may hold anything");
        follower.follows_before(&few);
        assert!(follower.is_settled(second));
        follower.is_answered(false, second * 9, second * 9, second);
        follower.is_told_that_all_is_settled();
        follower.follows_before(&few);
        follower.share = few;
        assert!(!follower.is_settled(second * 2) && follower.is_settled(second * 10));
    }
}
