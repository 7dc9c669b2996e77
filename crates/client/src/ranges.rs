//! A set of byte ranges. Pure.

use braid_types::ByteRange;
use std::collections::BTreeMap;

/// Ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    pub fn add(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&s, &e)) = self.0.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Forgets everything from `at` on.
    pub fn cut(&mut self, at: u64) {
        drop(self.0.split_off(&at));
        if let Some((_, end)) = self.0.iter_mut().next_back() {
            *end = (*end).min(at);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = ByteRange> {
        self.0.iter().map(|(&start, &end)| ByteRange { start, end })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first position from `at` on that is inside (`inside`) or outside of the set.
    pub fn next(&self, at: u64, inside: bool) -> Option<u64> {
        let covering = self.0.range(..=at).next_back().filter(|&(_, &end)| end > at);
        match (covering, inside) {
            (Some(_), true) | (None, false) => Some(at),
            (Some((_, &end)), false) => Some(end),
            (None, true) => self.0.range(at..).next().map(|(&start, _)| start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_and_cuts_trim() {
        let mut set = RangeSet::default();
        for (start, end) in [(10, 20), (30, 40), (20, 25), (5, 12), (24, 31)] {
            set.add(ByteRange::new(start, end));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [ByteRange::new(5, 40)]);
        set.add(ByteRange::new(50, 60));
        set.cut(55);
        assert_eq!(set.iter().collect::<Vec<_>>(), [ByteRange::new(5, 40), ByteRange::new(50, 55)]);
        assert_eq!((set.next(7, false), set.next(41, true), set.next(55, true)), (Some(40), Some(50), None));
    }
}
