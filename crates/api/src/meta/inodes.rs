//! Inodes, as requests name them and answers grant them: attributes, places, extended attributes, seals.
use super::Cuts;
use braid_types::*;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// An inode and where its row was last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeRef {
    pub id: InodeId,
    pub hint: Option<(InodeId, Name)>,
}

impl From<InodeId> for InodeRef {
    fn from(id: InodeId) -> Self {
        InodeRef { id, hint: None }
    }
}

/// What of the answer the client may keep, for the rest of its session's term or until it is revoked; see
/// [`crate::lease`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// What a name stands for, or that it stands for nothing.
    pub entry: bool,
    /// The inode's attributes.
    pub attr: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetAttr {
    pub inode: InodeRef,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttrAnswer {
    pub attr: Attr,
    pub cuts: Cuts,
    pub grant: Grant,
    /// Where the row is now, if not at the hint.
    pub place: Option<(InodeId, Name)>,
}

/// A change of attributes. A change of size is a truncate: see design.md *Size and times*.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeAttr {
    pub inode: InodeRef,
    pub mode: Option<Mode>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<NewTime>,
    pub mtime: Option<NewTime>,
    pub kill_privileges: bool,
    /// Cuts up to this generation are known at the owner and need not be remembered.
    pub cuts_applied: TruncGen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewTime {
    /// The server's clock.
    Now,
    At(Timestamp),
}

/// The place of an inode: for `..`, NFS handles and messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetPlace {
    pub id: InodeId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    pub parent: InodeId,
    /// `None` for the root.
    pub name: Option<Name>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetXattr {
    pub inode: InodeRef,
    pub name: Bytes,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetXattr {
    pub inode: InodeRef,
    pub name: Bytes,
    pub value: Bytes,
    pub mode: XattrKind,
    /// For setting `system.posix_acl_access`: the caller may keep setgid.
    pub clear_setgid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrKind {
    Any,
    Create,
    Replace,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListXattr {
    pub inode: InodeRef,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveXattr {
    pub inode: InodeRef,
    pub name: Bytes,
}

/// Seals a file, or unseals it: nothing of a sealed file changes, neither bytes nor attributes nor names
/// (docs/design/0015-sealed-files.md). Waits for what is in the way: handles that may write, or handles that read without asking.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SealFile {
    pub inode: InodeRef,
    pub sealed: bool,
    /// After this time, and at the latest after [`SealFile::WAIT_MAX`], it is said what is in the way.
    pub wait_ms: u32,
}

impl SealFile {
    /// With the wait for leases before it, below the deadline of a call.
    pub const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(20);
}

/// The session is about to give out handles of a sealed file that cannot be taken back. It may if the answer has
/// attributes: the file is sealed, and stays so until the session has sent [`LeaveSealed`] or has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldSealed {
    pub inode: InodeRef,
    /// Rises with each hold of the session.
    pub number: u64,
}

/// No such handle is left, nor a mapping, of what was held under a number up to this one. One that comes late ends no newer hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaveSealed {
    pub holds: Vec<(InodeId, u64)>,
}
