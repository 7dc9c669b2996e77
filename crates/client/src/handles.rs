//! Open files and directories.

use crate::believed::keeps_pages;
use crate::dirpages::Pages;
use crate::inode::Inode;
use crate::map::file_name;
use crate::prefetch::Window;
use braid_api::meta::DirPage;
use braid_api::{Code, Error, HandleId, OpenFlags, Result};
use braid_types::InodeId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

pub struct FileHandle {
    pub id: HandleId,
    pub inode: Arc<Inode>,
    pub flags: OpenFlags,
    /// Failures of this inode that were reported to this handle.
    pub failures_seen: AtomicU64,
    /// Losses of the file's bytes when it was opened.
    pub losses: u64,
    pub window: Mutex<Window>,
    /// Owners of flock locks taken through this handle, freed with it.
    pub flock_owners: Mutex<Vec<u64>>,
    /// Locks that were taken through it are another's.
    locks_lost: AtomicBool,
}

impl FileHandle {
    pub fn lose_locks(&self) {
        self.locks_lost.store(true, Relaxed);
    }

    /// A program that holds locks goes on only while it has them.
    pub fn has_its_locks(&self) -> Result<()> {
        match self.locks_lost.load(Relaxed) {
            true => Err(Error::new(
                Code::SessionFenced,
                file_name(&self.inode),
                "locks taken through this handle were lost: this mount did not reach the metadata server for too long; \
                 open the file again",
            )),
            false => Ok(()),
        }
    }

    /// A failed background write, once a handle.
    pub fn report(&self) -> Result<()> {
        self.check()?;
        let mut state = self.inode.state.lock();
        if self.failures_seen.swap(state.failures, Relaxed) == state.failures {
            return Ok(());
        }
        state.lost = None;
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// As [`FileHandle::report`], for who wants to know whether all is safe: also what was lost before this handle was opened, if
    /// nobody has been told.
    pub fn report_all(&self) -> Result<()> {
        self.report()?;
        self.inode.state.lock().lost.take().map_or(Ok(()), Err)
    }
}

/// The page a directory handle is in the middle of.
pub struct CurrentPage {
    pub page: u64,
    /// Index of the first entry below in the page.
    pub first: u64,
    pub entries: DirPage,
    pub ticket: crate::cache::Ticket,
    pub plus: bool,
}

#[derive(Default)]
pub struct DirState {
    pub current: Option<CurrentPage>,
    /// What is in the directory has been leased since this handle began to read it, with this page: since when.
    pub leased: Option<(u64, crate::cache::ListingId)>,
    /// Not all of it was known here.
    pub asked: bool,
}

pub struct DirHandle {
    pub inode: InodeId,
    /// Of all handles of the directory.
    pub pages: Arc<Mutex<Pages>>,
    /// Async: one reader of a handle at a time; no other lock is taken while it is held.
    pub state: tokio::sync::Mutex<DirState>,
    /// As of a file: flock(2) takes directories too.
    pub flock_owners: Mutex<Vec<u64>>,
}

#[derive(Clone)]
pub enum Handle {
    File(Arc<FileHandle>),
    Dir(Arc<DirHandle>),
}

impl Handle {
    pub fn inode(&self) -> InodeId {
        match self {
            Handle::File(file) => file.inode.id,
            Handle::Dir(dir) => dir.inode,
        }
    }

    pub fn flock_owners(&self) -> &Mutex<Vec<u64>> {
        match self {
            Handle::File(file) => &file.flock_owners,
            Handle::Dir(dir) => &dir.flock_owners,
        }
    }
}

#[derive(Default)]
pub struct Handles {
    map: Mutex<HashMap<HandleId, Handle>>,
    last: AtomicU64,
    /// Offsets of directories that are open, or of which a cache above may know some.
    offsets: Mutex<HashMap<InodeId, Weak<Mutex<Pages>>>>,
}

/// Of so many directories offsets are remembered before those are forgotten that nobody needs.
const OFFSETS_MAX: usize = 1024;

impl Handles {
    pub fn open_file(&self, inode: Arc<Inode>, flags: OpenFlags) -> Result<Arc<FileHandle>> {
        let id = HandleId(self.last.fetch_add(1, Relaxed) + 1);
        let (failures_seen, losses) = {
            let mut state = inode.state.lock();
            if flags.write && state.sealing > 0 {
                return Err(Error::new(Code::TextBusy, format_args!("inode {}", inode.id), "it is being sealed"));
            }
            state.writers += u32::from(flags.write);
            state.cached += u32::from(!flags.direct);
            state.cached_writers += u32::from(flags.write && !flags.direct);
            state.paged += u32::from(keeps_pages(flags));
            (AtomicU64::new(state.failures), state.losses)
        };
        let (window, flock_owners) = (Mutex::default(), Mutex::default());
        let handle = Arc::new(FileHandle {
            id,
            inode,
            flags,
            failures_seen,
            losses,
            window,
            flock_owners,
            locks_lost: AtomicBool::new(false),
        });
        self.map.lock().insert(id, Handle::File(handle.clone()));
        Ok(handle)
    }

    pub fn open_dir(&self, inode: InodeId) -> HandleId {
        let id = HandleId(self.last.fetch_add(1, Relaxed) + 1);
        let pages = self.offsets(inode);
        let handle = DirHandle { inode, pages, state: tokio::sync::Mutex::default(), flock_owners: Mutex::default() };
        self.map.lock().insert(id, Handle::Dir(Arc::new(handle)));
        id
    }

    fn offsets(&self, dir: InodeId) -> Arc<Mutex<Pages>> {
        let mut offsets = self.offsets.lock();
        if offsets.len() >= OFFSETS_MAX {
            offsets.retain(|_, pages| pages.strong_count() > 0);
        }
        let known = offsets.entry(dir).or_default();
        known.upgrade().unwrap_or_else(|| {
            let pages = Arc::default();
            *known = Arc::downgrade(&pages);
            pages
        })
    }

    pub fn file(&self, id: HandleId) -> Result<Arc<FileHandle>> {
        match self.map.lock().get(&id) {
            Some(Handle::File(handle)) => Ok(handle.clone()),
            Some(Handle::Dir(_)) | None => Err(Error::bare(Code::BadHandle)),
        }
    }

    pub fn dir(&self, id: HandleId) -> Result<Arc<DirHandle>> {
        match self.map.lock().get(&id) {
            Some(Handle::Dir(handle)) => Ok(handle.clone()),
            Some(Handle::File(_)) | None => Err(Error::bare(Code::BadHandle)),
        }
    }

    /// Whatever it is that is open.
    pub fn any(&self, id: HandleId) -> Result<Handle> {
        self.map.lock().get(&id).cloned().ok_or(Error::bare(Code::BadHandle))
    }

    pub fn close(&self, id: HandleId) -> Option<Handle> {
        self.map.lock().remove(&id)
    }

    pub fn len(&self) -> usize {
        self.map.lock().len()
    }
}
