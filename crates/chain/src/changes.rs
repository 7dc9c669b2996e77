//! What changed in a chunk, in groups, and what of it a copy lacks.
//!
//! A copy that was *told* of version T knows for each group of changes up to T which blocks it has and which it lacks.
//! From that follow its two promises: *complete*, the version up to which it has every write (in memory is enough; the
//! prefix of design.md §1 is this when it was last synced), and *missing*, the blocks it must not serve.

use crate::BlockSet;
use braid_types::Version;
use serde::{Deserialize, Serialize};

/// The writes after `base`, up to `upto`: the blocks they changed, and those whose content has not come yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Group {
    pub base: Version,
    pub upto: Version,
    pub blocks: BlockSet,
    pub missing: BlockSet,
}

impl Group {
    fn held(&self) -> BlockSet {
        self.blocks.without(&self.missing)
    }

    /// With what comes right after it.
    fn merge(&mut self, next: Group) {
        self.upto = next.upto;
        self.blocks.union(&next.blocks);
        self.missing.union(&next.missing);
    }
}

/// Groups that follow each other from `floor` on. Below the floor nothing is missing and nothing is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Changes {
    floor: Version,
    groups: Vec<Group>,
}

impl Changes {
    /// A copy that has everything up to here, and nothing to tell of how it came.
    pub fn from(floor: Version) -> Changes {
        Changes { floor, groups: Vec::new() }
    }

