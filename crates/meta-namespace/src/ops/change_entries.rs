//! chmod -R, chown -R and setfacl -R, a directory at a time: everything in it is changed in one transaction, up to [`ENTRIES_A_PAGE`] entries
//! (design.md §4 *Directories and subtrees*).
//!
//! Promises: what is sealed stays as it is, and is named; a symbolic link has no mode of its own; what Linux takes away with a change of the
//! owner (setuid, setgid of what the group may execute) goes.

use super::acl;
use super::entries::{Entries, locate};
use crate::rows::{Entry, flags, keys};
use crate::{Located, Mutation, OpContext, OpError, Query, Unit};
use braid_api::Code;
use braid_api::meta::{ChangeEntries, EntriesChanged, TreeChange};
use braid_meta_engine::Key;
use braid_types::{FileKind, InodeId, Name};

/// Entries of one transaction. At about 10 µs each whoever waits for it waits for 10 ms.
pub const ENTRIES_A_PAGE: usize = 1024;

/// What a page of a directory has in it, so that it can be announced.
pub struct EntriesIn {
    pub dir: InodeId,
    pub after: Option<Name>,
}

impl Query for EntriesIn {
    type Answer = Vec<InodeId>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Vec<InodeId>, OpError> {
        let page = Entries::read(unit, self.dir, self.after.as_ref(), ENTRIES_A_PAGE).await?;
        Ok(page.list.iter().map(|(_, entry)| entry.id()).collect())
    }
}

/// A number that stands for these inodes in their order: what was announced is what is changed.
pub fn mark(inodes: impl Iterator<Item = InodeId>) -> InodeId {
    let mixed = inodes.fold(1, |mark: u64, id| (mark.rotate_left(7) ^ id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    InodeId(mixed)
}

impl Mutation for ChangeEntries {
    type Answer = EntriesChanged;

    fn first_keys(&self) -> Vec<Key> {
        super::keys_of(&self.dir)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<EntriesChanged, OpError> {
        let dir = unit.find_dir(&self.dir).await?.inode.id;
        if self.change.uid.is_some() {
            unit.exempt_users();
        }
        let page = Entries::read(unit, dir, self.after.as_ref(), ENTRIES_A_PAGE).await?;
        cx.expect(0, mark(page.list.iter().map(|(_, entry)| entry.id())))?;
        let mut done = EntriesChanged { next: page.next(), ..EntriesChanged::default() };
        page.load_elsewhere(unit).await?;
        self.load_lists(unit, &page).await?;
        for (name, entry) in page.list {
            let Some(mut found) = locate(unit, dir, &name, entry).await? else { continue };
            if found.inode.is_dir() {
                done.dirs.push((name.clone(), found.inode.id));
            }
            if found.inode.has(flags::SEALED) {
                done.sealed.push(name);
                continue;
            }
            match change(unit, cx, &self.change, &mut found).await {
                Ok(true) => done.changed.push(found.inode.id),
                Ok(false) => {}
                // Nothing of it was written.
                Err(OpError(error)) if error.code == Code::Invalid => done.refused.push(name),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

trait LoadLists {
    async fn load_lists(&self, unit: &mut Unit<'_>, page: &Entries) -> Result<(), OpError>;
}

impl LoadLists for ChangeEntries {
    /// The access lists that a change of rights looks at: one round trip, if there are such. Those of files with several names,
    /// which are few, come one by one.
    async fn load_lists(&self, unit: &mut Unit<'_>, page: &Entries) -> Result<(), OpError> {
        if self.change.mode.is_none() && self.change.acl.is_none() {
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
}

/// True if there was something to change.
async fn change(
    unit: &mut Unit<'_>,
    cx: &OpContext,
    change: &TreeChange,
    found: &mut Located,
) -> Result<bool, OpError> {
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
        inode.change(cx.now);
        unit.store(found);
    }
    Ok(is_other)
}
