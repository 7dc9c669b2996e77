//! Numbers in an inode's row: links, entries, size; and the list of orphans.

use super::names::free_name;
use crate::ops::admin::is_to_be_freed;
use crate::ops::make_node::count_entry;
use crate::rows::{Entry, IdRow, OrphanRow, ReclaimRow, keys};
use crate::{OpError, Unit};
use braid_types::{ContainerId, FILE_BYTES_MAX, InodeId, SessionId, Timestamp, TruncGen};

/// A directory is counted here and now; what else has its attributes beside its name has that one name.
pub async fn links(unit: &mut Unit<'_>, id: InodeId, nlink: u32) -> Result<Option<String>, OpError> {
    let mut located = unit.find(&id.into()).await?;
    let inode = &mut located.inode;
    let was = (inode.nlink, inode.size);
    if inode.is_dir() {
        let (entries, subdirs) = crate::ops::check::count(unit, id).await?;
        inode.nlink = u32::try_from(subdirs).unwrap_or(u32::MAX).saturating_add(2);
        inode.size = entries;
    } else if matches!(located.place, crate::Place::Entry(..)) {
        inode.nlink = 1;
    } else {
        inode.nlink = nlink;
    }
    let now = (inode.nlink, inode.size);
    if was == now {
        return Ok(None);
    }
    let entries = if inode.is_dir() { format!(", its entries from {} to {}", was.1, now.1) } else { String::new() };
    unit.store(&located);
    Ok(Some(format!("set the links of inode {id} from {} to {}{entries}", was.0, now.0)))
}

/// Of an inode in `inode_ids`. Every operation that gives or takes a name changes its change time, so that the same
/// time means the same names.
pub async fn file_links(
    unit: &mut Unit<'_>,
    now: Timestamp,
    id: InodeId,
    names: u32,
    seen: (u32, Timestamp),
) -> Result<Option<String>, OpError> {
    let Some(IdRow::Attributes(mut inode)) = unit.get::<IdRow>(&keys::inode_id(id)).await? else { return Ok(None) };
    if (inode.nlink, inode.ctime) != seen || inode.nlink == names || inode.is_dir() {
        return Ok(None);
    }
    let done = if names == 0 {
        let name = free_name(unit, id).await?;
        unit.put(keys::entry(InodeId::ROOT, &name), &Entry::Elsewhere { id, kind: inode.kind });
        let mut root = unit.find(&InodeId::ROOT.into()).await?;
        count_entry(&mut root.inode, now, 1, false);
        unit.store(&root);
        inode.nlink = 1;
        format!("gave inode {id}, which had no name, the name /{name}")
    } else {
        inode.nlink = names;
        format!("set the links of inode {id} from {} to {names}", seen.0)
    };
    inode.change(now);
    unit.put(keys::inode_id(id), &IdRow::Attributes(inode));
    Ok(Some(done))
}

pub async fn size(unit: &mut Unit<'_>, id: InodeId, size: u64) -> Result<Option<String>, OpError> {
    let mut located = unit.find(&id.into()).await?;
    if located.inode.size == size {
        return Ok(None);
    }
    let was = located.inode.size;
    located.inode.size = size;
    unit.store(&located);
    Ok(Some(format!("set the size of inode {id} from {was} to {size}")))
}

pub async fn raise_size(
    unit: &mut Unit<'_>,
    id: InodeId,
    seen: (u64, TruncGen),
    to: u64,
) -> Result<Option<String>, OpError> {
    let mut located = unit.find(&id.into()).await?;
    let inode = &mut located.inode;
    if (inode.size, inode.trunc_gen) != seen || to <= inode.size || to > FILE_BYTES_MAX || !inode.is_file() {
        return Ok(None);
    }
    inode.size = to;
    unit.store(&located);
    Ok(Some(format!("raised the size of inode {id} from {} to {to}", seen.0)))
}

pub async fn make_orphan(unit: &mut Unit<'_>, now: Timestamp, id: InodeId) -> Result<Option<String>, OpError> {
    let inode = match unit.get::<IdRow>(&keys::inode_id(id)).await? {
        Some(IdRow::Attributes(inode)) if inode.nlink == 0 => inode,
        _ => return Ok(None),
    };
    if is_to_be_freed(unit, id).await? {
        return Ok(None);
    }
    if inode.is_dir() {
        unit.put(keys::reclaim_tree(id), &ReclaimRow { container: ContainerId(0) });
        return Ok(Some(format!("listed directory {id}, which has no name, to be emptied and freed")));
    }
    unit.put(keys::orphan(id), &OrphanRow { session: SessionId(0), since: now });
    Ok(Some(format!("listed inode {id}, which has no name, to be freed")))
}

pub async fn drop_orphan(unit: &mut Unit<'_>, id: InodeId) -> Result<Option<String>, OpError> {
    match unit.get::<IdRow>(&keys::inode_id(id)).await? {
        Some(IdRow::Attributes(inode)) if inode.nlink == 0 => return Ok(None),
        _ => {}
    }
    if unit.get::<OrphanRow>(&keys::orphan(id)).await?.is_none() {
        return Ok(None);
    }
    unit.delete(keys::orphan(id));
    Ok(Some(format!("took inode {id} from the list of unlinked files")))
}
