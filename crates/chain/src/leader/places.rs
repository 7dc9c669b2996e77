//! Places in chains that are given up while nothing is wrong: by a server that is drained, or one that is fuller than others.
//!
//! ```text
//! 1 2 3 ──next epoch──► 1 2 3 4 ──4 has all, on stable storage──► next epoch: 1 3 4    (2 leaves)
//! ```
//! The new member comes first, and the old one leaves when *every* member has all of every chunk: a chain has never fewer
//! whole copies than before, writes go on while the new one copies, and with one copy there are two for as long as it takes.
//! What is under way is in the row, for a chain with more members than copies is such a change: another leader goes on with it.

use super::{Held, Leader, Phase, Spares};
use crate::limits::Moment;
use braid_types::{ChainEpoch, ContainerId, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// Which servers are to have no place in any chain, and which places change hands though nobody leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// They get no new place.
    pub servers: BTreeSet<ServerId>,
    /// These of them keep the places they have for now.
    pub paused: BTreeSet<ServerId>,
    /// Of this container the first server's place goes to the second. What of it does not fit the chain (any more) is as if it
    /// were not there; and a server that leaves comes first.
    pub moves: BTreeMap<ContainerId, (ServerId, ServerId)>,
    /// None of them begins or ends for now.
    pub moves_paused: bool,
    /// Chains that may have a member more than they should, at once.
    pub at_once: usize,
}

impl Leaving {
    fn gives_up(&self, server: ServerId) -> bool {
        self.servers.contains(&server) && !self.paused.contains(&server)
    }
}

/// How a container stands that counts a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its turn comes.
    Waits,
    /// Another server is taking the place.
    Moves,
    /// There is no server for the place.
    Stuck,
}

impl Leader {
    /// Chains with more members than they should have, each with its epoch once all members act in it.
    pub fn grown(&self) -> impl Iterator<Item = (ContainerId, Option<ChainEpoch>)> + '_ {
        let grown = self.containers.iter().filter(|(_, held)| is_grown(held));
        grown.map(|(id, held)| (*id, self.acts_in(*id).filter(|_| held.row.last_open.is_empty())))
    }

    /// Containers of which a chain that is kept counts the server.
    pub fn places(&self, server: ServerId) -> impl Iterator<Item = (ContainerId, Place)> + '_ {
        let counted = self.containers.iter().filter(move |(_, held)| held.row.knows(server));
        counted.map(move |(id, held)| {
            let moves = is_grown(held) || !held.row.members().contains(&server) || held.phase != Phase::Acting;
            let place = match (moves, held.stuck.is_some()) {
                (true, _) => Place::Moves,
                (false, true) => Place::Stuck,
                (false, false) => Place::Waits,
            };
            (*id, place)
        })
    }

    /// It counts only while it is the newest epoch, and nobody has lost anything since.
    pub(super) fn is_whole(&mut self, container: ContainerId, epoch: ChainEpoch) {
        if self.acts_in(container) == Some(epoch)
            && let Some(held) = self.containers.get_mut(&container)
        {
            held.whole = Some(epoch);
        }
    }

    /// The members of the next epoch, if a place is to change hands now. `live` are those that may get one.
    pub(super) fn next_place(
        &mut self,
        now: Moment,
        id: ContainerId,
        live: &[ServerId],
        spares: &mut dyn Spares,
    ) -> Option<Vec<ServerId>> {
        let epoch = self.acts_in(id)?;
        let held = self.containers.get(&id).filter(|held| held.row.last_open.is_empty())?;
        let members = held.row.members();
        let all_live = members.iter().all(|member| self.book.is_live(*member, now));
        if !all_live || !held.opening.is_empty() {
            return None;
        }
        let leaves = members.iter().find(|member| self.leaving.gives_up(**member)).copied();
        let swap = self.leaving.moves.get(&id).copied();
        if is_grown(held) {
            if held.whole != Some(epoch) {
                return None;
            }
            let is_paused = members.iter().any(|member| self.leaving.paused.contains(member))
                || (swap.is_some() && self.leaving.moves_paused);
            let gives = swap.filter(|(from, to)| members.contains(from) && members.contains(to)).map(|(from, _)| from);
            // Nobody leaves any more: the one that came for it goes again.
            let goes = leaves.or_else(|| gives.or(members.last().copied()).filter(|_| !is_paused))?;
            return Some(members.iter().copied().filter(|member| *member != goes).collect());
        }
        let may_begin = self.growing < self.leaving.at_once && members.len() == usize::from(held.row.copies);
        let is_free = |server: &ServerId| live.contains(server) && !members.contains(server);
        if leaves.is_none()
            && let Some((from, to)) = swap.filter(|_| may_begin && !self.leaving.moves_paused)
        {
            let next = members.iter().copied().chain([to]).collect();
            let begins = members.contains(&from) && is_free(&to);
            self.growing += usize::from(begins);
            return begins.then_some(next);
        }
        // Looked for again now and then: servers come, and room.
        let was_looked = held.stuck.is_some_and(|looked| now < looked + self.limits.renew);
        let leaves = leaves.filter(|_| may_begin && !was_looked)?;
        let rest: Vec<ServerId> = members.iter().copied().filter(|member| *member != leaves).collect();
        let free: Vec<ServerId> = live.iter().copied().filter(is_free).collect();
        let new = spares.successor(id, &rest, &free, held.bytes_at_most()).filter(is_free);
        let next = new.map(|new| members.iter().copied().chain([new]).collect());
        let held = self.containers.get_mut(&id)?;
        held.stuck = next.is_none().then_some(now);
        self.growing += usize::from(next.is_some());
        next
    }
}

