//! Telling the directories below one whose policy was set or cleared where theirs comes from now.
//!
//! Promises: the directory is listed in the transaction that changes its policy; a listed directory knows itself whose policy holds in it,
//! so what is made in it is right, and its entries are looked through a page at a time, each page in one transaction, which lists the
//! directories in it as it tells them. Whoever serves the rows next goes on. Directories with a policy of their own are left alone, with
//! all below them; all others are told, whatever held for them before.

use super::entries::Entries;
use super::subtree_ops::{goes_on, listed};
use crate::rows::{Entry, SpreadRow, keys};
use crate::{OpError, Unit};
use braid_meta_engine::{Lock, Operation, Tx};
use braid_types::{InodeId, Name};

impl Unit<'_> {
    /// The directories in `dir` are to be told whose policy holds for them, because that of `top` was changed.
    pub(super) fn list_spread(&mut self, dir: InodeId, top: InodeId) {
        self.put(keys::spread(dir), &SpreadRow { after: Vec::new(), top });
        self.charges.restamps = true;
    }
}

/// Looks through a page of a listed directory. Answers whether there are more entries.
#[derive(Clone, Debug)]
pub struct SpreadPolicy {
    pub dir: InodeId,
    /// Entries of the page.
    pub limit: usize,
}

impl Operation for SpreadPolicy {
    type Output = bool;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let by = keys::spread(self.dir);
        let Some((row, dir)) = listed::<SpreadRow>(&mut unit, self.dir, &by).await? else { return Ok(false) };
        let after = Name::new(&row.after).ok();
        let page = Entries::read(&mut unit, dir.id, after.as_ref(), self.limit).await?;
        let next = page.next();
        for (name, entry) in page.list {
            if let Entry::Here(mut inode) = entry
                && inode.is_dir()
                && inode.policy_root != inode.id
            {
                unit.list_spread(inode.id, row.top);
                if inode.policy_root != dir.policy_root {
                    inode.policy_root = dir.policy_root;
                    unit.put(keys::entry(dir.id, &name), &Entry::Here(inode));
                }
            }
        }
        Ok(goes_on(&mut unit, by, next, |after| SpreadRow { after, ..row }))
    }
}
