//! What a cut makes of the changes of one file that were not synced.

use crate::content::{Change, SECTOR_BYTES};
use crate::image::{Image, PAGE_BYTES};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;

/// How much order a file system gives to what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As ext4 with `data=ordered`: metadata changes survive up to some point of time and none after it, a length never
    /// shows blocks whose data was not written, and a sync carries along all metadata that is older than the file's own.
    Journal,
    /// No more than POSIX says: each change by itself.
    Posix,
}

/// What happened to the writes at a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub kept: u64,
    pub dropped: u64,
    /// Some sectors arrived and some did not.
    pub torn: u64,
}

impl Tally {
    fn count(&mut self, arrived: usize, sectors: usize) {
        *match arrived {
            0 => &mut self.dropped,
            all if all == sectors => &mut self.kept,
            _ => &mut self.torn,
        } += 1;
    }
}

/// The decisions of one cut, all from its seed.
pub(crate) struct Fate {
    pub order: Order,
    pub rng: Xoshiro256PlusPlus,
    /// Metadata up to this place of the journal survives a cut in order.
    pub journal_end: u64,
}

impl Fate {
    /// `committed` is where the journal is known to be stable, `last` where it ends.
    pub fn new(order: Order, seed: u64, committed: u64, last: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        // The two ends are likely: the journal just written, and not written for long.
        let journal_end = match rng.random_range(0..4) {
            0 => committed,
            1 => last,
            _ => rng.random_range(committed..=last.max(committed)),
        };
        Self { order, rng, journal_end }
    }

    /// How much arrives: all and nothing are as likely as something in between.
    pub fn share(&mut self) -> f64 {
        [0.0, 0.3, 0.7, 1.0][self.rng.random_range(0..4usize)]
    }

    pub fn settle(&mut self, stable: &mut Image, pending: VecDeque<Change>, tally: &mut Tally) {
        let share = self.share();
        let tears = self.rng.random_bool(0.5);
        match self.order {
            Order::Posix => self.settle_freely(stable, pending, share, tears, tally),
            Order::Journal => self.settle_in_order(stable, pending, share, tears, tally),
        }
        stable.clip();
    }

    fn settle_freely(
        &mut self,
        stable: &mut Image,
        pending: VecDeque<Change>,
        share: f64,
        tears: bool,
        tally: &mut Tally,
    ) {
        for change in pending {
            if let Change::Write { offset, bytes, end } = change {
                self.put_sectors(stable, offset, &bytes, share, tears, tally);
                // The length is written apart from the data.
                if self.rng.random_bool(share) {
                    stable.len = stable.len.max(end);
                }
            } else if self.rng.random_bool(share) {
                change.apply(stable);
            }
        }
    }

    fn settle_in_order(
        &mut self,
        stable: &mut Image,
        pending: VecDeque<Change>,
        share: f64,
        tears: bool,
        tally: &mut Tally,
    ) {
        let mut may_grow = true;
        for change in pending {
            match change {
                Change::Write { offset, bytes, end } if end <= stable.len => {
                    self.put_sectors(stable, offset, &bytes, share, tears, tally);
                }
                Change::Write { offset, bytes, end } => {
                    let inside = stable.len.saturating_sub(offset) / SECTOR_BYTES * SECTOR_BYTES;
                    let (inside, beyond) = bytes.split_at((inside as usize).min(bytes.len()));
                    if !inside.is_empty() {
                        self.put_sectors(stable, offset, inside, share, tears, &mut Tally::default());
                    }
                    let at = offset + inside.len() as u64;
                    let grown = if may_grow { self.grow(stable, at, beyond, end, share, tears) } else { 0 };
                    may_grow &= grown == beyond.len();
                    tally.count(grown.div_ceil(SECTOR_BYTES as usize), beyond.len() / SECTOR_BYTES as usize);
                }
                Change::Zero { seq, .. } if seq <= self.journal_end => change.apply(stable),
                Change::Zero { .. } => {}
                Change::SetLen { seq, .. } if seq <= self.journal_end => change.apply(stable),
                // What comes behind a truncation went to blocks that nothing points to now.
                Change::SetLen { len, .. } if len < stable.len => return,
                Change::SetLen { .. } => may_grow = false,
            }
        }
    }

    /// A file grows by whole pages from the front, and its length with them. Gives how many of `bytes` arrived.
    fn grow(&mut self, stable: &mut Image, at: u64, bytes: &[u8], end: u64, share: f64, tears: bool) -> usize {
        let part = if self.rng.random_bool(share) {
            bytes.len()
        } else if tears {
            let pages = bytes.len() / PAGE_BYTES as usize;
            self.rng.random_range(0..=pages) * PAGE_BYTES as usize
        } else {
            0
        };
        stable.put(at, &bytes[..part]);
        if part > 0 {
            stable.len = stable.len.max((at + part as u64).min(end));
        }
        part
    }

    fn put_sectors(
        &mut self,
        stable: &mut Image,
        offset: u64,
        bytes: &[u8],
        share: f64,
        tears: bool,
        tally: &mut Tally,
    ) {
        let whole = self.rng.random_bool(share);
        let sectors = bytes.chunks(SECTOR_BYTES as usize);
        let (count, mut arrived) = (sectors.len(), 0);
        for (number, sector) in sectors.enumerate() {
            if if tears { self.rng.random_bool(share) } else { whole } {
                stable.put(offset + number as u64 * SECTOR_BYTES, sector);
                arrived += 1;
            }
        }
        tally.count(arrived, count);
    }
}
