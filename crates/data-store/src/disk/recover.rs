//! What happens when a chunk is opened for the first time since the store was: a crash may lie between.
//!
//! Suspect are the blocks of logged extents and those beyond the synced length. A suspect block whose checksum fails
//! was being written when the power went: it is sealed, that is, taken as it is. Any other block that fails is bad
//! and stays so. Whatever lies beyond the length or where the table says hole is removed: else it could come back
//! when the chunk grows, or when the next crash loses the data of a write to the hole and keeps its checksum.

use super::activity::{EXTENT_BYTES, WHOLE_CHUNK};
use super::chunk::{Chunk, State, ZERO_BLOCK};
use super::header::TABLE_OFFSET;
use crate::Result;
use crate::checksum::{BASE, HOLE, block_sum, blocks};
use braid_env::Disk;
use braid_local::entry_offset;
use braid_types::BLOCK_BYTES;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;

/// What a copy cannot vouch for.
pub(crate) struct Suspicion {
    pub suspect: Vec<Range<u64>>,
    pub bad: Vec<u64>,
}

/// The blocks of logged extents, and those beyond the synced length.
fn suspects(state: &State, logged: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let per_extent = EXTENT_BYTES / BLOCK_BYTES;
    let count = state.blocks();
    let tail = blocks(state.header.synced_len).min(count)..count;
    let blocks_of = |extent: u64| match extent {
        WHOLE_CHUNK => 0..tail.start,
        _ => {
            let first = extent.saturating_mul(per_extent);
            first.min(tail.start)..first.saturating_add(per_extent).min(tail.start)
        }
    };
    let mut ranges: Vec<Range<u64>> = logged.iter().map(|extent| blocks_of(*extent)).collect();
    ranges.push(tail);
    ranges.retain(|range| !range.is_empty());
    ranges
}

impl Chunk {
    /// Returns the blocks sealed and those that cannot be read.
    pub fn recover(&self, disk: &dyn Disk, shard: &Path, logged: &BTreeSet<u64>) -> Result<(u64, Vec<u64>)> {
        let mut state = self.state.write();
        let state = &mut *state;
        let count = state.blocks();
        let trimmed = self.trim(state.header.length, count).map_err(|e| self.meta_error(e))?;
        let ranges = suspects(state, logged);
        let (mut sealed, mut unreadable) = (0, Vec::new());
        if state.header.synced_len == 0 && count > 0 {
            // What a cut would have left of it nobody can tell. It is not undone by a later sync: whoever wrote it knows whether
            // all of it has come since.
            state.header.unsure = true;
        }
        let suspects: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        for block in ranges.into_iter().flatten() {
            self.load(state, &(block..block + 1))?;
            let sum = state.table.get(block);
            if sum == BASE {
                // Stable before it was said to be the base's; whatever this chunk's file has there does not count.
                continue;
            }
            let mut bytes = ZERO_BLOCK;
            let read = self.raw_block(state.header.length, block, &mut bytes);
            if sum == HOLE {
                if read.is_err() || bytes != ZERO_BLOCK {
                    self.clear(block).map_err(|e| self.data_error(e))?;
                }
                continue;
            }
            if read.is_err() {
                unreadable.push(block);
                continue;
            }
            let found = block_sum(&bytes);
            if found != sum {
                sealed += 1;
                state.table.set(self.meta.as_ref(), block, &[found]).map_err(|e| self.meta_error(e))?;
            }
        }
        if suspects > 0 || trimmed || state.header.synced_len < state.header.length {
            // After the death of the process alone, what was read may be in memory only.
            let stable = || -> io::Result<()> {
                self.data.sync_data()?;
                self.meta.sync_data()?;
                if state.new_names { disk.sync_dir(shard) } else { Ok(()) }
            };
            stable().map_err(|e| self.meta_error(e))?;
            state.new_names = false;
            state.header.slot_seq += 1;
            state.header.synced_len = state.header.synced_len.max(state.header.length);
            state.synced_floor = state.header.synced_len;
            self.write_header(&state.header).map_err(|e| self.meta_error(e))?;
        }
        Ok((sealed, unreadable))
    }

    /// The same for a copy, whose owner judges: the suspect blocks, and those of them that do not match. Nothing is
    /// sealed, and all of it is found again until a record has been kept.
    pub fn recover_copy(&self, disk: &dyn Disk, shard: &Path, logged: &BTreeSet<u64>) -> Result<Suspicion> {
        let mut state = self.state.write();
        let state = &mut *state;
        let count = state.blocks();
        self.trim(state.header.length, count).map_err(|e| self.meta_error(e))?;
        let suspect = suspects(state, logged);
        let mut bad = Vec::new();
        for block in suspect.iter().cloned().flatten() {
            self.load(state, &(block..block + 1))?;
            let sum = state.table.get(block);
            if sum == BASE {
                // Stable before it was said to be the base's; whatever this chunk's file has there does not count.
                continue;
            }
            let mut bytes = ZERO_BLOCK;
            let read = self.raw_block(state.header.length, block, &mut bytes);
            match sum {
                HOLE if read.is_err() || bytes != ZERO_BLOCK => self.clear(block).map_err(|e| self.data_error(e))?,
                HOLE => {}
                sum if read.is_err() || block_sum(&bytes) != sum => bad.push(block),
                _ => {}
            }
        }
        // After the death of the process alone, what is here may be in memory only, the header as well; and no change
        // will come that makes the chunk dirty if the owner finds that all of it counts.
        let stable = || -> io::Result<()> {
            self.data.sync_data()?;
            self.meta.sync_data()?;
            disk.sync_dir(shard)
        };
        stable().map_err(|e| self.meta_error(e))?;
        state.new_names = false;
        state.header.slot_seq += 1;
        state.synced_floor = state.header.length.max(state.header.synced_len);
        Ok(Suspicion { suspect, bad })
    }

    /// Makes the disk agree that the block is a hole.
    pub(super) fn clear(&self, block: u64) -> io::Result<()> {
        match self.data.punch_hole(block * BLOCK_BYTES, BLOCK_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.data.write_at(&ZERO_BLOCK, block * BLOCK_BYTES)
            }
            result => result,
        }
    }

    /// Cuts both files to what the length allows.
    fn trim(&self, length: u64, count: u64) -> io::Result<bool> {
        let mut trimmed = false;
        let table_end = entry_offset(count).max(TABLE_OFFSET);
        if self.meta.len()? > table_end {
            self.meta.set_len(table_end)?;
            trimmed = true;
        }
        if self.data.len()? > length {
            self.data.set_len(length)?;
            trimmed = true;
        }
        Ok(trimmed)
    }
}
