//! Charging a tree to others than before: after a quota was set or cleared on a directory that is not empty, and after a directory came
//! to lie below other quotas (docs/design/0024-quotas.md).
//!
//! Promises: the directory itself changes with what makes it necessary, and is listed; a listed directory has the right stamp, so whatever
//! is made in it is charged right, and its entries are looked through a page at a time, each page in one transaction, which lists the
//! directories in it as it changes them. What a page changes goes from one account to the other with it. Whoever serves the rows next
//! goes on, as the list says how far each directory was looked through.

use super::entries::{Entries, locate};
use super::snapshot::is_root;
use super::subtree_ops::{goes_on, listed};
use crate::rows::{Inode, RestampRow, keys};
use crate::{OpError, Unit};
use braid_api::{Code, Error};
use braid_meta_engine::{Lock, Operation, Tx};
use braid_types::{InodeId, Name};

/// Quotas above one another. What a write changes goes to an account of each.
pub const NESTED_MAX: usize = 16;

/// What a directory gives to what is in it: who is charged for it, and which snapshots have it.
#[derive(Clone, Debug)]
pub(crate) struct Above {
    pub quota_roots: Vec<InodeId>,
    pub snapshot_root: InodeId,
}

impl Above {
    /// Of the root directory, which is charged without being named.
    pub const NOTHING: Above = Above { quota_roots: Vec::new(), snapshot_root: InodeId(0) };

    pub fn of(dir: &Inode) -> Above {
        Above { quota_roots: dir.quota_roots.clone(), snapshot_root: dir.snapshot_root }
    }

    /// Makes `inode` one of what is in the directory; answers for which roots that is something else, if it is. What is a snapshot root's
    /// stays that one's as long as it is one, wherever it is seen: it may have another name below it, or its snapshots have it at a place
    /// where it is no more.
    async fn stamp(&self, unit: &mut Unit<'_>, inode: &mut Inode) -> Result<Option<Vec<InodeId>>, OpError> {
        let roots = inode.roots_below(&self.quota_roots);
        let own = inode.snapshot_root;
        let keeps = own != self.snapshot_root && is_root(unit, own).await?;
        let snapshots = if keeps { own } else { self.snapshot_root };
        if roots == inode.quota_roots && snapshots == inode.snapshot_root {
            return Ok(None);
        }
        let mut differ = differing(&inode.quota_roots, &roots);
        if snapshots != inode.snapshot_root {
            differ.extend([inode.snapshot_root, snapshots].into_iter().filter(|root| root.0 != 0));
        }
        (inode.quota_roots, inode.snapshot_root) = (roots, snapshots);
        Ok(Some(differ))
    }
}

/// `inode` is in another directory now. The caller stores it.
pub(crate) async fn come_below(unit: &mut Unit<'_>, inode: &mut Inode, above: &Above) -> Result<(), OpError> {
    if let Some(differ) = above.stamp(unit, inode).await?
        && inode.is_dir()
    {
        unit.list_restamp(inode.id, differ);
    }
    Ok(())
}

pub(super) fn differing(a: &[InodeId], b: &[InodeId]) -> Vec<InodeId> {
    [gained(b, a), gained(a, b)].concat()
}

/// Those that are charged for what goes from below `from` to below `to`, and were not before.
pub(super) fn gained(from: &[InodeId], to: &[InodeId]) -> Vec<InodeId> {
    to.iter().filter(|root| !from.contains(root)).copied().collect()
}

/// Refuses a directory below too many quotas. How many there are in it nobody knows: they are charged all the same.
pub(super) fn expect_depth(dir: &Inode, above: &[InodeId]) -> Result<(), OpError> {
    if dir.roots_below(above).len() <= NESTED_MAX {
        return Ok(());
    }
    let cause = format_args!("quotas of {NESTED_MAX} directories lie above one another already");
    Err(Error::new(Code::Invalid, format_args!("directory {}", dir.id), cause).into())
}

/// Looks through a page of a listed directory.
pub struct Restamp {
    pub dir: InodeId,
    /// Entries of the page.
    pub limit: usize,
}

#[derive(Debug, Default)]
pub struct Restamped {
    /// Inodes that are charged to others now.
    pub changed: u64,
    /// Directories in it that are listed now.
    pub dirs: Vec<InodeId>,
    /// There are more entries.
    pub more: bool,
}

impl Operation for Restamp {
    type Output = Restamped;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Restamped, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let (by, mut done) = (keys::restamp(self.dir), Restamped::default());
        let Some((row, dir)) = listed::<RestampRow>(&mut unit, self.dir, &by).await? else { return Ok(done) };
        let above = Above::of(&dir);
        let after = Name::new(&row.after).ok();
        let page = Entries::read(&mut unit, dir.id, after.as_ref(), self.limit).await?;
        page.load_elsewhere(&mut unit).await?;
        let next = page.next();
        for (name, entry) in page.list {
            let Some(mut found) = locate(&mut unit, dir.id, &name, entry).await? else { continue };
            if above.stamp(&mut unit, &mut found.inode).await?.is_none() {
                continue;
            }
            unit.store(&found);
            done.changed += 1;
            if found.inode.is_dir() {
                unit.list_restamp(found.inode.id, row.roots.clone());
                done.dirs.push(found.inode.id);
            }
        }
        done.more = goes_on(&mut unit, by, next, |after| RestampRow { after, ..row });
        unit.charge_without_limits().await?;
        Ok(done)
    }
}
