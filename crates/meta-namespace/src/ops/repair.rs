//! What `fsck --repair` does, each repair in a transaction that first checks that the fault is still there.
//!
//! Promises: a repair of something that is well, or that has changed since it was looked at, does nothing; no repair
//! takes bytes from a file or leaves an inode without a way to it.

mod chunks;
mod counts;
mod names;

pub(super) use names::free_name;

use crate::{OpError, Unit};
use braid_api::admin::Repair;
use braid_meta_engine::{Lock, Operation, Tx};
use braid_types::Timestamp;

/// Carries out one repair; answers what was done, or `None` if there is nothing to repair (any more).
pub struct RepairRow {
    pub repair: Repair,
    pub now: Timestamp,
}

impl Operation for RepairRow {
    type Output = Option<String>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<String>, OpError> {
        let (unit, now) = (&mut Unit::new(tx, Lock::Exclusive), self.now);
        let done = match &self.repair {
            Repair::Links { inode, nlink, .. } => counts::links(unit, *inode, *nlink).await,
            Repair::FileLinks { inode, names, nlink, ctime } => {
                counts::file_links(unit, now, *inode, *names, (*nlink, *ctime)).await
            }
            Repair::Size { inode, size } => counts::size(unit, *inode, *size).await,
            Repair::RaiseSize { inode, from, to, trunc_gen } => {
                counts::raise_size(unit, *inode, (*from, *trunc_gen), *to).await
            }
            Repair::MakeOrphan { inode } => counts::make_orphan(unit, now, *inode).await,
            Repair::DropOrphan { inode } => counts::drop_orphan(unit, *inode).await,
            Repair::IdRow { inode, parent, name } => names::id_row(unit, *inode, *parent, name).await,
            Repair::DropIdRow { inode } => names::drop_id_row(unit, *inode).await,
            Repair::DropEntry { parent, name } => names::drop_entry(unit, now, *parent, name).await,
            Repair::Duplicate { parent, name } => names::duplicate(unit, now, *parent, name).await,
            Repair::Reattach { inode } => names::reattach(unit, now, *inode).await,
            Repair::MoveEntry { parent, name } => names::move_entry(unit, now, *parent, name).await,
            Repair::DropChunkRow { inode, index } => chunks::drop_row(unit, *inode, *index, true).await,
            Repair::ForgetChunkRow { inode, index } => chunks::drop_row(unit, *inode, *index, false).await,
            Repair::DropSideRows(row) => super::side::drop_rows(unit, *row).await,
            Repair::Usage(miscount) => super::quota::correct(unit, miscount).await,
            Repair::KeepChunk { inode, index, session } => chunks::keep(unit, *inode, *index, *session).await,
        }?;
        unit.charge_without_limits().await?;
        Ok(done)
    }
}
