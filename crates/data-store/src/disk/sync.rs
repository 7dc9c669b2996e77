//! Sync: data, table and header, names, then the books. Writers go on meanwhile; what they write is the next sync's.

use super::DiskStore;
use super::chunk::{Chunk, RECORD_SUFFIX, State, shard_of};
use crate::{RecordMark, Result, StoreError, Synced};
use braid_types::ChunkId;
use std::io;
use std::sync::Arc;

impl DiskStore {
    pub(super) fn sync_chunk(&self, chunk: &Chunk) -> Result<Synced> {
        Ok(self.sync_marked(chunk)?.0)
    }

    /// Also says what it covered, for the record of a copy.
    pub(super) fn sync_marked(&self, chunk: &Chunk) -> Result<(Synced, RecordMark)> {
        let _one = chunk.sync.lock();
        tracing::debug!(chunk = chunk.id.0, "sync");
        let (synced, mark, new_names) = {
            let mut state = chunk.state.write();
            if state.deleted {
                return Err(StoreError::NoSuchChunk(chunk.id));
            }
            if let Some(cause) = &state.failed {
                return Err(StoreError::Failed { chunk: chunk.id, cause: cause.clone() });
            }
            let synced = Synced { chunk: chunk.id, version: state.header.version };
            // What is logged for the chunk is used under its lock: the mark covers all of it, and nothing to come.
            let mark = RecordMark { uses: self.log.mark(), length: state.header.length };
            if state.first_dirty.is_none() && !state.new_names {
                return Ok((synced, mark));
            }
            state.syncing_first = state.first_dirty.take();
            // From here on a change below this length counts as one of synced bytes, and the headers of such
            // changes go to a slot that this sync does not depend on.
            state.synced_floor = state.synced_floor.max(state.header.length);
            state.header.slot_seq += 1;
            (synced, mark, state.new_names)
        };
        let stable = || -> io::Result<()> {
            chunk.data.sync_data()?;
            chunk.meta.sync_data()?;
            if new_names { self.disk.sync_dir(&shard_of(&self.dir, chunk.id)) } else { Ok(()) }
        };
        let result = stable();
        let mut state = chunk.state.write();
        if state.deleted {
            return Err(StoreError::NoSuchChunk(chunk.id));
        }
        if let Err(error) = result {
            return Err(self.fail(&mut state, StoreError::io("sync", &chunk.data_path, error)));
        }
        state.new_names = false;
        // A copy's goes up when its record says so, too.
        if !chunk.is_copy {
            state.header.synced_len = state.header.synced_len.max(mark.length);
        }
        // Not synced itself: until it happens to be, more blocks than needed are suspect.
        chunk.write_header(&state.header).map_err(|e| self.fail(&mut state, chunk.meta_error(e)))?;
        if !chunk.is_copy {
            self.log.clean(chunk.id, mark.uses);
        }
        if let Some(first) = state.syncing_first.take() {
            self.sequence.synced(first, chunk.id);
        }
        Ok((synced, mark))
    }

    pub(super) fn sync_dirty(&self) -> Result<()> {
        let mut first_error = None;
        for id in self.sequence.dirty() {
            // A dirty chunk is never closed; one that is gone was deleted.
            let Some(chunk) = self.open.get(id) else { continue };
            match self.sync_chunk(&chunk) {
                Ok(_) | Err(StoreError::NoSuchChunk(_)) => {}
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Closes chunks beyond the bound. Those that must be synced first are, by whoever opened one too many.
    pub(super) fn make_room(&self) {
        for id in self.open.shrink(self.options.open_chunks_max) {
            let synced = self.open.get(id).map(|chunk: Arc<Chunk>| self.sync_chunk(&chunk));
            if let Some(Err(error)) = synced {
                tracing::warn!("a chunk stays open: {error}");
            }
        }
        self.open.shrink(self.options.open_chunks_max);
    }

    pub(super) fn delete_chunk(&self, id: ChunkId) -> Result<()> {
        let opening = loop {
            self.give_to_sharers(id, true)?;
            let opening = self.opening(id).lock();
            if self.close_unless_shared(id) {
                break opening;
            }
        };
        // The header first: data without one is swept when the store is opened.
        for suffix in ["meta", "data", RECORD_SUFFIX] {
            if suffix == RECORD_SUFFIX && !self.copies.read().contains(&id) {
                continue;
            }
            let path = super::chunk::file_path(&self.dir, id, suffix);
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::io("remove", &path, error));
                }
                _ => {}
            }
        }
        self.remove_base_name(id)?;
        self.forget(id);
        drop(opening);
        Ok(())
    }

    /// Nothing happens to the chunk any more. The caller holds its opening lock.
    pub(super) fn close_for_good(&self, id: ChunkId) {
        if let Some(chunk) = self.open.remove(id) {
            self.end(&chunk, &mut chunk.state.write());
        }
    }

    /// The same, but not if another chunk has blocks of it: then it is false. One is made so under the chunk's lock, by who has it open.
    fn close_unless_shared(&self, id: ChunkId) -> bool {
        let Some(chunk) = self.open.get(id) else { return !self.shares.has_dependents(id) };
        let mut state = chunk.state.write();
        if self.shares.has_dependents(id) {
            return false;
        }
        self.end(&chunk, &mut state);
        drop(state);
        self.open.remove(id);
        true
    }

    fn end(&self, chunk: &Chunk, state: &mut State) {
        state.deleted = true;
        state.base = None;
        for first in [state.first_dirty.take(), state.syncing_first.take()].into_iter().flatten() {
            self.sequence.synced(first, chunk.id);
        }
    }

    /// The chunk's files have gone.
    pub(super) fn forget(&self, id: ChunkId) {
        self.copies.write().remove(&id);
        self.index.write().remove(&id);
        self.log.forget(id);
        self.bad.mended(id, 0..u64::MAX);
        self.space.unreserve(id, u64::MAX);
    }
}
