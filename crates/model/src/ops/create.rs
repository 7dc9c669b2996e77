use crate::content::Content;
use crate::inode::{Inode, Node};
use crate::state::State;
use braid_api::{Caller, Code, NewNode, NodeKind, Result};
use braid_posix::acl;
use braid_posix::create::{Creator, Parent, new_owner};
use braid_types::{Attr, DeviceId, FileKind, InodeId, Mode, Name, Timestamp};
use std::collections::BTreeMap;

/// Longest target of a symbolic link: PATH_MAX without the NUL.
const TARGET_BYTES_MAX: usize = 4095;

impl State {
    /// An inode that `parent` would give these attributes to, under no name.
    pub fn new_inode(&mut self, cx: &Caller, parent: InodeId, new: NewNode, now: Timestamp) -> Result<InodeId> {
        let (kind, node, rdev) = match new.kind {
            NodeKind::File => (FileKind::File, Node::File(Content::default()), DeviceId(0)),
            NodeKind::Directory => {
                (FileKind::Directory, Node::Directory { entries: BTreeMap::new(), parent }, DeviceId(0))
            }
            NodeKind::Symlink(target) if target.is_empty() || target.contains(&0) => return Err(Code::Invalid.into()),
            NodeKind::Symlink(target) if target.len() > TARGET_BYTES_MAX => return Err(Code::NameTooLong.into()),
            NodeKind::Symlink(target) => (FileKind::Symlink, Node::Symlink(target), DeviceId(0)),
            NodeKind::Special(kind @ (FileKind::CharDevice | FileKind::BlockDevice), rdev) => {
                (kind, Node::Special, rdev)
            }
            NodeKind::Special(kind @ (FileKind::Fifo | FileKind::Socket), _) => (kind, Node::Special, DeviceId(0)),
            NodeKind::Special(..) => return Err(Code::Invalid.into()),
        };
        let above = self.inode(parent)?;
        let default_acl = above.default_acl();
        let above = Parent { mode: above.attr.mode, gid: above.attr.gid, default_acl: default_acl.as_ref() };
        let creator = Creator { uid: cx.uid, gid: cx.gid, groups: &cx.groups, umask: cx.umask };
        let owner = new_owner(creator, above, kind, new.mode);

        let id = self.new_id();
        let mut inode = Inode::new(id, kind, node, now);
        (inode.attr.uid, inode.attr.gid, inode.attr.mode) = (owner.uid, owner.gid, owner.mode);
        inode.attr.rdev = rdev;
        inode.keep_acl(acl::ACCESS, owner.access_acl);
        inode.keep_acl(acl::DEFAULT, owner.default_acl);
        self.inodes.insert(id, inode);
        Ok(id)
    }

    pub fn make_node(
        &mut self,
        cx: &Caller,
        parent: InodeId,
        name: &Name,
        new: NewNode,
        now: Timestamp,
    ) -> Result<Attr> {
        if self.find(parent, name)?.is_some() {
            return Err(Code::Exists.into());
        }
        self.check_alive(parent)?;
        let id = self.new_inode(cx, parent, new, now)?;
        self.attach(parent, name, id, now)?;
        self.stat(id)
    }

    pub fn new_temporary(&mut self, cx: &Caller, parent: InodeId, mode: Mode, now: Timestamp) -> Result<InodeId> {
        self.check_alive(parent)?;
        let id = self.new_inode(cx, parent, NewNode { kind: NodeKind::File, mode }, now)?;
        self.inode_mut(id)?.attr.nlink = 0;
        Ok(id)
    }
}
