//! Going on without a server that is silent, so that nothing it alone has comes to be seen later.
//!
//! An owner tells others of its writes a moment after it has answered them. If it falls silent before, and its lease is over, others go on serving
//! what they were told of, and it may come back before it gets a successor: in the same epoch it would say what nobody
//! was told of, and it would be seen after what is older had been read. While its writer's session lives nobody else may read, so that this
//! is nobody's matter; a session that ends must not leave it behind. An epoch that was decided without the server
//! leaves it behind; docs/design/0006-replica-chains.md says what is open still.

use super::{Held, Leader, Phase};
use crate::limits::Moment;
use braid_types::ServerId;
use std::collections::BTreeSet;

/// When the newest epoch was decided, and on whose reports.
#[derive(Clone, Debug, Default)]
pub(super) struct Decided {
    pub at: Moment,
    pub on: BTreeSet<ServerId>,
}

impl Leader {
    /// May what this silent server was told, and told nobody, be seen no more? False while it may hold a lease, and until each chain that it is in
    /// was decided without it since; those that were not get a new epoch with the next tick. A chain that cannot be decided without it does
    /// not count once it is dead: nobody knows when it comes back (`min_copies` of 1, or too few others).
    pub fn goes_on_without(&mut self, server: ServerId, now: Moment) -> bool {
        if !self.book.is_over(server, now) {
            return false;
        }
        let since = self.book.until(server);
        let waits = |(_, held): &(_, &Held)| !self.is_without(held, server, since, now);
        let waiting: Vec<_> = self.containers.iter().filter(waits).map(|(id, _)| *id).collect();
        for id in &waiting {
            if let Some(held) = self.containers.get_mut(id)
                && matches!(held.phase, Phase::Acting | Phase::Opening(_))
            {
                held.dirty = true;
            }
        }
        waiting.is_empty()
    }

    /// The same of a server that has started again: what it knew of its writers it has forgotten, and may have on its disk what nobody was told of.
    pub fn has_begun_anew(&self, server: ServerId, incarnation: u64, now: Moment) -> bool {
        let is_met = self.servers.get(&server).is_some_and(|known| known.incarnation == incarnation);
        self.containers.values().filter(|held| held.row.members().contains(&server)).any(|held| {
            let waits = !is_met || held.anew.contains(&server);
            waits && (held.phase != Phase::Acting || self.could_decide(held, now))
        })
    }

