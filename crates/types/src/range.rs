use serde::{Deserialize, Serialize};

/// A half-open range of bytes `[start, end)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ByteRange {
    pub start: u64,
    pub end: u64,
}

impl ByteRange {
    pub fn new(start: u64, end: u64) -> Self {
        debug_assert!(start <= end);
        ByteRange { start, end: end.max(start) }
    }

    /// `len` bytes at `offset`; ends at `u64::MAX` where the sum would overflow.
    pub fn at(offset: u64, len: u64) -> Self {
        ByteRange { start: offset, end: offset.saturating_add(len) }
    }

    pub fn len(self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub fn contains(self, other: ByteRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    pub fn overlaps(self, other: ByteRange) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// What both have; `None` if that is nothing.
    pub fn intersect(self, other: ByteRange) -> Option<ByteRange> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(ByteRange { start, end })
    }

    /// The range cut at multiples of `unit`: (index of the unit, range inside the unit). Used for chunks,
    /// blocks and stripes alike.
    pub fn split_by(self, unit: u64) -> impl Iterator<Item = (u64, ByteRange)> {
        debug_assert!(unit > 0);
        let mut at = self.start;
        std::iter::from_fn(move || {
            if at >= self.end {
                return None;
            }
            let index = at / unit;
            let base = index * unit;
            let end = self.end.min(base.saturating_add(unit));
            let piece = ByteRange { start: at - base, end: end - base };
            at = end;
            Some((index, piece))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_units() {
        let pieces: Vec<_> = ByteRange::at(10, 25).split_by(16).collect();
        assert_eq!(pieces, [(0, ByteRange::new(10, 16)), (1, ByteRange::new(0, 16)), (2, ByteRange::new(0, 3))]);
        assert_eq!(ByteRange::at(5, 0).split_by(16).count(), 0);
    }

    #[test]
    fn intersection_of_neighbours_is_nothing() {
        assert_eq!(ByteRange::new(0, 4).intersect(ByteRange::new(4, 8)), None);
        assert_eq!(ByteRange::new(0, 5).intersect(ByteRange::new(4, 8)), Some(ByteRange::new(4, 5)));
    }
}
