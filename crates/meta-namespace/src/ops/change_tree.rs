//! chmod -R, chown -R and setfacl -R: a directory and all that is below it (design.md §4 *Directories and subtrees*).
//!
//! Promises: the directory itself is changed, and listed, in the transaction that is answered; what is in a listed directory is changed a page
//! at a time, each page in one transaction, which lists the directories in it as it changes them, so that nothing is changed a second time
//! because something died in between; whoever serves the rows next goes on, as the list says how far each directory was looked through. What is
//! moved into what was not looked through yet, or has two names in the tree, may be changed twice, as by chmod(1). What is
//! sealed stays as it is, and is kept by name until whoever asked has read it; a symbolic link has no mode of its own; what Linux takes
//! away with a change of the owner (setuid, setgid of what the group may execute) goes.

use super::acl;
use super::content::damaged;
use super::entries::{Entries, locate};
use super::subtree_ops::{goes_on, listed};
use crate::rows::{ChangeRow, Entry, LeftRow, RowFormat, flags, keys};
use crate::{Located, Mutation, OpContext, OpError, Query, Unit};
use braid_api::meta::{ChangeTree, TreeChange, TreeOp};
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Lock, Operation, Tx};
use braid_types::{FileKind, InodeId, Name, Timestamp};
use std::collections::HashSet;

impl Unit<'_> {
    fn list_change(&mut self, dir: InodeId, op: TreeOp, change: &TreeChange) {
        self.put(keys::tree_change(dir, op), &ChangeRow { after: Vec::new(), op, change: change.clone() });
        self.charges.restamps = true;
    }
}

impl Mutation for ChangeTree {
    type Answer = TreeOp;

