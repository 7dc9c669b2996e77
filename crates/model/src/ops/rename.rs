use crate::state::State;
use braid_api::{Code, RenameMode, Result};
use braid_types::{InodeId, Name, Timestamp};

impl State {
    pub fn rename(
        &mut self,
        (from, from_name): (InodeId, &Name),
        (to, to_name): (InodeId, &Name),
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<()> {
        // Both paths are walked before either name is looked up.
        self.entries(from)?;
        self.entries(to)?;
        let moved = self.child(from, from_name)?;
        let replaced = self.find(to, to_name)?;
        self.check_alive(to)?;
        // In the order of Linux: first what the flags ask of the new name.
        match (replaced, mode) {
            (Some(_), RenameMode::NoReplace) => return Err(Code::Exists.into()),
            (None, RenameMode::Exchange) => return Err(Code::NotFound.into()),
            _ => {}
        }
        if replaced == Some(moved) {
            // Two names of one file: nothing to do, says POSIX, and both stay.
            return Ok(());
        }
        for id in [Some(moved), replaced].into_iter().flatten() {
            self.inode(id)?.check_unsealed()?;
        }
        if self.is_below(to, moved)? {
            return Err(Code::Invalid.into());
        }
        match (replaced, mode) {
            (Some(other), RenameMode::Exchange) if self.is_below(from, other)? => return Err(Code::Invalid.into()),
            (Some(other), RenameMode::Replace) => self.check_replaceable(moved, other)?,
            _ => {}
        }
        self.detach(from, from_name, now)?;
        if let Some(other) = replaced {
            self.detach(to, to_name, now)?;
            if mode == RenameMode::Exchange {
                self.attach(from, from_name, other, now)?;
                self.inode_mut(other)?.attr.ctime = now;
            } else {
                self.drop_link(other, now)?;
            }
        }
        self.attach(to, to_name, moved, now)?;
        self.inode_mut(moved)?.attr.ctime = now;
        Ok(())
    }

    fn check_replaceable(&self, moved: InodeId, other: InodeId) -> Result<()> {
        match (self.inode(moved)?.attr.is_dir(), self.inode(other)?.attr.is_dir()) {
            (true, false) => Err(Code::NotDirectory.into()),
            (false, true) => Err(Code::IsDirectory.into()),
            (true, true) if !self.entries(other)?.is_empty() => Err(Code::NotEmpty.into()),
            _ => Ok(()),
        }
    }

    /// Is `dir` the directory `top` or somewhere below it?
    fn is_below(&self, mut dir: InodeId, top: InodeId) -> Result<bool> {
        loop {
            if dir == top {
                return Ok(true);
            }
            let parent = self.parent(dir)?;
            if parent == dir || !self.inodes.contains_key(&parent) {
                return Ok(false);
            }
            dir = parent;
        }
    }
}
