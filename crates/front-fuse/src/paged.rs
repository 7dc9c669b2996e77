//! Files of which the kernel may hold pages.
//!
//! Why: a word to the kernel about a file's pages makes it drop the answer of a GETATTR of that file that is on its way, and decide by the
//! mode of before (docs/posix.md). Of a file that was only opened there is no page to be dropped, so nothing has to be said.
//!
//! Promises: a file of which a byte was read or written through this mount is known here for as long as the mount lasts. Others may be,
//! too, which costs a word that is not needed: one in ten where 400,000 files were read (4 Mi bits, one a file).

use braid_types::InodeId;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// 2²² bits are 512 KiB.
const BITS_LOG2: u32 = 22;

/// One of 2^`places_log2` places. Numbers of inodes follow each other: the odd constant (2⁶⁴ over the golden ratio) spreads them.
pub fn place_of(id: InodeId, places_log2: u32) -> usize {
    (id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - places_log2)) as usize
}

pub struct Paged(Box<[AtomicU64]>);

impl Default for Paged {
    fn default() -> Self {
        Paged((0..1 << (BITS_LOG2 - 6)).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Paged {
    /// The word and the bit in it.
    fn place(id: InodeId) -> (usize, u64) {
        let bit = place_of(id, BITS_LOG2);
        (bit >> 6, 1 << (bit & 63))
    }

    /// To be called before a request for its bytes is carried out.
    pub fn add(&self, id: InodeId) {
        let (word, bit) = Self::place(id);
        // Nearly always it is there: a look shares the line with the other threads, a write would take it from them.
        if self.0[word].load(SeqCst) & bit == 0 {
            self.0[word].fetch_or(bit, SeqCst);
        }
    }

    pub fn may_have(&self, id: InodeId) -> bool {
        let (word, bit) = Self::place(id);
        self.0[word].load(SeqCst) & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_known_and_few_others_are() {
        let paged = Paged::default();
        (0..400_000).for_each(|n| paged.add(InodeId(1 << 40 | n)));
        assert!((0..400_000).all(|n| paged.may_have(InodeId(1 << 40 | n))));
        // Of anywhere: those that follow each other lie evenly between each other.
        let others =
            (1..100_000_u64).filter(|n| paged.may_have(InodeId(n.wrapping_mul(0x2545_f491_4f6c_dd1d)))).count();
        assert!((5_000..15_000).contains(&others), "{others} of 100,000");
    }
}
