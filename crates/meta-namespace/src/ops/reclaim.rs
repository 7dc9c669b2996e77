//! Freeing what nobody has any more, in batches, behind the operations that let it go.

use super::content::chunk_refs;
use super::free::destroy;
use crate::rows::{ContainerRow, IdRow, KeptInode, OrphanRow, ReclaimRow, RowFormat, keys};
use crate::{OpError, Unit};
use braid_meta_engine::{Key, Lock, Operation, Table, Tx};
use braid_types::{ChunkId, ContainerId, InodeId};

/// What waits to be freed, a page at a time.
pub struct ListReclaim {
    pub after: Option<Key>,
    pub limit: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Waiting {
    pub inodes: Vec<InodeId>,
    pub chunks: Vec<(ChunkId, ContainerId)>,
    /// Removed directories that are to be emptied.
    pub trees: Vec<InodeId>,
    /// Where the next page begins, if there is one.
    pub next: Option<Key>,
}

impl Operation for ListReclaim {
    type Output = Waiting;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Waiting, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let page = unit.scan_table(Table::Reclaim, self.after.as_ref(), self.limit).await?;
        let next = page.rows.last().filter(|_| page.more).map(|(key, _)| key.clone());
        let mut waiting = Waiting { next, ..Waiting::default() };
        for (key, row) in &page.rows {
            match keys::reclaimed(key) {
                Some(keys::Reclaimed::Inode(id)) => waiting.inodes.push(id),
                Some(keys::Reclaimed::Chunk(id)) => {
                    waiting.chunks.push((id, ReclaimRow::decode(key, row)?.container));
                }
                Some(keys::Reclaimed::Tree(dir)) => waiting.trees.push(dir),
                None => {}
            }
        }
        Ok(waiting)
    }
}

/// Turns chunk rows of freed inodes into chunks to delete; answers how many of the inodes, from the first, have none left.
pub struct ReclaimInodes {
    pub inodes: Vec<InodeId>,
}

/// Chunk rows moved in one transaction.
const ROWS_A_PAGE: usize = 1024;

impl Operation for ReclaimInodes {
    type Output = usize;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<usize, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let mut room = ROWS_A_PAGE;
        let listed: Vec<Key> = self.inodes.iter().map(|inode| keys::reclaim_inode(*inode)).collect();
        unit.load(&listed).await?;
        for (done, (inode, listed)) in self.inodes.iter().zip(listed).enumerate() {
            if let Some(root) = unit.get::<ReclaimRow>(&listed).await?.map(|row| row.container).filter(|id| id.0 != 0) {
                free_newer(&mut unit, InodeId(root.0), *inode).await?;
                unit.delete(listed);
                continue;
            }
            let page = unit.scan(&keys::chunks(*inode), None, room).await?;
            for chunk in chunk_refs(&page.rows, 0)? {
                unit.delete(keys::chunk(*inode, chunk.index));
                unit.put(keys::reclaim_chunk(chunk.chunk), &ReclaimRow { container: chunk.container });
            }
            if page.more {
                return Ok(done);
            }
            unit.delete(listed);
            room -= page.rows.len();
            if room == 0 {
                return Ok(done + 1);
            }
        }
        Ok(self.inodes.len())
    }
}

/// Of a file that snapshots have, what came after the newest of them. There are as many rows as the file has chunks.
async fn free_newer(unit: &mut Unit<'_>, root: InodeId, inode: InodeId) -> Result<(), OpError> {
    let Some(kept) = unit.get::<KeptInode>(&keys::kept_inode(root, inode)).await? else { return Ok(()) };
    let mut after = None;
    loop {
        let page = unit.scan(&keys::chunks(inode), after.as_ref(), ROWS_A_PAGE).await?;
        for chunk in chunk_refs(&page.rows, kept.until)?.into_iter().filter(|chunk| !chunk.frozen) {
            unit.delete(keys::chunk(inode, chunk.index));
            unit.put(keys::reclaim_chunk(chunk.chunk), &ReclaimRow { container: chunk.container });
        }
        match page.rows.into_iter().next_back() {
            Some((key, _)) if page.more => after = Some(key),
            _ => return Ok(()),
        }
    }
}

/// The data servers have deleted these chunks: their rows go, and their containers count them.
pub struct ForgetChunks {
    pub chunks: Vec<(ChunkId, ContainerId)>,
}

impl Operation for ForgetChunks {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
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
                // More are given where chunks of snapshots stay beside those that took their places.
                if row.freed >= row.given.max(braid_types::CONTAINER_CHUNKS_MAX) {
                    unit.delete(key);
                } else {
                    unit.put(key, &row);
                }
            }
        }
        Ok(())
    }
}

/// Drops the rows of those containers all of whose chunks were freed, though there would be room for others; answers which.
/// A spare chunk counts as given until it is freed, so nobody can have one of such a container.
pub struct DropEmpty {
    pub containers: Vec<ContainerId>,
}

impl Operation for DropEmpty {
    type Output = Vec<ContainerId>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        unit.load(&self.containers.iter().map(|id| keys::container(*id)).collect::<Vec<_>>()).await?;
        let mut dropped = Vec::new();
        for id in &self.containers {
            let key = keys::container(*id);
            match unit.get::<ContainerRow>(&key).await? {
                Some(row) if row.freed >= row.given => unit.delete(key),
                Some(_) => continue,
                // By an attempt whose answer was lost.
                None => {}
            }
            dropped.push(*id);
        }
        Ok(dropped)
    }
}

/// Orphans after this one: what a metadata server reads at its start. None: the end.
pub struct ListOrphans {
    pub after: Option<InodeId>,
    pub limit: usize,
}

impl Operation for ListOrphans {
    type Output = Vec<InodeId>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let after = self.after.map(keys::orphan);
        let page = unit.scan_table(Table::Orphans, after.as_ref(), self.limit).await?;
        Ok(page.rows.iter().map(|(key, _)| InodeId(key.partition())).collect())
    }
}

/// Frees orphans that no session holds; passes over those that have a name again or are gone already.
pub struct FreeOrphans {
    pub inodes: Vec<InodeId>,
}

impl Operation for FreeOrphans {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let both = |inode: &InodeId| [keys::orphan(*inode), keys::inode_id(*inode)];
        unit.load(&self.inodes.iter().flat_map(both).collect::<Vec<_>>()).await?;
        for inode in &self.inodes {
            let orphan = keys::orphan(*inode);
            if unit.get::<OrphanRow>(&orphan).await?.is_none() {
                continue;
            }
            unit.delete(orphan);
            match unit.get::<IdRow>(&keys::inode_id(*inode)).await? {
                Some(IdRow::Attributes(inode)) if inode.nlink == 0 => destroy(&mut unit, &inode).await?,
                _ => {}
            }
        }
        unit.charge_without_limits().await
    }
}
