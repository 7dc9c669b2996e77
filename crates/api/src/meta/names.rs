//! What makes, moves and removes names.
use super::{Grant, InodeRef};
use braid_types::*;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Makes an inode that is not opened: directory, symlink, special file, or file by mknod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MakeNode {
    pub parent: InodeRef,
    pub name: Name,
    pub spec: NodeSpec,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeSpec {
    pub kind: FileKind,
    pub mode: Mode,
    /// Applied unless the parent has a default ACL.
    pub umask: u32,
    pub uid: u32,
    /// Replaced by the parent's group if the parent is setgid.
    pub gid: u32,
    pub rdev: DeviceId,
    /// Of a symlink.
    pub target: Bytes,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EntryAnswer {
    pub attr: Attr,
    pub grant: Grant,
    pub dir: DirAfter,
    /// A directory was made, and that it is empty is leased.
    pub empty: bool,
    /// Of [`PutFile`]: what had the name before, with its remaining link count.
    pub replaced: Option<Attr>,
}

/// A directory after a change of what is in it: a kernel asks for its attributes at the next call that goes through it. Not on record with
/// the answer, so that a repetition does not tell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DirAfter {
    pub attr: Option<Attr>,
    pub granted: bool,
}

impl From<Attr> for DirAfter {
    fn from(attr: Attr) -> Self {
        DirAfter { attr: Some(attr), granted: false }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unlink {
    pub parent: InodeRef,
    pub name: Name,
    /// Inodes this session has open, if the client knows which inode the name has; lets the server free at once
    /// what nobody can have open.
    pub open_here: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnlinkAnswer {
    /// What lost the name, with its remaining link count.
    pub attr: Attr,
    pub dir: DirAfter,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveDir {
    pub parent: InodeRef,
    pub name: Name,
    /// With all that is in it: whoever looks from the root finds nothing of it any more; it is freed afterwards, top-down.
    pub tree: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rename {
    pub from: InodeRef,
    pub from_name: Name,
    pub to: InodeRef,
    pub to_name: Name,
    pub mode: RenameKind,
    /// As in [`Unlink`], of what is replaced.
    pub open_here: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameKind {
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenameAnswer {
    pub moved: Attr,
    /// What was replaced (with its remaining link count) or exchanged.
    pub other: Option<Attr>,
    /// Of the new name, and of what was moved.
    pub grant: Grant,
    /// The directory it left; and the one it went to, if that is another.
    pub dirs: [DirAfter; 2],
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    pub inode: InodeRef,
    pub parent: InodeRef,
    pub name: Name,
}
