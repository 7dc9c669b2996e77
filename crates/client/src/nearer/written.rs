//! How much is written to which chunk from here. Pure, but for its lock.

use crate::lru::Lru;
use braid_types::ChunkId;
use parking_lot::Mutex;
use std::sync::atomic::AtomicBool;

/// Chunks whose writes are counted: what a host writes at a time, of 64 MiB each 256 GiB.
const COUNTED_MAX: usize = 4096;
/// What a write counts at least: a message and its answer take as long as these bytes on 1 Gbit/s, 131 µs.
const MESSAGE_BYTES: u64 = 16 << 10;

/// What is written to which chunk from here.
pub struct Written {
    bytes: Mutex<Lru<ChunkId, u64>>,
    /// One chunk at a time: it is copied as fast as it goes.
    pub(super) is_busy: AtomicBool,
}

impl Default for Written {
    fn default() -> Self {
        Written { bytes: Mutex::new(Lru::new(COUNTED_MAX)), is_busy: AtomicBool::new(false) }
    }
}

impl Written {
    /// True when it is `enough` by now.
    pub(super) fn adds(&self, chunk: ChunkId, bytes: u64, enough: u64) -> bool {
        let mut all = self.bytes.lock();
        let bytes = bytes.max(MESSAGE_BYTES);
        let sum = match all.get(&chunk) {
            Some(sum) => {
                *sum += bytes;
                *sum
            }
            None => {
                all.insert(chunk, bytes);
                bytes
            }
        };
        sum >= enough
    }

    pub(super) fn forget(&self, chunk: ChunkId) {
        self.bytes.lock().remove(&chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_until_they_are_enough() {
        let written = Written::default();
        let (one, other) = (ChunkId(1), ChunkId(2));
        assert!(!written.adds(one, 60_000, 100_000));
        assert!(!written.adds(other, 90_000, 100_000));
        assert!(written.adds(one, 40_000, 100_000));
        assert!(written.adds(one, 1, 100_000), "as long as nobody forgets it");
        written.forget(one);
        for _ in 0..3 {
            assert!(!written.adds(one, 4096, 4 * MESSAGE_BYTES));
        }
        assert!(written.adds(one, 4096, 4 * MESSAGE_BYTES), "a small write is a message");
    }
}
