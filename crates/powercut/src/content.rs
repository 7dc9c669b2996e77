//! One file's content: what its readers see, what is on the platter, and the changes in between.
//!
//! A page cache writes sectors as they are at the moment of writing, whole and in any order. So a change is kept as the sectors it
//! left behind, and after a cut each sector holds one of the contents it had since the last sync: never a mixture that was
//! never there, such as the second of two small writes to a sector without the first.

use crate::image::{Image, PAGE_BYTES};
use crate::settle::{Fate, Tally};
use std::collections::{BTreeSet, VecDeque};

/// What a disk writes whole or not at all.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Above this the oldest changes of a file are written, as a kernel does without being asked.
const PENDING_BYTES_MAX: usize = 128 << 20;

/// A change that no sync has covered. `seq` is its place in the journal, where metadata changes.
pub(crate) enum Change {
    /// `bytes` are whole sectors; `end` is where the write really ended.
    Write {
        offset: u64,
        bytes: Vec<u8>,
        end: u64,
    },
    Zero {
        offset: u64,
        len: u64,
        seq: u64,
    },
    SetLen {
        len: u64,
        seq: u64,
    },
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Change::Write { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    pub fn apply(&self, image: &mut Image) {
        match self {
            Change::Write { offset, bytes, end } => {
                image.put(*offset, bytes);
                image.len = image.len.max(*end);
            }
            Change::Zero { offset, len, .. } => image.zero(*offset, *len),
            Change::SetLen { len, .. } => image.set_len(*len),
        }
    }
}

#[derive(Default)]
pub(crate) struct Content {
    now: Image,
    stable: Image,
    pending: VecDeque<Change>,
    pending_bytes: usize,
    /// Pages reserved without content. Reservations are not part of the model: they survive.
    reserved: BTreeSet<u64>,
}

impl Content {
    pub fn len(&self) -> u64 {
        self.now.len
    }

    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        self.now.read(offset, len)
    }

    /// Pages that a write of this range would newly occupy.
    pub fn missing_pages(&self, offset: u64, len: u64) -> u64 {
        let pages = offset / PAGE_BYTES..offset.saturating_add(len).div_ceil(PAGE_BYTES);
        pages.filter(|page| !self.now.has_page(*page) && !self.reserved.contains(page)).count() as u64
    }

    pub fn occupied_pages(&self) -> u64 {
        self.now.page_count() + self.reserved.iter().filter(|page| !self.now.has_page(**page)).count() as u64
    }

    pub fn pending(&self) -> (usize, usize) {
        (self.pending.len(), self.pending_bytes)
    }

