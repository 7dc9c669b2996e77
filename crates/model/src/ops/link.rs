//! Hard links.

use crate::state::State;
use braid_api::{Code, Result};
use braid_posix::LINKS_MAX;
use braid_types::{Attr, InodeId, Name, Timestamp};

impl State {
    pub fn link(&mut self, id: InodeId, parent: InodeId, name: &Name, now: Timestamp) -> Result<Attr> {
        let exists = self.find(parent, name)?.is_some();
        let inode = self.inode(id)?;
        if inode.attr.is_dir() {
            return Err(Code::NotPermitted.into());
        }
        if exists {
            return Err(Code::Exists.into());
        }
        // What lost its last name never gets another; what never had one may.
        if inode.attr.nlink == 0 && !inode.linkable {
            return Err(Code::NotFound.into());
        }
        inode.check_unsealed()?;
        if inode.attr.nlink >= LINKS_MAX {
            return Err(Code::TooManyLinks.into());
        }
        self.check_alive(parent)?;
        let inode = self.inode_mut(id)?;
        inode.attr.nlink += 1;
        inode.attr.ctime = now;
        self.attach(parent, name, id, now)?;
        self.stat(id)
    }
}
