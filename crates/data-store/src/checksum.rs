use braid_types::BLOCK_BYTES;

pub(crate) const BLOCK: usize = BLOCK_BYTES as usize;
pub(crate) type Block = [u8; BLOCK];

/// What the table holds for a block that was never written: it reads as zeros, whatever the disk has there.
pub(crate) const HOLE: u32 = 0;

/// crc32c of a block, which is zero-padded to 4 KiB. A sum of 0 is stored as 1, because 0 means a hole; so two of
/// 2^32 sums are taken for one.
pub(crate) fn block_sum(block: &[u8]) -> u32 {
    debug_assert_eq!(block.len(), BLOCK);
    match crc_fast::crc32_iscsi(block) {
        HOLE => 1,
        sum => sum,
    }
}

/// crc32c of a record, which is protected by nothing else.
pub fn record_sum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Blocks that `len` bytes touch.
pub(crate) fn blocks(len: u64) -> u64 {
    len.div_ceil(BLOCK_BYTES)
}
