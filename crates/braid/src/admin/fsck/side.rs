//! Rows beside inodes: inline bytes, extended attributes, policies, quotas whose inode is not there. They cost room, and
//! would be found by an inode with the same id, which never comes: so they are dropped.

use super::ask::Ask;
use super::finding::{Fault, Finding, Remedy};
use super::tally::Tally;
use braid_api::admin::{Repair, SideTable};
use braid_api::{Namespace, Result};

pub async fn check<N: Namespace>(
    ask: &Ask<'_, N>,
    tally: &Tally,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Finding>> {
    let (mut findings, mut after) = (Vec::new(), None);
    loop {
        let page = ask.side_rows(after).await?;
        let Some(last) = page.last() else { return Ok(findings) };
        after = Some((last.table, last.inode));
        progress(page.len() as u64);
        for row in page.into_iter().filter(|row| !tally.knows(row.inode)) {
            // Made since the names were read, or gone by now: one snapshot tells.
            let found = ask.side(row).await?;
            if found.belongs || found.rows == 0 {
                continue;
            }
            let fault = match row.table {
                SideTable::InlineSmall | SideTable::InlineLarge => Fault::InlineWithoutFile,
                SideTable::Xattrs => Fault::XattrsWithoutInode,
                SideTable::Quotas => Fault::QuotaWithoutInode,
                SideTable::Policies => Fault::PolicyWithoutInode,
            };
            let what = format!("it does not exist and has {} rows of {}", found.rows, row.table);
            let remedy = Remedy::Row(Repair::DropSideRows(row));
            findings.push(Finding::new(fault, format!("inode {}", row.inode), what, remedy));
        }
    }
}
