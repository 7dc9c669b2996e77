//! Sizes that lag behind the data: a client that died had written at the end of a file and not yet said so.
//!
//! Design.md §8: a write that reached its owner survives the loss of its client. Chunks that the client had taken as
//! spares are put into their files by [`super::spares::AdoptSpare`]; this is about chunks that were in the file before.

use super::content::policy_of;
use crate::rows::{ChunkRow, keys};
use crate::unit::Located;
use crate::{OpError, Unit};
use braid_api::Code;
use braid_api::data::ChunkStatus;
use braid_meta_engine::{Lock, Operation, Tx};
use braid_types::{FILE_BYTES_MAX, InodeId, Timestamp};

/// The file that a chunk is in, and where the chunk's bytes end in it, if that is beyond the file's size.
///
/// Not if the chunk has not seen the file's newest truncation: what is beyond the size is then what was cut off. Nor
/// if it has seen a newer one than the row: that is on its way.
async fn beyond(unit: &mut Unit<'_>, held: &ChunkStatus) -> Result<Option<(Located, u64)>, OpError> {
    if held.inode.0 == 0 || held.len == 0 {
        return Ok(None);
    }
    let located = match unit.find(&held.inode.into()).await {
        Ok(located) => located,
        Err(OpError(e)) if e.code == Code::Stale => return Ok(None),
        Err(e) => return Err(e),
    };
    let inode = &located.inode;
    let end = held.index.0.saturating_mul(policy_of(inode).chunk_bytes).saturating_add(held.len);
    if !inode.is_file() || end <= inode.size || end > FILE_BYTES_MAX || held.trunc_gen != inode.trunc_gen {
        return Ok(None);
    }
    let row = unit.get::<ChunkRow>(&keys::chunk(inode.id, held.index)).await?;
    Ok(row.is_some_and(|row| row.chunk == held.chunk).then_some((located, end)))
}

/// Which of these chunks have bytes beyond the size of their file. Changes nothing.
pub struct FindBeyond(pub Vec<ChunkStatus>);

impl Operation for FindBeyond {
    type Output = Vec<ChunkStatus>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Vec<ChunkStatus>, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let mut found = Vec::new();
        for held in &self.0 {
            if beyond(&mut unit, held).await?.is_some() {
                found.push(held.clone());
            }
        }
        Ok(found)
    }
}

/// Raises the size of the file to where this chunk's bytes end, if it is still smaller; answers the file if so. A file
/// whose writer lives may be among them: its size is then known a moment before the writer says it.
pub struct RaiseSize {
    pub chunk: ChunkStatus,
    pub now: Timestamp,
}

impl Operation for RaiseSize {
    type Output = Option<InodeId>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<InodeId>, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let Some((mut located, end)) = beyond(&mut unit, &self.chunk).await? else { return Ok(None) };
        located.inode.size = end;
        located.inode.touch(self.now);
        unit.store(&located);
        unit.charge_without_limits().await?;
        Ok(Some(located.inode.id))
    }
}
