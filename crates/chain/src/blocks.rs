//! Sets of 4 KiB blocks of a chunk: what changed, what is invalid, what a copy lacks.
//!
//! Promises: equal sets are equal values, on the wire and on disk too; memory is bounded by the chunk's size however
//! the blocks lie.
//!
//! A set is cut into pages of 4,096 blocks (16 MiB of data). A page with up to 64 runs keeps them, 4 bytes each; one
//! with more keeps 4,096 bits. So a page costs at most 512 bytes and about 60 of bookkeeping:
//!
//! | chunk | pages | at most | everything invalid (one run a page) |
//! | --- | --- | --- | --- |
//! | 64 MiB | 4 | 2.3 KB | 0.3 KB |
//! | 1 GiB | 64 | 37 KB | 5 KB |
//! | 1 TiB | 65,536 | 37 MB | 5 MB |
//!
//! The worst case needs a change in every other block of the whole chunk between two announcements, which are made
//! after 8 MiB at the latest: an announcement of 2,048 scattered blocks costs at most 2,048 pages of one run, 156 KB.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

const PAGE: u64 = 4096;
const WORDS: usize = 64;
const RUNS_MAX: usize = 64;
/// Blocks of the largest chunk, 1 TiB, and a page for what a chunk has beside its bytes (its head is block 0).
pub const BLOCKS_MAX: u64 = (1 << 28) + PAGE;

/// A set of blocks, by their number in the chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, PageForm)>", into = "Vec<(u32, PageForm)>")]
pub struct BlockSet {
    /// None is empty.
    pages: BTreeMap<u32, Page>,
    len: u64,
}

/// The one form for each set of blocks: runs while there are few.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Page {
    /// First and last of each, ascending, with a gap between two.
    Runs(Vec<(u16, u16)>),
    Bits(Box<[u64; WORDS]>),
}

/// A page outside this process.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum PageForm {
    Runs(Vec<(u16, u16)>),
    /// 512 bytes, little-endian.
    Bits(Vec<u8>),
}

type Bits = [u64; WORDS];

fn set(bits: &mut Bits, first: u64, end: u64, on: bool) {
    let (mut at, end) = (first.min(PAGE), end.min(PAGE));
    while at < end {
        let (word, bit) = ((at / 64) as usize, at % 64);
        let n = (64 - bit).min(end - at);
        let mask = if n == 64 { u64::MAX } else { ((1 << n) - 1) << bit };
        if on {
            bits[word] |= mask;
        } else {
            bits[word] &= !mask;
        }
        at += n;
    }
}

/// The next block from `at` on that is in the set (or is not), or the page's end.
fn next(bits: &Bits, at: u64, on: bool) -> u64 {
    let mut at = at;
    while at < PAGE {
        let word = bits[(at / 64) as usize];
        let rest = (if on { word } else { !word }) >> (at % 64);
        if rest != 0 {
            return at + u64::from(rest.trailing_zeros());
        }
        at = (at / 64 + 1) * 64;
    }
    PAGE
}

fn runs_of(bits: &Bits) -> impl Iterator<Item = (u64, u64)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = next(bits, at, true);
        if first >= PAGE {
            return None;
        }
        at = next(bits, first, false);
        Some((first, at))
    })
}

impl Page {
    fn bits(&self) -> Bits {
        match self {
            Page::Bits(bits) => **bits,
            Page::Runs(runs) => {
                let mut bits = [0; WORDS];
                runs.iter().for_each(|(first, last)| set(&mut bits, u64::from(*first), u64::from(*last) + 1, true));
                bits
            }
        }
    }

