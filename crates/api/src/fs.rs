use crate::Result;
use braid_types::{Attr, ByteRange, DeviceId, FileKind, InodeId, Mode, Name, Timestamp, TraceId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// An open file or directory of one [`FileSystem`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u64);

/// On whose behalf an operation runs. Permission checks are the door's (the kernel's, over FUSE); uid and gid
/// become the owner of what is created.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub pid: u32,
    /// Applied to the mode of what is created, unless the parent has a default ACL.
    pub umask: u32,
    pub trace: TraceId,
}

/// An attribute's answer and how long it may be kept without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrReply {
    pub attr: Attr,
    pub valid: Duration,
}

/// A new or found entry, and how long name and attributes may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryReply {
    pub attr: Attr,
    pub valid: Duration,
}

/// `attr` is `None` if there is no such name, which may be remembered for `valid` too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupReply {
    pub attr: Option<Attr>,
    pub valid: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrNow {
    Now,
    At(Timestamp),
}

/// What to change; `None` leaves as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    pub mode: Option<Mode>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
    /// Clear setuid, and setgid of an executable, as a write by an ordinary user does.
    pub kill_privileges: bool,
}

/// What is made by [`FileSystem::make_node`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    File,
    Directory,
    Symlink(Bytes),
    /// FIFO, socket or device.
    Special(FileKind, DeviceId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    pub kind: NodeKind,
    /// As the caller asked; the umask of [`Caller`] or the parent's default ACL is applied by the file system.
    pub mode: Mode,
}

/// How a file is opened, free of any system's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub truncate: bool,
    /// With create: fail if the name exists.
    pub exclusive: bool,
    /// O_SYNC or O_DSYNC: every write is durable when it returns.
    pub sync: bool,
    /// O_DIRECT: this handle bypasses caches.
    pub direct: bool,
}

impl OpenFlags {
    /// For reading alone, and nothing else.
    pub const READ: OpenFlags = OpenFlags {
        read: true,
        write: false,
        append: false,
        truncate: false,
        exclusive: false,
        sync: false,
        direct: false,
    };
    pub const READ_WRITE: OpenFlags = OpenFlags { write: true, ..OpenFlags::READ };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub handle: HandleId,
    /// The kernel may keep pages cached by earlier handles.
    pub keep_cache: bool,
    /// The kernel must not cache pages for this handle.
    pub direct_io: bool,
}

/// A directory that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedDir {
    pub handle: HandleId,
    /// A cache above may keep what it reads through this handle, until it is told ([`Shown::Listing`]).
    pub may_cache: bool,
    /// And what it kept of the directory from earlier handles is still right.
    pub keep_cache: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    #[default]
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Reserve, growing the file.
    Allocate,
    /// Reserve without changing the size.
    AllocateKeepSize,
    /// Free the range; the size stays.
    PunchHole,
    /// The range reads as zero and stays reserved; grows the file unless `keep_size`.
    ZeroRange { keep_size: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekWhence {
    Data,
    Hole,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    #[default]
    Any,
    Create,
    Replace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: Name,
    pub id: InodeId,
    pub kind: FileKind,
    /// Where the next call goes on after this entry.
    pub offset: u64,
    /// With `plus`: attributes and how long entry and attributes may be kept.
    pub attr: Option<(Attr, Duration)>,
}

/// fcntl locks belong to an owner and a range, flock locks to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockSpace {
    Posix,
    Flock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockKind {
    Read,
    Write,
    Unlock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockRequest {
    pub space: LockSpace,
    pub owner: u64,
    pub pid: u32,
    pub kind: LockKind,
    pub range: ByteRange,
}

/// Totals as `statvfs` shows them, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub files: u64,
    pub files_free: u64,
}

/// Something a door may still show of what it was told it may keep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shown {
    Attr(InodeId),
    /// What a name stands for, or that it stands for nothing.
    Entry(InodeId, Name),
    /// Every name.
    Entries,
    /// Pages of a file, or of what was read of a directory, from and to an offset, and its attributes.
    Pages(InodeId, u64, u64),
    /// What is in a directory, and its attributes.
    Listing(InodeId),
}

