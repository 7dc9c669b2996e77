//! One page of a directory: one round trip, and one more if some of its files have several links.

use crate::rows::{Entry, IdRow, RowFormat, keys};
use crate::{OpError, Query, Unit};
use braid_api::meta::{DirPage, ReadDir};
use braid_meta_engine::{Key, Tx};
use braid_types::{Attr, FileKind, InodeId, Name};

/// Entries in one answer: 4,096 × about 100 bytes are 400 KiB, below the limit of a message.
const ENTRIES_MAX: usize = 4096;

impl Query for ReadDir {
    type Answer = DirPage;

    async fn ask<T: Tx>(&self, unit: &mut Unit<'_, T>) -> Result<DirPage, OpError> {
        let after = self.after.as_ref().map(|name| keys::entry(self.inode, name));
        let limit = (self.limit as usize).clamp(1, ENTRIES_MAX);
        let page = unit.scan(&keys::entries(self.inode), after.as_ref(), limit).await?;
        let mut found: Vec<(Name, Entry)> = Vec::with_capacity(page.rows.len());
        for (key, row) in &page.rows {
            let entry = Entry::decode(key, row)?;
            found.push((Name::new(key.rest()).map_err(|_| super::content::damaged(key))?, entry));
        }
        if self.plus {
            let elsewhere: Vec<Key> = found
                .iter()
                .filter(|(_, e)| matches!(e, Entry::Elsewhere { .. }))
                .map(|(_, e)| keys::inode_id(e.id()))
                .collect();
            unit.load(&elsewhere).await?;
        }
        let mut entries: Vec<(Name, InodeId, FileKind, Option<Attr>)> = Vec::with_capacity(found.len());
        for (name, entry) in found {
            let attr = match &entry {
                Entry::Here(inode) => Some(inode.attr()),
                Entry::Elsewhere { .. } if !self.plus => None,
                Entry::Elsewhere { id, .. } => match unit.get::<IdRow>(&keys::inode_id(*id)).await? {
                    Some(IdRow::Attributes(inode)) => Some(inode.attr()),
                    _ => None,
                },
            };
            entries.push((name, entry.id(), entry.kind(), attr));
        }
        Ok(DirPage { entries, more: page.more, grants: Vec::new(), listing: false })
    }
}