    /// `None` for nothing.
    fn of(bits: &Bits) -> Option<Page> {
        let runs: Vec<(u16, u16)> =
            runs_of(bits).take(RUNS_MAX + 1).map(|(first, end)| (first as u16, (end - 1) as u16)).collect();
        match runs.len() {
            0 => None,
            n if n > RUNS_MAX => Some(Page::Bits(Box::new(*bits))),
            _ => Some(Page::Runs(runs)),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Page::Runs(runs) => runs.iter().map(|(first, last)| u64::from(last - first) + 1).sum(),
            Page::Bits(bits) => bits.iter().map(|word| u64::from(word.count_ones())).sum(),
        }
    }
}

impl BlockSet {
    pub fn new() -> BlockSet {
        BlockSet::default()
    }

    pub fn of(range: Range<u64>) -> BlockSet {
        let mut set = BlockSet::new();
        set.insert(range);
        set
    }

    /// Blocks past the end of the largest chunk are not kept.
    pub fn insert(&mut self, range: Range<u64>) {
        self.change(range, true);
    }

    pub fn remove(&mut self, range: Range<u64>) {
        self.change(range, false);
    }

    fn change(&mut self, range: Range<u64>, on: bool) {
        let end = range.end.min(BLOCKS_MAX);
        let mut at = range.start;
        while at < end {
            let (page, base) = ((at / PAGE) as u32, at / PAGE * PAGE);
            let stop = end.min(base + PAGE);
            self.edit(page, |bits| set(bits, at - base, stop - base, on));
            at = stop;
        }
    }

    fn edit(&mut self, page: u32, edit: impl FnOnce(&mut Bits)) {
        let entry = self.pages.entry(page);
        let mut bits = match &entry {
            Entry::Occupied(old) => {
                self.len -= old.get().len();
                old.get().bits()
            }
            Entry::Vacant(_) => [0; WORDS],
        };
        edit(&mut bits);
        match (Page::of(&bits), entry) {
            (Some(new), entry) => {
                self.len += new.len();
                entry.insert_entry(new);
            }
            (None, Entry::Occupied(old)) => drop(old.remove()),
            (None, Entry::Vacant(_)) => {}
        }
    }

    pub fn union(&mut self, other: &BlockSet) {
        for (page, theirs) in &other.pages {
            let theirs = theirs.bits();
            self.edit(*page, |bits| bits.iter_mut().zip(theirs).for_each(|(a, b)| *a |= b));
        }
    }

    pub fn subtract(&mut self, other: &BlockSet) {
        let pages: Vec<u32> = self.pages.keys().filter(|page| other.pages.contains_key(page)).copied().collect();
        for page in pages {
            let theirs = other.pages[&page].bits();
            self.edit(page, |bits| bits.iter_mut().zip(theirs).for_each(|(a, b)| *a &= !b));
        }
    }

    #[must_use]
    pub fn intersection(&self, other: &BlockSet) -> BlockSet {
        let mut both = BlockSet::new();
        for (page, theirs) in &other.pages {
            let Some(ours) = self.pages.get(page) else { continue };
            let (ours, theirs) = (ours.bits(), theirs.bits());
            both.edit(*page, |bits| (0..WORDS).for_each(|i| bits[i] = ours[i] & theirs[i]));
        }
        both
    }

