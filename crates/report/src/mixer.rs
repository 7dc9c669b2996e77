//! Numbers for chunks, and their places on shelves and in buckets.

use braid_types::{ChunkId, ContainerId};

/// Containers on a shelf, more or less: a shelf that differs costs a list of them, each 20 bytes at most.
const CONTAINERS_A_SHELF: usize = 32;
const SHELVES_MAX: usize = 1 << 12;
/// Chunks in a bucket: half of what a difference costs is the tallies, half the ids.
const CHUNKS_A_BUCKET: u32 = 16;
const BUCKETS_MAX: u32 = 1 << 16;

pub fn shelves_for(containers: usize) -> u32 {
    (containers / CONTAINERS_A_SHELF).next_power_of_two().min(SHELVES_MAX) as u32
}

pub fn buckets_for(chunks: u32) -> u32 {
    (chunks / CHUNKS_A_BUCKET).min(BUCKETS_MAX).next_power_of_two()
}

/// Draws a number for each chunk, under a key that both sides know.
///
/// For one container the number is a permutation of the chunk's id: two chunks never have the same, so a chunk in the place of another
/// always shows. Sums of several may be equal by chance. Ids are given by counters and the key is drawn anew at each start
/// of the asker, so nobody chooses them to be, and what was missed once is found under the next key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mixer {
    pub key: u64,
}

impl Mixer {
    pub fn number(self, container: ContainerId, chunk: ChunkId) -> u64 {
        let place = scramble(container.0 ^ self.key.rotate_left(32));
        scramble(scramble(chunk.0 ^ self.key).wrapping_add(place))
    }

    pub fn shelf(self, container: ContainerId, shelves: u32) -> u32 {
        low(scramble(container.0.wrapping_add(self.key)), shelves)
    }

    pub fn bucket(self, container: ContainerId, chunk: ChunkId, buckets: u32) -> u32 {
        low(self.number(container, chunk).rotate_right(32), buckets)
    }
}

/// Powers of two; of anything else, which nobody asks for, less is used.
fn low(number: u64, of: u32) -> u32 {
    (number & u64::from(of.max(1) - 1)) as u32
}

/// A permutation of all numbers in which every bit of the argument turns half of the bits over (the end of splitmix64).
fn scramble(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
