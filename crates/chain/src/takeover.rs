//! Take-over: who goes on with a chunk in a new epoch, and from where (design.md §5 *Take-over*).
//!
//! Of the n members of the last epoch that was open, n - min_copies + 1 must answer: what an fsync was acknowledged for
//! is in min_copies prefixes, and n - min_copies servers are not enough to hold all of these. Who has answered refuses
//! older epochs from then on, so nothing is acknowledged in them that the answers do not show.
//!
//! The successor is the one with the longest prefix. It continues from there plus every newer block any answer holds;
//! it fetches from others what it has not. A block held by none goes back to the prefix and is counted.

use crate::BlockSet;
use crate::lineage::{Lineage, common};
use crate::record::Claims;
use braid_types::{ChainEpoch, ChunkId, OwnerTerm, ServerId, Version};
use serde::{Deserialize, Serialize};

/// What one server says of one chunk; `None` if it has nothing of it.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    pub server: ServerId,
    pub claims: Option<&'a Claims>,
    /// It owned the chunk until now, without a restart.
    pub owns: bool,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub chunk: ChunkId,
    pub epoch: ChainEpoch,
    /// Of each chain that may have acknowledged what the answers must show.
    pub counted: &'a [ServerId],
    /// The new chain, in order.
    pub members: &'a [ServerId],
    pub min_copies: usize,
    pub lineage_max: usize,
}

/// How a chunk goes on in an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decision {
    pub chunk: ChunkId,
    pub owner: ServerId,
    pub term: OwnerTerm,
    /// Ends with this epoch and the version it goes on from.
    pub lineage: Lineage,
    pub start: Version,
    /// Blocks that may differ from the start in any member: the first group of the epoch.
    pub opening: BlockSet,
    /// What the owner takes from others before it serves it, and the least version it is to have.
    pub fetch: Vec<(ServerId, Version, BlockSet)>,
    /// Blocks that went back to the prefix.
    pub lost: u64,
    /// Blocks that verify nowhere and are taken as they are.
    pub sealed: u64,
    pub end: u64,
}

impl Decision {
    /// The version of the opening group.
    pub fn opening_version(&self) -> Version {
        let chain_epoch = self.lineage.starts().last().map_or(ChainEpoch(0), |start| start.epoch);
        Version { chain_epoch, owner_term: self.term, counter: 0 }
    }
}

/// A take-over cannot be decided yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooFew {
    pub needed: usize,
    pub answered: usize,
    /// Who has not answered.
    pub missing: Vec<ServerId>,
}

/// How many of a chain's members must answer.
pub fn answers_needed(members: usize, min_copies: usize) -> usize {
    (members + 1).saturating_sub(min_copies).max(1)
}

