//! Cuts (truncation) and holes. Both are changes like any other to the activity log: a crash between table and data
//! leaves old bytes behind a hole, which recovery clears.

use super::DiskStore;
use super::chunk::{Chunk, State, ZERO_BLOCK};
use super::header::Header;
use super::write::kept;
use crate::checksum::{HOLE, block_sum, blocks};
use crate::{Cuts, Result, StoreError};
use braid_local::entry_offset;
use braid_types::{BLOCK_BYTES, ByteRange, TruncGen};
use std::io;

impl DiskStore {
    /// Refuses an older truncate generation; applies and keeps a newer one.
    pub(super) fn gate_cuts(&self, chunk: &Chunk, state: &mut State, cuts: &Cuts) -> Result<()> {
        let seen = state.header.trunc_gen;
        if cuts.trunc_gen < seen {
            return Err(StoreError::StaleTruncGen { chunk: chunk.id, seen, got: cuts.trunc_gen });
        }
        if cuts.trunc_gen == seen {
            return Ok(());
        }
        self.begin(chunk, state);
        if let Some(len) = cuts.shortest_since(seen)
            && len < state.header.length
        {
            return self.cut(chunk, state, len, cuts.trunc_gen);
        }
        state.header.trunc_gen = cuts.trunc_gen;
        chunk.write_header(&state.header).map_err(|e| self.fail(state, chunk.meta_error(e)))
    }

    /// Cuts to `len` bytes, on stable storage. Costs three syncs; a truncation to nothing never comes here, because it
    /// drops the chunk.
    ///
    /// The header goes with the table: whoever asked for the cut forgets it once it is answered, so a length that came
    /// back after a power cut would stay for ever. Length and generation are in one sector, and a chunk is trimmed to its
    /// length when it is opened, so a crash before the data is cut brings nothing back either.
    pub(super) fn cut(&self, chunk: &Chunk, state: &mut State, len: u64, trunc_gen: TruncGen) -> Result<()> {
        let last = len / BLOCK_BYTES;
        let inside = (len % BLOCK_BYTES) as usize;
        let mut kept = None;
        if inside > 0 {
            chunk.load(state, &(last..last + 1))?;
            self.copy_up(chunk, state, &(last..last + 1))?;
            let mut bytes = ZERO_BLOCK;
            match chunk.block(state, last, &mut bytes) {
                Ok(()) if state.table.get(last) == HOLE => {}
                Ok(()) => {
                    bytes[inside..].fill(0);
                    kept = Some(block_sum(&bytes));
                }
                // A bad block does not stand in the way of a cut. Its entry stays, so it stays bad.
                Err(error) => self.note(&error),
            }
        }
        self.log_overwrite(chunk, state, &(last..state.blocks()))?;
        let header = Header { length: len, trunc_gen, ..state.header.clone() };
        let cut = |state: &mut State| -> io::Result<()> {
            if let Some(sum) = kept {
                state.table.set(chunk.meta.as_ref(), last, &[sum])?;
            }
            let table_end = entry_offset(blocks(len));
            if chunk.meta.len()? > table_end {
                chunk.meta.set_len(table_end)?;
            }
            state.table.forget();
            chunk.write_header(&header)?;
            chunk.meta.sync_data()?;
            if chunk.data.len()? > len {
                chunk.data.set_len(len)?;
            }
            chunk.data.sync_data()
        };
        cut(state).map_err(|e| self.fail(state, chunk.meta_error(e)))?;
        self.bad.mended(chunk.id, blocks(len)..state.blocks());
        // The slot is stable now: the next header goes to another.
        state.header = Header { slot_seq: header.slot_seq + 1, ..header };
        Ok(())
    }

    /// Makes the range a hole and returns the change's number.
    pub(super) fn punch_locked(&self, chunk: &Chunk, state: &mut State, range: ByteRange) -> Result<u64> {
        let length = state.header.length;
        let Some(range) = range.intersect(ByteRange::new(0, length)) else {
            return self.touch(chunk, state);
        };
        let first = range.start.div_ceil(BLOCK_BYTES);
        let end = if range.end == length { blocks(length) } else { range.end / BLOCK_BYTES };
        if first < end {
            self.punch_blocks(chunk, state, first, end)?;
        }
        // The parts of blocks at both ends become zeros.
        let parts = if first < end {
            let whole = ByteRange::new(first * BLOCK_BYTES, end * BLOCK_BYTES);
            [range.intersect(ByteRange::new(0, whole.start)), range.intersect(ByteRange::new(whole.end, u64::MAX))]
        } else {
            let boundary = ByteRange::new(0, first * BLOCK_BYTES);
            [range.intersect(boundary), range.intersect(ByteRange::new(boundary.end, u64::MAX))]
        };
        for part in parts.into_iter().flatten() {
            let block = part.start / BLOCK_BYTES;
            chunk.load(state, &(block..block + 1))?;
            if state.table.get(block) != HOLE {
                self.write_locked(chunk, state, part.start, &ZERO_BLOCK[..part.len() as usize], kept)?;
            }
        }
        self.touch(chunk, state)
    }

    pub(super) fn punch_blocks(&self, chunk: &Chunk, state: &mut State, first: u64, end: u64) -> Result<()> {
        self.log_overwrite(chunk, state, &(first..end))?;
        self.begin(chunk, state);
        // In pieces of a megabyte's table at most, so that a hole in a huge chunk needs no huge buffer.
        const PIECE: u64 = 4096;
        let punch = |state: &mut State| -> io::Result<()> {
            for from in (first..end).step_by(PIECE as usize) {
                let piece = from..(from + PIECE).min(end);
                state.table.load(chunk.meta.as_ref(), &piece)?;
                if piece.clone().any(|block| state.table.get(block) != HOLE) {
                    let holes = vec![HOLE; (piece.end - piece.start) as usize];
                    state.table.set(chunk.meta.as_ref(), piece.start, &holes)?;
                }
            }
            let bytes = ByteRange::new(first * BLOCK_BYTES, end * BLOCK_BYTES);
            match chunk.data.punch_hole(bytes.start, bytes.len()) {
                // The table says zeros; the space stays occupied.
                Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
                _ => Ok(()),
            }
        };
        punch(state).map_err(|e| self.fail(state, chunk.meta_error(e)))?;
        self.bad.mended(chunk.id, first..end);
        Ok(())
    }

    /// Writes the header, as a change of its own.
    pub(super) fn touch(&self, chunk: &Chunk, state: &mut State) -> Result<u64> {
        let seq = self.begin(chunk, state);
        chunk.write_header(&state.header).map_err(|e| self.fail(state, chunk.meta_error(e)))?;
        Ok(seq)
    }
}
