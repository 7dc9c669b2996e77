//! The table of checksums in a chunk's `.meta` (docs/formats/data-store.md).

use braid_types::BLOCK_BYTES;

pub const BLOCK: usize = BLOCK_BYTES as usize;

/// What the table holds for a block that was never written: it reads as zeros, whatever the disk has there.
pub const HOLE: u32 = 0;

/// Where the table begins, behind three slots of 512 bytes for the header.
pub const TABLE_OFFSET: u64 = 1536;

/// What the table holds, in a chunk that was made from another, for a block that is still the other's. No block has this sum;
/// chunks of before may have it, where it means [`BASE_ALIAS`].
pub const BASE: u32 = u32::MAX;
pub const BASE_ALIAS: u32 = BASE - 1;

/// Where block `block`'s entry lies in the file.
pub fn entry_offset(block: u64) -> u64 {
    TABLE_OFFSET + block * 4
}

/// crc32c of a block, which is zero-padded to 4 KiB. A sum of 0 is stored as 1, because 0 means a hole, and the highest as the one
/// before, because it means another chunk's block; so two pairs of 2^32 sums are taken for one each.
pub fn block_sum(block: &[u8]) -> u32 {
    debug_assert_eq!(block.len(), BLOCK);
    match crc_fast::crc32_iscsi(block) {
        HOLE => 1,
        BASE => BASE_ALIAS,
        sum => sum,
    }
}