    /// Gives the journal's place up to which metadata had to be written along, if the file has too much pending.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Option<u64> {
        let end = offset + data.len() as u64;
        self.now.put(offset, data);
        self.now.len = self.now.len.max(end);
        let from = offset / SECTOR_BYTES * SECTOR_BYTES;
        let whole = (end.next_multiple_of(SECTOR_BYTES) - from) as usize;
        self.record(Change::Write { offset: from, bytes: self.now.peek(from, whole), end });
        self.write_back_oldest()
    }

    pub fn zero(&mut self, offset: u64, len: u64, seq: u64) {
        self.now.zero(offset, len);
        let end = offset.saturating_add(len) / PAGE_BYTES;
        self.reserved.retain(|page| *page < offset.div_ceil(PAGE_BYTES) || *page >= end);
        self.record(Change::Zero { offset, len, seq });
    }

    pub fn set_len(&mut self, len: u64, seq: u64) {
        if len < self.now.len {
            self.reserved.retain(|page| page * PAGE_BYTES < len);
        }
        self.now.set_len(len);
        self.record(Change::SetLen { len, seq });
    }

    pub fn reserve(&mut self, offset: u64, len: u64) {
        let pages = offset / PAGE_BYTES..offset.saturating_add(len).div_ceil(PAGE_BYTES);
        self.reserved.extend(pages.filter(|page| !self.now.has_page(*page)));
    }

    fn record(&mut self, change: Change) {
        self.pending_bytes += change.bytes();
        self.pending.push_back(change);
    }

    fn write_back_oldest(&mut self) -> Option<u64> {
        let mut journalled = None;
        while self.pending_bytes > PENDING_BYTES_MAX {
            let oldest = self.pending.pop_front()?;
            self.pending_bytes -= oldest.bytes();
            oldest.apply(&mut self.stable);
            if let Change::Zero { seq, .. } | Change::SetLen { seq, .. } = oldest {
                journalled = Some(seq);
            }
        }
        journalled
    }

    fn take_pending(&mut self) -> VecDeque<Change> {
        self.pending_bytes = 0;
        std::mem::take(&mut self.pending)
    }

    /// Replays what is pending rather than copying what is now: the changes of a failed sync stay lost.
    pub fn sync(&mut self) {
        for change in self.take_pending() {
            change.apply(&mut self.stable);
        }
    }

    /// As on Linux, what a failed sync was to write is no longer waiting: some of it arrived, none will be tried again.
    pub fn sync_failed(&mut self, fate: &mut Fate) {
        let pending = self.take_pending();
        fate.settle(&mut self.stable, pending, &mut Tally::default());
    }

    /// The power goes: of what is pending, `fate` decides.
    pub fn cut(&mut self, fate: &mut Fate, tally: &mut Tally) {
        let pending = self.take_pending();
        fate.settle(&mut self.stable, pending, tally);
        self.now = self.stable.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settle::Order;

    fn after(order: Order, seed: u64, change: impl Fn(&mut Content)) -> Vec<u8> {
        let mut content = Content::default();
        content.write(0, &[1; 8192]);
        content.sync();
        change(&mut content);
        content.cut(&mut Fate::new(order, seed, 0, 100), &mut Tally::default());
        content.read(0, u64::MAX)
    }

    #[test]
    fn every_sector_is_old_or_new_and_all_outcomes_occur() {
        for order in [Order::Journal, Order::Posix] {
            let (mut old, mut new, mut torn) = (0, 0, 0);
            for seed in 0..300 {
                let bytes = after(order, seed, |content| _ = content.write(4096, &[2; 4096]));
                assert_eq!((bytes.len(), &bytes[..4096]), (8192, &[1; 4096][..]));
                let sectors = bytes[4096..].chunks(SECTOR_BYTES as usize);
                assert!(sectors.clone().all(|sector| sector.iter().all(|byte| *byte == sector[0])));
                match sectors.filter(|sector| sector[0] == 2).count() {
                    0 => old += 1,
                    8 => new += 1,
                    _ => torn += 1,
                }
            }
            assert!(old > 30 && new > 30 && torn > 30, "{order:?}: {old} {new} {torn}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_content() {
        let write = |content: &mut Content| (0..20).for_each(|n| _ = content.write(n * 3000, &[n as u8; 5000]));
        for order in [Order::Journal, Order::Posix] {
            assert!((0..20).all(|seed| after(order, seed, write) == after(order, seed, write)));
            assert!((0..20).any(|seed| after(order, seed, write) != after(order, seed + 1, write)));
        }
    }

    #[test]
    fn two_small_writes_to_a_sector_leave_no_state_that_never_was() {
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let bytes = after(Order::Posix, seed, |content| {
                content.write(10, &[2]);
                content.write(20, &[3]);
            });
            seen.insert((bytes[10], bytes[20]));
        }
        assert_eq!(seen, BTreeSet::from([(1, 1), (2, 1), (2, 3)]));
    }

    #[test]
    fn an_ordered_journal_shows_no_length_without_its_data() {
        let mut lengths = BTreeSet::new();
        for seed in 0..300 {
            let bytes = after(Order::Journal, seed, |content| {
                content.write(8192, &[2; 5000]);
                content.write(13192, &[3; 5000]);
            });
            assert!(bytes[8192..].iter().all(|byte| *byte != 0), "seed {seed}");
            lengths.insert(bytes.len());
        }
        assert!(lengths.len() > 3 && lengths.contains(&8192) && lengths.contains(&18192), "{lengths:?}");
        let write = |content: &mut Content| _ = content.write(8192, &[2; 5000]);
        let hole = |seed| after(Order::Posix, seed, write)[8192..].contains(&0);
        assert!((0..100).any(hole), "without order a length may arrive alone");
    }

    #[test]
    fn a_truncation_is_kept_or_not() {
        for order in [Order::Journal, Order::Posix] {
            let outcome = |seed| after(order, seed, |content| content.set_len(100, 50)).len();
            let lengths: BTreeSet<_> = (0..100).map(outcome).collect();
            assert_eq!(lengths, BTreeSet::from([100, 8192]), "{order:?}");
        }
    }

    #[test]
    fn a_failed_sync_is_not_made_good_by_the_next() {
        let lost = (0..50).any(|seed| {
            let mut content = Content::default();
            content.write(0, &[1; 512]);
            content.sync_failed(&mut Fate::new(Order::Posix, seed, 0, 0));
            content.sync();
            assert_eq!(content.read(0, 1), [1], "readers still see it");
            content.cut(&mut Fate::new(Order::Posix, seed, 0, 0), &mut Tally::default());
            content.read(0, 512) != [1; 512]
        });
        assert!(lost);
    }

    #[test]
    fn too_much_that_waits_is_written_without_a_sync() {
        let mut content = Content::default();
        for n in 0..3 {
            content.write(n * (64 << 20), &vec![1; 64 << 20]);
        }
        assert!(content.pending().1 <= PENDING_BYTES_MAX);
        assert_eq!(content.stable.len, 64 << 20);
    }
}
