//! Looking whether a chunk is what it should be, and taking one that is not out of the store.

use super::DiskStore;
use super::chunk::{Chunk, RECORD_SUFFIX, State, ZERO_BLOCK, file_path, shard_of};
use crate::checksum::{BASE, blocks};
use crate::{ChunkStat, Damage, DamagedPart, Examined, Result, StoreError};
use braid_env::{Disk, OpenMode};
use braid_types::{BLOCK_BYTES, ChunkId};
use std::io;
use std::path::{Path, PathBuf};

/// Where files that were taken out of the store are kept.
const ASIDE: &str = "aside";

fn damage(part: DamagedPart, cause: impl ToString) -> Option<Damage> {
    Some(Damage { part, cause: cause.to_string() })
}

impl Chunk {
    pub(super) fn stat(&self, state: &State) -> Result<ChunkStat> {
        let header = &state.header;
        Ok(ChunkStat {
            container: header.container,
            chunk_bytes: header.chunk_bytes,
            length: header.length,
            occupied: self.data.occupied().map_err(|e| StoreError::io("stat", &self.data_path, e))?,
            version: header.version,
            trunc_gen: header.trunc_gen,
            inode: header.inode,
            index: header.index,
            unsure: header.unsure,
        })
    }

    /// What is wrong with the files as they lie in the directory now, whatever this process has open.
    fn damage(&self, disk: &dyn Disk) -> Result<Option<Damage>> {
        let open = |path: &Path| match disk.open(path, OpenMode::Existing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(StoreError::Missing { chunk: self.id, file: path.to_owned() })
            }
            file => file.map_err(|e| StoreError::io("open", path, e)),
        };
        if let Err(error) = open(&self.meta_path) {
            return Ok(damage(DamagedPart::Header, error));
        }
        let data = match open(&self.data_path) {
            Ok(data) => data,
            Err(error) => return Ok(damage(DamagedPart::Data, error)),
        };
        let len = data.len().map_err(|e| StoreError::io("stat", &self.data_path, e))?;
        let mut state = self.state.write();
        let state = &mut *state;
        if len >= state.header.length {
            return Ok(None);
        }
        // A chunk may end in a hole, which is not in the file: what has bytes tells.
        for block in len / BLOCK_BYTES..blocks(state.header.length) {
            self.load(state, &(block..block + 1))?;
            if state.table.get(block) == BASE {
                continue;
            }
            let mut bytes = ZERO_BLOCK;
            if let Err(error) = self.block(state, block, &mut bytes) {
                return Ok(damage(DamagedPart::Data, format_args!("{error} (the file ends at {len})")));
            }
        }
        Ok(None)
    }
}

impl DiskStore {
    pub(super) fn examine_chunk(&self, id: ChunkId) -> Result<Examined> {
        let examined = {
            // Neither made nor deleted meanwhile.
            let _opening = self.opening(id).lock();
            self.examine_locked(id)
        };
        self.make_room();
        examined
    }

    fn examine_locked(&self, id: ChunkId) -> Result<Examined> {
        if !self.index.read().contains(&id) {
            return Err(StoreError::NoSuchChunk(id));
        }
        let part = match self.find_locked(id) {
            Ok(Some(chunk)) => {
                let stat = Some(chunk.stat(&chunk.state.read())?);
                let mut damaged = chunk.damage(self.disk.as_ref())?;
                if let (None, Some((count, first))) = (&damaged, self.bad.of(id)) {
                    let many = if count == 1 { "block is" } else { "blocks are" };
                    let file = chunk.data_path.display();
                    damaged = damage(
                        DamagedPart::Data,
                        format_args!("chunk {id}: {count} {many} damaged in {file}, the first is block {first}"),
                    );
                }
                return Ok(Examined { stat, damage: damaged });
            }
            Ok(None) => return Err(StoreError::NoSuchChunk(id)),
            Err(error @ (StoreError::Missing { .. } | StoreError::BadBlock { .. })) => (DamagedPart::Data, error),
            Err(error) => (DamagedPart::Header, error),
        };
        Ok(Examined { stat: None, damage: damage(part.0, part.1) })
    }

    pub(super) fn set_chunk_aside(&self, id: ChunkId) -> Result<Option<PathBuf>> {
        if self.index.read().contains(&id) && self.shares.has_dependents(id) && self.examine_chunk(id)?.damage.is_some()
        {
            // What can still be read of it is theirs. The rest is lost, with it or without.
            if let Err(error) = self.give_to_sharers(id, false) {
                tracing::warn!("what others have of chunk {id}: {error}");
            }
        }
        let _opening = self.opening(id).lock();
        if self.examine_locked(id)?.damage.is_none() {
            return Ok(None);
        }
        let aside = self.dir.join(ASIDE);
        self.disk.create_dir_all(&aside).map_err(|e| StoreError::io("create", &aside, e))?;
        self.close_for_good(id);
        // The header last: until it has gone a crash leaves a chunk that is damaged, and is found again.
        for suffix in ["data", RECORD_SUFFIX, "meta"] {
            let from = file_path(&self.dir, id, suffix);
            let to = aside.join(format!("{:016x}.{suffix}", id.0));
            match self.disk.rename(&from, &to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::io("move aside", &from, error));
                }
                _ => {}
            }
        }
        self.remove_base_name(id)?;
        for dir in [&aside, &self.dir, &shard_of(&self.dir, id)] {
            self.disk.sync_dir(dir).map_err(|e| StoreError::io("sync", dir, e))?;
        }
        self.forget(id);
        Ok(Some(aside))
    }
}
