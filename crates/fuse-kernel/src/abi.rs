//! The numbers of the kernel's FUSE protocol, version 7, as `include/uapi/linux/fuse.h` fixes them.
//!
//! Only numbers live here; their layouts are written beside the code that reads (`decode.rs`) or writes them (`reply.rs`,
//! `attr.rs`, `notify.rs`). What a front end may need is public, with the kernel's own names less the prefix.

/// The protocol's major version; the kernel has spoken no other since 2005.
pub const MAJOR: u32 = 7;
/// The oldest minor version accepted (Linux 5.4): everything this crate relies on without asking is in it.
pub const MINOR_MIN: u32 = 31;
/// The newest minor version this crate knows (Linux 6.18). Newer kernels talk down to it.
pub const MINOR_MAX: u32 = 45;

/// The node id of a mount's root directory.
pub const ROOT_ID: u64 = 1;

/// Bytes of the header before every request and of the one before every answer.
pub(crate) const IN_HEADER_BYTES: usize = 40;
pub(crate) const OUT_HEADER_BYTES: usize = 16;
/// Bytes of the fixed part of a WRITE; its payload follows at once.
pub(crate) const WRITE_IN_BYTES: usize = 40;

/// The first bits of an answer to OPEN, OPENDIR, CREATE and TMPFILE.
pub mod open_flags {
    /// Bypass the page cache for this handle.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Keep what the page cache holds of the file from earlier opens.
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// Let the kernel cache the listing of this directory.
    pub const CACHE_DIR: u32 = 1 << 3;
    pub const STREAM: u32 = 1 << 4;
    /// Do not send FLUSH when a descriptor is closed.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Let several direct writes of one file run at once.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

pub(crate) mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

pub(crate) mod notify {
    pub const POLL: i32 = 1;
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const STORE: i32 = 4;
    pub const DELETE: i32 = 6;
    pub const INC_EPOCH: i32 = 8;
    pub const PRUNE: i32 = 9;
    /// Flag of INVAL_ENTRY: only let the entry's time run out.
    pub const EXPIRE_ONLY: u32 = 1 << 0;
}

/// The `valid` bits of SETATTR.
pub(crate) mod setattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Single bits of the fixed parts of requests.
pub(crate) mod bit {
    pub const GETATTR_FH: u32 = 1 << 0;
    pub const READ_LOCKOWNER: u32 = 1 << 1;
    pub const WRITE_CACHE: u32 = 1 << 0;
    pub const WRITE_LOCKOWNER: u32 = 1 << 1;
    pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
    pub const RELEASE_FLUSH: u32 = 1 << 0;
    pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
    pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
    pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
    pub const FSYNC_DATA_ONLY: u32 = 1 << 0;
    pub const LK_FLOCK: u32 = 1 << 0;
}

/// Extension records: types up to 31 are headers of security contexts (the number is their count), 32 carries groups.
pub(crate) const EXTENSION_SECURITY_MAX: u32 = 31;
pub(crate) const EXTENSION_GROUPS: u32 = 32;

// `_IOR(229, 0, u32)`, `_IOW(229, 1, fuse_backing_map of 16 bytes)`, `_IOW(229, 2, u32)`: direction in the top two bits (write 1,
// read 2), then 14 bits of size, 8 of type, 8 of number.
pub(crate) const IOCTL_CLONE: u32 = (2 << 30) | (4 << 16) | (229 << 8);
pub(crate) const IOCTL_BACKING_OPEN: u32 = (1 << 30) | (16 << 16) | (229 << 8) | 1;
pub(crate) const IOCTL_BACKING_CLOSE: u32 = (1 << 30) | (4 << 16) | (229 << 8) | 2;

/// Requests over io_uring: the kernel's `fuse_uring_req_header`, and the commands.
pub(crate) mod ring {
    /// The header of the request or of the answer has the first 128 bytes, its fixed part the next.
    pub const FIXED: usize = 128;
    pub const FIXED_BYTES_MAX: usize = 128;
    pub const COMMIT_ID: usize = 256 + 8;
    pub const PAYLOAD_SIZE: usize = 256 + 16;
    pub const HEADER_BYTES: usize = 256 + 32;

    pub const REGISTER: u32 = 1;
    pub const COMMIT_AND_FETCH: u32 = 2;
}
