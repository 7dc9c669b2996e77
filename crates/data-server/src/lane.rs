//! One lane a chunk: the order of its changes, and what is known of it without asking the store.
//!
//! A lane is a queue: whoever asks for its turn first gets it first. A turn is asked for when a request is first
//! polled, which on a connection happens in the order of arrival, and goes with the work to the I/O thread, so that
//! a request whose caller has gone still keeps its place.

use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, TruncGen, Version};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use tokio::sync::OwnedMutexGuard;

/// Grain at which the store prepares itself durably for overwriting synced bytes: the first write to an extent after
/// a sync may have to wait for a sync of the store's log.
const EXTENT_BYTES: u64 = 1 << 20;
/// Extents remembered for one chunk: all of 64 MiB.
const EXTENTS_MAX: usize = 64;

/// Lock order: the table, then nothing.
pub(crate) struct Lanes {
    table: Mutex<Table>,
    lanes_max: usize,
    /// Syncs of the whole store that have begun.
    syncs: AtomicU64,
}

#[derive(Default)]
struct Table {
    lanes: HashMap<ChunkId, Arc<Lane>>,
    /// Idle lanes go when there are this many.
    sweep_at: usize,
}

pub(crate) struct Lane {
    pub chunk: ChunkId,
    order: Arc<tokio::sync::Mutex<Prepared>>,
    seen: Mutex<Option<Seen>>,
    /// Reads that wait for the disk, and may hold up whoever writes.
    reads: AtomicU32,
    /// Syncs of this chunk that have begun.
    syncs: AtomicU64,
}

/// What the store had when it was last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub version: Version,
    pub trunc_gen: TruncGen,
}

/// Which syncs had begun at some moment: of the store, of the chunk.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SyncMark(u64, u64);

/// Extents written since the last sync began: writing there again waits for nothing.
#[derive(Default)]
pub(crate) struct Prepared {
    since: SyncMark,
    extents: Vec<u64>,
}

/// The right to change the chunk now.
pub(crate) struct Turn {
    pub prepared: OwnedMutexGuard<Prepared>,
    /// Kept, so that nobody makes a second lane meanwhile.
    pub lane: Arc<Lane>,
}

/// A read on its way to the disk, until dropped.
pub(crate) struct Reading(Arc<Lane>);

impl Lanes {
    pub fn new(lanes_max: usize) -> Lanes {
        Lanes { table: Mutex::default(), lanes_max: lanes_max.max(1), syncs: AtomicU64::new(0) }
    }

    pub fn get(&self, chunk: ChunkId) -> Arc<Lane> {
        let mut table = self.table.lock();
        if let Some(lane) = table.lanes.get(&chunk) {
            return lane.clone();
        }
        if table.lanes.len() >= table.sweep_at.max(self.lanes_max) {
            table.lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
            // Those in use are bounded by the requests; looked through again only when there are twice as many.
            table.sweep_at = 2 * table.lanes.len();
        }
        let lane = Arc::new(Lane {
            chunk,
            order: Arc::default(),
            seen: Mutex::default(),
            reads: AtomicU32::new(0),
            syncs: AtomicU64::new(0),
        });
        table.lanes.insert(chunk, lane.clone());
        lane
    }

    /// A sync of one chunk begins.
    pub fn sync_begins(&self, chunk: ChunkId) {
        if let Some(lane) = self.table.lock().lanes.get(&chunk) {
            lane.syncs.fetch_add(1, Relaxed);
        }
    }

    pub fn sync_of_all_begins(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    pub fn mark(&self, lane: &Lane) -> SyncMark {
        SyncMark(self.syncs.load(Relaxed), lane.syncs.load(Relaxed))
    }
}

impl Lane {
    /// The turn if nobody has it or waits for it.
    pub fn try_turn(self: &Arc<Self>) -> Option<Turn> {
        let prepared = self.order.clone().try_lock_owned().ok()?;
        Some(Turn { prepared, lane: self.clone() })
    }

