//! The list of directories whose entries are to be looked through behind what made that necessary.

use crate::rows::{RestampRow, RowFormat, SpreadRow, keys};
use crate::{OpError, Unit};
use braid_meta_engine::{Key, Lock, Operation, Table, Tx};
use braid_types::InodeId;

/// Entries of one transaction: about 10 µs each.
pub const ENTRIES_A_PAGE: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// They are charged to others, or in the snapshots of another: [`super::restamp::Restamp`]. For the good of these directories.
    Restamp(InodeId, Vec<InodeId>),
    /// Another policy holds for them: [`super::spread::SpreadPolicy`]. Because that of the latter was changed.
    Spread(InodeId, InodeId),
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
                _ => return Err(super::content::damaged(&key)),
            };
            list.push((key, listed));
        }
        Ok(list)
    }
}
