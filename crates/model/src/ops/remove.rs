//! Removing names.

use crate::state::State;
use braid_api::{Code, Result};
use braid_types::{InodeId, Name, Timestamp};

impl State {
    pub fn unlink(&mut self, parent: InodeId, name: &Name, now: Timestamp) -> Result<()> {
        let id = self.child(parent, name)?;
        if self.inode(id)?.attr.is_dir() {
            return Err(Code::IsDirectory.into());
        }
        self.inode(id)?.check_unsealed()?;
        self.detach(parent, name, now)?;
        self.drop_link(id, now)
    }

    pub fn remove_dir(&mut self, parent: InodeId, name: &Name, now: Timestamp) -> Result<()> {
        let id = self.child(parent, name)?;
        if !self.entries(id)?.is_empty() {
            return Err(Code::NotEmpty.into());
        }
        self.detach(parent, name, now)?;
        self.drop_link(id, now)
    }
}
