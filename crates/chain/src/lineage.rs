//! Which epochs a copy's versions come from: where each began, in the one before it.
//!
//! A take-over may leave versions behind that only a silent server has. When that server is back, its versions and the
//! chain's have a common beginning and then part: [`common`] finds the last version both have.

use braid_types::{ChainEpoch, Version};
use serde::{Deserialize, Serialize};

/// An epoch of a chunk and the version it goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Start {
    pub epoch: ChainEpoch,
    pub from: Version,
}

/// The starts of the epochs that led to a copy's state, the oldest first; the oldest may be forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lineage(Vec<Start>);

impl Lineage {
    /// A chunk that begins in this epoch, with nothing.
    pub fn new(epoch: ChainEpoch) -> Lineage {
        Lineage(vec![Start { epoch, from: Version::default() }])
    }

    /// The lineage of an epoch that goes on from `from`, a version of this lineage.
    #[must_use]
    pub fn extended(&self, epoch: ChainEpoch, from: Version, max: usize) -> Lineage {
        let mut starts: Vec<Start> = self.0.iter().filter(|start| start.epoch <= from.chain_epoch).copied().collect();
        starts.push(Start { epoch, from });
        let forget = starts.len().saturating_sub(max.max(1));
        starts.drain(..forget);
        Lineage(starts)
    }

    pub fn starts(&self) -> &[Start] {
        &self.0
    }
}

/// The last version that both have: a copy at `told` in `mine`, and a chain whose lineage is `theirs`. Zero if nothing
/// common is known.
pub fn common(mine: &Lineage, told: Version, theirs: &Lineage) -> Version {
    let Some(shared) = mine.0.iter().rposition(|start| theirs.0.contains(start)) else { return Version::default() };
    let start = mine.0[shared];
    let later = mine.0[shared + 1..].iter().chain(theirs.0.iter().skip_while(|their| **their != start).skip(1));
    later.map(|start| start.from).chain([told]).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::OwnerTerm;

    fn v(epoch: u32, counter: u64) -> Version {
        Version { chain_epoch: ChainEpoch(epoch), owner_term: OwnerTerm(1), counter }
    }

    fn next(lineage: &Lineage, epoch: u32, from: Version) -> Lineage {
        lineage.extended(ChainEpoch(epoch), from, 8)
    }

    #[test]
    fn a_copy_in_the_same_lineage_has_lost_nothing() {
        let first = Lineage::new(ChainEpoch(1));
        let third = next(&next(&first, 2, v(1, 5)), 3, v(2, 4));
        assert_eq!(common(&first, v(1, 4), &third), v(1, 4));
        assert_eq!(common(&first, v(1, 5), &third), v(1, 5));
        assert_eq!(common(&third, v(3, 1), &third), v(3, 1));
        assert_eq!(common(&third, v(1, 2), &third), v(1, 2), "told little of what it was installed in");
    }

    #[test]
    fn what_a_silent_server_alone_had_is_behind_the_fork() {
        let first = Lineage::new(ChainEpoch(1));
        let second = next(&first, 2, v(1, 5));
        assert_eq!(common(&first, v(1, 9), &second), v(1, 5));
        // Epoch 2 was left behind as a whole: 3 goes on from epoch 1.
        let third = next(&first, 3, v(1, 3));
        assert_eq!(third.starts().len(), 2);
        assert_eq!(common(&second, v(2, 7), &third), v(1, 3));
        let other_third = next(&first, 3, v(1, 8));
        assert_eq!(common(&second, v(2, 7), &other_third), v(1, 5), "it never had what came after (1, 5)");
    }

    #[test]
    fn the_unknown_has_nothing_in_common() {
        assert_eq!(common(&Lineage::default(), v(1, 4), &Lineage::new(ChainEpoch(1))), Version::default());
        assert_eq!(common(&Lineage::new(ChainEpoch(1)), v(1, 4), &Lineage::new(ChainEpoch(2))), Version::default());
        let mut long = Lineage::new(ChainEpoch(1));
        for epoch in 2..20 {
            long = next(&long, epoch, v(epoch - 1, 3));
        }
        assert_eq!(long.starts().len(), 8);
        assert_eq!(common(&Lineage::new(ChainEpoch(1)), v(1, 2), &long), Version::default());
    }
}
