//! Freeing what nobody has any more, in batches, behind the operations that let it go.

use super::content::chunk_refs;
use super::free::destroy;
use crate::rows::{ContainerRow, IdRow, OrphanRow, ReclaimRow, RowFormat, keys};
use crate::{OpError, Unit};
use braid_meta_engine::{Key, Lock, Operation, Table, Tx};
use braid_types::{ChunkId, ContainerId, InodeId};

/// What waits to be freed, a page at a time.
pub struct ListReclaim {
    pub limit: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Waiting {
    pub inodes: Vec<InodeId>,
    pub chunks: Vec<(ChunkId, ContainerId)>,
    pub more: bool,
}

impl Operation for ListReclaim {
    type Output = Waiting;
    type Error = OpError;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Waiting, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let page = unit.scan_table(Table::Reclaim, None, self.limit).await?;
        let mut waiting = Waiting { more: page.more, ..Waiting::default() };
        for (key, row) in &page.rows {
            match keys::reclaimed(key) {
                Some(keys::Reclaimed::Inode(id)) => waiting.inodes.push(id),
                Some(keys::Reclaimed::Chunk(id)) => {
                    waiting.chunks.push((id, ReclaimRow::decode(key, row)?.container));
                }
                None => {}
            }
        }
        Ok(waiting)
    }
}

/// Turns a page of a freed inode's chunk rows into chunks to delete; answers true when none are left.
pub struct ReclaimInode {
    pub inode: InodeId,
}

/// Chunk rows moved in one transaction.
const ROWS_A_PAGE: usize = 1024;

impl Operation for ReclaimInode {
    type Output = bool;
    type Error = OpError;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<bool, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let page = unit.scan(&keys::chunks(self.inode), None, ROWS_A_PAGE).await?;
        for chunk in chunk_refs(&page.rows)? {
            unit.delete(keys::chunk(self.inode, chunk.index));
            unit.put(keys::reclaim_chunk(chunk.chunk), &ReclaimRow { container: chunk.container });
        }
        if !page.more {
            unit.delete(keys::reclaim_inode(self.inode));
        }
        Ok(!page.more)
    }
}

/// The data servers have deleted these chunks: their rows go, and their containers count them.
pub struct ForgetChunks {
    pub chunks: Vec<(ChunkId, ContainerId)>,
}

impl Operation for ForgetChunks {
    type Output = ();
    type Error = OpError;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let rows: Vec<Key> = self.chunks.iter().map(|(chunk, _)| keys::reclaim_chunk(*chunk)).collect();
        let containers: Vec<Key> = self.chunks.iter().map(|(_, id)| keys::container(*id)).collect();
        unit.load(&[rows.clone(), containers].concat()).await?;
        for ((_, container), key) in self.chunks.iter().zip(rows) {
            // Counted once, also when this runs again after an answer was lost.
            if unit.get::<ReclaimRow>(&key).await?.is_none() {
                continue;
            }
            unit.delete(key);
            let key = keys::container(*container);
            if let Some(mut row) = unit.get::<ContainerRow>(&key).await? {
                row.freed += 1;
                if row.freed >= braid_types::CONTAINER_CHUNKS_MAX {
                    unit.delete(key);
                } else {
                    unit.put(key, &row);
                }
            }
        }
        Ok(())
    }
}

/// All orphans: what a metadata server reads at its start.
pub struct ListOrphans;

impl Operation for ListOrphans {
    type Output = Vec<(InodeId, OrphanRow)>;
    type Error = OpError;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let page = unit.scan_table(Table::Orphans, None, usize::MAX >> 1).await?;
        page.rows.iter().map(|(key, row)| Ok((InodeId(key.partition()), OrphanRow::decode(key, row)?))).collect()
    }
}

/// Frees an orphan that no session holds; answers false if it has a name again or is gone already.
pub struct FreeOrphan {
    pub inode: InodeId,
}

impl Operation for FreeOrphan {
    type Output = bool;
    type Error = OpError;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<bool, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let orphan = keys::orphan(self.inode);
        unit.load(&[orphan.clone(), keys::inode_id(self.inode)]).await?;
        if unit.get::<OrphanRow>(&orphan).await?.is_none() {
            return Ok(false);
        }
        unit.delete(orphan);
        match unit.get::<IdRow>(&keys::inode_id(self.inode)).await? {
            Some(IdRow::Attributes(inode)) if inode.nlink == 0 => {
                destroy(&mut unit, &inode).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
