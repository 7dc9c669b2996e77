//! Chunks that are copies among others: their records, and what cannot be vouched for after a crash.

use super::DiskStore;
use super::chunk::{Chunk, RECORD_SUFFIX, ZERO_BLOCK, file_path, shard_of};
use super::record::{self, Found};
use crate::checksum::{BASE, HOLE, block_sum};
use crate::{ChunkHead, Cuts, FoundCopy, RecordMark, Result, StoreError};
use braid_types::ChunkId;
use std::collections::BTreeSet;
use std::ops::Range;

impl DiskStore {
    /// A copy that is here when the store is opened.
    pub(super) fn find_copy(&self, chunk: &Chunk, logged: &BTreeSet<u64>) -> Result<FoundCopy> {
        let path = file_path(&self.dir, chunk.id, RECORD_SUFFIX);
        let record = match record::read(self.disk.as_ref(), &path).map_err(|e| StoreError::io("read", &path, e))? {
            Found::Record(record) => Some(record),
            Found::Nothing => None,
            Found::Newer(found) => {
                return Err(StoreError::NewerFormat { file: path, found, known: record::FORMAT });
            }
        };
        if let Some(record) = &record {
            // The header may not have reached the disk since.
            let mut state = chunk.state.write();
            state.header.synced_len = state.header.synced_len.max(record.synced_len);
        }
        let suspicion = chunk.recover_copy(self.disk.as_ref(), &shard_of(&self.dir, chunk.id), logged)?;
        let state = chunk.state.read();
        // Without a record nothing is known of any block.
        let suspect = if record.is_some() { suspicion.suspect } else { std::iter::once(0..state.blocks()).collect() };
        let record = record.map(|record| record.bytes);
        Ok(FoundCopy { chunk: chunk.id, container: state.header.container, record, suspect, bad: suspicion.bad })
    }

    pub(super) fn keep_record(&self, chunk: &Chunk, mark: &RecordMark, record: &[u8]) -> Result<()> {
        // One at a time, and not while the chunk is removed.
        let _one = chunk.sync.lock();
        self.check_usable(chunk)?;
        let path = file_path(&self.dir, chunk.id, RECORD_SUFFIX);
        record::write(self.disk.as_ref(), &path, mark.length, record).map_err(|e| StoreError::io("write", &path, e))?;
        let mut state = chunk.state.write();
        if state.deleted {
            return Err(StoreError::NoSuchChunk(chunk.id));
        }
        state.header.synced_len = state.header.synced_len.max(mark.length);
        // Not synced itself, as after any sync.
        chunk.write_header(&state.header).map_err(|e| self.fail(&mut state, chunk.meta_error(e)))?;
        self.log.clean(chunk.id, mark.uses);
        Ok(())
    }

    fn check_usable(&self, chunk: &Chunk) -> Result<()> {
        let state = chunk.state.read();
        match (&state.failed, state.deleted) {
            (_, true) => Err(StoreError::NoSuchChunk(chunk.id)),
            (Some(cause), _) => Err(StoreError::Failed { chunk: chunk.id, cause: cause.clone() }),
            (None, false) => Ok(()),
        }
    }

    pub(super) fn take_head(&self, chunk: &Chunk, head: &ChunkHead) -> Result<()> {
        let seen = chunk.state.read().header.trunc_gen;
        let (cuts, version) = (Cuts { trunc_gen: seen, list: &[] }, Default::default());
        let data = head.length < chunk.state.read().header.length;
        let gate = super::Gate { end: 0, data, version, file: None, cuts: &cuts };
        self.change(chunk, &gate, |state| {
            self.begin(chunk, state);
            if head.length < state.header.length {
                self.cut(chunk, state, head.length, head.trunc_gen)?;
            }
            let header = &mut state.header;
            (header.chunk_bytes, header.length, header.trunc_gen) = (head.chunk_bytes, head.length, head.trunc_gen);
            (header.inode, header.index) = (head.inode, head.index);
            self.touch(chunk, state).map(drop)
        })
    }

    pub(super) fn seal_blocks(&self, chunk: &Chunk, range: Range<u64>) -> Result<u64> {
        self.check_usable(chunk)?;
        let mut state = self.undisturbing(chunk, |_| true)?;
        let range = range.start..range.end.min(state.blocks());
        let mut sealed = 0;
        for block in range {
            chunk.load(&mut state, &(block..block + 1))?;
            let sum = state.table.get(block);
            let mut bytes = ZERO_BLOCK;
            if sum == HOLE || sum == BASE {
                continue;
            }
            chunk.raw_block(state.header.length, block, &mut bytes).map_err(|e| chunk.data_error(e))?;
            let found = block_sum(&bytes);
            if found != sum {
                self.log_overwrite(chunk, &state, &(block..block + 1))?;
                self.begin(chunk, &mut state);
                state.table.set(chunk.meta.as_ref(), block, &[found]).map_err(|e| chunk.meta_error(e))?;
                self.bad.mended(chunk.id, block..block + 1);
                sealed += 1;
            }
        }
        self.sealed.fetch_add(sealed, std::sync::atomic::Ordering::Relaxed);
        Ok(sealed)
    }

    pub(super) fn found_copies(&self) -> Vec<FoundCopy> {
        std::mem::take(&mut *self.found.lock()).into_values().collect()
    }

    pub(super) fn copy(&self, id: ChunkId) -> Result<std::sync::Arc<Chunk>> {
        self.existing(id).and_then(|chunk| if chunk.is_copy { Ok(chunk) } else { Err(StoreError::NotACopy(id)) })
    }
}
