//! One page of a directory: one round trip, and one more if some of its files have several links.

use super::entries::{Entries, locate};
use crate::rows::Entry;
use crate::{OpError, Query, Unit};
use braid_api::meta::{DirPage, ReadDir};
use braid_types::{Attr, FileKind, InodeId, Name};

/// Entries in one answer: 4,096 × about 100 bytes are 400 KiB, below the limit of a message.
const ENTRIES_MAX: usize = 4096;

impl Query for ReadDir {
    type Answer = DirPage;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<DirPage, OpError> {
        let limit = (self.limit as usize).clamp(1, ENTRIES_MAX);
        let page = Entries::read(unit, self.inode, self.after.as_ref(), limit).await?;
        if self.plus {
            page.load_elsewhere(unit).await?;
        }
        let mut entries: Vec<(Name, InodeId, FileKind, Option<Attr>)> = Vec::with_capacity(page.list.len());
        for (name, entry) in page.list {
            let (id, kind) = (entry.id(), entry.kind());
            let attr = match &entry {
                Entry::Elsewhere { .. } if !self.plus => None,
                _ if self.knows.binary_search(&id).is_ok() => None,
                _ => locate(unit, self.inode, &name, entry).await?.map(|found| found.inode.attr()),
            };
            entries.push((name, id, kind, attr));
        }
        Ok(DirPage { entries, more: page.more, grants: Vec::new(), listing: false })
    }
}
