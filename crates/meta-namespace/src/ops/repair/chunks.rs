//! Rows that say which chunks a file has.

use crate::ops::check::{exists, file};
use crate::rows::{ChunkRow, ReclaimRow, SpareRow, keys};
use crate::{OpError, Unit};
use braid_types::{ChunkIndex, InodeId, SessionId};

/// Drops a chunk row whose file does not exist; with `free` the chunk goes too.
pub async fn drop_row(
    unit: &mut Unit<'_>,
    inode: InodeId,
    index: ChunkIndex,
    free: bool,
) -> Result<Option<String>, OpError> {
    let there = exists(unit, inode).await? && file(unit, inode).await?.is_some();
    // What is being freed already is nobody's fault.
    if there || unit.get::<ReclaimRow>(&keys::reclaim_inode(inode)).await?.is_some() {
        return Ok(None);
    }
    // Nor what snapshots have of a file that has gone.
    for (root, _) in crate::ops::snapshot::roots(unit).await? {
        if unit.get_raw(&keys::kept_inode(root, inode)).await?.is_some() {
            return Ok(None);
        }
    }
    let key = keys::chunk(inode, index);
    let Some(row) = unit.get::<ChunkRow>(&key).await? else { return Ok(None) };
    unit.delete(key);
    if free {
        unit.put(keys::reclaim_chunk(row.chunk), &ReclaimRow { container: row.container });
    }
    Ok(Some(format!("dropped chunk row {} of inode {inode}, which is no file", index.0)))
}

pub async fn keep(
    unit: &mut Unit<'_>,
    inode: InodeId,
    index: ChunkIndex,
    session: SessionId,
) -> Result<Option<String>, OpError> {
    let Some(row) = unit.get::<ChunkRow>(&keys::chunk(inode, index)).await? else { return Ok(None) };
    let (spare, reclaim) = (keys::spare(session, row.chunk), keys::reclaim_chunk(row.chunk));
    let is_spare = unit.get::<SpareRow>(&spare).await?.is_some();
    let is_freed = unit.get::<ReclaimRow>(&reclaim).await?.is_some();
    if !is_spare && !is_freed {
        return Ok(None);
    }
    if is_spare {
        unit.delete(spare);
    }
    if is_freed {
        unit.delete(reclaim);
    }
    Ok(Some(format!("chunk {} stays with inode {inode}", row.chunk)))
}
