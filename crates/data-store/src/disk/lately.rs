//! Which pieces of chunks were read lately.
//!
//! A large read is as a rule part of a stream whose bytes nobody reads again here: the client keeps them. In the page cache
//! they would take the place of what is used more, and filling fresh pages costs more than the copy out of them (0.5 s of
//! processor time a GiB against 0.25 s, `docs/benchmarks.md`). Read twice, they are kept.

use braid_types::ChunkId;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Smaller reads and writes are not part of a stream.
const BYTES_MIN: u64 = 128 << 10;

pub(crate) fn is_large(len: u64) -> bool {
    len >= BYTES_MIN
}

/// A read is known by the piece in which it starts; two of a stream never start in the same.
const PIECE_BYTES: u64 = BYTES_MIN;
/// 512 KiB of memory for the starts of 8 GiB in the smallest reads, 64 GiB in reads of 1 MiB.
const PIECES: usize = 64 << 10;

pub(crate) struct ReadLately(Vec<AtomicU64>);

impl ReadLately {
    pub fn new() -> Self {
        ReadLately((0..PIECES).map(|_| AtomicU64::new(0)).collect())
    }

    /// Remembers the read; true if it is large and the first one there, as far as is known.
    pub fn is_first_of_stream(&self, chunk: ChunkId, offset: u64, len: u64) -> bool {
        self.see(chunk, offset, len) == Some(true)
    }

    /// Remembers the read; true if it is large.
    pub fn note(&self, chunk: ChunkId, offset: u64, len: u64) -> bool {
        self.see(chunk, offset, len).is_some()
    }

    /// Whether it is the first one there; `None` if it is not large.
    fn see(&self, chunk: ChunkId, offset: u64, len: u64) -> Option<bool> {
        if !is_large(len) {
            return None;
        }
        // Fibonacci hashing; 0 is an empty place.
        let key = chunk.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (offset / PIECE_BYTES + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
        let key = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Some(self.0[(key >> 40) as usize % PIECES].swap(key, Relaxed) != key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_reads_are_first_once() {
        let lately = ReadLately::new();
        let chunk = ChunkId(7);
        assert!(!lately.is_first_of_stream(chunk, 0, 4096), "small ones are none");
        assert!(lately.is_first_of_stream(chunk, 0, BYTES_MIN));
        assert!(!lately.is_first_of_stream(chunk, 1, BYTES_MIN), "the same piece");
        assert!(lately.is_first_of_stream(chunk, PIECE_BYTES, BYTES_MIN));
        assert!(lately.is_first_of_stream(ChunkId(8), 0, BYTES_MIN));
        assert!(!lately.is_first_of_stream(chunk, 0, 1 << 20));
    }

    #[test]
    fn a_stream_of_gigabytes_is_remembered() {
        let lately = ReadLately::new();
        let reads = || (0..256).flat_map(|chunk| (0..64).map(move |read| (ChunkId(chunk << 20), read << 20)));
        assert!(reads().all(|(chunk, offset)| lately.is_first_of_stream(chunk, offset, 1 << 20)));
        // A quarter of the places is used: about every eighth read lost its place to another one.
        let again = reads().filter(|&(chunk, offset)| !lately.is_first_of_stream(chunk, offset, 1 << 20)).count();
        assert!(again > 16_384 * 3 / 4, "{again} of 16,384 are remembered");
    }
}
