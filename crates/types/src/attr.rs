use crate::{InodeId, Timestamp, TruncGen};
use serde::{Deserialize, Serialize};

/// Permission and type-independent bits of a mode: `07777`.
pub const MODE_MASK: u32 = 0o7777;

/// Permission bits with setuid, setgid and sticky; never the file type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mode(pub u32);

impl Mode {
    pub const SETUID: u32 = 0o4000;
    pub const SETGID: u32 = 0o2000;
    pub const STICKY: u32 = 0o1000;

    pub fn new(bits: u32) -> Self {
        Mode(bits & MODE_MASK)
    }

    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

/// Device number of a special file as the kernel encodes it in `st_rdev` (32 bits over FUSE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(pub u32);

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

impl FileKind {
    /// As commands, their JSON and SQL say it.
    pub fn word(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
            FileKind::CharDevice => "char-device",
            FileKind::BlockDevice => "block-device",
        }
    }
}

/// Attributes of an inode as `stat` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    pub id: InodeId,
    pub kind: FileKind,
    pub mode: Mode,
    /// Hard links; a directory has 2 + its subdirectories.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: DeviceId,
    /// Bytes of a file or of a symlink's target; of a directory always 4,096.
    pub size: u64,
    /// Bytes occupied, in units of 512, as `st_blocks`.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    /// Raised by every truncate; travels in the [`crate::Token`].
    pub trunc_gen: TruncGen,
    /// May have extended attributes or access lists; `false` says that it has none.
    pub xattrs: bool,
    /// Nothing of the file changes, neither bytes nor attributes nor names.
    pub sealed: bool,
}

impl Attr {
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }
}
