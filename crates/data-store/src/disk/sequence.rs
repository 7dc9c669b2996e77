//! The store-wide order of changes, and how far of it is on stable storage.

use braid_types::ChunkId;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lock order: a chunk's lock, then this one.
#[derive(Default)]
pub(crate) struct Sequence {
    last: AtomicU64,
    /// (first change since its last sync, chunk). A chunk is in twice while it is synced and written at once.
    dirty: Mutex<BTreeSet<(u64, ChunkId)>>,
}

impl Sequence {
    /// A number for a change of a chunk that is in `dirty` already.
    pub fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A number for the first change of a clean chunk. Drawn under the lock, so that [`Sequence::stable`] never
    /// passes a number that is not in the set yet.
    pub fn next_of_clean(&self, chunk: ChunkId) -> u64 {
        let mut dirty = self.dirty.lock();
        let seq = self.next();
        dirty.insert((seq, chunk));
        seq
    }

    pub fn synced(&self, first: u64, chunk: ChunkId) {
        self.dirty.lock().remove(&(first, chunk));
    }

    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    pub fn stable(&self) -> u64 {
        let dirty = self.dirty.lock();
        dirty.first().map_or_else(|| self.last(), |(first, _)| first - 1)
    }

    /// Chunks with unsynced changes, oldest first.
    pub fn dirty(&self) -> Vec<ChunkId> {
        let mut seen = BTreeSet::new();
        self.dirty.lock().iter().map(|(_, chunk)| *chunk).filter(|chunk| seen.insert(*chunk)).collect()
    }
}
