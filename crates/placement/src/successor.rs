//! Who takes the place of a server that is gone.

use crate::Candidate;
use braid_types::ServerId;

/// The server to add to a chain: up, with room, not in it, on a host of its own if there is one, and of these the one with
/// the most room. Equal ones are taken by id, so that the answer does not depend on their order.
pub fn successor(chain: &[ServerId], candidates: &[Candidate], bytes_needed: u64) -> Option<ServerId> {
    let is_in_chain = |candidate: &&Candidate| chain.contains(&candidate.id);
    let hosts: Vec<&str> = candidates.iter().filter(is_in_chain).map(|candidate| candidate.host.as_str()).collect();
    let usable = |candidate: &&Candidate| candidate.up && candidate.bytes_free >= bytes_needed;
    let free = candidates.iter().filter(|candidate| !is_in_chain(candidate)).filter(usable);
    let rank = |candidate: &&Candidate| {
        let has_own_host = !hosts.contains(&candidate.host.as_str());
        (has_own_host, candidate.bytes_free, std::cmp::Reverse(candidate.id))
    };
    free.max_by_key(rank).map(|candidate| candidate.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: u64, host: &str, bytes_free: u64) -> Candidate {
        Candidate { id: ServerId(id), host: host.to_owned(), bytes_free, up: true }
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
}
