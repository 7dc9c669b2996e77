//! chmod -R and chown -R, a directory at a time: everything in it is changed in one transaction, up to [`ENTRIES_A_PAGE`] entries
//! (design.md §4 *Directories and subtrees*).
//!
//! Promises: what is sealed stays as it is, and is named; a symbolic link has no mode of its own; what Linux takes away with a change of the
//! owner (setuid, setgid of what the group may execute) goes.

use super::acl;
use crate::rows::{Entry, IdRow, RowFormat, flags, keys};
use crate::{Located, Mutation, OpContext, OpError, Place, Query, Unit};
use braid_api::meta::{ChangeEntries, EntriesChanged, TreeChange};
use braid_meta_engine::{Key, Page, Tx};
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

    async fn ask<T: Tx>(&self, unit: &mut Unit<'_, T>) -> Result<Vec<InodeId>, OpError> {
        Ok(entries(&page(unit, self.dir, self.after.as_ref()).await?)?
            .into_iter()
            .map(|(_, entry)| entry.id())
            .collect())
    }
}

/// A number that stands for these inodes in their order: what was announced is what is changed.
pub fn mark(inodes: impl Iterator<Item = InodeId>) -> InodeId {
    let mixed = inodes.fold(1, |mark: u64, id| (mark.rotate_left(7) ^ id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    InodeId(mixed)
}

async fn page<T: Tx>(unit: &mut Unit<'_, T>, dir: InodeId, after: Option<&Name>) -> Result<Page, OpError> {
    let after = after.map(|name| keys::entry(dir, name));
    unit.scan(&keys::entries(dir), after.as_ref(), ENTRIES_A_PAGE).await
}

fn entries(page: &Page) -> Result<Vec<(Name, Entry)>, OpError> {
    let read = |(key, row): &(Key, braid_meta_engine::Row)| {
        let name = Name::new(key.rest()).map_err(|_| super::content::damaged(key))?;
        Ok((name, Entry::decode(key, row)?))
    };
    page.rows.iter().map(read).collect()
}

impl Mutation for ChangeEntries {
    type Answer = EntriesChanged;

    fn first_keys(&self) -> Vec<Key> {
        super::keys_of(&self.dir)
    }

    async fn apply<T: Tx>(&self, unit: &mut Unit<'_, T>, cx: &OpContext) -> Result<EntriesChanged, OpError> {
        let dir = unit.find_dir(&self.dir).await?.inode.id;
        let page = page(unit, dir, self.after.as_ref()).await?;
        let entries = entries(&page)?;
        cx.expect(0, mark(entries.iter().map(|(_, entry)| entry.id())))?;
        let by_id = |(_, entry): &(Name, Entry)| match entry {
            Entry::Elsewhere { id, .. } => Some(keys::inode_id(*id)),
            Entry::Here(_) => None,
        };
        unit.load(&entries.iter().filter_map(by_id).collect::<Vec<_>>()).await?;
        let next = entries.last().filter(|_| page.more).map(|(name, _)| name.clone());
        let mut done = EntriesChanged { next, ..EntriesChanged::default() };
        for (name, entry) in entries {
            let mut found = match entry {
                Entry::Here(inode) => Located { inode, place: Place::Entry(dir, Some(name.clone())) },
                Entry::Elsewhere { id, .. } => match unit.get::<IdRow>(&keys::inode_id(id)).await? {
                    Some(IdRow::Attributes(inode)) => Located { inode, place: Place::Id },
                    _ => continue,
                },
            };
            if found.inode.is_dir() {
                done.dirs.push((name.clone(), found.inode.id));
            }
            if found.inode.has(flags::SEALED) {
                done.sealed.push(name);
                continue;
            }
            if change(unit, cx, &self.change, &mut found).await? {
                done.changed.push(found.inode.id);
            }
        }
        Ok(done)
    }
}

/// True if there was something to change.
async fn change<T: Tx>(
    unit: &mut Unit<'_, T>,
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
    let is_other = (inode.mode, inode.uid, inode.gid) != before;
    if is_other {
        inode.change(cx.now);
        unit.store(found);
    }
    Ok(is_other)
}
