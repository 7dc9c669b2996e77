use super::RowFormat;
use braid_types::*;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Bits of [`Inode::flags`].
pub mod flags {
    /// A directory that is being removed: nothing may be added.
    pub const DEAD: u32 = 1;
    /// The file has chunk rows, or may have.
    pub const CHUNKED: u32 = 2;
    /// There are rows in `xattrs`.
    pub const XATTRS: u32 = 4;
    /// One of them is `system.posix_acl_access`: a chmod must change it too.
    pub const ACL: u32 = 8;
    /// One of them is `system.posix_acl_default`: what is made here inherits it.
    pub const DEFAULT_ACL: u32 = 16;
    /// One of them marks it for several writers at once: [`braid_api::meta::SHARED_XATTR`].
    pub const SHARED: u32 = 32;
    /// The file is sealed: nothing of it changes. An older version would not know, and shares no protocol with who relies on it.
    pub const SEALED: u32 = 64;
    /// The file was made without a name (O_TMPFILE) and has had none since: it may get one. What has lost its last name gets none any more.
    pub const NAMELESS: u32 = 128;
}

/// Where a file's inline bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InlineState {
    #[default]
    None,
    Small,
    Large,
}

/// All attributes of an inode, in its row in `inodes`, or in `inode_ids` once it had several links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    pub id: InodeId,
    pub kind: FileKind,
    pub mode: Mode,
    pub uid: u32,
    pub gid: u32,
    pub rdev: DeviceId,
    pub nlink: u32,
    /// Bytes of a file; of a directory its number of entries, which proves it empty.
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    pub flags: u32,
    pub inline: InlineState,
    pub trunc_gen: TruncGen,
    /// Truncations that a data server may not have seen: see [`braid_api::meta::Cuts`].
    pub cuts: Vec<(TruncGen, u64)>,
    pub layout_gen: LayoutGen,
    pub lease_gen: LeaseGen,
    /// The directory whose policy holds here.
    pub policy_root: InodeId,
    /// Of a file: the policy it was made under.
    pub policy: Option<Policy>,
    /// The directories with quotas that are charged for it, the outermost first, itself the last if it has one. The root directory,
    /// which is charged for everything, is not named.
    pub quota_roots: Vec<InodeId>,
    /// Of a file that grows under a quota: up to which size it is charged for already.
    pub room: u64,
    pub snapshot_root: InodeId,
    /// Snapshot numbers (not used yet): when it came, when it last changed.
    pub born: u64,
    pub changed: u64,
    pub target: Bytes,
}

impl RowFormat for Inode {}

impl Inode {
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub fn set(&mut self, flag: u32, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    pub fn attr(&self) -> Attr {
        // A directory shows 4 KiB like other file systems: programs read 0 as "cannot be listed".
        let size = if self.is_dir() { 4096 } else { self.size };
        Attr {
            id: self.id,
            kind: self.kind,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            blocks: if self.is_file() { size.div_ceil(BLOCK_BYTES) * (BLOCK_BYTES / 512) } else { 0 },
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            trunc_gen: self.trunc_gen,
            xattrs: self.has(flags::XATTRS),
            sealed: self.has(flags::SEALED),
        }
    }

    /// Content changed now.
    pub fn touch(&mut self, now: Timestamp) {
        self.mtime = now.max(self.mtime);
        self.ctime = now.max(self.ctime);
    }

    /// Attributes changed now.
    pub fn change(&mut self, now: Timestamp) {
        self.ctime = now.max(self.ctime);
    }

    /// What a write by an ordinary user does: setuid goes, and setgid if the group may execute.
    pub fn kill_privileges(&mut self) {
        self.mode.0 &= !Mode::SETUID;
        if self.mode.has(0o010) {
            self.mode.0 &= !Mode::SETGID;
        }
    }
}

/// A row of `inodes`.
#[allow(clippy::large_enum_variant, reason = "nearly every entry is the large one: a box would be an allocation a row")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    Here(Inode),
    /// The file has had several links: its attributes are in `inode_ids`.
    Elsewhere {
        id: InodeId,
        kind: FileKind,
    },
}

impl RowFormat for Entry {
    fn charge(&self) -> Option<super::Charge> {
        self.charge()
    }
}

impl Entry {
    pub fn id(&self) -> InodeId {
        match self {
            Entry::Here(inode) => inode.id,
            Entry::Elsewhere { id, .. } => *id,
        }
    }

    pub fn kind(&self) -> FileKind {
        match self {
            Entry::Here(inode) => inode.kind,
            Entry::Elsewhere { kind, .. } => *kind,
        }
    }
}

/// A row of `inode_ids`.
#[allow(
    clippy::large_enum_variant,
    reason = "it is read, looked at and dropped: a box would be an allocation each time"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdRow {
    /// The attributes are in `inodes` at this place; the name is empty for the root.
    At {
        parent: InodeId,
        name: Vec<u8>,
    },
    Attributes(Inode),
}

impl RowFormat for IdRow {
    fn charge(&self) -> Option<super::Charge> {
        self.charge()
    }
}

/// A row of `orphans`: the inode has no name and may still be open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrphanRow {
    /// Who took the last name, or made it without one.
    pub session: SessionId,
    pub since: Timestamp,
}

impl RowFormat for OrphanRow {}

/// The rows behind [`super::keys::sealed_count`], [`super::keys::sealed_placed`] and [`super::keys::sealed_in`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedCount(pub u64);

impl RowFormat for SealedCount {}
