//! The blocks known to be bad.

use braid_types::ChunkId;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A disk with more bad blocks than this (256 MiB) is replaced, not counted.
const MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct BadBlocks {
    set: Mutex<BTreeSet<(ChunkId, u64)>>,
    /// Length of `set`, so that a write need not lock while there are none.
    count: AtomicU64,
}

impl BadBlocks {
    pub fn found(&self, chunk: ChunkId, block: u64) {
        let mut set = self.set.lock();
        if set.len() < MAX {
            set.insert((chunk, block));
        }
        self.count.store(set.len() as u64, Ordering::Release);
    }

    /// Of one chunk: how many, and the first.
    pub fn of(&self, chunk: ChunkId) -> Option<(usize, u64)> {
        if self.count() == 0 {
            return None;
        }
        let set = self.set.lock();
        let mut blocks = set.range((chunk, 0)..=(chunk, u64::MAX)).map(|(_, block)| *block);
        let first = blocks.next()?;
        Some((1 + blocks.count(), first))
    }

    /// The blocks were written whole, cut or removed.
    pub fn mended(&self, chunk: ChunkId, blocks: Range<u64>) {
        if self.count() == 0 || blocks.is_empty() {
            return;
        }
        let mut set = self.set.lock();
        set.retain(|(of, block)| *of != chunk || !blocks.contains(block));
        self.count.store(set.len() as u64, Ordering::Release);
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}
