//! Rows beside an inode: inline bytes, extended attributes, policies, quotas. Each belongs to an inode and goes with it.

use super::check::exists;
use crate::rows::{ReclaimRow, keys};
use crate::{OpError, Query, Unit};
use braid_api::admin::{SideCheck, SideRow, SideTable};
use braid_meta_engine::{Key, Table};
use braid_types::InodeId;

/// Rows read at once.
const ROWS_A_PAGE: usize = 4096;
/// Greater than the rest of any key of these tables: the longest is the name of an attribute, of 255 bytes.
const LAST: [u8; 256] = [0xff; 256];

fn table(of: SideTable) -> Table {
    match of {
        SideTable::InlineSmall => Table::InlineSmall,
        SideTable::InlineLarge => Table::InlineLarge,
        SideTable::Xattrs => Table::Xattrs,
        SideTable::Quotas => Table::Quotas,
        SideTable::Policies => Table::Policies,
    }
}

/// [`braid_api::admin::AdminQuery::SideRows`].
pub struct SideRows {
    pub after: Option<(SideTable, InodeId)>,
    pub limit: u32,
}

impl Query for SideRows {
    type Answer = Vec<SideRow>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Vec<SideRow>, OpError> {
        let limit = (self.limit as usize).clamp(1, ROWS_A_PAGE);
        let mut found = Vec::new();
        for of in SideTable::ALL {
            let mut after = match self.after {
                Some((done, _)) if of < done => continue,
                Some((done, inode)) if of == done => Some(Key::new(table(of), inode.0, &LAST)),
                _ => None,
            };
            loop {
                let page = unit.scan_table(table(of), after.as_ref(), limit).await?;
                // Quotas of users and groups are beside no inode.
                for (key, _) in page.rows.iter().filter(|(key, _)| key.partition() != keys::NO_PARENT.0) {
                    let row = SideRow { table: of, inode: InodeId(key.partition()) };
                    if found.last() != Some(&row) {
                        if found.len() == limit {
                            return Ok(found);
                        }
                        found.push(row);
                    }
                }
                match page.rows.into_iter().next_back() {
                    Some((key, _)) if page.more => after = Some(key),
                    _ => break,
                }
            }
        }
        Ok(found)
    }
}

/// [`braid_api::admin::AdminQuery::Side`].
pub struct CheckSide(pub SideRow);

impl Query for CheckSide {
    type Answer = SideCheck;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<SideCheck, OpError> {
        let SideRow { table: of, inode } = self.0;
        let page = unit.scan(&Key::new(table(of), inode.0, b""), None, ROWS_A_PAGE).await?;
        Ok(SideCheck { rows: page.rows.len() as u32, belongs: belongs(unit, self.0).await? })
    }
}

/// The inode exists, or housekeeping still has to do with it.
async fn belongs(unit: &mut Unit<'_>, row: SideRow) -> Result<bool, OpError> {
    let inode = row.inode;
    // A file that is in another directory by now, too, may be all that is left of what was charged to one.
    if row.table == SideTable::Quotas && super::quota::is_charged(unit, inode).await? {
        return Ok(true);
    }
    Ok(exists(unit, inode).await? || unit.get::<ReclaimRow>(&keys::reclaim_inode(inode)).await?.is_some())
}

/// Drops the rows of one table that belong to an inode that does not exist.
pub(super) async fn drop_rows(unit: &mut Unit<'_>, row: SideRow) -> Result<Option<String>, OpError> {
    let SideRow { table: of, inode } = row;
    if belongs(unit, row).await? {
        return Ok(None);
    }
    let prefix = Key::new(table(of), inode.0, b"");
    let (mut dropped, mut after) = (0, None);
    loop {
        let page = unit.scan(&prefix, after.as_ref(), ROWS_A_PAGE).await?;
        dropped += page.rows.len();
        let more = page.more;
        for (key, _) in page.rows {
            after = Some(key.clone());
            unit.delete(key);
        }
        if !more {
            break;
        }
    }
    Ok((dropped > 0).then(|| format!("dropped {dropped} rows of {of} of inode {inode}, which does not exist")))
}
