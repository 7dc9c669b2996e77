//! A chunk that is copied: what is written to it meanwhile, and how fast it goes.

use super::HELD;
use crate::body::ChunkSlot;
use crate::inode::{FileState, Inode};
use crate::ranges::RangeSet;
use braid_lease::Generation;
use braid_types::{ByteRange, ChunkId, ChunkIndex, ContainerId, Policy, TruncGen};
use std::time::Duration;

/// What is written to a chunk while it is copied.
pub struct Copying {
    pub(super) chunk: ChunkId,
    /// Where the chunk begins in the file, and where the next one does.
    pub(super) range: ByteRange,
    /// Bytes of the file.
    pub(super) written: RangeSet,
}

impl Copying {
    /// These bytes of the file were written.
    pub fn wrote(&mut self, range: ByteRange) {
        if let Some(range) = range.intersect(self.range) {
            self.written.add(range);
        }
    }
}

/// A chunk that is copied, until dropped.
pub(super) struct Begun<'a> {
    pub(super) inode: &'a Inode,
    pub(super) index: ChunkIndex,
    pub(super) chunk: ChunkId,
    pub(super) container: ContainerId,
    pub(super) policy: Policy,
    pub(super) trunc_gen: TruncGen,
    /// Of the right to write: as long as it is this one nobody else had it.
    pub(super) token: Generation,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.inode.state.lock().copying = None;
    }
}

impl Begun<'_> {
    pub(super) fn base(&self) -> u64 {
        self.index.0 * self.policy.chunk_bytes
    }

    /// What was written in the chunk since this was asked last.
    pub(super) fn take_written(&self) -> RangeSet {
        let written = match &mut self.inode.state.lock().copying {
            Some(copying) if copying.chunk == self.chunk => std::mem::take(&mut copying.written),
            _ => RangeSet::default(),
        };
        in_chunk(&written, self.base())
    }

    /// So much since then.
    pub(super) fn has_written(&self) -> u64 {
        self.inode.state.lock().copying.as_ref().map_or(0, |copying| bytes_in(&copying.written))
    }

    /// The chunk is as it was when this began, but for what was noted as written.
    pub(super) fn is_same(&self, state: &FileState) -> bool {
        let is_slot = |slot: &ChunkSlot| {
            // Room that was asked for with fallocate would have to be there as well.
            slot.chunk == self.chunk && slot.fresh.is_none() && !slot.frozen && !slot.reserved
        };
        let is_noted = state.copying.as_ref().is_some_and(|copying| copying.chunk == self.chunk);
        is_noted
            && !state.stale
            && !state.cutting
            && state.attr.trunc_gen == self.trunc_gen
            && state.body.slot(self.index).is_some_and(is_slot)
    }
}

/// Ranges of a file in the chunk that begins at `base`. No more than these: by where a chunk ends a metadata server tells how long the file
/// is whose writer has died.
pub(super) fn in_chunk(ranges: &RangeSet, base: u64) -> RangeSet {
    let mut within = RangeSet::default();
    ranges.iter().for_each(|range| within.add(ByteRange::at(range.start - base, range.len())));
    within
}

pub(super) fn bytes_in(ranges: &RangeSet) -> u64 {
    ranges.iter().map(|range| range.len()).sum()
}

/// How fast it goes.
#[derive(Default)]
pub(super) struct Speed {
    bytes: u64,
    took: Duration,
}

impl Speed {
    pub(super) fn adds(&mut self, bytes: u64, took: Duration) {
        (self.bytes, self.took) = (self.bytes + bytes, self.took + took);
    }

    /// To read so much takes no longer than a tenth of the time for which others may wait.
    pub(super) fn is_soon(&self, bytes: u64) -> bool {
        self.took.as_secs_f64() * bytes as f64 <= HELD.as_secs_f64() / 10.0 * self.bytes.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_meanwhile_is_copied_as_far_as_it_is_in_the_chunk_and_no_further() {
        let chunk_bytes = 1 << 20;
        let range = ByteRange::at(3 * chunk_bytes, chunk_bytes);
        let mut copying = Copying { chunk: ChunkId(1), range, written: RangeSet::default() };
        copying.wrote(ByteRange::at(range.start - 10, 11));
        copying.wrote(ByteRange::at(range.start + 5000, 4000));
        copying.wrote(ByteRange::at(range.end - 1, 100));
        copying.wrote(ByteRange::at(range.end, 100));
        let within = in_chunk(&copying.written, range.start);
        let found: Vec<ByteRange> = within.iter().collect();
        let piece = ByteRange::new;
        assert_eq!(found, [piece(0, 1), piece(5000, 9000), piece(chunk_bytes - 1, chunk_bytes)]);
        assert_eq!(bytes_in(&within), 4002);
    }

    #[test]
    fn the_rest_is_little_if_it_is_copied_in_a_tenth_of_the_time_there_is() {
        let mut speed = Speed::default();
        assert!(speed.is_soon(1 << 30), "nothing is known");
        speed.adds(10 << 20, Duration::from_millis(500));
        assert!(speed.is_soon(20 << 20));
        assert!(!speed.is_soon(21 << 20));
    }
}
