//! Chunks whose files are gone although nobody deleted them here: somebody removed them, or the file system did. This process may have
//! them open still, and then goes on reading what no restart would find.

use super::DiskStore;
use super::chunk::{SHARDS, file_path, shard_dir};
use crate::{Result, StoreError};
use braid_env::OpenMode;
use braid_types::ChunkId;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

impl DiskStore {
    /// All of them: a look at 256 directories, and at those files that seem to be missing once more.
    pub(super) fn find_missing(&self) -> Result<Vec<ChunkId>> {
        // First: what is made meanwhile is not looked for.
        let mut files: BTreeMap<ChunkId, [bool; 2]> =
            self.index.read().iter().map(|chunk| (*chunk, [false; 2])).collect();
        let mut gone = Vec::new();
        for shard in 0..SHARDS {
            let path = shard_dir(&self.dir, shard);
            let entries = match self.disk.list(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    gone.push((path, error));
                    continue;
                }
                entries => entries.map_err(|e| StoreError::io("list", &path, e))?,
            };
            for entry in entries {
                let Some((stem, suffix)) = entry.name.to_str().and_then(|name| name.split_once('.')) else { continue };
                let Ok(id) = u64::from_str_radix(stem, 16) else { continue };
                if let Some([meta, data]) = files.get_mut(&ChunkId(id)) {
                    *meta |= suffix == "meta";
                    *data |= suffix == "data";
                }
            }
        }
        self.make_again(gone)?;
        let mut missing = Vec::new();
        for (chunk, _) in files.into_iter().filter(|(_, there)| *there != [true; 2]) {
            if self.has_lost(chunk)? && self.index.read().contains(&chunk) {
                missing.push(chunk);
            }
        }
        Ok(missing)
    }

    /// Directories that somebody removed with all that was in them: what is restored goes there. Not where all are gone, which is a disk that
    /// is not mounted.
    fn make_again(&self, gone: Vec<(PathBuf, io::Error)>) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        if gone.len() as u64 == SHARDS {
            let (path, error) =
                gone.into_iter().next_back().unwrap_or_else(|| (self.dir.clone(), io::ErrorKind::NotFound.into()));
            return Err(StoreError::io("list", &path, error));
        }
        for (path, _) in gone {
            tracing::error!(path = %path.display(), "a directory of chunks is gone; it is made again, empty");
            self.disk.create_dir_all(&path).map_err(|e| StoreError::io("create", &path, e))?;
        }
        self.disk.sync_dir(&self.dir).map_err(|e| StoreError::io("sync", &self.dir, e))
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