    fn first_keys(&self) -> Vec<Key> {
        super::keys_of(&self.dir)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<TreeOp, OpError> {
        let mut dir = unit.find_dir(&self.dir).await?;
        let op = TreeOp { top: dir.inode.id, session: cx.session, request: cx.request };
        if self.change.uid.is_some() {
            unit.exempt_users();
        }
        change(unit, cx.now, &self.change, &mut dir).await?;
        unit.list_change(op.top, op, &self.change);
        Ok(op)
    }
}

/// With names of 255 bytes 16 KiB: a row of a database has 29,000 bytes at most.
const LEFT_A_ROW: usize = 64;

/// What the next page of a listed directory has in it, so that it can be announced; nothing if it is listed no more.
pub struct NextEntries {
    pub dir: InodeId,
    pub op: TreeOp,
    /// Entries of the page.
    pub limit: usize,
}

impl Query for NextEntries {
    type Answer = Option<Vec<InodeId>>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Self::Answer, OpError> {
        let Some(row) = unit.get::<ChangeRow>(&keys::tree_change(self.dir, self.op)).await? else { return Ok(None) };
        let page = Entries::read(unit, self.dir, Name::new(&row.after).ok().as_ref(), self.limit).await?;
        Ok(Some(page.list.iter().map(|(_, entry)| entry.id()).collect()))
    }
}

/// Changes a page of a listed directory, or as much of it as was announced. Answers whether there are more entries; [`Code::StaleLease`] if
/// the first of them was not.
pub struct ChangeEntries {
    pub dir: InodeId,
    pub op: TreeOp,
    /// Entries of the page. At about 10 µs each whoever waits for it waits for 3 ms if they are 256.
    pub limit: usize,
    /// What was in it; something may have been made or removed since.
    pub announced: Vec<InodeId>,
    pub now: Timestamp,
}

impl Operation for ChangeEntries {
    type Output = bool;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, OpError> {
        let unit = &mut Unit::new(tx, Lock::Exclusive);
        let by = keys::tree_change(self.dir, self.op);
        let Some((row, dir)) = listed::<ChangeRow>(unit, self.dir, &by).await? else { return Ok(false) };
        if row.change.uid.is_some() {
            unit.exempt_users();
        }
        let mut page = Entries::read(unit, dir.id, Name::new(&row.after).ok().as_ref(), self.limit).await?;
        let announced: HashSet<InodeId> = self.announced.iter().copied().collect();
        if let Some(end) = page.list.iter().position(|(_, entry)| !announced.contains(&entry.id())) {
            if end == 0 {
                let cause = "it begins with what was not announced";
                return Err(Error::new(Code::StaleLease, format_args!("directory {}", dir.id), cause).into());
            }
            page.list.truncate(end);
            page.more = true;
        }
        page.load_elsewhere(unit).await?;
        load_lists(unit, &row.change, &page).await?;
        let next = page.next();
        let mut left = Vec::new();
        for (name, entry) in page.list {
            let Some(mut found) = locate(unit, dir.id, &name, entry).await? else { continue };
            if found.inode.is_dir() {
                unit.list_change(found.inode.id, self.op, &row.change);
            }
            if found.inode.has(flags::SEALED) {
                left.push((name, true));
                continue;
            }
            match change(unit, self.now, &row.change, &mut found).await {
                Ok(()) => {}
                // Nothing of it was written.
                Err(OpError(error)) if error.code == Code::Invalid => left.push((name, false)),
                Err(error) => return Err(error),
            }
        }
        self.keep(unit, dir.id, left);
        let more = goes_on(unit, by, next, |after| ChangeRow { after, ..row });
        unit.charge_without_limits().await?;
        Ok(more)
    }
}

impl ChangeEntries {
    /// What was left as it is, and whether because it is sealed: in rows that every engine takes.
    fn keep(&self, unit: &mut Unit<'_>, dir: InodeId, left: Vec<(Name, bool)>) {
        for names in left.chunks(LEFT_A_ROW) {
            let of = |sealed: bool| names.iter().filter(move |(_, is)| *is == sealed);
            let list = |sealed: bool| of(sealed).map(|(name, _)| name.as_bytes().to_vec()).collect();
            let row = LeftRow { dir, sealed: list(true), refused: list(false), at: self.now };
            if let Some((first, _)) = names.first() {
                unit.put(keys::left(self.op, dir, first.as_bytes()), &row);
            }
        }
    }
}

/// The access lists that a change of rights looks at: one round trip, if there are such. Those of files with several names, which are
/// few, come one by one.
async fn load_lists(unit: &mut Unit<'_>, change: &TreeChange, page: &Entries) -> Result<(), OpError> {
    if change.mode.is_none() && change.acl.is_none() {
        return Ok(());
    }
    let mut lists = Vec::new();
    for (_, entry) in &page.list {
        let Entry::Here(inode) = entry else { continue };
        let of = [(flags::ACL, acl::ACCESS), (flags::DEFAULT_ACL, acl::DEFAULT)];
        lists.extend(of.iter().filter(|(flag, _)| inode.has(*flag)).map(|(_, name)| keys::xattr(inode.id, name)));
    }
    unit.load(&lists).await
}

async fn change(unit: &mut Unit<'_>, now: Timestamp, change: &TreeChange, found: &mut Located) -> Result<(), OpError> {
    let inode = &mut found.inode;
    let before = (inode.mode, inode.uid, inode.gid);
    let is_link = inode.kind == FileKind::Symlink;
    inode.uid = change.uid.unwrap_or(inode.uid);
    inode.gid = change.gid.unwrap_or(inode.gid);
    if (change.uid.is_some() || change.gid.is_some()) && !is_link && !inode.is_dir() {
        inode.kill_privileges();
    }
    if let (Some(mode), false) = (&change.mode, is_link) {
        inode.mode = mode.apply(inode.mode, inode.is_dir());
        acl::follow_chmod(unit, inode).await?;
    }
    let other_lists = match &change.acl {
        Some(edit) if !is_link => acl::edit(unit, inode, edit).await?,
        _ => false,
    };
    let is_other = other_lists || (inode.mode, inode.uid, inode.gid) != before;
    if is_other {
        inode.change(now);
        unit.store(found);
    }
    Ok(())
}

/// What a change of a tree left as it is, a directory's page at a time: behind this key, so many.
pub struct LeftBehind {
    pub op: TreeOp,
    pub after: Option<Key>,
    pub limit: usize,
}

impl Query for LeftBehind {
    type Answer = Vec<(Key, LeftRow)>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Self::Answer, OpError> {
        let page = unit.scan(&keys::all_left(self.op), self.after.as_ref(), self.limit).await?;
        page.rows.into_iter().map(|(key, row)| LeftRow::decode(&key, &row).map(|left| (key, left))).collect()
    }
}

/// Nobody asks for it any more.
pub struct ForgetLeft(pub Key);

impl Operation for ForgetLeft {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        if keys::left_of(&self.0).is_none() {
            return Err(damaged(&self.0));
        }
        Unit::new(tx, Lock::Exclusive).delete(self.0.clone());
        Ok(())
    }
}