    fn is_without(&self, held: &Held, server: ServerId, since: Moment, now: Moment) -> bool {
        match held.phase {
            Phase::Acting | Phase::Opening(_) => {
                !held.row.members().contains(&server)
                    || held.decided.as_ref().is_some_and(|decided| decided.at >= since && !decided.on.contains(&server))
                    || (self.book.is_dead(server, now, &self.limits) && !self.could_decide(held, now))
            }
            // Nobody acts any more, and whatever is decided is seen by all who act next.
            Phase::Collecting => {
                !held.row.knows(server) || held.row.known().iter().all(|known| self.has_stopped(held, *known, now))
            }
            Phase::Settling(_) => true,
            Phase::Raising(_) => !held.row.members().contains(&server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{NoSpares, says};
    use super::*;
    use crate::message::ToLeader;
    use crate::{ContainerRow, LeaderCommand, LeaderEvent, Limits};
    use braid_types::{ChainEpoch, ContainerId, LeaderEpoch};
    use std::time::Duration;

    const C: ContainerId = ContainerId(6);

    fn ms(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    fn acting(members: &[u64], min_copies: u8) -> Leader {
        let ids: Vec<ServerId> = members.iter().copied().map(ServerId).collect();
        let row = ContainerRow::new(C, ids, members.len() as u8, min_copies);
        let mut leader = Leader::new(Duration::ZERO, LeaderEpoch(1), Limits::default(), [(C, row)]);
        for server in members {
            let chains = Some(vec![(C, ChainEpoch(1))]);
            says(&mut leader, 100, *server, ToLeader::Renew { asked: Duration::ZERO, chains });
        }
        leader
    }

    /// These renew, and say that they have nothing when they are asked; rows are committed.
    fn pass(leader: &mut Leader, from: u64, until: u64, servers: &[u64]) {
        for at in (from..until).step_by(100) {
            let mut said = leader.on(ms(at), LeaderEvent::Tick, &mut NoSpares);
            for server in servers {
                said.extend(says(leader, at, *server, ToLeader::Renew { asked: ms(at), chains: None }));
            }
            while let Some(command) = said.pop() {
                match command {
                    LeaderCommand::Commit { container, number, .. } => {
                        said.extend(leader.on(ms(at), LeaderEvent::Committed { container, number }, &mut NoSpares));
                    }
                    LeaderCommand::Send { to, message, .. } if servers.contains(&to.0) => {
                        let answer = match message {
                            crate::FromLeader::Prepare { container, epoch } => {
                                ToLeader::Prepared { container, epoch, reports: Vec::new() }
                            }
                            crate::FromLeader::Install { container, install } => {
                                ToLeader::Installed { container, epoch: install.epoch }
                            }
                            _ => continue,
                        };
                        said.extend(says(leader, at, to.0, answer));
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn a_silent_server_is_gone_on_without_when_its_chains_were_decided_without_it() {
        let mut leader = acting(&[1, 2, 3], 2);
        pass(&mut leader, 200, 5_000, &[2, 3]);
        assert!(!leader.goes_on_without(ServerId(2), ms(5_000)), "it holds a lease");
        assert!(!leader.goes_on_without(ServerId(1), ms(5_000)), "it may come back in the same epoch");
        assert_eq!(leader.acts_in(C), None, "another is needed");
        pass(&mut leader, 5_000, 5_500, &[2, 3]);
        assert!(leader.goes_on_without(ServerId(1), ms(5_500)));
        assert_eq!(leader.row(C).unwrap().epoch(), ChainEpoch(2));
        assert!(leader.row(C).unwrap().members().contains(&ServerId(1)), "it is not dead yet, and keeps its place");
        assert!(leader.goes_on_without(ServerId(1), ms(5_550)));
        pass(&mut leader, 5_500, 5_800, &[2, 3]);
        assert_eq!(leader.row(C).unwrap().epoch(), ChainEpoch(2), "once is enough");
        // It acts in that one, and falls silent again.
        pass(&mut leader, 5_800, 5_900, &[1, 2, 3]);
        pass(&mut leader, 5_900, 10_500, &[2, 3]);
        assert!(!leader.goes_on_without(ServerId(1), ms(10_500)));
    }

    #[test]
    fn what_cannot_be_decided_without_it_waits_for_nobody() {
        let mut leader = acting(&[1, 2], 1);
        pass(&mut leader, 200, 5_000, &[2]);
        assert!(!leader.goes_on_without(ServerId(1), ms(5_000)), "it may come back at any moment");
        assert!(leader.goes_on_without(ServerId(9), ms(5_000)), "it is in no chain");
        pass(&mut leader, 5_000, 6_500, &[2]);
        assert!(leader.goes_on_without(ServerId(1), ms(6_500)), "both would have to answer");
        assert_eq!(leader.row(C).unwrap().epoch(), ChainEpoch(1));
    }

    #[test]
    fn a_server_that_has_started_again_is_waited_for_until_its_chains_are_decided() {
        let mut leader = acting(&[1, 2, 3], 2);
        pass(&mut leader, 200, 1_000, &[1, 2, 3]);
        assert!(!leader.has_begun_anew(ServerId(1), 1, ms(1_000)));
        assert!(leader.has_begun_anew(ServerId(1), 2, ms(1_000)), "the leader has not met it");
        let renew = ToLeader::Renew { asked: ms(1_000), chains: Some(Vec::new()) };
        leader.on(
            ms(1_000),
            LeaderEvent::FromServer { server: ServerId(1), incarnation: 2, message: renew },
            &mut NoSpares,
        );
        assert!(leader.has_begun_anew(ServerId(1), 2, ms(1_010)), "nothing is decided");
        assert!(!leader.has_begun_anew(ServerId(2), 1, ms(1_010)));
        // It says nothing more, so that others are enough when its lease is over.
        pass(&mut leader, 1_050, 1_500, &[2, 3]);
        assert_eq!(leader.row(C).unwrap().epoch(), ChainEpoch(2));
        assert!(leader.has_begun_anew(ServerId(1), 2, ms(1_500)), "it is not decided");
        pass(&mut leader, 1_500, 5_500, &[2, 3]);
        assert!(!leader.has_begun_anew(ServerId(1), 2, ms(5_500)));
    }
}
