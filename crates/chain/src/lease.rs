//! The server lease: under it a data server answers reads and acknowledges writes (design.md §5 *Fencing*).
//!
//! A data server counts from the moment it asked, the leader from the moment it answered, and the data server counts
//! 2 % less: so at every moment of true time, whoever acts under a lease is believed by the leader to hold it.

use crate::limits::{Limits, Moment};
use braid_types::{LeaderEpoch, ServerId};
use std::collections::BTreeMap;

/// At the data server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerLease {
    until: Moment,
    leader: LeaderEpoch,
}

impl ServerLease {
    /// The answer to what was asked at `asked`. An older leader's is not taken.
    pub fn granted(&mut self, asked: Moment, leader: LeaderEpoch, limits: &Limits) -> bool {
        if leader < self.leader {
            return false;
        }
        self.leader = leader;
        self.until = self.until.max(asked + limits.held());
        true
    }

    pub fn is_held(&self, now: Moment) -> bool {
        now < self.until
    }

    pub fn until(&self) -> Moment {
        self.until
    }

    /// Who granted it last.
    pub fn leader(&self) -> LeaderEpoch {
        self.leader
    }
}

/// At the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseBook {
    /// Until then any server may hold a lease of the leader before.
    all_until: Moment,
    until: BTreeMap<ServerId, Moment>,
}

impl LeaseBook {
    /// A new leader lets one server lease run out.
    pub fn new(now: Moment, limits: &Limits) -> LeaseBook {
        LeaseBook { all_until: now + limits.server_lease, until: BTreeMap::new() }
    }

    pub fn grant(&mut self, server: ServerId, now: Moment, limits: &Limits) {
        self.until.insert(server, now + limits.server_lease);
    }

    /// Its process has ended: what it held it holds no more.
    pub fn ended(&mut self, server: ServerId) {
        self.until.insert(server, Moment::ZERO);
    }

    /// Until when the server may hold a lease.
    pub fn until(&self, server: ServerId) -> Moment {
        self.until.get(&server).copied().unwrap_or(self.all_until)
    }

    pub fn is_over(&self, server: ServerId, now: Moment) -> bool {
        now >= self.until(server)
    }

    /// Granted by this leader, and not over.
    pub fn is_live(&self, server: ServerId, now: Moment) -> bool {
        self.until.contains_key(&server) && !self.is_over(server, now)
    }

    /// Silent for so long that it gets a successor.
    pub fn is_dead(&self, server: ServerId, now: Moment, limits: &Limits) -> bool {
        now >= self.until(server) + limits.successor.saturating_sub(limits.server_lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_late_answer_does_not_lengthen_a_lease() {
        let (limits, mut lease) = (Limits::default(), ServerLease::default());
        assert!(!lease.is_held(S(0)));
        assert!(lease.granted(S(10), LeaderEpoch(2), &limits));
        assert!(lease.is_held(S(13)) && !lease.is_held(S(14)));
        assert!(
            lease.granted(S(9), LeaderEpoch(2), &limits) && lease.is_held(S(13)),
            "an older answer shortens nothing"
        );
        assert!(!lease.granted(S(12), LeaderEpoch(1), &limits) && !lease.is_held(S(14)), "of a leader deposed");
    }

    #[test]
    fn a_new_leader_waits_for_the_leases_of_the_old_one() {
        let limits = Limits::default();
        let mut book = LeaseBook::new(S(100), &limits);
        let (a, b) = (ServerId(1), ServerId(2));
        assert!(!book.is_over(a, S(103)) && book.is_over(a, S(104)) && !book.is_live(a, S(101)));
        book.grant(a, S(103), &limits);
        assert!(book.is_live(a, S(106)) && !book.is_over(a, S(106)) && book.is_over(a, S(107)));
        assert!(!book.is_dead(a, S(108), &limits) && book.is_dead(a, S(109), &limits));
        book.grant(b, S(103), &limits);
        book.ended(b);
        assert!(book.is_over(b, S(103)));
    }
}
