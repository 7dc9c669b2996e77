use crate::inode::{Inode, Node};
use braid_api::{Code, Error, HandleId, OpenFlags, Result};
use braid_types::{FileKind, InodeId, Mode, Name, Slot, Timestamp};
use std::collections::BTreeMap;

/// Everything but locks.
#[derive(Clone, Debug)]
pub struct State {
    pub inodes: BTreeMap<InodeId, Inode>,
    pub handles: BTreeMap<HandleId, Handle>,
    last_inode: u64,
    last_handle: u64,
}

#[derive(Clone, Debug)]
pub enum Handle {
    File {
        id: InodeId,
        flags: OpenFlags,
    },
    Directory {
        id: InodeId,
        /// The names when the handle was last at the beginning; offset 4096 + i stands behind the i-th.
        names: Vec<Name>,
    },
}

impl Handle {
    pub fn inode(&self) -> InodeId {
        match self {
            Handle::File { id, .. } | Handle::Directory { id, .. } => *id,
        }
    }
}

impl State {
    pub fn new(now: Timestamp) -> Self {
        let node = Node::Directory { entries: BTreeMap::new(), parent: InodeId::ROOT };
        let mut root = Inode::new(InodeId::ROOT, FileKind::Directory, node, now);
        root.attr.mode = Mode(0o755);
        let inodes = BTreeMap::from([(InodeId::ROOT, root)]);
        State { inodes, handles: BTreeMap::new(), last_inode: 1, last_handle: 0 }
    }

    pub fn new_id(&mut self) -> InodeId {
        self.last_inode += 1;
        InodeId::new(self.last_inode, Slot(0))
    }

    pub fn inode(&self, id: InodeId) -> Result<&Inode> {
        self.inodes.get(&id).ok_or(Error::bare(Code::Stale))
    }

    pub fn inode_mut(&mut self, id: InodeId) -> Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or(Error::bare(Code::Stale))
    }

    pub fn entries(&self, dir: InodeId) -> Result<&BTreeMap<Name, InodeId>> {
        match &self.inode(dir)?.node {
            Node::Directory { entries, .. } => Ok(entries),
            _ => Err(Code::NotDirectory.into()),
        }
    }

    pub fn parent(&self, dir: InodeId) -> Result<InodeId> {
        match &self.inode(dir)?.node {
            Node::Directory { parent, .. } => Ok(*parent),
            _ => Err(Code::NotDirectory.into()),
        }
    }

    pub fn find(&self, dir: InodeId, name: &Name) -> Result<Option<InodeId>> {
        Ok(self.entries(dir)?.get(name).copied())
    }

    /// As [`State::find`], for what must be there.
    pub fn child(&self, dir: InodeId, name: &Name) -> Result<InodeId> {
        self.find(dir, name)?.ok_or(Error::bare(Code::NotFound))
    }

    /// A directory that may get entries: it still has a name itself.
    pub fn check_alive(&self, dir: InodeId) -> Result<()> {
        self.entries(dir)?;
        if self.inode(dir)?.attr.nlink == 0 { Err(Code::NotFound.into()) } else { Ok(()) }
    }

    /// Puts `child` under `name` of a directory that was checked to take it; a directory gets its parent, and the
    /// parent its link.
    pub fn attach(&mut self, dir: InodeId, name: &Name, child: InodeId, now: Timestamp) -> Result<()> {
        let mut links = 0;
        if let Node::Directory { parent, .. } = &mut self.inode_mut(child)?.node {
            *parent = dir;
            links = 1;
        }
        self.change_entries(dir, links, now, |entries| entries.insert(name.clone(), child))
    }

    /// Takes `name` out of the directory; what it named keeps its own link count.
    pub fn detach(&mut self, dir: InodeId, name: &Name, now: Timestamp) -> Result<()> {
        let child = self.child(dir, name)?;
        let links = if self.inode(child)?.attr.is_dir() { -1 } else { 0 };
        self.change_entries(dir, links, now, |entries| entries.remove(name))
    }

    fn change_entries<T>(
        &mut self,
        dir: InodeId,
        links: i32,
        now: Timestamp,
        change: impl FnOnce(&mut BTreeMap<Name, InodeId>) -> T,
    ) -> Result<()> {
        let inode = self.inode_mut(dir)?;
        let Node::Directory { entries, .. } = &mut inode.node else { return Err(Code::NotDirectory.into()) };
        change(entries);
        inode.attr.nlink = inode.attr.nlink.saturating_add_signed(links);
        inode.modified(now);
        Ok(())
    }

    /// One name less; a directory that lost its only one is dead.
    pub fn drop_link(&mut self, id: InodeId, now: Timestamp) -> Result<()> {
        let inode = self.inode_mut(id)?;
        inode.attr.nlink = if inode.attr.is_dir() { 0 } else { inode.attr.nlink.saturating_sub(1) };
        inode.attr.ctime = now;
        self.collect(id);
        Ok(())
    }

    /// Forgets what has neither name nor handle.
    fn collect(&mut self, id: InodeId) {
        if self.inodes.get(&id).is_some_and(|inode| inode.attr.nlink == 0 && inode.open_count == 0) {
            self.inodes.remove(&id);
        }
    }

    pub fn open_handle(&mut self, handle: Handle) -> Result<HandleId> {
        self.inode_mut(handle.inode())?.open_count += 1;
        self.last_handle += 1;
        let id = HandleId(self.last_handle);
        self.handles.insert(id, handle);
        Ok(id)
    }

    pub fn close_handle(&mut self, handle: HandleId) -> Option<InodeId> {
        let id = self.handles.remove(&handle)?.inode();
        if let Some(inode) = self.inodes.get_mut(&id) {
            inode.open_count -= 1;
        }
        self.collect(id);
        Some(id)
    }

    pub fn handle(&self, handle: HandleId) -> Result<&Handle> {
        self.handles.get(&handle).ok_or(Error::bare(Code::BadHandle))
    }

    pub fn file_handle(&self, handle: HandleId) -> Result<(InodeId, OpenFlags)> {
        match self.handle(handle)? {
            Handle::File { id, flags } => Ok((*id, *flags)),
            Handle::Directory { .. } => Err(Code::BadHandle.into()),
        }
    }
}
