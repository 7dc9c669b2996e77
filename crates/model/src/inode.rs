use crate::content::Content;
use braid_posix::acl::{self, Acl};
use braid_types::{Attr, DeviceId, FileKind, InodeId, Mode, Name, Policy, Timestamp, TruncGen};
use bytes::Bytes;
use std::collections::BTreeMap;

/// An inode with all that belongs to it.
#[derive(Clone, Debug)]
pub struct Inode {
    /// As `stat` shows it, except size and blocks, which [`Inode::stat`] counts.
    pub attr: Attr,
    pub node: Node,
    pub xattrs: BTreeMap<Vec<u8>, Bytes>,
    /// Set on this directory itself; else its parent's is in force.
    pub policy: Option<Policy>,
    /// Handles that keep it alive without a name.
    pub open_count: u32,
    /// Has no name yet, and may still get one (O_TMPFILE).
    pub linkable: bool,
}

#[derive(Clone, Debug)]
pub enum Node {
    File(Content),
    Directory {
        entries: BTreeMap<Name, InodeId>,
        /// Itself, for the root.
        parent: InodeId,
    },
    Symlink(Bytes),
    Special,
}

impl Inode {
    pub fn new(id: InodeId, kind: FileKind, node: Node, now: Timestamp) -> Self {
        Inode {
            attr: Attr {
                id,
                kind,
                mode: Mode(0),
                nlink: if kind == FileKind::Directory { 2 } else { 1 },
                uid: 0,
                gid: 0,
                rdev: DeviceId(0),
                size: 0,
                blocks: 0,
                atime: now,
                mtime: now,
                ctime: now,
                btime: now,
                trunc_gen: TruncGen(0),
                xattrs: false,
                sealed: false,
            },
            node,
            xattrs: BTreeMap::new(),
            policy: None,
            open_count: 0,
            linkable: false,
        }
    }

    pub fn stat(&self) -> Attr {
        let (size, allocated) = match &self.node {
            Node::File(content) => (content.size(), content.allocated()),
            Node::Directory { entries, .. } => (entries.len() as u64, 0),
            Node::Symlink(target) => (target.len() as u64, 0),
            Node::Special => (0, 0),
        };
        Attr { size, blocks: allocated / 512, xattrs: !self.xattrs.is_empty(), ..self.attr }
    }

    /// The content changed.
    pub fn modified(&mut self, now: Timestamp) {
        self.attr.mtime = now;
        self.attr.ctime = now;
    }

    pub fn accessed(&mut self, now: Timestamp) {
        let Attr { atime, mtime, ctime, .. } = self.attr;
        if braid_posix::times::atime_is_due(atime, mtime, ctime, now) {
            self.attr.atime = now;
        }
    }

    /// What new entries begin with. What is stored was checked when it was set.
    pub fn default_acl(&self) -> Option<Acl> {
        self.xattrs.get(acl::DEFAULT).and_then(|value| Acl::parse(value).ok().flatten())
    }

    pub fn keep_acl(&mut self, name: &[u8], list: Option<Acl>) {
        match list {
            Some(list) => self.xattrs.insert(name.to_vec(), list.to_bytes().into()),
            None => self.xattrs.remove(name),
        };
    }

    /// Sets the mode as chmod does: the access list follows.
    pub fn chmod(&mut self, mode: Mode) {
        self.attr.mode = Mode::new(mode.0);
        if let Some(value) = self.xattrs.get(acl::ACCESS) {
            let list = acl::chmod(value, mode).ok().flatten();
            self.keep_acl(acl::ACCESS, list);
        }
    }
}
