//! Chunks whose files are gone although nobody deleted them here: somebody removed them, or the file system did. This process may have
//! them open still, and then goes on reading what no restart would find.

use super::DiskStore;
use super::chunk::{SHARDS, file_path, shard_dir};
use crate::{Result, StoreError};
use braid_env::OpenMode;
use braid_types::ChunkId;
use std::collections::BTreeMap;
use std::io;

impl DiskStore {
    /// All of them: a look at 256 directories, and at those files that seem to be missing once more.
    pub(super) fn find_missing(&self) -> Result<Vec<ChunkId>> {
        // First: what is made meanwhile is not looked for.
        let mut files: BTreeMap<ChunkId, [bool; 2]> =
            self.index.read().iter().map(|chunk| (*chunk, [false; 2])).collect();
        for shard in 0..SHARDS {
            let path = shard_dir(&self.dir, shard);
            for entry in self.disk.list(&path).map_err(|e| StoreError::io("list", &path, e))? {
                let Some((stem, suffix)) = entry.name.to_str().and_then(|name| name.split_once('.')) else { continue };
                let Ok(id) = u64::from_str_radix(stem, 16) else { continue };
                if let Some([meta, data]) = files.get_mut(&ChunkId(id)) {
                    *meta |= suffix == "meta";
                    *data |= suffix == "data";
                }
            }
        }
        let mut missing = Vec::new();
        for (chunk, _) in files.into_iter().filter(|(_, there)| *there != [true; 2]) {
            if self.has_lost(chunk)? && self.index.read().contains(&chunk) {
                missing.push(chunk);
            }
        }
        Ok(missing)
    }

    pub(super) fn has_lost(&self, chunk: ChunkId) -> Result<bool> {
        // Neither made nor deleted meanwhile.
        let _opening = self.opening(chunk).lock();
        if !self.index.read().contains(&chunk) {
            return Ok(true);
        }
        for suffix in ["meta", "data"] {
            let path = file_path(&self.dir, chunk, suffix);
            match self.disk.open(&path, OpenMode::ReadOnly) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
                Err(error) => return Err(StoreError::io("open", &path, error)),
            }
        }
        Ok(false)
    }
}
