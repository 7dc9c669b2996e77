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

    pub fn remove_tree(&mut self, parent: InodeId, name: &Name, now: Timestamp) -> Result<()> {
        let id = self.child(parent, name)?;
        self.entries(id)?;
        self.expect_no_seals(id)?;
        self.empty(id, now)?;
        self.remove_dir(parent, name, now)
    }

    fn children(&self, dir: InodeId) -> Result<Vec<(Name, InodeId)>> {
        Ok(self.entries(dir)?.iter().map(|(name, id)| (name.clone(), *id)).collect())
    }

    fn expect_no_seals(&self, dir: InodeId) -> Result<()> {
        for (_, id) in self.children(dir)? {
            match self.inode(id)?.attr.is_dir() {
                true => self.expect_no_seals(id)?,
                false => self.inode(id)?.check_unsealed()?,
            }
        }
        Ok(())
    }

    fn empty(&mut self, dir: InodeId, now: Timestamp) -> Result<()> {
        for (name, id) in self.children(dir)? {
            if self.inode(id)?.attr.is_dir() {
                self.empty(id, now)?;
                self.remove_dir(dir, &name, now)?;
            } else {
                self.unlink(dir, &name, now)?;
            }
        }
        Ok(())
    }
}
