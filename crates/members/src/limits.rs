//! How long a member answers without hearing from its leader, and what follows from that.
//!
//! Promises: what [`Limits::check`] lets pass is safe with every clock the election allows for, and lets a lease outlast the change of
//! the leader.

use braid_election::DRIFT;
use braid_types::{BrokenRule, Rule};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A member answers for so long after it asked.
    pub lease: Duration,
    /// Questions in one lease.
    pub beats: u32,
    /// Who asks to become a member waits so long for others that do: servers that start together are one epoch.
    pub gather: Duration,
    /// The leader believes a lease by this part longer than it is: one clock may be so much faster than another.
    pub drift: u32,
    /// Members of one roster. Bounds the row, which is in every answer.
    pub members_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // Long enough for the next leader: see `check`. What a dead member held is nobody's for 9.45 s.
        Limits {
            lease: Duration::from_secs(9),
            beats: 9,
            gather: Duration::from_millis(300),
            drift: DRIFT,
            members_max: 64,
        }
    }
}

impl Limits {
    /// Between two questions of a member.
    pub fn round(&self) -> Duration {
        self.lease / self.beats.max(1)
    }

    /// From when the leader answered, on its clock, until a lease of so long is surely over at who asked before.
    ///
    /// The member counts `l` from when it asked, on a clock that shows at least `l` when the leader's shows `l + l/20`; and it asked before
    /// the leader answered. So what is lost on the way makes the lease shorter and never longer.
    pub fn believed(&self, lease: Duration) -> Duration {
        lease.saturating_add(lease / self.drift.max(1))
    }

    /// A member that proves to have heard nothing for so long is told no lease any more: its questions arrive, the answers do not.
    pub fn deaf(&self) -> Duration {
        self.lease * 2
    }

    /// From the death of a leader until members ask its successor, without what the database takes: the last sign of life has to be over,
    /// which who stands by sees a look later; the row is written; and the member asks in its next round.
    fn succession(&self, election: &braid_election::Limits) -> Duration {
        let over = braid_election::Limits::patience(election.lease_min) + election.round(election.lease_min);
        over + self.round()
    }

    /// The first inequality that does not hold.
    pub fn check(&self, election: &braid_election::Limits) -> Result<(), BrokenRule> {
        // Of numbers, which are shown as seconds.
        let count = |rule, left, right| Rule::at_most(rule, Duration::from_secs(left), Duration::from_secs(right));
        let succession = self.succession(election);
        let rules = [
            Rule::below("a member asks from time to time", Duration::ZERO, self.round()),
            count("three questions of four may be lost", 4, self.beats.into()),
            Rule::below("who comes waits for less than a round", self.gather, self.round()),
            count("the leader allows for as much drift as the election", self.drift.into(), DRIFT.into()),
            count("a roster has room for two", 2, self.members_max as u64),
            // 4.2 s + 1 s + 1 s, and a round since the member's last answer: 7.2 s, by a twentieth more on a slow clock 7.56 s of 9 s. The
            // rest is for the database, whose answers are four: the election's row read and written, the roster read and written.
            Rule::below(
                "a lease outlasts the change of the leader",
                self.believed(succession + self.round()) + Duration::from_secs(1),
                self.lease,
            ),
        ];
        Rule::check(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_agree() {
        let (limits, election) = (Limits::default(), braid_election::Limits::default());
        assert_eq!(limits.check(&election), Ok(()));
        assert_eq!(limits.round(), Duration::from_secs(1));
        assert_eq!(limits.believed(limits.lease), Duration::from_millis(9_450));
        assert_eq!(limits.succession(&election), Duration::from_millis(6_200));
    }

    /// Each limit has an inequality that notices when it is far off.
    #[test]
    fn every_limit_is_held_by_a_rule() {
        type Change = fn(&mut Limits);
        let off: [(&str, Change); 7] = [
            ("a lease outlasts", |limits| limits.lease = Duration::from_secs(7)),
            ("from time to time", |limits| limits.lease = Duration::ZERO),
            ("four may be lost", |limits| limits.beats = 3),
            ("less than a round", |limits| limits.beats = 60),
            ("less than a round", |limits| limits.gather = Duration::from_secs(2)),
            ("as much drift", |limits| limits.drift = DRIFT + 1),
            ("room for two", |limits| limits.members_max = 1),
        ];
        for (rule, change) in off {
            let mut limits = Limits::default();
            change(&mut limits);
            let broken = limits.check(&braid_election::Limits::default()).expect_err(rule).to_string();
            assert!(broken.contains(rule), "{broken} is not about {rule}");
        }
        let slow = braid_election::Limits { lease_min: Duration::from_secs(7), ..Default::default() };
        assert!(Limits::default().check(&slow).is_err(), "the leader's lease is as long as a member's");
    }
}
