//! Making blocks of a chunk what those of another are: by the file system where it can share them, by a base elsewhere (`share.rs`), by
//! copying where that is as cheap or the way to a base would be long.

use super::chunk::{Chunk, State};
use super::read::Fetch;
use super::share::DEPTH_MAX;
use super::write::kept;
use super::{DiskStore, Gate};
use crate::checksum::{BASE, HOLE, blocks};
use crate::{Result, StoreError, WriteInfo, Written};
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId};
use parking_lot::RwLockWriteGuard;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Of the table at once: that of 16 MiB.
const BATCH_BLOCKS: u64 = 4096;
/// Copied at once.
const PIECE_BLOCKS: u64 = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The file system shares.
    Range,
    Base,
    Copy,
}

impl DiskStore {
    pub(super) fn clone_from(
        &self,
        to: ChunkId,
        from: ChunkId,
        range: Range<u64>,
        info: &WriteInfo,
    ) -> Result<Written> {
        let source = self.existing(from)?;
        let chunk = self.existing(to)?;
        if to == from {
            return self.change(&chunk, &gate(0, info), |state| self.cloned(&chunk, state, 0));
        }
        let length = source.state.read().header.length.min(range.end.saturating_mul(BLOCK_BYTES));
        // What is shared must be there whenever what shares it is. A chunk that takes no more writes can still be read.
        let is_stable = self.sync_chunk(&source).is_ok();
        self.change(&chunk, &gate(length, info), |state| {
            let mut of = source.state.write();
            if of.deleted {
                return Err(StoreError::NoSuchChunk(from));
            }
            let mut how = if is_stable { self.how(&of, &range) } else { How::Copy };
            let end = range.end.min(blocks(of.header.length).max(state.blocks()));
            for first in (range.start..end).step_by(BATCH_BLOCKS as usize) {
                let batch = first..end.min(first + BATCH_BLOCKS);
                source.load(&mut of, &batch)?;
                if of.first_dirty.is_some() {
                    // Somebody writes it after all.
                    how = How::Copy;
                }
                let of_batch = RwLockWriteGuard::downgrade(of);
                self.clone_batch(&chunk, state, (&source, &of_batch), &batch, &mut how)?;
                drop(of_batch);
                of = source.state.write();
            }
            let length = of.header.length.min(range.end.saturating_mul(BLOCK_BYTES));
            drop(of);
            self.cloned(&chunk, state, length)
        })
    }

    fn cloned(&self, chunk: &Chunk, state: &mut State, length: u64) -> Result<Written> {
        let before = state.header.length;
        state.header.length = before.max(length);
        let seq = self.touch(chunk, state)?;
        Ok(Written { version: state.header.version, seq, grew: state.header.length > before })
    }

    fn how(&self, of: &State, range: &Range<u64>) -> How {
        let end = of.header.length.min(range.end.saturating_mul(BLOCK_BYTES));
        match end.saturating_sub(range.start.saturating_mul(BLOCK_BYTES)) < self.options.share_from_bytes {
            true => How::Copy,
            false if of.header.base.0 == 0 => How::Range,
            // Not all of it is in its file.
            false => How::Base,
        }
    }

    /// Blocks whose entries in the source are loaded.
    fn clone_batch(
        &self,
        chunk: &Arc<Chunk>,
        state: &mut State,
        source: (&Arc<Chunk>, &State),
        batch: &Range<u64>,
        how: &mut How,
    ) -> Result<()> {
        let of = source.1;
        let mut at = batch.start;
        while at < batch.end {
            let hole = of.table.get(at) == HOLE;
            let run = at..batch.end;
            let run = at..at + run.take_while(|block| (of.table.get(*block) == HOLE) == hole).count() as u64;
            at = run.end;
            if hole {
                self.clone_hole(chunk, state, &run)?;
                continue;
            }
            if *how == How::Range && !self.clone_range(chunk, state, source, &run)? {
                *how = How::Base;
            }
            if *how == How::Base && !self.clone_by_base(chunk, state, source, &run)? {
                *how = How::Copy;
            }
            if *how == How::Copy {
                self.copy_run(chunk, state, source, &run)?;
            }
        }
        Ok(())
    }

