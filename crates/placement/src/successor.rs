//! Who takes the place of a server that is gone, or goes.

use crate::{Candidate, Domain};
use braid_types::ServerId;

/// The server to add to a chain: up, taking new things, with room, not in it, as far from its members as there is one, and
/// of these the one with the most room. Equal ones are taken by id, so that the answer does not depend on their order.
pub fn successor(chain: &[ServerId], candidates: &[Candidate], bytes_needed: u64) -> Option<ServerId> {
    let is_in_chain = |candidate: &&Candidate| chain.contains(&candidate.id);
    let taken: Vec<&Domain> = candidates.iter().filter(is_in_chain).map(|candidate| &candidate.domain).collect();
    let usable = |candidate: &&Candidate| candidate.is_usable(bytes_needed);
    let free = candidates.iter().filter(|candidate| !is_in_chain(candidate)).filter(usable);
    let rank = |candidate: &&Candidate| {
        let apart = candidate.domain.nearest(taken.iter().copied());
        (apart, candidate.bytes_free, std::cmp::Reverse(candidate.id))
    };
    free.max_by_key(rank).map(|candidate| candidate.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, candidate as of};

    fn candidate(id: u64, host: &str, bytes_free: u64) -> Candidate {
        of(id, at("", host, id), bytes_free)
    }

    #[test]
    fn another_host_counts_more_than_room_and_room_more_than_the_id() {
        let all = [candidate(1, "a", 90), candidate(2, "b", 90), candidate(3, "a", 80), candidate(4, "c", 20)];
        let chain = [ServerId(1), ServerId(2)];
        assert_eq!(successor(&chain, &all, 10), Some(ServerId(4)));
        assert_eq!(successor(&chain, &all, 30), Some(ServerId(3)), "the only one with room");
        assert_eq!(successor(&chain, &all, 85), None);
        assert_eq!(successor(&[], &all, 10), Some(ServerId(1)), "the first of equals");
        let down = all.map(|candidate| Candidate { up: false, ..candidate });
        assert_eq!(successor(&chain, &down, 0), None);
    }

    #[test]
    fn the_place_is_given_in_the_rack_that_the_others_are_not_in_and_never_to_a_server_that_leaves() {
        let mut all = [("r1", "a"), ("r2", "b"), ("r2", "c"), ("r3", "d"), ("r3", "e")]
            .iter()
            .enumerate()
            .map(|(i, (rack, host))| of(i as u64 + 1, at(rack, host, 1), 100 - i as u64))
            .collect::<Vec<_>>();
        let chain = [ServerId(1), ServerId(2)];
        assert_eq!(successor(&chain, &all, 10), Some(ServerId(4)), "though 3 has more room");
        all[3].takes_new = false;
        assert_eq!(successor(&chain, &all, 10), Some(ServerId(5)));
        all[4].takes_new = false;
        assert_eq!(successor(&chain, &all, 10), Some(ServerId(3)), "a host of its own, if no rack");
    }
}
