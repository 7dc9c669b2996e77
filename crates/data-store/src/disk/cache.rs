//! The chunks that are open: a bounded number, least recently used first out.

use super::chunk::Chunk;
use braid_types::ChunkId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct OpenChunks {
    map: Mutex<HashMap<ChunkId, Arc<Chunk>>>,
    tick: AtomicU64,
}

impl OpenChunks {
    pub fn get(&self, chunk: ChunkId) -> Option<Arc<Chunk>> {
        let found = self.map.lock().get(&chunk).cloned()?;
        found.used.store(self.tick.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(found)
    }

    pub fn insert(&self, chunk: Arc<Chunk>) {
        chunk.used.store(self.tick.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.map.lock().insert(chunk.id, chunk);
    }

    pub fn remove(&self, chunk: ChunkId) -> Option<Arc<Chunk>> {
        self.map.lock().remove(&chunk)
    }

    /// Closes the chunk if it is open: `Some(None)` if it was not, `None` if somebody uses it or it has something to sync.
    pub fn take_idle(&self, chunk: ChunkId) -> Option<Option<Arc<Chunk>>> {
        let mut map = self.map.lock();
        let Some(found) = map.get(&chunk) else { return Some(None) };
        let is_idle = Arc::strong_count(found) == 1 && found.is_clean();
        is_idle.then(|| map.remove(&chunk))
    }

    /// If more than `max` are open, closes an eighth of them: those used longest ago that nobody uses now, as another chunk that has
    /// blocks of theirs does, and that have nothing to sync. The ids of those that have are returned: synced, they can go the next time.
    pub fn shrink(&self, max: usize) -> Vec<ChunkId> {
        let mut map = self.map.lock();
        if map.len() <= max {
            return Vec::new();
        }
        let mut by_use: Vec<_> = map.values().map(|chunk| (chunk.used.load(Ordering::Relaxed), chunk.id)).collect();
        by_use.sort_unstable();
        let enough = (max / 8).max(1) + map.len() - max;
        let mut unsynced = Vec::new();
        let mut closed = 0;
        for (_, id) in by_use {
            if closed + unsynced.len() == enough {
                break;
            }
            let Some(chunk) = map.get(&id) else { continue };
            // Nobody else can take a reference while the map is locked.
            if Arc::strong_count(chunk) == 1 {
                if chunk.is_clean() {
                    map.remove(&id);
                    closed += 1;
                } else {
                    unsynced.push(id);
                }
            }
        }
        unsynced
    }
}
