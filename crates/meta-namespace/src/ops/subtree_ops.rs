//! The list of directories whose entries are to be looked through behind what made that necessary.

use crate::rows::{Inode, LeftRow, RestampRow, RowFormat, SpreadRow, keys};
use crate::{OpError, Unit};
use braid_api::Code;
use braid_api::meta::TreeOp;
use braid_meta_engine::{Key, Lock, Operation, Table, Tx};
use braid_types::{InodeId, Name, Timestamp};

/// Entries of one transaction: about 10 µs each.
pub const ENTRIES_A_PAGE: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// They are charged to others, or in the snapshots of another: [`super::restamp::Restamp`]. For the good of these directories.
    Restamp(InodeId, Vec<InodeId>),
    /// Another policy holds for them: [`super::spread::SpreadPolicy`]. Because that of the latter was changed.
    Spread(InodeId, InodeId),
    /// What is in it is changed: [`super::change_tree::ChangeEntries`].
    Change(InodeId, TreeOp),
    /// Nothing is to be done: what such a change left as it is, and when.
    Left(Timestamp),
}

/// What is listed, after this row.
pub struct ListSubtreeOps {
    pub after: Option<Key>,
    pub limit: usize,
}

impl Operation for ListSubtreeOps {
    type Output = Vec<(Key, Listed)>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let page = unit.scan_table(Table::SubtreeOps, self.after.as_ref(), self.limit).await?;
        let mut list = Vec::new();
        for (key, row) in page.rows {
            let dir = InodeId(key.partition());
            let listed = match key {
                _ if key == keys::restamp(dir) => Listed::Restamp(dir, RestampRow::decode(&key, &row)?.roots),
                _ if key == keys::spread(dir) => Listed::Spread(dir, SpreadRow::decode(&key, &row)?.top),
                _ if let Some(op) = keys::tree_change_of(&key) => Listed::Change(dir, op),
                _ if keys::left_of(&key).is_some() => Listed::Left(LeftRow::decode(&key, &row)?.at),
                _ => return Err(super::content::damaged(&key)),
            };
            list.push((key, listed));
        }
        Ok(list)
    }
}

/// The row by which a directory is listed, and the directory; nothing if it is listed no more. One that has gone is taken off the list; one
/// that is being removed is looked through as well: what is in it is charged until it goes. One round trip.
pub(super) async fn listed<R: RowFormat>(
    unit: &mut Unit<'_>,
    dir: InodeId,
    by: &Key,
) -> Result<Option<(R, Inode)>, OpError> {
    let mut first = super::keys_of(&dir.into());
    first.push(by.clone());
    unit.load(&first).await?;
    let Some(row) = unit.get::<R>(by).await? else { return Ok(None) };
    match unit.find(&dir.into()).await {
        Ok(found) if found.inode.is_dir() => Ok(Some((row, found.inode))),
        Err(OpError(e)) if e.code != Code::Stale => Err(e.into()),
        _ => {
            unit.delete(by.clone());
            Ok(None)
        }
    }
}

/// A page has been looked through: the next one begins behind this name, with this row, or there is none. Answers whether there is.
pub(super) fn goes_on<R: RowFormat>(
    unit: &mut Unit<'_>,
    by: Key,
    next: Option<Name>,
    row: impl FnOnce(Vec<u8>) -> R,
) -> bool {
    let is_more = next.is_some();
    match next {
        Some(name) => unit.put(by, &row(name.as_bytes().to_vec())),
        None => unit.delete(by),
    }
    is_more
}
