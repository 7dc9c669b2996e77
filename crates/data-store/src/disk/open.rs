//! Making and opening a store.

use super::activity::ActivityLog;
use super::chunk::{Chunk, RECORD_SUFFIX, SHARDS, shard_dir};
use super::lately::ReadLately;
use super::record::NEW_EXTENSION;
use super::share::{Shares, base_of_suffix};
use super::{DiskStore, OPENING_LOCKS, StoreOptions};
use crate::{Result, StoreError, StoreIdentity};
use braid_env::{Disk, DiskLock};
use braid_types::ChunkId;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

const LOCK: &str = "lock";
/// What an interrupted `create` may have left.
const OWN_NAMES: [&str; 5] = [LOCK, "chunks", "activity", "activity.new", "store.toml.new"];

fn take_lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DiskLock>> {
    disk.lock(&dir.join(LOCK)).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => StoreError::Locked(dir.to_owned()),
        io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly(dir.to_owned()),
        io::ErrorKind::NotFound => StoreError::NotAStore { dir: dir.to_owned(), cause: "it does not exist".to_owned() },
        _ => StoreError::io("lock", dir, e),
    })
}

impl DiskStore {
    /// Makes a store in `dir`, which is empty or does not exist, and opens it.
    pub fn create(disk: Arc<dyn Disk>, dir: &Path, identity: StoreIdentity, options: StoreOptions) -> Result<Self> {
        let fail = |e| StoreError::io("create", dir, e);
        disk.create_dir_all(dir).map_err(fail)?;
        let lock = take_lock(disk.as_ref(), dir)?;
        let entries = disk.list(dir).map_err(fail)?;
        if let Some(other) = entries.iter().find(|entry| !OWN_NAMES.iter().any(|own| entry.name == *own)) {
            let cause = format!("it is not empty, {} is in it", other.name.display());
            return Err(StoreError::NotAStore { dir: dir.to_owned(), cause });
        }
        for shard in 0..SHARDS {
            disk.create_dir_all(&shard_dir(dir, shard)).map_err(fail)?;
        }
        disk.sync_dir(&dir.join("chunks")).map_err(fail)?;
        disk.sync_dir(dir).map_err(fail)?;
        for parent in dir.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            // Whose directories we may not open, we did not make.
            if disk.sync_dir(parent).is_err() {
                break;
            }
        }
        ActivityLog::create(disk.clone(), dir)?;
        identity.write(disk.as_ref(), dir)?;
        Self::open_locked(disk, dir, options, lock)
    }

    /// Opens the store in `dir` if it is this cluster's and server's and nobody else has it open. After a crash
    /// this verifies what the activity log names: up to 1 GiB, unless more than that was dirty.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, identity: StoreIdentity, options: StoreOptions) -> Result<Self> {
        let lock = take_lock(disk.as_ref(), dir)?;
        match StoreIdentity::read(disk.as_ref(), dir)? {
            Some(found) => found.check(&identity, dir)?,
            None => {
                return Err(StoreError::NotAStore { dir: dir.to_owned(), cause: "it has no store.toml".to_owned() });
            }
        }
        Self::open_locked(disk, dir, options, lock)
    }

    /// Opens the store, or makes it if there is none.
    pub fn open_or_create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        identity: StoreIdentity,
        options: StoreOptions,
    ) -> Result<Self> {
        let found = match StoreIdentity::read(disk.as_ref(), dir) {
            Ok(found) => found,
            Err(StoreError::ReadOnly(_)) => return Err(StoreError::ReadOnly(dir.to_owned())),
            Err(error) => return Err(error),
        };
        match found {
            Some(_) => Self::open(disk, dir, identity, options),
            None => Self::create(disk, dir, identity, options),
        }
    }

    fn open_locked(disk: Arc<dyn Disk>, dir: &Path, options: StoreOptions, lock: Box<dyn DiskLock>) -> Result<Self> {
        let (log, logged) = ActivityLog::open(disk.clone(), dir)?;
        let Names { index, copies, shares } = find_chunks(disk.as_ref(), dir)?;
        let store = DiskStore {
            space: super::Space::new(disk.clone(), dir.to_owned())?,
            index: RwLock::new(index),
            copies: RwLock::new(copies.clone()),
            shares,
            found: Mutex::default(),
            disk,
            dir: dir.to_owned(),
            options,
            log,
            sequence: super::Sequence::default(),
            open: super::OpenChunks::default(),
            opening: (0..OPENING_LOCKS).map(|_| Mutex::new(())).collect(),
            bad: super::BadBlocks::default(),
            sealed: AtomicU64::new(0),
            lately: ReadLately::new(),
            renewals: OnceLock::new(),
            _lock: lock,
        };
        let nothing = BTreeSet::new();
        for id in &copies {
            store.recover_one_copy(*id, logged.get(id).unwrap_or(&nothing))?;
        }
        for (id, extents) in logged.iter().filter(|(id, _)| !copies.contains(id)) {
            store.recover_logged(*id, extents);
        }
        Ok(store)
    }

    /// The chunk if it is there and whole. One damaged chunk does not keep the others from being served; its extents stay
    /// logged.
    fn open_to_recover(&self, id: ChunkId, is_copy: bool) -> Option<Chunk> {
        match Chunk::open(self.disk.as_ref(), &self.dir, id, is_copy) {
            Ok(Some(chunk)) => return Some(chunk),
            Ok(None) => self.log.forget(id),
            Err(error) => tracing::error!("{error}"),
        }
        None
    }

    /// A copy that is damaged is as good as none: the others of its chain have what it had.
    fn recover_one_copy(&self, id: ChunkId, extents: &BTreeSet<u64>) -> Result<()> {
        let Some(chunk) = self.open_to_recover(id, true) else { return Ok(()) };
        match self.find_copy(&chunk, extents) {
            Ok(found) => {
                self.found.lock().insert(id, found);
                self.open.insert(Arc::new(chunk));
                self.make_room();
                Ok(())
            }
            Err(error @ StoreError::NewerFormat { .. }) => Err(error),
            Err(error) => {
                tracing::error!("copy {id} could not be recovered: {error}");
                Ok(())
            }
        }
    }

    fn recover_logged(&self, id: ChunkId, extents: &BTreeSet<u64>) {
        let Some(chunk) = self.open_to_recover(id, false) else { return };
        match self.recover(&chunk, extents) {
            Ok(()) => {
                self.log.clean(id, 0);
                self.open.insert(Arc::new(chunk));
                self.make_room();
            }
            Err(error) => tracing::error!("chunk {id} could not be recovered: {error}"),
        }
    }
}