    pub fn floor(&self) -> Version {
        self.floor
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub fn told(&self) -> Version {
        self.groups.last().map_or(self.floor, |group| group.upto)
    }

    /// Every write up to here is in this copy.
    pub fn complete(&self) -> Version {
        self.groups.iter().find(|group| !group.missing.is_empty()).map_or(self.told(), |group| group.base)
    }

    pub fn missing(&self) -> BlockSet {
        let mut all = BlockSet::new();
        self.groups.iter().for_each(|group| all.union(&group.missing));
        all
    }

    pub fn lacks(&self, blocks: &BlockSet) -> bool {
        self.groups.iter().any(|group| group.missing.touches_any(blocks))
    }

    /// The version a block's content must have to be taken: of the last group that lacks it. `None`: it is here.
    pub fn wanted(&self, block: u64) -> Option<Version> {
        self.groups.iter().rev().find(|group| group.missing.contains(block)).map(|group| group.upto)
    }

    /// What was written after `version`, as far as it is here: (up to which version, blocks), the oldest first.
    pub fn held_above(&self, version: Version, end: u64) -> Vec<(Version, BlockSet)> {
        let mut held = Vec::new();
        if version < self.floor {
            // How it came to the floor is forgotten: any block may have changed.
            held.push((self.floor, BlockSet::of(0..end)));
        }
        held.extend(self.groups.iter().filter(|group| group.upto > version).map(|group| (group.upto, group.held())));
        held
    }

    /// A group that follows. False, and no change, if something is between.
    #[must_use]
    pub fn append(&mut self, group: Group, groups_max: usize) -> bool {
        if group.base != self.told() {
            return false;
        }
        self.groups.push(group);
        self.compact(groups_max);
        true
    }

    /// Content came that has every write up to `at`.
    pub fn arrived(&mut self, blocks: &BlockSet, at: Version) {
        self.groups.iter_mut().filter(|group| group.upto <= at).for_each(|group| group.missing.subtract(blocks));
    }

    /// Takes back what was told after `fork`. What of it is here stays on the disk: the caller must know it
    /// ([`Changes::held_above`]). Must not be called for a fork below the floor.
    pub fn go_back(&mut self, fork: Version) {
        self.groups.retain(|group| group.base < fork);
        if let Some(last) = self.groups.last_mut() {
            last.upto = last.upto.min(fork);
        }
    }

    /// All members of the chain have everything up to `agreed` on stable storage: how it came is of no more use.
    pub fn forget(&mut self, agreed: Version) {
        let old = self.groups.iter().take_while(|group| group.upto <= agreed && group.missing.is_empty()).count();
        if let Some(last) = self.groups.drain(..old).next_back() {
            self.floor = last.upto;
        }
    }

    /// What a copy that was told of `from` has to be told: (base, upto, blocks). `None`: it is not known any more.
    pub fn since(&self, from: Version) -> Option<Vec<(Version, Version, BlockSet)>> {
        let newer = self.groups.iter().filter(|group| group.upto > from);
        let told = newer.map(|group| (group.base.max(from), group.upto, group.blocks.clone())).collect();
        (from >= self.floor).then_some(told)
    }

    /// Merges groups until there are few enough, without moving `complete`: the two oldest if both are complete or both
    /// belong to what is incomplete anyway, else the two newest. The last may give up a claim to a block that is here
    /// in an older and missing in a newer version; no promise rests on it, for promises rest on `complete`.
    fn compact(&mut self, groups_max: usize) {
        while self.groups.len() > groups_max.max(4) {
            let complete = |i: usize| self.groups[i].missing.is_empty();
            let at = if complete(0) && complete(1) { 0 } else { self.groups.len() - 2 };
            // With the two newest: if the older of them is complete and all before it, `complete` would fall.
            let at = if at > 0 && self.complete() >= self.groups[at].upto { at - 1 } else { at };
            let next = self.groups.remove(at + 1);
            self.groups[at].merge(next);
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        self.groups.iter().map(|g| 100 + g.blocks.memory_bytes() + g.missing.memory_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::{ChainEpoch, OwnerTerm};

    fn v(counter: u64) -> Version {
        Version { chain_epoch: ChainEpoch(1), owner_term: OwnerTerm(1), counter }
    }

    fn set(blocks: &[u64]) -> BlockSet {
        blocks.iter().copied().collect()
    }

    fn told(base: u64, upto: u64, blocks: &[u64]) -> Group {
        Group { base: v(base), upto: v(upto), blocks: set(blocks), missing: set(blocks) }
    }

    fn changes(groups: &[Group]) -> Changes {
        let mut changes = Changes::from(v(0));
        groups.iter().for_each(|group| assert!(changes.append(group.clone(), 64)));
        changes
    }

    #[test]
    fn nothing_is_complete_beyond_a_gap() {
        let mut changes = changes(&[told(0, 5, &[1, 2]), told(5, 9, &[2, 3])]);
        assert!(!changes.append(told(10, 12, &[1]), 64), "(9, 10] was never told");
        assert_eq!((changes.told(), changes.complete()), (v(9), v(0)));
        changes.arrived(&set(&[2, 3]), v(9));
        assert_eq!(changes.complete(), v(0), "block 1 of the first group is not here");
        changes.arrived(&set(&[1]), v(5));
        assert_eq!(changes.complete(), v(9));
    }

    #[test]
    fn old_content_does_not_make_a_block_valid() {
        let mut changes = changes(&[told(0, 5, &[1]), told(5, 9, &[1])]);
        changes.arrived(&set(&[1]), v(5));
        assert_eq!((changes.complete(), changes.wanted(1)), (v(5), Some(v(9))));
        assert_eq!(changes.held_above(v(0), 9), [(v(5), set(&[1])), (v(9), set(&[]))]);
        changes.arrived(&set(&[1]), v(9));
        assert_eq!((changes.complete(), changes.wanted(1)), (v(9), None));
    }

    #[test]
    fn going_back_keeps_what_was_before() {
        let mut changes = changes(&[told(0, 5, &[1]), told(5, 9, &[2]), told(9, 12, &[3])]);
        changes.arrived(&set(&[3]), v(12));
        changes.go_back(v(7));
        assert_eq!((changes.told(), changes.missing()), (v(7), set(&[1, 2])));
        changes.go_back(v(5));
        assert_eq!((changes.told(), changes.missing()), (v(5), set(&[1])));
        changes.go_back(v(0));
        assert_eq!((changes.told(), changes.complete()), (v(0), v(0)));
    }

    #[test]
    fn who_was_away_is_told_exactly_what_changed() {
        let mut changes = changes(&[told(0, 5, &[1]), told(5, 9, &[2])]);
        assert_eq!(changes.since(v(9)), Some(vec![]));
        assert_eq!(changes.since(v(5)), Some(vec![(v(5), v(9), set(&[2]))]));
        assert_eq!(changes.since(v(3)), Some(vec![(v(3), v(5), set(&[1])), (v(5), v(9), set(&[2]))]));
        changes.forget(v(7));
        assert_eq!(changes.floor(), v(0), "what is missing is not forgotten");
        changes.arrived(&set(&[1, 2]), v(9));
        changes.forget(v(7));
        assert_eq!((changes.floor(), changes.since(v(3)), changes.told()), (v(5), None, v(9)));
        assert_eq!(changes.held_above(v(3), 2), [(v(5), set(&[0, 1])), (v(9), set(&[2]))]);
    }

    #[test]
    fn groups_are_bounded_and_promises_stay() {
        for arrive_upto in [0, 7, 100] {
            let mut changes = Changes::from(v(0));
            for i in 0..100 {
                assert!(changes.append(told(i, i + 1, &[i, i + 1]), 6));
                if i < arrive_upto {
                    changes.arrived(&set(&[i, i + 1]), v(i + 1));
                }
                assert_eq!(changes.complete(), v((i + 1).min(arrive_upto)), "after {i}");
            }
            assert!(changes.groups().len() <= 6);
            assert_eq!(
                changes.since(v(0)).unwrap().iter().fold(BlockSet::new(), |mut all, (_, _, blocks)| {
                    all.union(blocks);
                    all
                }),
                BlockSet::of(0..101)
            );
        }
    }
}
