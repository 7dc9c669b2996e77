//! A request of the kernel, taken apart.
//!
//! Names and payloads are borrowed from the request's buffer. Numbers mean what they mean to the system call they come from
//! (`flags` are the `O_` bits of open, `whence` is lseek's, and so on); fields the kernel marks as absent are `None`.

use crate::attr::Timestamp;
use crate::buffers::Payload;

/// Who asks for what, on which node.
#[derive(Debug)]
pub struct Request<'a> {
    /// Names the request while it is open; INTERRUPT refers to it.
    pub unique: u64,
    /// The file the request is about; the directory, where names follow.
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    /// 0 when the caller is in another pid namespace, or is the kernel itself.
    pub pid: u32,
    /// Groups of the caller that matter to a create: at most the parent directory's, and only with CREATE_SUPP_GROUP.
    pub groups: Vec<u32>,
    /// Labels for the new file, only with SECURITY_CTX.
    pub security: Vec<SecurityContext<'a>>,
    pub operation: Operation<'a>,
}

/// A security label to be stored as the extended attribute `name` of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityContext<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
}

/// One variant for each opcode. LOOKUP, MKNOD, MKDIR, SYMLINK, LINK, CREATE and TMPFILE answer with an entry and so count one
/// lookup of it.
#[derive(Debug)]
#[rustfmt::skip]
pub enum Operation<'a> {
    Lookup { name: &'a [u8] },
    /// Expects no answer.
    Forget { nlookup: u64 },
    /// Expects no answer.
    BatchForget { forgets: Vec<Forget> },
    Getattr { fh: Option<u64> },
    Setattr(SetAttr),
    Readlink,
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// With DONT_MASK `mode` is as the caller gave it, and `umask` applies where no default ACL does.
    Mknod { name: &'a [u8], mode: u32, umask: u32, rdev: u32 },
    Mkdir { name: &'a [u8], mode: u32, umask: u32 },
    Unlink { name: &'a [u8] },
    Rmdir { name: &'a [u8] },
    /// RENAME and RENAME2; `flags` are renameat2's.
    Rename { name: &'a [u8], new_parent: u64, new_name: &'a [u8], flags: u32 },
    /// The request's node is the directory that gets the name.
    Link { nodeid: u64, new_name: &'a [u8] },
    Open { flags: u32, kill_suidgid: bool },
    Read { fh: u64, offset: u64, size: u32, flags: u32, lock_owner: Option<u64> },
    Write(Write<'a>),
    Statfs,
    Release(Release),
    Fsync { fh: u64, data_only: bool },
    /// `acl_kill_sgid`: clear the set-group-id bit with this change of the access ACL (only with SETXATTR_EXT).
    Setxattr { name: &'a [u8], value: &'a [u8], flags: u32, acl_kill_sgid: bool },
    /// `size` 0 asks for the length of the value.
    Getxattr { name: &'a [u8], size: u32 },
    Listxattr { size: u32 },
    Removexattr { name: &'a [u8] },
    /// A descriptor of the handle was closed; POSIX locks of `lock_owner` end.
    Flush { fh: u64, lock_owner: u64 },
    Opendir { flags: u32 },
    Readdir { fh: u64, offset: u64, size: u32 },
    Readdirplus { fh: u64, offset: u64, size: u32 },
    Releasedir(Release),
    Fsyncdir { fh: u64, data_only: bool },
    Getlk(LockRequest),
    Setlk(LockRequest),
    /// As SETLK, and waits.
    Setlkw(LockRequest),
    Access { mask: u32 },
    Create { name: &'a [u8], flags: u32, mode: u32, umask: u32, kill_suidgid: bool },
    /// A regular file without a name, answered as CREATE.
    Tmpfile { flags: u32, mode: u32, umask: u32, kill_suidgid: bool },
    /// The caller of the request `unique` got a signal. Expects no answer; EAGAIN asks the kernel to say it again.
    Interrupt { unique: u64 },
    Bmap { block: u64, blocksize: u32 },
    Destroy,
    Ioctl { fh: u64, flags: u32, cmd: u32, arg: u64, data: &'a [u8], out_size: u32 },
    Poll { fh: u64, kh: u64, flags: u32, events: u32 },
    Fallocate { fh: u64, offset: u64, length: u64, mode: u32 },
    /// `whence` is SEEK_DATA or SEEK_HOLE.
    Lseek { fh: u64, offset: u64, whence: u32 },
    CopyFileRange(CopyFileRange),
    /// `mask` are the STATX_ fields asked for, `flags` the AT_STATX_ sync flags.
    Statx { fh: Option<u64>, flags: u32, mask: u32 },
    /// Linux up to 6.18 sends it to no ordinary mount: there `syncfs` only writes back the page cache.
    Syncfs,
}

/// `nlookup` lookups of `nodeid` are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forget {
    pub nodeid: u64,
    pub nlookup: u64,
}

/// A time to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(Timestamp),
}

/// What SETATTR changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    pub fh: Option<u64>,
    pub size: Option<u64>,
    pub lock_owner: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Only with WRITEBACK_CACHE.
    pub ctime: Option<Timestamp>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Only with HANDLE_KILLPRIV_V2.
    pub kill_suidgid: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    pub fh: u64,
    pub offset: u64,
    pub data: Payload<'a>,
    pub flags: u32,
    pub lock_owner: Option<u64>,
    /// Written back from the page cache: `fh` is some handle of the file, the caller's ids say nothing.
    pub from_cache: bool,
    pub kill_suidgid: bool,
}

/// The last descriptor of a handle is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    pub fh: u64,
    pub flags: u32,
    pub flush: bool,
    /// flock locks of `lock_owner` end.
    pub flock_unlock: bool,
    pub lock_owner: u64,
}

/// A byte range lock, as fcntl has it: `kind` is F_RDLCK, F_WRLCK or F_UNLCK, `end` is the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lock {
    pub start: u64,
    pub end: u64,
    pub kind: u32,
    pub pid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRequest {
    pub fh: u64,
    pub owner: u64,
    pub lock: Lock,
    /// A flock lock over the whole file.
    pub flock: bool,
}

/// The request's node is the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyFileRange {
    pub fh_in: u64,
    pub offset_in: u64,
    pub nodeid_out: u64,
    pub fh_out: u64,
    pub offset_out: u64,
    pub length: u64,
    pub flags: u64,
}