    /// Queues at its first poll, in a task without a budget.
    pub async fn turn(self: &Arc<Self>) -> Turn {
        let prepared = self.order.clone().lock_owned().await;
        Turn { prepared, lane: self.clone() }
    }

    pub fn seen(&self) -> Option<Seen> {
        *self.seen.lock()
    }

    /// A reader and a writer may report in the wrong order: versions and generations only rise.
    pub fn saw(&self, version: Version, trunc_gen: TruncGen) {
        let mut seen = self.seen.lock();
        let old = seen.unwrap_or(Seen { version, trunc_gen });
        *seen = Some(Seen { version: old.version.max(version), trunc_gen: old.trunc_gen.max(trunc_gen) });
    }

    /// The store is to be asked again.
    pub fn forget(&self) {
        *self.seen.lock() = None;
    }

    pub fn reading(self: &Arc<Self>) -> Reading {
        self.reads.fetch_add(1, Relaxed);
        Reading(self.clone())
    }

    pub fn is_being_read(&self) -> bool {
        self.reads.load(Relaxed) > 0
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.reads.fetch_sub(1, Relaxed);
    }
}

fn extents(range: ByteRange) -> impl Iterator<Item = u64> {
    range.start / EXTENT_BYTES..range.end.div_ceil(EXTENT_BYTES)
}

impl Prepared {
    /// The range has been written, begun when `mark` was taken.
    pub fn add(&mut self, mark: SyncMark, range: ByteRange) {
        if self.since != mark {
            self.since = mark;
            self.extents.clear();
        }
        for extent in extents(range) {
            if !self.extents.contains(&extent) && self.extents.len() < EXTENTS_MAX {
                self.extents.push(extent);
            }
        }
    }

    pub fn covers(&self, mark: SyncMark, range: ByteRange) -> bool {
        self.since == mark && extents(range).all(|extent| self.extents.contains(&extent))
    }
}

/// Where a write of the range keeps a part of a block: a byte in each such block.
pub(crate) fn edges(range: ByteRange) -> impl Iterator<Item = u64> {
    let head = (!range.start.is_multiple_of(BLOCK_BYTES)).then_some(range.start);
    let tail = (!range.end.is_multiple_of(BLOCK_BYTES) && !range.is_empty()).then(|| range.end - 1);
    head.into_iter().chain(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_ends_what_was_prepared() {
        let lanes = Lanes::new(4);
        let lane = lanes.get(ChunkId(1));
        let mut prepared = Prepared::default();
        let range = ByteRange::at(EXTENT_BYTES - 1, 2);
        prepared.add(lanes.mark(&lane), range);
        assert!(prepared.covers(lanes.mark(&lane), range));
        assert!(!prepared.covers(lanes.mark(&lane), ByteRange::at(2 * EXTENT_BYTES, 1)));
        lanes.sync_begins(ChunkId(1));
        assert!(!prepared.covers(lanes.mark(&lane), range));
        prepared.add(lanes.mark(&lane), range);
        lanes.sync_of_all_begins();
        assert!(!prepared.covers(lanes.mark(&lane), range));
    }

    #[test]
    fn idle_lanes_go_and_busy_ones_stay() {
        let lanes = Lanes::new(2);
        let turn = lanes.get(ChunkId(1)).try_turn();
        for id in 2..10 {
            lanes.get(ChunkId(id));
        }
        assert!(lanes.table.lock().lanes.len() <= 4);
        assert!(turn.is_some() && lanes.get(ChunkId(1)).try_turn().is_none());
    }

    #[test]
    fn edges_are_parts_of_blocks() {
        assert_eq!(edges(ByteRange::new(0, 8192)).count(), 0);
        assert_eq!(edges(ByteRange::new(5, 8192)).collect::<Vec<_>>(), [5]);
        assert_eq!(edges(ByteRange::new(4096, 5000)).collect::<Vec<_>>(), [4999]);
    }
}
