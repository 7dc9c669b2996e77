//! A set of slots, one bit each: what a metadata server holds, or may hold as far as is known. A copy shares the bits until one of the
//! two changes.

use crate::{SLOT_COUNT, Slot};
use std::fmt;
use std::sync::Arc;

const WORDS: usize = SLOT_COUNT.div_ceil(64) as usize;

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SlotSet(Arc<[u64; WORDS]>);

impl SlotSet {
    pub fn none() -> SlotSet {
        SlotSet(Arc::new([0; WORDS]))
    }

    pub fn all() -> SlotSet {
        (0..SLOT_COUNT).map(Slot).collect()
    }

    /// A number that is no slot's is in no set.
    pub fn has(&self, slot: Slot) -> bool {
        self.0.get((slot.0 / 64) as usize).is_some_and(|word| word & bit(slot) != 0)
    }

    pub fn insert(&mut self, slot: Slot) {
        if let Some(word) = Arc::make_mut(&mut self.0).get_mut((slot.0 / 64) as usize) {
            *word |= bit(slot);
        }
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..SLOT_COUNT).map(Slot).filter(|slot| self.has(*slot))
    }

    /// Those of this set that are in the other.
    pub fn both(&self, other: &SlotSet) -> SlotSet {
        self.zip(other, |own, other| own & other)
    }

    pub fn or(&self, other: &SlotSet) -> SlotSet {
        self.zip(other, |own, other| own | other)
    }

    /// Those of this set that are not in the other.
    pub fn without(&self, other: &SlotSet) -> SlotSet {
        self.zip(other, |own, other| own & !other)
    }

    /// With those of the other.
    pub fn extend(&mut self, other: &SlotSet) {
        if self.is_empty() {
            *self = other.clone();
        } else {
            *self = self.or(other);
        }
    }

    /// But for those of the other.
    pub fn remove(&mut self, other: &SlotSet) {
        if !self.is_empty() {
            *self = self.without(other);
        }
    }

    pub fn is_within(&self, other: &SlotSet) -> bool {
        self.0.iter().zip(other.0.iter()).all(|(own, other)| own & !other == 0)
    }

    fn zip(&self, other: &SlotSet, of: impl Fn(u64, u64) -> u64) -> SlotSet {
        SlotSet(Arc::new(std::array::from_fn(|word| of(self.0[word], other.0[word]))))
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> SlotSet {
        let mut set = SlotSet::none();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

/// Few by name, many by number.
impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len() {
            0..=8 => f.debug_set().entries(self.iter().map(|slot| slot.0)).finish(),
            some => write!(f, "{some} slots"),
        }
    }
}

fn bit(slot: Slot) -> u64 {
    1 << (slot.0 % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_sets() {
        let (even, small): (SlotSet, SlotSet) =
            (SlotSet::all().iter().filter(|slot| slot.0 % 2 == 0).collect(), (0..10).map(Slot).collect());
        let both = even.both(&small);
        assert_eq!(both.iter().map(|slot| slot.0).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
        assert_eq!((small.without(&even).len(), both.len()), (5, 5));
        assert!(both.is_within(&even) && both.is_within(&small) && !small.is_within(&even));
        assert!(SlotSet::none().is_empty() && !both.is_empty());
        assert_eq!((even.or(&small).len(), SlotSet::all().len() as u64), (even.len() + 5, SLOT_COUNT));
        assert_eq!(format!("{small:?} {:?}", both.without(&small)), "10 slots {}");
        assert!(!SlotSet::all().has(Slot(SLOT_COUNT)) && [Slot(u64::MAX)].into_iter().collect::<SlotSet>().is_empty());
    }
}
