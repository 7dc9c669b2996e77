//! What `fsck --repair` does, each repair in a transaction that first checks that the fault is still there.

use super::make_node::count_entry;
use crate::rows::{ChunkRow, Entry, IdRow, ReclaimRow, keys};
use crate::{OpError, Unit};
use braid_api::Code;
use braid_api::admin::Repair;
use braid_meta_engine::{Lock, Operation, Tx};
use braid_types::{InodeId, Name, Timestamp};

/// Carries out one repair; answers what was done, or `None` if there is nothing to repair (any more).
pub struct RepairRow {
    pub repair: Repair,
    pub now: Timestamp,
}

impl Operation for RepairRow {
    type Output = Option<String>;
    type Error = OpError;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<String>, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let unit = &mut unit;
        match &self.repair {
            Repair::Links { inode, nlink, entries } => links(unit, *inode, *nlink, *entries).await,
            Repair::IdRow { inode, parent, name } => id_row(unit, *inode, *parent, name).await,
            Repair::DropIdRow { inode } => drop_id_row(unit, *inode).await,
            Repair::DropChunkRow { inode, index } => {
                if unit.find(&(*inode).into()).await.is_ok() {
                    return Ok(None);
                }
                let key = keys::chunk(*inode, *index);
                let Some(row) = unit.get::<ChunkRow>(&key).await? else { return Ok(None) };
                unit.delete(key);
                unit.put(keys::reclaim_chunk(row.chunk), &ReclaimRow { container: row.container });
                Ok(Some(format!("dropped chunk row {} of inode {inode}, which does not exist", index.0)))
            }
            Repair::DropEntry { parent, name } => self.drop_entry(unit, *parent, name).await,
            Repair::Reattach { inode } => self.reattach(unit, *inode).await,
            Repair::Size { inode, size } => {
                let mut located = unit.find(&(*inode).into()).await?;
                if located.inode.size == *size {
                    return Ok(None);
                }
                let was = located.inode.size;
                located.inode.size = *size;
                unit.store(&located);
                Ok(Some(format!("set the size of inode {inode} from {was} to {size}")))
            }
        }
    }
}

async fn links<T: Tx>(
    unit: &mut Unit<'_, T>,
    id: InodeId,
    nlink: u32,
    entries: u64,
) -> Result<Option<String>, OpError> {
    let mut located = unit.find(&id.into()).await?;
    let inode = &mut located.inode;
    let entries_differ = inode.is_dir() && inode.size != entries;
    if inode.nlink == nlink && !entries_differ {
        return Ok(None);
    }
    let was = inode.nlink;
    inode.nlink = nlink;
    if inode.is_dir() {
        inode.size = entries;
    }
    unit.store(&located);
    Ok(Some(format!("set the links of inode {id} from {was} to {nlink}, entries {entries}")))
}

async fn id_row<T: Tx>(
    unit: &mut Unit<'_, T>,
    id: InodeId,
    parent: InodeId,
    name: &[u8],
) -> Result<Option<String>, OpError> {
    let name = Name::new(name).map_err(|_| OpError::from(Code::Invalid))?;
    match unit.get::<Entry>(&keys::entry(parent, &name)).await? {
        Some(Entry::Here(inode)) if inode.id == id => {}
        _ => return Ok(None),
    }
    let row = IdRow::At { parent, name: name.as_bytes().to_vec() };
    if unit.get::<IdRow>(&keys::inode_id(id)).await?.as_ref() == Some(&row) {
        return Ok(None);
    }
    unit.put(keys::inode_id(id), &row);
    Ok(Some(format!("wrote where inode {id} is: {name} in directory {parent}")))
}

async fn drop_id_row<T: Tx>(unit: &mut Unit<'_, T>, id: InodeId) -> Result<Option<String>, OpError> {
    let Some(IdRow::At { parent, name }) = unit.get::<IdRow>(&keys::inode_id(id)).await? else { return Ok(None) };
    let key = braid_meta_engine::Key::new(braid_meta_engine::Table::Inodes, parent.0, &name);
    if unit.get::<Entry>(&key).await?.is_some_and(|entry| entry.id() == id) {
        return Ok(None);
    }
    unit.delete(keys::inode_id(id));
    Ok(Some(format!("dropped the id row of inode {id}, which led nowhere")))
}

impl RepairRow {
    async fn drop_entry<T: Tx>(
        &self,
        unit: &mut Unit<'_, T>,
        parent: InodeId,
        name: &[u8],
    ) -> Result<Option<String>, OpError> {
        let name = Name::new(name).map_err(|_| OpError::from(Code::Invalid))?;
        let key = keys::entry(parent, &name);
        let Some(Entry::Elsewhere { id, .. }) = unit.get::<Entry>(&key).await? else { return Ok(None) };
        if let Some(IdRow::Attributes(_)) = unit.get::<IdRow>(&keys::inode_id(id)).await? {
            return Ok(None);
        }
        unit.delete(key);
        if let Ok(mut dir) = unit.find(&parent.into()).await {
            count_entry(&mut dir.inode, self.now, -1, false);
            unit.store(&dir);
        }
        Ok(Some(format!("removed {name} in directory {parent}, which led to no inode")))
    }

    /// Moves an inode whose directory does not exist to `#<id>` in the root.
    async fn reattach<T: Tx>(&self, unit: &mut Unit<'_, T>, id: InodeId) -> Result<Option<String>, OpError> {
        let located = unit.find(&id.into()).await?;
        let crate::Place::Entry(parent, Some(old)) = located.place.clone() else { return Ok(None) };
        if unit.find(&parent.into()).await.is_ok() {
            return Ok(None);
        }
        let name = Name::new(format!("#{id}").as_bytes()).map_err(|_| OpError::from(Code::Internal))?;
        if unit.get::<Entry>(&keys::entry(InodeId::ROOT, &name)).await?.is_some() {
            return Err(Code::Exists.into());
        }
        unit.delete(keys::entry(parent, &old));
        unit.put(keys::entry(InodeId::ROOT, &name), &Entry::Here(located.inode.clone()));
        unit.put(keys::inode_id(id), &IdRow::At { parent: InodeId::ROOT, name: name.as_bytes().to_vec() });
        let mut root = unit.find(&InodeId::ROOT.into()).await?;
        count_entry(&mut root.inode, self.now, 1, located.inode.is_dir());
        unit.store(&root);
        Ok(Some(format!("gave inode {id} the name /{name}: its directory {parent} does not exist")))
    }
}
