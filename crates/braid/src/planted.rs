//! A planted fault, in builds with the feature `planted` alone: syncs that are not made, commands that die at a place. `scripts/power-planted` proves with
//! such a build that `scripts/power-rounds` would find a missing sync. `BRAID_PLANTED` says whose: `metadata` or `data`; or where: `migrate-held`, `migrate-left`.

use braid_env::{Disk, DiskDirEntry, DiskFile, DiskLock, DiskSpace, OpenMode};
use braid_meta_engine_embedded::EmbeddedOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;

fn is_asked_for(fault: &str) -> bool {
    std::env::var_os("BRAID_PLANTED").is_some_and(|value| value == fault)
}

/// The process is gone at this place, as if it had been killed there.
pub fn may_die_at(place: &str) {
    if is_asked_for(place) {
        std::process::exit(9);
    }
}

fn is_planted(fault: &str) -> bool {
    let planted = is_asked_for(fault);
    if planted {
        tracing::warn!(fault, "this build makes no syncs here: it loses what it promises to keep");
    }
    planted
}

pub fn metadata(options: EmbeddedOptions) -> EmbeddedOptions {
    EmbeddedOptions { plant_no_syncs: is_planted("metadata"), ..options }
}

pub fn data(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    if is_planted("data") { Arc::new(NoSyncs(disk)) } else { disk }
}

struct NoSyncs<T: ?Sized>(Arc<T>);

/// Chunks and the directories they lie in. All else is synced: a store that loses its name is another fault.
fn is_of_chunks(path: &Path) -> bool {
    path.parent().is_some_and(|parent| parent.components().any(|part| part.as_os_str() == "chunks"))
}

impl Disk for NoSyncs<dyn Disk> {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.0.open(path, mode)?;
        Ok(if is_of_chunks(path) { Arc::new(NoSyncs(file)) } else { file })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DiskDirEntry>> {
        self.0.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if is_of_chunks(path) { Ok(()) } else { self.0.sync_dir(path) }
    }

    fn space(&self, path: &Path) -> io::Result<DiskSpace> {
        self.0.space(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.0.lock(path)
    }
}

impl DiskFile for NoSyncs<dyn DiskFile> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.0.read_cached_at(buf, offset)
    }

    fn read_once_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_once_at(buf, offset)
    }
    fn write_once_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_once_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.allocate(offset, len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.punch_hole(offset, len)
    }

    fn occupied(&self) -> io::Result<u64> {
        self.0.occupied()
    }
}
