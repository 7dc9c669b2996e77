//! Blocks of a file that were read ahead, shared by its handles.

use braid_api::Result;
use braid_env::outcome::Outcome;
use braid_types::ByteRange;
use bytes::Bytes;
use std::collections::BTreeMap;

/// The result of a read that may still be on its way.
pub type Arriving = Outcome<Result<Bytes>>;

pub struct Block {
    pub range: ByteRange,
    /// The handle it was read for; another one's jump does not forget it.
    pub handle: u64,
    pub bytes: Arriving,
    /// So many of its bytes were answered; again, if they were asked for again.
    pub served: u64,
    /// The share of the bound it holds, given back when it is forgotten.
    pub _charge: Charge,
}

/// Bytes of the prefetch bound, given back on drop.
pub struct Charge {
    pub memory: std::sync::Arc<crate::memory::Memory>,
    pub bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.prefetched.settle(self.bytes, 0);
    }
}

#[derive(Default)]
pub struct Blocks(BTreeMap<u64, Block>);

impl Blocks {
    pub fn add(&mut self, block: Block) {
        self.0.insert(block.range.start, block);
    }

    /// The block that holds byte `at`.
    pub fn at(&self, at: u64) -> Option<&Block> {
        self.0.range(..=at).next_back().map(|(_, block)| block).filter(|block| at < block.range.end)
    }

    /// What holds byte `at`, and from where to where; its bytes up to `limit` are being answered.
    pub fn serve(&mut self, at: u64, limit: u64) -> Option<(ByteRange, Arriving)> {
        let (_, block) = self.0.range_mut(..=at).next_back().filter(|(_, block)| at < block.range.end)?;
        block.served += limit.min(block.range.end) - at;
        Some((block.range, block.bytes.clone()))
    }

    /// Where the next block after `at` begins.
    pub fn next_after(&self, at: u64) -> Option<u64> {
        self.0.range(at..).next().map(|(&start, _)| start)
    }

    /// These bytes were changed: what was read of them ahead is void.
    pub fn invalidate(&mut self, range: ByteRange) {
        if !self.0.is_empty() {
            self.0.retain(|_, block| !block.range.overlaps(range));
        }
    }

    /// What lies wholly before `before`, and of what was answered what lies before `served_before`.
    pub fn forget(&mut self, handle: u64, before: u64, served_before: u64) {
        if !self.0.is_empty() {
            self.0.retain(|_, block| {
                let is_served = block.served >= block.range.len();
                block.handle != handle || block.range.end > if is_served { served_before } else { before }
            });
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
