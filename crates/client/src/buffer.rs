//! Extents: bytes at offsets, newest on top. Pure; the write buffer and the retention are made of it.
//!
//! Promises: what was inserted last is what is read; large pieces are never copied; small ones that follow one
//! another are gathered into runs of at most [`RUN_BYTES`], so that 4 KiB writes do not cost a message each.

use braid_types::ByteRange;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

/// The longest run made of small pieces, and the largest payload of one message.
pub const RUN_BYTES: usize = 1 << 20;
/// Pieces below this are copied into a run; a copy of 128 KiB costs about what a message does.
pub const SMALL_BYTES: usize = 128 << 10;

enum Data {
    Whole(Bytes),
    /// A run that may still grow.
    Open(BytesMut),
}

impl Data {
    fn as_slice(&self) -> &[u8] {
        match self {
            Data::Whole(bytes) => bytes,
            Data::Open(bytes) => bytes,
        }
    }

    fn split_off(&mut self, at: usize) -> Data {
        match self {
            Data::Whole(bytes) => Data::Whole(bytes.split_off(at)),
            Data::Open(bytes) => Data::Open(bytes.split_off(at)),
        }
    }

    fn freeze(self) -> Bytes {
        match self {
            Data::Whole(bytes) => bytes,
            Data::Open(bytes) => bytes.freeze(),
        }
    }
}

struct Piece<T> {
    data: Data,
    tag: T,
}

impl<T> Piece<T> {
    fn len(&self) -> u64 {
        self.data.as_slice().len() as u64
    }
}

pub struct Extents<T = ()> {
    pieces: BTreeMap<u64, Piece<T>>,
    bytes: u64,
}

impl<T> Default for Extents<T> {
    fn default() -> Self {
        Extents { pieces: BTreeMap::new(), bytes: 0 }
    }
}