/// The cache above a file system: the kernel's, behind a door.
pub trait Watcher: Send + Sync {
    /// Done when nothing of this is shown any more without asking. Must not wait for a call to the file system.
    fn forget(&self, shown: Vec<Shown>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// A file that is read beneath ([`FileSystem::beneath`]) is to be unsealed: the cache should forget it, of which one name may be
    /// given, unless somebody uses it, and say so ([`FileSystem::left_beneath`]). Asked again and again.
    fn leave(&self, id: InodeId, name: Option<(InodeId, Name)>) {
        let _ = (id, name);
    }
}

/// A POSIX file system, by inode and handle. Every door speaks to one of these; `client` and `model` are two.
///
/// Promises: each call is atomic unless it says otherwise; a completed change is seen by the next call; no call
/// waits without a deadline. Handles come from `open`, `create`, `make_temporary` and `open_dir` and end with
/// `release`. Errors carry [`crate::Code`]s, never an errno.
pub trait FileSystem: Send + Sync + 'static {
    /// From now on `watcher` keeps answers for as long as they are valid, and is told what stops to be. A file system
    /// that gives no validity, or that nobody else changes, has nothing to tell.
    fn watch(&self, watcher: Arc<dyn Watcher>) {
        drop(watcher);
    }

    /// How much room there is for what `id` is, or what is made in it.
    fn statfs(&self, cx: &Caller, id: InodeId) -> impl Future<Output = Result<StatFs>> + Send;

    fn lookup(&self, cx: &Caller, parent: InodeId, name: &Name) -> impl Future<Output = Result<LookupReply>> + Send;

    /// The parent of a directory, itself for the root.
    fn parent(&self, cx: &Caller, dir: InodeId) -> impl Future<Output = Result<InodeId>> + Send;

    fn get_attr(
        &self,
        cx: &Caller,
        id: InodeId,
        handle: Option<HandleId>,
    ) -> impl Future<Output = Result<AttrReply>> + Send;

    fn set_attr(
        &self,
        cx: &Caller,
        id: InodeId,
        handle: Option<HandleId>,
        change: SetAttr,
    ) -> impl Future<Output = Result<AttrReply>> + Send;

    /// Seals a file, or unseals it: nothing of a sealed file changes until it is unsealed, neither bytes nor attributes nor names,
    /// and each try is [`crate::Code::Sealed`]. What was written before is in it. While somebody has it open for writing it is not
    /// sealed, while somebody reads it without asking not unsealed: [`crate::Code::TextBusy`], after so long at the latest.
    fn set_sealed(
        &self,
        cx: &Caller,
        id: InodeId,
        sealed: bool,
        wait: Duration,
    ) -> impl Future<Output = Result<AttrReply>> + Send;

    fn read_link(&self, cx: &Caller, id: InodeId) -> impl Future<Output = Result<Bytes>> + Send;

    fn make_node(
        &self,
        cx: &Caller,
        parent: InodeId,
        name: &Name,
        node: NewNode,
    ) -> impl Future<Output = Result<EntryReply>> + Send;

    fn unlink(&self, cx: &Caller, parent: InodeId, name: &Name) -> impl Future<Output = Result<()>> + Send;

    fn remove_dir(&self, cx: &Caller, parent: InodeId, name: &Name) -> impl Future<Output = Result<()>> + Send;

    /// A directory with all that is in it, at one moment for whoever looks from the root. What is open in it stays readable and
    /// writable; who is in one of its directories may see it go. [`Code::Sealed`], and nothing is removed, if a file in it is sealed.
    fn remove_tree(&self, cx: &Caller, parent: InodeId, name: &Name) -> impl Future<Output = Result<()>> + Send;

    fn rename(
        &self,
        cx: &Caller,
        from: (InodeId, &Name),
        to: (InodeId, &Name),
        mode: RenameMode,
    ) -> impl Future<Output = Result<()>> + Send;

    fn link(
        &self,
        cx: &Caller,
        id: InodeId,
        parent: InodeId,
        name: &Name,
    ) -> impl Future<Output = Result<EntryReply>> + Send;

    fn open(&self, cx: &Caller, id: InodeId, flags: OpenFlags) -> impl Future<Output = Result<Opened>> + Send;