/// What the names of files say.
struct Names {
    index: BTreeSet<ChunkId>,
    copies: BTreeSet<ChunkId>,
    shares: Shares,
}

/// The chunks that have a `.meta` file, those of them with a record, and those with blocks of others; what has no such file
/// belongs to a chunk that was being made or removed.
fn find_chunks(disk: &dyn Disk, dir: &Path) -> Result<Names> {
    let (mut found, mut copies) = (BTreeSet::new(), BTreeSet::new());
    let shares = Shares::default();
    for shard in 0..SHARDS {
        let path = shard_dir(dir, shard);
        let mut others = Vec::new();
        for entry in disk.list(&path).map_err(|e| StoreError::io("list", &path, e))? {
            let Some((stem, suffix)) = entry.name.to_str().and_then(|name| name.split_once('.')) else { continue };
            let Ok(id) = u64::from_str_radix(stem, 16) else { continue };
            let file = path.join(&entry.name);
            match suffix {
                "meta" => drop(found.insert(ChunkId(id))),
                "data" => others.push((ChunkId(id), file)),
                RECORD_SUFFIX => {
                    copies.insert(ChunkId(id));
                    others.push((ChunkId(id), file));
                }
                suffix if let Some(base) = base_of_suffix(suffix) => {
                    shares.insert(ChunkId(id), base);
                    others.push((ChunkId(id), file));
                }
                // It never took its place.
                NEW_EXTENSION => disk.remove(&file).map_err(|e| StoreError::io("remove", &file, e))?,
                _ => {}
            }
        }
        for (id, orphan) in others.iter().filter(|(id, _)| !found.contains(id)) {
            disk.remove(orphan).map_err(|e| StoreError::io("remove", orphan, e))?;
            shares.remove(*id);
        }
    }
    copies.retain(|id| found.contains(id));
    Ok(Names { index: found, copies, shares })
}
