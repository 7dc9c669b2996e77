//! What a reader beside a data server does without asking it: its files, and whether they are still to be read
//! (docs/design/0013-local-reads.md).
//!
//! Promises: bytes that are given have the checksum that the chunk's table has for them, or are in a hole; and were, at some moment of the
//! read, what the server would have answered with.

mod chunk;
mod hand_out;
mod sums;

pub use chunk::{LocalChunk, LocalFetch, LocalRead};
pub use hand_out::{FILES, HandOut};
pub use sums::{BASE, BASE_ALIAS, BLOCK, HOLE, TABLE_OFFSET, block_sum, entry_offset};