    /// Makes a file and opens it; opens what is there unless `flags.exclusive`.
    fn create(
        &self,
        cx: &Caller,
        parent: InodeId,
        name: &Name,
        mode: Mode,
        flags: OpenFlags,
    ) -> impl Future<Output = Result<(EntryReply, Opened)>> + Send;

    /// O_TMPFILE: a file without a name on the file system of `parent`; it can be given one by `link`.
    fn make_temporary(
        &self,
        cx: &Caller,
        parent: InodeId,
        mode: Mode,
        flags: OpenFlags,
    ) -> impl Future<Output = Result<(EntryReply, Opened)>> + Send;

    /// Up to `len` bytes, in pieces; fewer only at the end of the file.
    fn read(&self, handle: HandleId, offset: u64, len: u32) -> impl Future<Output = Result<Vec<Bytes>>> + Send;

    /// A file of this machine that has exactly the bytes of an open one and cannot change, if there is one: a cache above may read it
    /// without asking, also for other handles and after this one's end, until it says [`FileSystem::left_beneath`].
    fn beneath(&self, handle: HandleId) -> impl Future<Output = Option<Arc<OwnedFd>>> + Send {
        let _ = handle;
        std::future::ready(None)
    }

    /// Nothing above reads what was given for this file any more, neither by handles nor by mappings.
    fn left_beneath(&self, id: InodeId) {
        let _ = id;
    }

    /// Writes all of `data`; at the end of the file, atomically, if the handle appends.
    fn write(&self, handle: HandleId, offset: u64, data: Bytes) -> impl Future<Output = Result<u32>> + Send;

    /// What close(2) waits for: see `docs/semantics.md`. Reports a failed earlier write once to this handle.
    fn flush(&self, handle: HandleId) -> impl Future<Output = Result<()>> + Send;

    fn fsync(&self, handle: HandleId, data_only: bool) -> impl Future<Output = Result<()>> + Send;

    /// Ends a handle of a file or a directory, with its flock locks.
    fn release(&self, handle: HandleId) -> impl Future<Output = ()> + Send;

    fn fallocate(
        &self,
        handle: HandleId,
        mode: FallocateMode,
        range: ByteRange,
    ) -> impl Future<Output = Result<()>> + Send;

    fn seek(&self, handle: HandleId, offset: u64, whence: SeekWhence) -> impl Future<Output = Result<u64>> + Send;

    fn copy_range(
        &self,
        from: HandleId,
        from_offset: u64,
        to: HandleId,
        to_offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<u64>> + Send;

    fn open_dir(&self, cx: &Caller, id: InodeId) -> impl Future<Output = Result<OpenedDir>> + Send;

    /// Entries after `offset` (0 is the beginning; others come from [`DirEntry::offset`] of the same handle, or of what may be kept),
    /// without `.` and `..`. Empty at the end.
    fn read_dir(
        &self,
        cx: &Caller,
        handle: HandleId,
        offset: u64,
        limit: usize,
        plus: bool,
    ) -> impl Future<Output = Result<Vec<DirEntry>>> + Send;

    fn sync_dir(&self, handle: HandleId) -> impl Future<Output = Result<()>> + Send;

    fn sync_fs(&self) -> impl Future<Output = Result<()>> + Send;

    fn get_xattr(&self, cx: &Caller, id: InodeId, name: &[u8]) -> impl Future<Output = Result<Bytes>> + Send;

    fn set_xattr(
        &self,
        cx: &Caller,
        id: InodeId,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> impl Future<Output = Result<()>> + Send;

    fn list_xattr(&self, cx: &Caller, id: InodeId) -> impl Future<Output = Result<Vec<Bytes>>> + Send;

    fn remove_xattr(&self, cx: &Caller, id: InodeId, name: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// The first lock in the way of `lock`, if there is one.
    fn get_lock(&self, handle: HandleId, lock: LockRequest)
    -> impl Future<Output = Result<Option<LockRequest>>> + Send;

    /// Takes or frees a lock; with `wait` until it is granted (or the caller is gone), else
    /// [`crate::Code::WouldBlock`].
    fn set_lock(&self, handle: HandleId, lock: LockRequest, wait: bool) -> impl Future<Output = Result<()>> + Send;
}