pub fn decide(question: &Question, answers: &[Answer]) -> Result<Decision, TooFew> {
    let Question { chunk, epoch, counted, members, min_copies, lineage_max } = *question;
    let has_answered = |server: &ServerId| answers.iter().any(|answer| answer.server == *server);
    let answered = counted.iter().filter(|server| has_answered(server)).count();
    let needed = answers_needed(counted.len(), min_copies);
    let missing = || counted.iter().filter(|server| !has_answered(server)).copied().collect();
    if answered < needed {
        return Err(TooFew { needed, answered, missing: missing() });
    }
    let complete = |answer: &Answer| answer.claims.map_or(Version::default(), |claims| claims.complete());
    let place = |answer: &Answer| members.iter().position(|member| *member == answer.server);
    let candidates = answers.iter().filter(|answer| place(answer).is_some());
    let rank = |answer: &&Answer| {
        let bad = answer.claims.map_or(0, |claims| claims.bad.len());
        (complete(answer), std::cmp::Reverse(bad), answer.owns, std::cmp::Reverse(place(answer)))
    };
    let Some(successor) = candidates.max_by_key(rank) else {
        return Err(TooFew { needed: 1, answered: 0, missing: members.to_vec() });
    };
    let (owner, start, none) = (successor.server, complete(successor), Claims::default());
    let own = successor.claims.unwrap_or(&none);
    let lineage = own.lineage.extended(epoch, start, lineage_max);

    // Every newer block, in its newest version; the successor's own where versions are equal.
    let mut newer: Vec<(Version, bool, ServerId, BlockSet)> = Vec::new();
    let mut announced = BlockSet::new();
    for answer in answers {
        let Some(claims) = answer.claims else { continue };
        let held = claims.newer_than(start).into_iter();
        newer.extend(held.map(|(at, blocks)| (at, answer.server == owner, answer.server, blocks)));
        let groups = claims.changes.groups().iter().filter(|group| group.upto > start);
        groups.for_each(|group| announced.union(&group.blocks));
    }
    newer.sort_by_key(|(at, is_own, server, _)| std::cmp::Reverse((*at, *is_own, *server)));
    let (mut opening, mut fetch) = (BlockSet::new(), Vec::new());
    for (at, is_own, server, blocks) in newer {
        let blocks = blocks.without(&opening);
        opening.union(&blocks);
        if !is_own && !blocks.is_empty() {
            fetch.push((server, at, blocks));
        }
    }
    // What only a copy has that does not verify is taken as it is: old, new or torn is better than nothing.
    let mut taken_as_is = 0;
    for answer in answers.iter().filter(|answer| answer.server != owner) {
        let Some(claims) = answer.claims else { continue };
        let mut changed = BlockSet::new();
        let stale = claims.stale.iter().filter(|(at, _)| *at > start);
        let held = claims.changes.held_above(start, claims.end);
        held.iter().chain(stale).for_each(|(_, blocks)| changed.union(blocks));
        let torn = claims.bad.intersection(&changed).without(&opening).without(&held_below(own, start));
        if !torn.is_empty() {
            taken_as_is += torn.len();
            opening.union(&torn);
            fetch.push((answer.server, start, torn));
        }
    }
    let lost = announced.without(&opening).len();

    // Blocks that do not verify here are taken from a copy that has them at least as new as they must be.
    let mut sealed = own.bad.without(&opening);
    for block in sealed.runs().flatten().collect::<Vec<_>>() {
        let groups = own.changes.groups().iter().rev();
        let mut changed = groups.filter(|g| g.upto <= start && g.blocks.contains(block)).map(|g| g.upto);
        let needed = changed.next().unwrap_or(own.changes.floor());
        let one = BlockSet::of(block..block + 1);
        let has = |answer: &&Answer| {
            answer.server != owner
                && answer.claims.is_some_and(|claims| {
                    let stale = claims.stale.iter().any(|(_, blocks)| blocks.contains(block));
                    let told = common(&claims.lineage, claims.changes.told(), &lineage);
                    !claims.bad.contains(block) && !stale && !claims.changes.lacks(&one) && told >= needed
                })
        };
        if let Some(source) = answers.iter().find(has) {
            sealed.remove(block..block + 1);
            opening.insert(block..block + 1);
            fetch.push((source.server, needed, one));
        }
    }
    opening.union(&sealed);
    opening.union(&own.suspect);
    own.ahead.iter().for_each(|(_, blocks)| opening.union(blocks));
    let end = answers.iter().filter_map(|answer| answer.claims).map(|claims| claims.end).max().unwrap_or(0);
    let term = OwnerTerm(1);
    Ok(Decision { chunk, owner, term, lineage, start, opening, fetch, lost, sealed: sealed.len() + taken_as_is, end })
}