impl<T: Copy + PartialEq> Extents<T> {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// End of the last byte; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.pieces.last_key_value().map_or(0, |(&start, piece)| start + piece.len())
    }

    /// Puts `data` on top, gathering small pieces.
    pub fn insert(&mut self, offset: u64, data: Bytes, tag: T) {
        if data.is_empty() || self.overwrite(offset, &data, tag) {
            return;
        }
        let range = ByteRange::at(offset, data.len() as u64);
        self.remove(range);
        if data.len() >= SMALL_BYTES {
            return self.add(offset, Data::Whole(data), tag);
        }
        if !self.append(offset, &data, tag) {
            self.add(offset, Data::Open(BytesMut::from(&data[..])), tag);
        }
    }

    /// Puts `data` on top as it is, without gathering or copying.
    pub fn insert_whole(&mut self, offset: u64, data: Bytes, tag: T) {
        if !data.is_empty() {
            self.remove(ByteRange::at(offset, data.len() as u64));
            self.add(offset, Data::Whole(data), tag);
        }
    }

    /// Puts `data` only where nothing is.
    pub fn insert_under(&mut self, offset: u64, data: Bytes, tag: T) {
        for gap in self.gaps(ByteRange::at(offset, data.len() as u64)) {
            let piece = data.slice((gap.start - offset) as usize..(gap.end - offset) as usize);
            self.add(gap.start, Data::Whole(piece), tag);
        }
    }

    fn add(&mut self, offset: u64, data: Data, tag: T) {
        self.bytes += data.as_slice().len() as u64;
        self.pieces.insert(offset, Piece { data, tag });
    }

    /// In place, if one growing run holds the whole range.
    fn overwrite(&mut self, offset: u64, data: &[u8], tag: T) -> bool {
        let Some((&start, piece)) = self.pieces.range_mut(..=offset).next_back() else { return false };
        let at = (offset - start) as usize;
        match &mut piece.data {
            Data::Open(run) if piece.tag == tag && at + data.len() <= run.len() => {
                run[at..at + data.len()].copy_from_slice(data);
                true
            }
            _ => false,
        }
    }

    fn append(&mut self, offset: u64, data: &[u8], tag: T) -> bool {
        let Some((&start, piece)) = self.pieces.range_mut(..offset).next_back() else { return false };
        let len = piece.data.as_slice().len();
        if start + len as u64 != offset || piece.tag != tag || len + data.len() > RUN_BYTES {
            return false;
        }
        match &mut piece.data {
            Data::Open(run) => run.extend_from_slice(data),
            Data::Whole(_) => return false,
        }
        self.bytes += data.len() as u64;
        true
    }

    /// Forgets the range.
    pub fn remove(&mut self, range: ByteRange) {
        drop(self.take(range));
    }

    /// Cuts the range out.
    pub fn take(&mut self, range: ByteRange) -> Extents<T> {
        let mut taken = Extents::default();
        if range.is_empty() {
            return taken;
        }
        self.split_at(range.start);
        self.split_at(range.end);
        let keys: Vec<u64> = self.pieces.range(range.start..range.end).map(|(&start, _)| start).collect();
        for start in keys {
            if let Some(piece) = self.pieces.remove(&start) {
                self.bytes -= piece.len();
                taken.add(start, piece.data, piece.tag);
            }
        }
        taken
    }

    fn split_at(&mut self, at: u64) {
        let Some((&start, piece)) = self.pieces.range_mut(..at).next_back() else { return };
        if start + piece.len() > at {
            let data = piece.data.split_off((at - start) as usize);
            let tag = piece.tag;
            self.pieces.insert(at, Piece { data, tag });
        }
    }

    /// Everything, in order of offsets.
    pub fn into_pieces(self) -> impl Iterator<Item = (u64, Bytes, T)> {
        self.pieces.into_iter().map(|(start, piece)| (start, piece.data.freeze(), piece.tag))
    }

    fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = (u64, &Piece<T>)> {
        let first = self.pieces.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        let end = range.end.max(first);
        self.pieces
            .range(first..end)
            .map(|(&start, piece)| (start, piece))
            .filter(move |(start, piece)| ByteRange::at(*start, piece.len()).overlaps(range))
    }

    /// Parts of the range that hold nothing.
    pub fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (start, piece) in self.overlapping(range) {
            if start > at {
                gaps.push(ByteRange::new(at, start));
            }
            at = start + piece.len();
        }
        if at < range.end {
            gaps.push(ByteRange::new(at, range.end));
        }
        gaps
    }

    /// What lies in the range, as pieces that stay as they are whatever is written later.
    pub fn snapshot(&self, range: ByteRange) -> Vec<(u64, Bytes)> {
        let part = |start: u64, piece: &Piece<T>| {
            let cut = ByteRange::at(start, piece.len()).intersect(range)?;
            let (from, until) = ((cut.start - start) as usize, (cut.end - start) as usize);
            let bytes = match &piece.data {
                Data::Whole(bytes) => bytes.slice(from..until),
                Data::Open(run) => Bytes::copy_from_slice(&run[from..until]),
            };
            Some((cut.start, bytes))
        };
        self.overlapping(range).filter_map(|(start, piece)| part(start, piece)).collect()
    }

    /// Where bytes are, neighbours joined.
    pub fn ranges(&self) -> Vec<ByteRange> {
        let mut ranges: Vec<ByteRange> = Vec::new();
        for (&start, piece) in &self.pieces {
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end += piece.len(),
                _ => ranges.push(ByteRange::at(start, piece.len())),
            }
        }
        ranges
    }

    pub fn tags(&self) -> impl Iterator<Item = (u64, u64, T)> {
        self.pieces.iter().map(|(&start, piece)| (start, piece.len(), piece.tag))
    }

    /// Drops pieces whose tag does not pass.
    pub fn keep(&mut self, mut pass: impl FnMut(T) -> bool) {
        let bytes = &mut self.bytes;
        self.pieces.retain(|_, piece| {
            let keep = pass(piece.tag);
            if !keep {
                *bytes -= piece.len();
            }
            keep
        });
    }

    /// Where a run without a gap begins around `offset`, and whether it has at least [`RUN_BYTES`].
    pub fn run_around(&self, offset: u64) -> Option<u64> {
        let (&start, piece) = self.pieces.range(..=offset).next_back()?;
        let (mut first, mut end) = (start, start + piece.len());
        let enough = |first: u64, end: u64| end - first >= RUN_BYTES as u64;
        for (&start, piece) in self.pieces.range(..first).rev() {
            if enough(first, end) || start + piece.len() != first {
                break;
            }
            first = start;
        }
        for (&start, piece) in self.pieces.range(end..) {
            if enough(first, end) || start != end {
                break;
            }
            end += piece.len();
        }
        enough(first, end).then_some(first)
    }

    /// The first offset within the range that holds something.
    pub fn first_in(&self, range: ByteRange) -> Option<u64> {
        self.overlapping(range).next().map(|(start, _)| start.max(range.start))
    }

    /// Takes the first bytes inside `range` as one payload of at most `max`: a large piece alone, small
    /// neighbours joined.
    pub fn take_run(&mut self, range: ByteRange, max: u64) -> Option<(u64, Bytes)> {
        let first = self.first_in(range)?;
        let limit = range.end.min(first.saturating_add(max));
        let mut end = first;
        let mut count = 0;
        for (start, piece) in self.overlapping(ByteRange::new(first, limit)) {
            let large = piece.len() >= SMALL_BYTES as u64;
            if start > end || (large && count > 0) {
                break;
            }
            end = limit.min(start + piece.len());
            count += 1;
            if large {
                break;
            }
        }
        let mut pieces = self.take(ByteRange::new(first, end)).into_pieces();
        let (_, bytes, _) = pieces.next()?;
        if count <= 1 {
            return Some((first, bytes));
        }
        let mut joined = BytesMut::with_capacity((end - first) as usize);
        joined.extend_from_slice(&bytes);
        pieces.for_each(|(_, bytes, _)| joined.extend_from_slice(&bytes));
        Some((first, joined.freeze()))
    }
}