    #[must_use]
    pub fn without(&self, other: &BlockSet) -> BlockSet {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Blocks in the set.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn contains(&self, block: u64) -> bool {
        self.touches(block..block + 1)
    }

    /// Is any block of the range in the set?
    pub fn touches(&self, range: Range<u64>) -> bool {
        let end = range.end.min(BLOCKS_MAX);
        if range.start >= end || self.pages.is_empty() {
            return false;
        }
        let (from, to) = ((range.start / PAGE) as u32, ((end - 1) / PAGE) as u32);
        self.pages.range(from..=to).any(|(page, kept)| {
            let base = u64::from(*page) * PAGE;
            let (first, stop) = (range.start.max(base) - base, end.min(base + PAGE) - base);
            match kept {
                Page::Runs(runs) => runs.iter().any(|(a, b)| u64::from(*a) < stop && first <= u64::from(*b)),
                Page::Bits(bits) => next(bits, first, true) < stop,
            }
        })
    }

    pub fn touches_any(&self, other: &BlockSet) -> bool {
        other.runs().any(|run| self.touches(run))
    }

    /// The runs of the set, ascending; one that goes on in the next page comes in two.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.pages.iter().flat_map(|(page, kept)| {
            let base = u64::from(*page) * PAGE;
            let bits = kept.bits();
            let mut at = 0;
            std::iter::from_fn(move || {
                let first = next(&bits, at, true);
                (first < PAGE).then(|| {
                    at = next(&bits, first, false);
                    base + first..base + at
                })
            })
        })
    }

    /// One past the highest block.
    pub fn end(&self) -> u64 {
        let Some((page, kept)) = self.pages.last_key_value() else { return 0 };
        let last = match kept {
            Page::Runs(runs) => runs.last().map_or(0, |(_, last)| u64::from(*last)),
            Page::Bits(bits) => (0..PAGE).rev().find(|i| bits[(i / 64) as usize] >> (i % 64) & 1 == 1).unwrap_or(0),
        };
        u64::from(*page) * PAGE + last + 1
    }

    /// The first `count` blocks.
    #[must_use]
    pub fn first(&self, count: u64) -> BlockSet {
        let mut taken = BlockSet::new();
        for run in self.runs() {
            let room = count - taken.len();
            if room == 0 {
                break;
            }
            taken.insert(run.start..run.end.min(run.start + room));
        }
        taken
    }

    /// About what it occupies in memory.
    pub fn memory_bytes(&self) -> u64 {
        let heap = |page: &Page| match page {
            Page::Runs(runs) => 4 * runs.capacity() as u64,
            Page::Bits(_) => 512,
        };
        self.pages.values().map(|page| 60 + heap(page)).sum()
    }
}

impl From<BlockSet> for Vec<(u32, PageForm)> {
    fn from(set: BlockSet) -> Self {
        let form = |page| match page {
            Page::Runs(runs) => PageForm::Runs(runs),
            Page::Bits(bits) => PageForm::Bits(bits.iter().flat_map(|word| word.to_le_bytes()).collect()),
        };
        set.pages.into_iter().map(|(number, page)| (number, form(page))).collect()
    }
}

impl TryFrom<Vec<(u32, PageForm)>> for BlockSet {
    type Error = &'static str;

    /// Takes nothing on trust: it may come from a disk or from the network.
    fn try_from(pages: Vec<(u32, PageForm)>) -> Result<BlockSet, &'static str> {
        let mut made = BlockSet::new();
        for (number, form) in pages {
            if u64::from(number) >= BLOCKS_MAX / PAGE {
                return Err("a page past the end of the largest chunk");
            }
            let mut bits = [0; WORDS];
            match form {
                PageForm::Runs(runs) => {
                    for (first, last) in runs {
                        if first > last || u64::from(last) >= PAGE {
                            return Err("a run that ends before it begins, or past its page");
                        }
                        set(&mut bits, u64::from(first), u64::from(last) + 1, true);
                    }
                }
                PageForm::Bits(bytes) => {
                    let (words, rest) = bytes.as_chunks::<8>();
                    if words.len() != WORDS || !rest.is_empty() {
                        return Err("a page of bits that is not 512 bytes long");
                    }
                    bits.iter_mut().zip(words).for_each(|(bits, word)| *bits = u64::from_le_bytes(*word));
                }
            }
            made.edit(number, |own| own.iter_mut().zip(bits).for_each(|(a, b)| *a |= b));
        }
        Ok(made)
    }
}

impl FromIterator<u64> for BlockSet {
    fn from_iter<I: IntoIterator<Item = u64>>(blocks: I) -> BlockSet {
        let mut set = BlockSet::new();
        blocks.into_iter().for_each(|block| set.insert(block..block + 1));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A stream of numbers without a crate for it.
    struct Stream(u64);
    impl Stream {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (self.0 >> 33) % n
        }
    }