/// Blocks the successor has content of, at or below its prefix.
fn held_below(own: &Claims, start: Version) -> BlockSet {
    let mut held = if own.changes.floor() > Version::default() { BlockSet::of(0..own.end) } else { BlockSet::new() };
    let groups = own.changes.groups().iter().filter(|group| group.upto <= start);
    groups.for_each(|group| held.union(&group.blocks));
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Group;

    const A: ServerId = ServerId(1);
    const B: ServerId = ServerId(2);
    const C: ServerId = ServerId(3);

    fn v(counter: u64) -> Version {
        Version { chain_epoch: ChainEpoch(1), owner_term: OwnerTerm(1), counter }
    }

    fn set(blocks: &[u64]) -> BlockSet {
        blocks.iter().copied().collect()
    }

    /// Told of (upto, blocks, of these missing).
    fn claims(told: &[(u64, &[u64], &[u64])]) -> Claims {
        let mut claims = Claims { lineage: Lineage::new(ChainEpoch(1)), end: 9, ..Claims::default() };
        for (upto, blocks, missing) in told {
            let base = claims.changes.told();
            let group = Group { base, upto: v(*upto), blocks: set(blocks), missing: set(missing) };
            assert!(claims.changes.append(group, 64));
        }
        claims
    }

    fn decided(min_copies: usize, answers: &[(ServerId, &Claims)]) -> Result<Decision, TooFew> {
        let all = [A, B, C];
        let (chunk, epoch) = (ChunkId(1), ChainEpoch(2));
        let question = Question { chunk, epoch, counted: &all, members: &all, min_copies, lineage_max: 8 };
        let answer = |(server, claims): &(ServerId, &'_ Claims)| (*server, (*claims).clone());
        let kept: Vec<(ServerId, Claims)> = answers.iter().map(answer).collect();
        let answers: Vec<Answer> =
            kept.iter().map(|(server, claims)| Answer { server: *server, claims: Some(claims), owns: false }).collect();
        decide(&question, &answers)
    }

    #[test]
    fn n_minus_min_copies_plus_one_must_answer() {
        for (members, min_copies, needed) in [(1, 1, 1), (2, 2, 1), (3, 2, 2), (3, 1, 3), (3, 3, 1), (8, 2, 7)] {
            assert_eq!(answers_needed(members, min_copies), needed, "{members} {min_copies}");
        }
        let empty = claims(&[]);
        let refused = decided(2, &[(A, &empty)]).unwrap_err();
        assert_eq!(refused, TooFew { needed: 2, answered: 1, missing: vec![B, C] });
        assert!(decided(3, &[(A, &empty)]).is_ok());
    }

    #[test]
    fn the_longest_prefix_goes_on_with_every_newer_block() {
        let a = claims(&[(5, &[1], &[]), (9, &[2, 3, 4], &[2, 3, 4])]);
        let b = claims(&[(5, &[1], &[1]), (9, &[2, 3, 4], &[3, 4])]);
        let decision = decided(2, &[(A, &a), (B, &b)]).unwrap();
        assert_eq!((decision.owner, decision.start), (A, v(5)));
        assert_eq!(decision.fetch, [(B, v(9), set(&[2]))]);
        assert_eq!((decision.opening, decision.lost), (set(&[2]), 2), "3 and 4 are held by none");
    }

    #[test]
    fn of_two_newer_contents_the_newer_is_taken() {
        let a = claims(&[(5, &[1], &[]), (7, &[2, 6], &[6]), (9, &[2], &[2])]);
        let b = claims(&[(5, &[1], &[1]), (7, &[2, 6], &[6]), (9, &[2], &[])]);
        let decision = decided(2, &[(A, &a), (B, &b)]).unwrap();
        assert_eq!((decision.owner, decision.fetch), (A, vec![(B, v(9), set(&[2]))]));
        assert_eq!((decision.opening, decision.lost), (set(&[2]), 1));
    }

    #[test]
    fn a_bad_block_comes_from_a_copy_that_is_new_enough_or_is_sealed() {
        let good = claims(&[(5, &[1], &[]), (9, &[2], &[2])]);
        let bad = Claims { bad: set(&[1, 2]), sure: v(9), ..claims(&[(5, &[1], &[]), (9, &[2], &[])]) };
        let decision = decided(2, &[(A, &bad), (B, &good)]).unwrap();
        assert_eq!((decision.owner, decision.start), (A, v(9)));
        assert_eq!(decision.fetch, [(B, v(5), set(&[1]))]);
        assert_eq!((decision.opening, decision.sealed), (set(&[1, 2]), 1), "block 2 of version 9 verifies nowhere");
    }

    #[test]
    fn what_a_returning_server_alone_has_is_suspect_for_all() {
        let a = Claims { suspect: set(&[7]), sure: v(5), ..claims(&[(5, &[1], &[])]) };
        let decision = decided(2, &[(A, &a), (B, &claims(&[]))]).unwrap();
        assert_eq!((decision.owner, decision.opening), (A, set(&[7])));
    }
}
