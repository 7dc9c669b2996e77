//! A page of a directory, read: what listings, changes of all entries, and removals of trees begin with.

use crate::rows::{Entry, IdRow, RowFormat, keys};
use crate::{Located, OpError, Place, Unit};
use braid_meta_engine::Key;
use braid_types::{InodeId, Name};

pub(super) struct Entries {
    /// In byte order of names.
    pub list: Vec<(Name, Entry)>,
    /// There are others behind them.
    pub more: bool,
}

impl Entries {
    /// One round trip.
    pub async fn read(
        unit: &mut Unit<'_>,
        dir: InodeId,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Entries, OpError> {
        let after = after.map(|name| keys::entry(dir, name));
        let page = unit.scan(&keys::entries(dir), after.as_ref(), limit).await?;
        let mut list = Vec::with_capacity(page.rows.len());
        for (key, row) in &page.rows {
            let entry = Entry::decode(key, row)?;
            list.push((Name::new(key.rest()).map_err(|_| super::content::damaged(key))?, entry));
        }
        Ok(Entries { list, more: page.more })
    }

    /// The name behind which the next page begins, if there is one.
    pub fn next(&self) -> Option<Name> {
        self.list.last().filter(|_| self.more).map(|(name, _)| name.clone())
    }

    /// The rows of files with several names, which are not beside these: one round trip, if there are such.
    pub async fn load_elsewhere(&self, unit: &mut Unit<'_>) -> Result<(), OpError> {
        let by_id = |(_, entry): &(Name, Entry)| match entry {
            Entry::Elsewhere { id, .. } => Some(keys::inode_id(*id)),
            Entry::Here(_) => None,
        };
        unit.load(&self.list.iter().filter_map(by_id).collect::<Vec<Key>>()).await
    }
}

/// The inode that an entry leads to, as this transaction has left it; of what leads nowhere, which fsck mends, there is none.
pub(super) async fn locate(
    unit: &mut Unit<'_>,
    dir: InodeId,
    name: &Name,
    entry: Entry,
) -> Result<Option<Located>, OpError> {
    Ok(match entry {
        Entry::Here(inode) => Some(Located { inode, place: Place::Entry(dir, Some(name.clone())) }),
        Entry::Elsewhere { id, .. } => match unit.get::<IdRow>(&keys::inode_id(id)).await? {
            Some(IdRow::Attributes(inode)) => Some(Located { inode, place: Place::Id }),
            _ => None,
        },
    })
}
