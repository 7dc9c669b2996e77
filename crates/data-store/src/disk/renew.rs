//! The data file of a copy that has lost its name: somebody removed it, or the file system did.

use super::DiskStore;
use super::chunk::{Chunk, ZERO_BLOCK, file_path, shard_of};
use crate::checksum::{BASE, HOLE};
use crate::{Result, StoreError};
use braid_env::OpenMode;
use braid_types::{BLOCK_BYTES, ChunkId};
use std::io;
use std::sync::Arc;

impl DiskStore {
    /// Puts a file in the place of the one that is missing: with what this process still has open of it, else with nothing. The
    /// table stays, so that what is not there is bad, and is never taken for zeros; other copies have it. False if it is not the
    /// data that is missing, if the chunk is no copy, or if somebody uses it now.
    pub(super) fn renew_data(&self, id: ChunkId) -> Result<bool> {
        if !self.copies.read().contains(&id) {
            return Ok(false);
        }
        if let Some(chunk) = self.open.get(id) {
            self.sync_chunk(&chunk)?;
            // They have it open. What cannot be read now will not be read later either.
            if let Err(error) = self.give_to_sharers(id, false) {
                tracing::warn!("what others have of chunk {id}: {error}");
            }
        }
        // Nobody opens it meanwhile.
        let _opening = self.opening(id).lock();
        let [data, meta] = ["data", "meta"].map(|suffix| file_path(&self.dir, id, suffix));
        let is_missing = |path| match self.disk.open(path, OpenMode::ReadOnly) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            opened => opened.map(|_| false).map_err(|e| StoreError::io("open", path, e)),
        };
        if is_missing(&meta)? || !is_missing(&data)? {
            return Ok(false);
        }
        let Some(open) = self.open.take_idle(id) else { return Ok(false) };
        if let Some(tell) = self.renewals.get() {
            tell(id);
        }
        let write = || {
            let new = self.disk.open(&data, OpenMode::OrCreate)?;
            if let Some(chunk) = &open {
                copy(chunk, &*new)?;
            }
            new.sync_data()?;
            self.disk.sync_dir(&shard_of(&self.dir, id))
        };
        write().map_err(|e| StoreError::io("make anew", &data, e))?;
        tracing::error!("{} was missing and is made anew", data.display());
        Ok(true)
    }
}

/// What cannot be read is left out: it is bad.
fn copy(chunk: &Arc<Chunk>, new: &dyn braid_env::DiskFile) -> io::Result<()> {
    let mut state = chunk.state.write();
    let state = &mut *state;
    for block in 0..state.blocks() {
        state.table.load(chunk.meta.as_ref(), &(block..block + 1))?;
        let mut bytes = ZERO_BLOCK;
        if ![HOLE, BASE].contains(&state.table.get(block))
            && chunk.raw_block(state.header.length, block, &mut bytes).is_ok()
        {
            let inside = (state.header.length - block * BLOCK_BYTES).min(BLOCK_BYTES) as usize;
            new.write_at(&bytes[..inside], block * BLOCK_BYTES)?;
        }
    }
    Ok(())
}