    fn clone_hole(&self, chunk: &Chunk, state: &mut State, run: &Range<u64>) -> Result<()> {
        let run = run.start..run.end.min(state.blocks());
        if run.is_empty() {
            return Ok(());
        }
        chunk.load(state, &run)?;
        if run.clone().any(|block| state.table.get(block) != HOLE) {
            self.punch_blocks(chunk, state, run.start, run.end)?;
        }
        Ok(())
    }

    /// False if the file system does not share this. A last block of which the source's file has only a part is copied.
    fn clone_range(
        &self,
        chunk: &Arc<Chunk>,
        state: &mut State,
        source: (&Arc<Chunk>, &State),
        run: &Range<u64>,
    ) -> Result<bool> {
        let (from, of) = source;
        let whole = run.start..run.end.min(of.header.length / BLOCK_BYTES);
        if !whole.is_empty() {
            chunk.load(state, &whole)?;
            self.copy_up(chunk, state, &whole)?;
            self.log_overwrite(chunk, state, &whole)?;
            self.begin(chunk, state);
            state.table.allocate(chunk.meta.as_ref(), &whole).map_err(|e| chunk.meta_error(e))?;
            let bytes = ByteRange::new(whole.start * BLOCK_BYTES, whole.end * BLOCK_BYTES);
            match chunk.data.clone_range(from.data.as_ref(), bytes.start, bytes.len()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(false),
                Err(error) => {
                    self.seal_failed_write(chunk, state, whole);
                    return Err(chunk.data_error(error));
                }
            }
            let sums: Vec<u32> = whole.clone().map(|block| of.table.get(block)).collect();
            self.finish(chunk, state, whole.clone(), &sums, bytes.end)?;
        }
        let rest = whole.end.max(run.start)..run.end;
        self.copy_run(chunk, state, source, &rest)?;
        Ok(true)
    }

    /// False if the chunk cannot have this base.
    fn clone_by_base(
        &self,
        chunk: &Arc<Chunk>,
        state: &mut State,
        (base, of): (&Arc<Chunk>, &State),
        run: &Range<u64>,
    ) -> Result<bool> {
        if state.header.base.0 == 0 {
            if self.shares.depth(base.id) + 1 > DEPTH_MAX {
                return Ok(false);
            }
            self.take_base(chunk, state, base)?;
        } else if state.header.base != base.id {
            return Ok(false);
        }
        chunk.load(state, run)?;
        // A copy's record does not speak of it.
        self.log_overwrite(chunk, state, run)?;
        self.begin(chunk, state);
        state.table.allocate(chunk.meta.as_ref(), run).map_err(|e| chunk.meta_error(e))?;
        let end = of.header.length.min(run.end * BLOCK_BYTES);
        self.finish(chunk, state, run.clone(), &vec![BASE; (run.end - run.start) as usize], end)?;
        Ok(true)
    }

    fn copy_run(
        &self,
        chunk: &Arc<Chunk>,
        state: &mut State,
        (from, of): (&Arc<Chunk>, &State),
        run: &Range<u64>,
    ) -> Result<()> {
        for first in (run.start..run.end).step_by(PIECE_BLOCKS as usize) {
            let piece = first..run.end.min(first + PIECE_BLOCKS);
            // Whatever the chunk has behind the source's end, in its last block, are zeros then.
            let length = of.header.length.max(state.header.length);
            let bytes = ByteRange::new(piece.start * BLOCK_BYTES, (piece.end * BLOCK_BYTES).min(length));
            let mut buf = vec![0; bytes.len() as usize];
            from.read_verified(of, bytes.start, &mut buf, Fetch::Waiting).inspect_err(|error| self.note(error))?;
            self.write_locked(chunk, state, bytes.start, &buf, kept)?;
        }
        Ok(())
    }
}

fn gate<'a>(end: u64, info: &'a WriteInfo) -> Gate<'a> {
    Gate { end, data: true, version: info.version, file: info.file(), cuts: &info.cuts }
}
