//! Files of which nothing changes.

use crate::inode::{Inode, Node};
use crate::state::{Handle, State};
use braid_api::{Code, Result};
use braid_types::{Attr, InodeId, Timestamp};

impl Inode {
    pub fn check_unsealed(&self) -> Result<()> {
        if self.attr.sealed { Err(Code::Sealed.into()) } else { Ok(()) }
    }
}

impl State {
    pub fn set_sealed(&mut self, id: InodeId, sealed: bool, now: Timestamp) -> Result<Attr> {
        match &self.inode(id)?.node {
            Node::File(_) => {}
            Node::Directory { .. } => return Err(Code::IsDirectory.into()),
            _ => return Err(Code::Invalid.into()),
        }
        let writes = |handle: &Handle| matches!(handle, Handle::File { id: of, flags } if *of == id && flags.write);
        if sealed && self.handles.values().any(writes) {
            return Err(Code::TextBusy.into());
        }
        let inode = self.inode_mut(id)?;
        if inode.attr.sealed != sealed {
            (inode.attr.sealed, inode.attr.ctime) = (sealed, now);
        }
        self.stat(id)
    }
}