/// Copies pieces over `out`, which holds the bytes from `base` on.
pub fn paint(out: &mut [u8], base: u64, pieces: &[(u64, Bytes)]) {
    let whole = ByteRange::at(base, out.len() as u64);
    for (offset, bytes) in pieces {
        if let Some(cut) = ByteRange::at(*offset, bytes.len() as u64).intersect(whole) {
            let from = &bytes[(cut.start - offset) as usize..(cut.end - offset) as usize];
            out[(cut.start - base) as usize..(cut.end - base) as usize].copy_from_slice(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

    const SPACE: usize = 600 << 10;

    struct Pair {
        extents: Extents<u32>,
        bytes: Vec<Option<u8>>,
    }

    impl Pair {
        fn check(&self) {
            let count = self.bytes.iter().flatten().count() as u64;
            assert_eq!(self.extents.bytes(), count);
            let mut seen = vec![None; SPACE];
            for (offset, bytes) in self.extents.snapshot(ByteRange::new(0, SPACE as u64)) {
                for (i, &b) in bytes.iter().enumerate() {
                    seen[offset as usize + i] = Some(b);
                }
            }
            assert!(seen == self.bytes);
        }
    }

    fn random_range(rng: &mut StdRng) -> ByteRange {
        let max = if rng.random_range(0..4) == 0 { 200 << 10 } else { 9000 };
        let start = rng.random_range(0..SPACE as u64);
        ByteRange::new(start, (start + rng.random_range(1..max)).min(SPACE as u64))
    }

    fn fill(rng: &mut StdRng, len: u64) -> Bytes {
        let mut data = vec![0; len as usize];
        rng.fill_bytes(&mut data);
        data.into()
    }

    #[test]
    fn random_operations_agree_with_a_plain_array() {
        for seed in 0..40 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut pair = Pair { extents: Extents::default(), bytes: vec![None; SPACE] };
            let mut last = 0;
            for _ in 0..60 {
                let mut range = random_range(&mut rng);
                let slice = |r: ByteRange| r.start as usize..r.end as usize;
                match rng.random_range(0..7) {
                    0 | 1 => {
                        if rng.random_range(0..2) == 0 {
                            range = ByteRange::new(last, (last + range.len()).min(SPACE as u64));
                        }
                        let data = fill(&mut rng, range.len());
                        pair.bytes[slice(range)].iter_mut().zip(&data).for_each(|(to, &b)| *to = Some(b));
                        pair.extents.insert(range.start, data, rng.random_range(0..2));
                        last = range.end;
                    }
                    2 => {
                        let data = fill(&mut rng, range.len());
                        pair.bytes[slice(range)].iter_mut().zip(&data).for_each(|(to, &b)| {
                            to.get_or_insert(b);
                        });
                        pair.extents.insert_under(range.start, data, 7);
                    }
                    3 => {
                        pair.extents.remove(range);
                        pair.bytes[slice(range)].fill(None);
                    }
                    4 => {
                        let gaps = pair.extents.gaps(range);
                        for at in range.start..range.end {
                            let gap = gaps.iter().any(|g| g.start <= at && at < g.end);
                            assert_eq!(gap, pair.bytes[at as usize].is_none());
                        }
                    }
                    5 => {
                        if let Some((offset, data)) = pair.extents.take_run(range, 50_000) {
                            assert!(data.len() <= 50_000 && offset >= range.start);
                            let first = (range.start..range.end).find(|&at| pair.bytes[at as usize].is_some());
                            assert_eq!(first, Some(offset));
                            for (i, &b) in data.iter().enumerate() {
                                assert_eq!(pair.bytes[offset as usize + i].take(), Some(b));
                            }
                        }
                    }
                    _ => {
                        for run in pair.extents.ranges() {
                            assert!(pair.bytes[slice(run)].iter().all(Option::is_some));
                        }
                    }
                }
                pair.check();
            }
        }
    }

    #[test]
    fn small_writes_in_a_row_become_one_run() {
        let mut extents = Extents::default();
        for i in 0..256u64 {
            extents.insert(i * 4096, Bytes::from(vec![i as u8; 4096]), ());
        }
        assert_eq!(extents.run_around(5000), Some(0));
        let (offset, run) = extents.take_run(ByteRange::new(0, u64::MAX), RUN_BYTES as u64).unwrap();
        assert_eq!((offset, run.len()), (0, RUN_BYTES));
        assert!(extents.is_empty());
    }

    #[test]
    fn a_large_piece_is_not_copied() {
        let data = Bytes::from(vec![1; RUN_BYTES]);
        let mut extents = Extents::default();
        extents.insert(10, data.clone(), ());
        let (_, out) = extents.take_run(ByteRange::new(0, u64::MAX), RUN_BYTES as u64).unwrap();
        assert_eq!(out.as_ptr(), data.as_ptr());
    }
}
