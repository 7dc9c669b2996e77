use braid_types::BLOCK_BYTES;

pub(crate) use braid_local::{BASE, BASE_ALIAS, BLOCK, HOLE, block_sum};

pub(crate) type Block = [u8; BLOCK];

/// crc32c of a record, which is protected by nothing else.
pub fn record_sum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Blocks that `len` bytes touch.
pub(crate) fn blocks(len: u64) -> u64 {
    len.div_ceil(BLOCK_BYTES)
}
