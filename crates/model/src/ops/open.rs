use crate::inode::Node;
use crate::state::{Handle, State};
use braid_api::{Caller, Code, HandleId, NewNode, NodeKind, OpenFlags, Opened, Result, SetAttr};
use braid_types::{Attr, InodeId, Mode, Name, Timestamp};

/// Nobody else changes what the kernel caches of a model, so it may keep it.
fn opened(handle: HandleId, flags: OpenFlags) -> Opened {
    Opened { handle, keep_cache: !flags.direct, direct_io: flags.direct }
}

impl State {
    pub fn open(&mut self, id: InodeId, flags: OpenFlags, now: Timestamp) -> Result<Opened> {
        match &self.inode(id)?.node {
            Node::File(_) => {}
            Node::Directory { .. } => return Err(Code::IsDirectory.into()),
            _ => return Err(Code::Invalid.into()),
        }
        if flags.write || flags.truncate {
            self.inode(id)?.check_unsealed()?;
        }
        if flags.truncate {
            self.set_attr(id, SetAttr { size: Some(0), ..SetAttr::default() }, now)?;
        }
        Ok(opened(self.open_handle(Handle::File { id, flags })?, flags))
    }

    pub fn create(
        &mut self,
        cx: &Caller,
        (parent, name): (InodeId, &Name),
        mode: Mode,
        flags: OpenFlags,
        now: Timestamp,
    ) -> Result<(Attr, Opened)> {
        let id = match self.find(parent, name)? {
            Some(_) if flags.exclusive => return Err(Code::Exists.into()),
            Some(id) => id,
            None => self.make_node(cx, parent, name, NewNode { kind: NodeKind::File, mode }, now)?.id,
        };
        let opened = self.open(id, flags, now)?;
        Ok((self.stat(id)?, opened))
    }

    pub fn make_temporary(
        &mut self,
        cx: &Caller,
        parent: InodeId,
        mode: Mode,
        flags: OpenFlags,
        now: Timestamp,
    ) -> Result<(Attr, Opened)> {
        let id = self.new_temporary(cx, parent, mode, now)?;
        // O_EXCL says that the file shall never get a name.
        self.inode_mut(id)?.linkable = !flags.exclusive;
        let opened = self.open(id, OpenFlags { truncate: false, ..flags }, now)?;
        Ok((self.stat(id)?, opened))
    }
}