    /// Against the obvious set, over two page boundaries, from a few runs to thousands.
    #[test]
    fn behaves_as_a_set_of_numbers() {
        let mut stream = Stream(7);
        for round in 0..30 {
            let longest = [1, 1, 3, 300, 5000][round % 5];
            let (mut sets, mut plain) = ([BlockSet::new(), BlockSet::new()], [BTreeSet::new(), BTreeSet::new()]);
            for _ in 0..[5, 400, 2000][round % 3] {
                let (which, start, len) = (stream.below(2) as usize, stream.below(9000), 1 + stream.below(longest));
                if stream.below(4) == 0 {
                    sets[which].remove(start..start + len);
                    plain[which].retain(|block| !(start..start + len).contains(block));
                } else {
                    sets[which].insert(start..start + len);
                    plain[which].extend(start..start + len);
                }
            }
            let collect = |set: &BlockSet| set.runs().flatten().collect::<BTreeSet<u64>>();
            let [a, b] = &sets;
            assert_eq!((collect(a), collect(b)), (plain[0].clone(), plain[1].clone()));
            assert_eq!((a.len(), a.end()), (plain[0].len() as u64, plain[0].last().map_or(0, |last| last + 1)));
            let mut union = a.clone();
            union.union(b);
            assert_eq!(collect(&union), &plain[0] | &plain[1]);
            assert_eq!(collect(&a.without(b)), &plain[0] - &plain[1]);
            assert_eq!(collect(&a.intersection(b)), &plain[0] & &plain[1]);
            assert_eq!(a.touches_any(b), !plain[0].is_disjoint(&plain[1]));
            assert_eq!(collect(&a.first(17)), plain[0].iter().take(17).copied().collect());
            let start = stream.below(14_000);
            assert_eq!(a.touches(start..start + 3), plain[0].range(start..start + 3).next().is_some());
            let bytes = postcard::to_stdvec(a).unwrap();
            assert_eq!(&postcard::from_bytes::<BlockSet>(&bytes).unwrap(), a);
            assert_eq!(a, &plain[0].iter().rev().copied().collect::<BlockSet>(), "one form for one set");
        }
    }

    /// The arithmetic at the top of this file.
    #[test]
    fn memory_is_bounded_by_the_chunk() {
        let every_other: BlockSet = (0..16_384).step_by(2).collect();
        assert!(every_other.memory_bytes() <= 2_300, "{}", every_other.memory_bytes());
        assert!(postcard::to_stdvec(&every_other).unwrap().len() <= 4 * 520);
        let all = BlockSet::of(0..BLOCKS_MAX);
        assert_eq!(all.len(), BLOCKS_MAX);
        assert!(all.memory_bytes() <= 5_300_000, "{}", all.memory_bytes());
        let scattered: BlockSet = (0..2048).map(|i| i * 131_072).collect();
        assert!(scattered.memory_bytes() <= 156_000, "{}", scattered.memory_bytes());
    }

    #[test]
    fn what_comes_from_outside_is_examined() {
        let bad = |pages: Vec<(u32, PageForm)>| BlockSet::try_from(pages).is_err();
        assert!(bad(vec![(0, PageForm::Runs(vec![(5, 4)]))]));
        assert!(bad(vec![(0, PageForm::Runs(vec![(0, 4096)]))]));
        assert!(bad(vec![(65_537, PageForm::Runs(vec![(0, 1)]))]), "past 1 TiB and the page of the head");
        assert!(bad(vec![(0, PageForm::Bits(vec![0; 511]))]));
        let twice = vec![(0, PageForm::Runs(vec![(8, 9), (1, 3)])), (0, PageForm::Runs(vec![(2, 5)]))];
        assert_eq!(BlockSet::try_from(twice).unwrap(), [1, 2, 3, 4, 5, 8, 9].into_iter().collect());
    }
}
