//! Spreading over all servers in proportion to their free space.

use crate::{Candidate, NotEnough, Placement, Want};
use braid_types::ServerId;
use std::collections::BTreeMap;

/// Smooth weighted round robin: each server gains its weight a turn, the richest is taken and pays the sum of
/// all weights. Over time each is taken in proportion to its weight, and never twice in a row without need.
#[derive(Debug, Default)]
pub struct Spread {
    credit: BTreeMap<ServerId, i128>,
}

/// Free space is weighed in steps of 1 GiB, so that a few written bytes do not change the order.
const WEIGHT_BYTES: u64 = 1 << 30;

impl Spread {
    pub fn new() -> Self {
        Spread::default()
    }

    /// The next server among `usable`, not one of `taken`, of those that are as far from them as there are any.
    fn next(&mut self, usable: &[&Candidate], taken: &[&Candidate]) -> Option<ServerId> {
        let free = usable.iter().filter(|c| taken.iter().all(|t| t.id != c.id)).copied();
        let ranked: Vec<_> = free.map(|c| (c.domain.nearest(taken.iter().map(|t| &t.domain)), c)).collect();
        let farthest = ranked.iter().map(|(distance, _)| *distance).max()?;
        let pool: Vec<&Candidate> =
            ranked.iter().filter(|(distance, _)| *distance == farthest).map(|(_, c)| *c).collect();
        let weight = |c: &Candidate| i128::from(1 + c.bytes_free / WEIGHT_BYTES);
        let total: i128 = pool.iter().map(|c| weight(c)).sum();
        for candidate in &pool {
            *self.credit.entry(candidate.id).or_default() += weight(candidate);
        }
        let best = pool.iter().max_by_key(|c| (self.credit[&c.id], std::cmp::Reverse(c.id)))?.id;
        *self.credit.entry(best).or_default() -= total;
        Some(best)
    }
}

impl Placement for Spread {
    fn choose(&mut self, want: Want, candidates: &[Candidate]) -> Result<Vec<Vec<ServerId>>, NotEnough> {
        let usable: Vec<&Candidate> = candidates.iter().filter(|c| c.is_usable(want.bytes_needed)).collect();
        if usable.len() < want.chain_len || want.chain_len == 0 {
            return Err(NotEnough { wanted: want.chain_len.max(1), usable: usable.len() });
        }
        self.credit.retain(|id, _| candidates.iter().any(|c| c.id == *id));
        let beside = usable.iter().copied().find(|c| Some(c.id) == want.beside);
        let mut chains = Vec::with_capacity(want.count);
        for _ in 0..want.count {
            let mut taken: Vec<&Candidate> = beside.into_iter().collect();
            while taken.len() < want.chain_len {
                let Some(id) = self.next(&usable, &taken) else {
                    return Err(NotEnough { wanted: want.chain_len, usable: taken.len() });
                };
                taken.extend(usable.iter().copied().find(|c| c.id == id));
            }
            chains.push(taken.iter().map(|c| c.id).collect());
        }
        Ok(chains)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, candidate};

    fn servers(list: &[(u64, &str, u64)]) -> Vec<Candidate> {
        list.iter().map(|&(id, host, gib)| candidate(id, at("", host, id), gib << 30)).collect()
    }

    fn want(chain_len: usize, count: usize) -> Want {
        Want { chain_len, count, bytes_needed: 64 << 20, beside: None }
    }

    #[test]
    fn equal_servers_take_turns() {
        let all = servers(&[(1, "a", 100), (2, "a", 100), (3, "a", 100)]);
        let chains = Spread::new().choose(want(1, 9), &all).unwrap();
        for round in chains.chunks(3) {
            let mut ids: Vec<_> = round.iter().map(|c| c[0].0).collect();
            ids.sort();
            assert_eq!(ids, [1, 2, 3]);
        }
    }

