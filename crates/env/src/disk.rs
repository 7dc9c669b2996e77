use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened: for reading and writing, but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Must exist.
    Existing,
    /// Is made if it does not exist.
    OrCreate,
    /// Must not exist.
    CreateNew,
    /// Must exist. What would change it fails with [`io::ErrorKind::ReadOnlyFilesystem`]; the one way to open a file of a disk
    /// that has become read-only.
    ReadOnly,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskDirEntry {
    pub name: OsString,
    pub is_dir: bool,
}

/// Bytes of the file system a path lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Which disk of this machine it is: the same for all directories on it. 0 if that is not known.
    pub disk: u64,
    /// What is used and what is free; without what the file system keeps for others, so that the difference to `free` is
    /// what `df` calls used.
    pub total: u64,
    pub free: u64,
    /// It takes no changes, as after an error that made the kernel mount it anew.
    pub read_only: bool,
}

/// Held by the one process that may use a directory; freed when dropped.
pub trait DiskLock: Send + Sync {}

/// A directory tree with files. Calls block; use [`crate::Env::blocking`] unless the data is known to be cached.
///
/// Durability is POSIX's, and no more: a write is stable after [`DiskFile::sync_data`], a name after
/// [`Disk::sync_dir`] of its directory. What was not synced may survive a power cut whole, torn or not at all, in
/// any order.
pub trait Disk: Send + Sync {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Replaces `to` if it exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// In no particular order.
    fn list(&self, path: &Path) -> io::Result<Vec<DiskDirEntry>>;
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    fn space(&self, path: &Path) -> io::Result<DiskSpace>;
    /// A file in memory, of so many zeros and never of another length, that goes with its last descriptor: what a process says to
    /// others on its host without a message. Open for writing, and once more for reading alone, to be handed out. `Unsupported`
    /// where there are no other processes.
    fn memory_file(&self, _bytes: u64) -> io::Result<[Arc<dyn DiskFile>; 2]> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes the file's lock without waiting; `WouldBlock` if another process (or handle) has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
}

/// An open file. Positions are explicit; many threads may call at once.
pub trait DiskFile: Send + Sync {
    /// Fills `buf`; fewer bytes only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// As [`DiskFile::read_at`] if that needs no disk access (`RWF_NOWAIT`), else `None`.
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>>;

    /// As [`DiskFile::read_at`], of bytes that are hardly read again soon: what was not in the page cache does not stay
    /// there, where the disk can do that.
    fn read_once_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buf, offset)
    }

    /// Writes all of `buf`, growing the file.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// As [`DiskFile::write_at`], of bytes that are hardly read here soon: they are on their way to the disk at once and
    /// do not stay in the page cache, where the disk can do that. As stable as by [`DiskFile::write_at`]: not at all.
    fn write_once_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(buf, offset)
    }

    /// Makes data and length stable.
    fn sync_data(&self) -> io::Result<()>;

    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space for the range without changing the length; `Unsupported` where the disk cannot.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Frees the range, which then reads as zero; the length stays.
    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes the range what it is in `from`, a file of the same disk, and shares its space with it until one of the two
    /// changes; grows the file. As stable as a write. `Unsupported` where the disk cannot, or not that range: the ends must be
    /// multiples of the disk's blocks.
    fn clone_range(&self, _from: &dyn DiskFile, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Bytes really occupied on the disk.
    fn occupied(&self) -> io::Result<u64>;

    /// What another process may be given; none where files are no files of the operating system.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
