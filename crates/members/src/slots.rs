//! A set of slots, one bit each: what a member holds, or may hold as far as is known.

use braid_types::{SLOT_COUNT, Slot};

const WORDS: usize = SLOT_COUNT.div_ceil(64) as usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots([u64; WORDS]);

impl Slots {
    pub fn none() -> Slots {
        Slots([0; WORDS])
    }

    pub fn all() -> Slots {
        (0..SLOT_COUNT).map(Slot).collect()
    }

    /// A number that is no slot's is in no set.
    pub fn has(&self, slot: Slot) -> bool {
        self.0.get((slot.0 / 64) as usize).is_some_and(|word| word & bit(slot) != 0)
    }

    pub fn insert(&mut self, slot: Slot) {
        if let Some(word) = self.0.get_mut((slot.0 / 64) as usize) {
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
    pub fn both(&self, other: &Slots) -> Slots {
        self.zip(other, |own, other| own & other)
    }

    pub fn or(&self, other: &Slots) -> Slots {
        self.zip(other, |own, other| own | other)
    }

    /// Those of this set that are not in the other.
    pub fn without(&self, other: &Slots) -> Slots {
        self.zip(other, |own, other| own & !other)
    }

    pub fn is_within(&self, other: &Slots) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| own & !other == 0)
    }

    fn zip(&self, other: &Slots, of: impl Fn(u64, u64) -> u64) -> Slots {
        Slots(std::array::from_fn(|word| of(self.0[word], other.0[word])))
    }
}

impl FromIterator<Slot> for Slots {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Slots {
        let mut set = Slots::none();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
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
        let (even, small): (Slots, Slots) =
            (Slots::all().iter().filter(|slot| slot.0 % 2 == 0).collect(), (0..10).map(Slot).collect());
        let both = even.both(&small);
        assert_eq!(both.iter().map(|slot| slot.0).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
        assert_eq!((small.without(&even).len(), both.len()), (5, 5));
        assert!(both.is_within(&even) && both.is_within(&small) && !small.is_within(&even));
        assert!(Slots::none().is_empty() && !both.is_empty());
        assert_eq!((even.or(&small).len(), Slots::all().len() as u64), (even.len() + 5, SLOT_COUNT));
        assert!(!Slots::all().has(Slot(SLOT_COUNT)) && [Slot(u64::MAX)].into_iter().collect::<Slots>().is_empty());
    }
}