    #[test]
    fn a_server_with_more_room_gets_more() {
        let all = servers(&[(1, "a", 99), (2, "a", 299)]);
        let chains = Spread::new().choose(want(1, 400), &all).unwrap();
        assert_eq!(chains.iter().filter(|c| c[0] == ServerId(2)).count(), 300);
    }

    #[test]
    fn copies_go_to_different_hosts_while_there_are_enough() {
        let all = servers(&[(1, "a", 500), (2, "a", 500), (3, "b", 10), (4, "c", 10)]);
        for chain in Spread::new().choose(want(3, 50), &all).unwrap() {
            let mut hosts: Vec<_> =
                chain.iter().map(|id| &all.iter().find(|c| c.id == *id).unwrap().domain.host).collect();
            hosts.sort();
            hosts.dedup();
            assert_eq!(hosts.len(), 3, "{chain:?}");
        }
        let chain = &Spread::new().choose(want(4, 1), &all).unwrap()[0];
        assert_eq!(chain.len(), 4, "four servers on three hosts still make a chain of four");
    }

    #[test]
    fn the_server_beside_the_writer_comes_first() {
        let all = servers(&[(1, "a", 100), (2, "b", 100), (3, "c", 100)]);
        let want = Want { beside: Some(ServerId(2)), ..want(2, 6) };
        assert!(Spread::new().choose(want, &all).unwrap().iter().all(|c| c[0] == ServerId(2) && c[1] != c[0]));
    }

    #[test]
    fn down_and_full_servers_are_never_chosen() {
        let mut all = servers(&[(1, "a", 100), (2, "b", 0), (3, "c", 100)]);
        all[2].up = false;
        assert!(Spread::new().choose(want(1, 5), &all).unwrap().iter().all(|c| c[0] == ServerId(1)));
        assert_eq!(Spread::new().choose(want(2, 1), &all), Err(NotEnough { wanted: 2, usable: 1 }));
    }

    /// Racks first, then hosts, then disks; and where a domain is too few, all that there are.
    #[test]
    fn no_two_copies_come_into_one_domain_while_that_can_be_avoided() {
        let places = [("r1", "a"), ("r1", "b"), ("r1", "c"), ("r2", "d"), ("r2", "e"), ("r3", "f")];
        let all: Vec<Candidate> =
            (1..).zip(places).map(|(id, (rack, host))| candidate(id, at(rack, host, 1), 100 << 30)).collect();
        let mut spread = Spread::new();
        for beside in [None, Some(ServerId(2))] {
            for chain in spread.choose(Want { beside, ..want(3, 50) }, &all).unwrap() {
                assert_eq!(crate::apart(&chain, &all), crate::apart_at_best(3, &all), "{chain:?}");
                assert!(chain.contains(&ServerId(6)), "the third rack has one server: {chain:?}");
            }
        }
        for chain in spread.choose(want(5, 20), &all).unwrap() {
            let apart = crate::apart(&chain, &all);
            assert_eq!((apart.racks, apart.hosts), (3, 5), "{chain:?}");
        }
        let disks = [(1, 7), (2, 7), (3, 8)].map(|(id, disk)| candidate(id, at("", "a", disk), 100 << 30));
        for chain in spread.choose(want(2, 10), &disks).unwrap() {
            assert!(chain.contains(&ServerId(3)), "two of one disk: {chain:?}");
        }
    }

    #[test]
    fn nothing_new_goes_to_a_server_that_leaves() {
        let mut all = servers(&[(1, "a", 100), (2, "b", 100), (3, "c", 100)]);
        all[1].takes_new = false;
        let beside = Want { beside: Some(ServerId(2)), ..want(2, 20) };
        assert!(Spread::new().choose(beside, &all).unwrap().iter().all(|c| !c.contains(&ServerId(2))));
        assert_eq!(Spread::new().choose(want(3, 1), &all), Err(NotEnough { wanted: 3, usable: 2 }));
    }
}