fn is_grown(held: &Held) -> bool {
    held.row.members().len() > usize::from(held.row.copies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::message::ToLeader;
    use crate::{ContainerRow, LeaderCommand, LeaderEvent};
    use braid_types::LeaderEpoch;
    use std::time::Duration;

    const C: ContainerId = ContainerId(6);

    /// The first live server that is not in the chain and may get a place.
    struct First;
    impl Spares for First {
        fn successor(&mut self, _: ContainerId, chain: &[ServerId], live: &[ServerId], _: u64) -> Option<ServerId> {
            live.iter().find(|server| !chain.contains(server)).copied()
        }
    }

    struct Cluster {
        leader: Leader,
        ms: u64,
        live: Vec<u64>,
    }

    fn ids(servers: &[u64]) -> Vec<ServerId> {
        servers.iter().copied().map(ServerId).collect()
    }

    impl Cluster {
        fn new(members: &[u64], min_copies: u8, servers: u64) -> Cluster {
            let row = ContainerRow::new(C, ids(members), members.len() as u8, min_copies);
            Cluster::of([(C, row)], servers)
        }

        fn of(rows: impl IntoIterator<Item = (ContainerId, ContainerRow)>, servers: u64) -> Cluster {
            let rows: Vec<_> = rows.into_iter().collect();
            let leader = Leader::new(Duration::ZERO, LeaderEpoch(1), Limits::default(), rows.clone());
            let mut cluster = Cluster { leader, ms: 100, live: (1..=servers).collect() };
            for server in 1..=servers {
                let of = |(id, row): &(ContainerId, ContainerRow)| {
                    row.members().contains(&ServerId(server)).then_some((*id, row.epoch()))
                };
                let chains = Some(rows.iter().filter_map(of).collect());
                cluster.says(server, ToLeader::Renew { asked: Duration::ZERO, chains });
            }
            cluster
        }

        fn event(&mut self, event: LeaderEvent) -> Vec<LeaderCommand> {
            self.leader.on(Duration::from_millis(self.ms), event, &mut First)
        }

        fn says(&mut self, server: u64, message: ToLeader) -> Vec<LeaderCommand> {
            self.event(LeaderEvent::FromServer { server: ServerId(server), incarnation: 1, message })
        }

        fn leaves(&mut self, servers: &[u64], paused: &[u64], at_once: usize) {
            let set = |servers: &[u64]| servers.iter().copied().map(ServerId).collect();
            let (servers, paused) = (set(servers), set(paused));
            self.event(LeaderEvent::Leaving(Leaving { servers, paused, at_once, ..Leaving::default() }));
        }

        /// One place of C changes hands, while these leave.
        fn moves(&mut self, place: Option<(u64, u64)>, moves_paused: bool, leaves: &[u64]) {
            let moves = place.map(|(from, to)| (C, (ServerId(from), ServerId(to)))).into_iter().collect();
            let servers = leaves.iter().copied().map(ServerId).collect();
            let leaving = Leaving { servers, moves, moves_paused, at_once: 1, ..Leaving::default() };
            self.event(LeaderEvent::Leaving(leaving));
        }

        /// For two seconds, everything is done that the leader asks; the members of the chain at each change.
        fn runs(&mut self) -> Vec<Vec<ServerId>> {
            let mut changes = Vec::new();
            for _ in 0..20 {
                self.ms += 100;
                let mut said = Vec::new();
                for server in self.live.clone() {
                    let renew = ToLeader::Renew { asked: Duration::from_millis(self.ms), chains: None };
                    said.extend(self.says(server, renew));
                }
                said.extend(self.event(LeaderEvent::Tick));
                while let Some(command) = said.pop() {
                    match command {
                        LeaderCommand::Commit { container, number, row } => {
                            if !row.settled {
                                changes.push(row.members().to_vec());
                            }
                            said.extend(self.event(LeaderEvent::Committed { container, number }));
                        }
                        LeaderCommand::Send { to, message, .. } if self.live.contains(&to.0) => {
                            use crate::message::FromLeader::*;
                            let answer = match message {
                                Prepare { container, epoch } => {
                                    ToLeader::Prepared { container, epoch, reports: Vec::new() }
                                }
                                Install { container, install } => {
                                    ToLeader::Installed { container, epoch: install.epoch }
                                }
                                _ => continue,
                            };
                            said.extend(self.says(to.0, answer));
                        }
                        _ => {}
                    }
                }
            }
            changes
        }

        fn is_whole(&mut self) {
            let epoch = self.leader.row(C).unwrap().epoch();
            self.event(LeaderEvent::Whole { container: C, epoch });
        }
    }

    #[test]
    fn the_new_member_comes_first_and_the_old_one_leaves_when_all_are_whole() {
        let mut c = Cluster::new(&[1, 2, 3], 2, 5);
        assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new(), "nobody leaves");
        c.leaves(&[2, 4], &[], 1);
        assert_eq!(c.runs(), [ids(&[1, 2, 3, 5])], "4 leaves as well and gets nothing");
        assert_eq!(c.leader.places(ServerId(2)).collect::<Vec<_>>(), [(C, Place::Moves)]);
        // What was whole in an epoch before says nothing.
        c.event(LeaderEvent::Whole { container: C, epoch: ChainEpoch(1) });
        assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new());
        c.is_whole();
        assert_eq!(c.runs(), [ids(&[1, 3, 5])]);
        assert_eq!(c.leader.places(ServerId(2)).count(), 0, "nothing counts it any more");
        assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new(), "it is done");
    }

    #[test]
    fn an_owner_that_leaves_goes_as_the_others_do_and_one_copy_is_two_meanwhile() {
        let mut c = Cluster::new(&[1], 1, 2);
        c.leaves(&[1], &[], 1);
        assert_eq!(c.runs(), [ids(&[1, 2])]);
        c.is_whole();
        assert_eq!(c.runs(), [ids(&[2])]);
    }

    #[test]
    fn as_many_as_may_be_are_under_way_and_the_others_wait() {
        let rows = (1..=5).map(|id| (ContainerId(id), ContainerRow::new(ContainerId(id), ids(&[1, 2]), 2, 2)));
        let mut c = Cluster::of(rows, 4);
        c.leaves(&[1], &[], 2);
        assert_eq!(c.runs().len(), 2);
        let moving = |c: &Cluster| c.leader.places(ServerId(1)).filter(|(_, place)| *place == Place::Moves).count();
        assert_eq!((moving(&c), c.leader.grown().count()), (2, 2));
        let epoch = ChainEpoch(2);
        c.event(LeaderEvent::Whole { container: ContainerId(1), epoch });
        assert_eq!(c.runs().len(), 2, "one is done, the next begins");
        assert_eq!((moving(&c), c.leader.places(ServerId(1)).count()), (2, 4));
    }

    #[test]
    fn a_pause_begins_nothing_and_a_cancel_leaves_the_chain_as_long_as_it_should_be() {
        let mut c = Cluster::new(&[1, 2, 3], 2, 4);
        c.leaves(&[2], &[2], 4);
        assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new(), "paused");
        c.leaves(&[2], &[], 4);
        assert_eq!(c.runs(), [ids(&[1, 2, 3, 4])]);
        c.leaves(&[2], &[2], 4);
        c.is_whole();
        assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new(), "paused, nobody goes");
        c.leaves(&[], &[], 4);
        assert_eq!(c.runs(), [ids(&[1, 2, 3])]);
    }

    #[test]
    fn without_a_server_for_the_place_it_stays_and_gets_one_when_there_is_one() {
        let mut c = Cluster::new(&[1, 2], 2, 2);
        c.leaves(&[2], &[], 4);
        assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new());
        assert_eq!(c.leader.places(ServerId(2)).collect::<Vec<_>>(), [(C, Place::Stuck)]);
        c.says(3, ToLeader::Renew { asked: Duration::ZERO, chains: Some(Vec::new()) });
        c.live.push(3);
        assert_eq!(c.runs(), [ids(&[1, 2, 3])]);
    }

    #[test]
    fn another_leader_goes_on_with_what_the_row_says() {
        let mut c = Cluster::new(&[1, 2, 3], 2, 4);
        c.leaves(&[3], &[], 4);
        assert_eq!(c.runs(), [ids(&[1, 2, 3, 4])]);
        let row = c.leader.row(C).unwrap().clone();
        let mut next = Cluster::of([(C, row)], 4);
        next.leaves(&[3], &[], 4);
        assert_eq!(next.runs(), Vec::<Vec<ServerId>>::new(), "not known to be whole");
        next.is_whole();
        assert_eq!(next.runs(), [ids(&[1, 2, 4])]);
    }

    #[test]
    fn a_server_that_dies_while_it_is_drained_is_succeeded_by_the_one_that_is_taking_its_place() {
        let mut c = Cluster::new(&[1, 2, 3], 2, 4);
        c.leaves(&[2], &[], 1);
        assert_eq!(c.runs(), [ids(&[1, 2, 3, 4])]);
        c.live.retain(|server| *server != 2);
        let changes: Vec<_> = (0..5).flat_map(|_| c.runs()).collect();
        assert_eq!(changes, [ids(&[1, 3, 4])]);
    }

    #[test]
    fn a_place_changes_hands_in_two_epochs_though_nobody_leaves() {
        let mut c = Cluster::new(&[1, 2, 3], 2, 5);
        c.moves(Some((2, 5)), false, &[]);
        assert_eq!(c.runs(), [ids(&[1, 2, 3, 5])]);
        assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new(), "not known to be whole");
        // Another leader is told what the rows say, and goes on.
        let row = c.leader.row(C).unwrap().clone();
        let mut next = Cluster::of([(C, row)], 5);
        next.moves(Some((2, 5)), false, &[]);
        next.is_whole();
        assert_eq!(next.runs(), [ids(&[1, 3, 5])]);
        assert_eq!(next.runs(), Vec::<Vec<ServerId>>::new(), "what was done does not fit any more");
    }

    #[test]
    fn a_paused_move_stands_still_and_a_cancelled_one_is_undone() {
        let mut c = Cluster::new(&[1, 2, 3], 2, 4);
        c.moves(Some((2, 4)), true, &[]);
        assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new());
        c.moves(Some((2, 4)), false, &[]);
        assert_eq!(c.runs(), [ids(&[1, 2, 3, 4])]);
        c.moves(Some((2, 4)), true, &[]);
        c.is_whole();
        assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new());
        c.moves(None, false, &[]);
        assert_eq!(c.runs(), [ids(&[1, 2, 3])]);
    }

    #[test]
    fn a_server_that_leaves_comes_before_a_move_and_what_does_not_fit_does_nothing() {
        let mut c = Cluster::new(&[1, 2, 3], 2, 5);
        for (from, to) in [(4, 5), (1, 2), (2, 2), (2, 9)] {
            c.moves(Some((from, to)), false, &[]);
            assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new(), "{from} to {to}");
        }
        c.moves(Some((2, 4)), false, &[]);
        assert_eq!(c.runs(), [ids(&[1, 2, 3, 4])]);
        // 3 is drained meanwhile: 4, which came for another place, takes this one.
        c.moves(Some((2, 4)), false, &[3]);
        c.is_whole();
        assert_eq!(c.runs(), [ids(&[1, 2, 4])]);
        // Or the taker is.
        let mut c = Cluster::new(&[1, 2, 3], 2, 5);
        c.moves(Some((2, 4)), false, &[]);
        c.runs();
        c.moves(Some((2, 4)), false, &[4]);
        c.is_whole();
        assert_eq!(c.runs(), [ids(&[1, 2, 3])]);
        assert_eq!(c.runs(), Vec::<Vec<ServerId>>::new(), "nothing goes to a server that leaves");
    }
}
