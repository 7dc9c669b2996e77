//! Blocks of a chunk as the chain counts them: block 0 is the chunk's head (length, truncate generation, file), the bytes
//! follow from block 1 on. So a change of the length is told, pulled and taken over like any other.

use braid_chain::BlockSet;
use braid_types::{BLOCK_BYTES, ByteRange};
use std::ops::Range;

const HEAD: u64 = 0;

pub(crate) fn head() -> BlockSet {
    BlockSet::of(HEAD..HEAD + 1)
}

pub(crate) fn has_head(blocks: &BlockSet) -> bool {
    blocks.contains(HEAD)
}

/// The blocks a range of bytes touches.
pub(crate) fn of_bytes(range: ByteRange) -> BlockSet {
    match range.is_empty() {
        true => BlockSet::new(),
        false => of_data(range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)),
    }
}

/// Blocks of the store as the chain counts them.
pub(crate) fn of_data(blocks: Range<u64>) -> BlockSet {
    BlockSet::of(blocks.start + 1..blocks.end + 1)
}

pub(crate) fn with_head(mut blocks: BlockSet) -> BlockSet {
    blocks.insert(HEAD..HEAD + 1);
    blocks
}

/// Runs of blocks as the store counts them, without the head.
pub(crate) fn data(blocks: &BlockSet) -> impl Iterator<Item = Range<u64>> + '_ {
    let runs = blocks.runs().map(|run| run.start.max(HEAD + 1) - 1..run.end - 1);
    runs.filter(|run| !run.is_empty())
}

pub(crate) fn bytes(blocks: &Range<u64>) -> ByteRange {
    ByteRange::new(blocks.start * BLOCK_BYTES, blocks.end * BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_behind_the_head() {
        let blocks = of_bytes(ByteRange::new(4095, 4097));
        assert_eq!(blocks, BlockSet::of(1..3));
        assert!(!has_head(&blocks) && has_head(&with_head(blocks.clone())));
        assert_eq!(data(&with_head(blocks)).map(|run| (run.start, run.end)).collect::<Vec<_>>(), [(0, 2)]);
        assert_eq!(data(&head()).count(), 0);
        assert!(of_bytes(ByteRange::new(9, 9)).is_empty());
        assert_eq!(bytes(&(1..3)), ByteRange::new(4096, 12_288));
    }
}
