//! The kernel's numbers and BraidFS's words, one for the other.

use braid_api::{Code, EntryReply, Error, FallocateMode, OpenFlags, Opened, OpenedDir, Result, TimeOrNow};
use braid_fuse_kernel as kernel;
use braid_types::{Attr, FileKind, InodeId, Mode, Name, NameError, Timestamp};

/// `st_blksize`: what programs use as their buffer. Larger ones would make small reads of large buffers.
const BLOCK_BYTES: u32 = 4096;

/// The kernel calls the root node 1; every other node is the inode's own number.
pub fn node_of(id: InodeId) -> u64 {
    if id == InodeId::ROOT { kernel::ROOT_ID } else { id.0 }
}

pub fn inode_of(node: u64) -> InodeId {
    if node == kernel::ROOT_ID { InodeId::ROOT } else { InodeId(node) }
}

pub fn name_of(bytes: &[u8]) -> Result<Name> {
    Name::new(bytes).map_err(|error| {
        let code = match error {
            NameError::TooLong(_) => Code::NameTooLong,
            NameError::Empty => Code::NotFound,
            NameError::BadByte | NameError::Dots => Code::Invalid,
        };
        Error::bare(code)
    })
}

pub fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    }
}

pub fn kind_of(mode: u32) -> Option<FileKind> {
    Some(match mode & libc::S_IFMT {
        0 | libc::S_IFREG => FileKind::File,
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFLNK => FileKind::Symlink,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::CharDevice,
        libc::S_IFBLK => FileKind::BlockDevice,
        _ => return None,
    })
}

fn time(time: Timestamp) -> kernel::Timestamp {
    kernel::Timestamp { secs: time.secs(), nsecs: time.subsec_nanos() }
}

pub fn new_time(time: kernel::SetTime) -> TimeOrNow {
    match time {
        kernel::SetTime::Now => TimeOrNow::Now,
        kernel::SetTime::At(time) => TimeOrNow::At(Timestamp::from_parts(time.secs, time.nsecs)),
    }
}

pub fn attr(attr: &Attr) -> kernel::Attr {
    kernel::Attr {
        ino: node_of(attr.id),
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        mode: type_bits(attr.kind) | attr.mode.0,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev.0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

pub fn entry(reply: &EntryReply) -> kernel::EntryOut {
    kernel::EntryOut {
        nodeid: node_of(reply.attr.id),
        // Inode numbers are never used again, so one life each.
        generation: 0,
        entry_valid: reply.valid,
        attr_valid: reply.valid,
        attr: attr(&reply.attr),
    }
}

pub fn statx(reply: &braid_api::AttrReply) -> kernel::StatxOut {
    kernel::StatxOut {
        attr: attr(&reply.attr),
        attr_valid: reply.valid,
        btime: Some(time(reply.attr.btime)),
        attributes: 0,
        attributes_mask: 0,
    }
}

pub fn mode(bits: u32) -> Mode {
    Mode::new(bits)
}

pub fn open_flags(bits: u32) -> OpenFlags {
    let bits = bits as i32;
    let access = bits & libc::O_ACCMODE;
    OpenFlags {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        append: bits & libc::O_APPEND != 0,
        truncate: bits & libc::O_TRUNC != 0,
        exclusive: bits & libc::O_EXCL != 0,
        // O_SYNC contains O_DSYNC.
        sync: bits & libc::O_DSYNC != 0,
        direct: bits & libc::O_DIRECT != 0,
    }
}

/// What the kernel may do with the pages of a handle.
pub fn cache_flags(opened: &Opened) -> u32 {
    let mut flags = 0;
    if opened.direct_io {
        flags |= kernel::open_flags::DIRECT_IO;
    }
    if opened.keep_cache {
        flags |= kernel::open_flags::KEEP_CACHE;
    }
    flags
}

pub fn dir_flags(opened: &OpenedDir) -> u32 {
    let cache = if opened.may_cache { kernel::open_flags::CACHE_DIR } else { 0 };
    let keep = if opened.keep_cache { kernel::open_flags::KEEP_CACHE } else { 0 };
    cache | keep
}

pub fn fallocate_mode(bits: u32) -> Result<FallocateMode> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = ZERO | KEEP;
    match bits as i32 {
        0 => Ok(FallocateMode::Allocate),
        KEEP => Ok(FallocateMode::AllocateKeepSize),
        PUNCH => Ok(FallocateMode::PunchHole),
        ZERO => Ok(FallocateMode::ZeroRange { keep_size: false }),
        ZERO_KEEP => Ok(FallocateMode::ZeroRange { keep_size: true }),
        _ => Err(Code::NotSupported.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_node_1_and_back() {
        assert_eq!(node_of(InodeId::ROOT), 1);
        assert_eq!(inode_of(1), InodeId::ROOT);
        assert_eq!(inode_of(node_of(InodeId(12345))), InodeId(12345));
    }

    #[test]
    fn open_flags_are_read() {
        let flags = open_flags((libc::O_RDWR | libc::O_APPEND | libc::O_SYNC) as u32);
        assert!(flags.read && flags.write && flags.append && flags.sync && !flags.direct);
        assert!(!open_flags(libc::O_WRONLY as u32).read);
    }
}
