//! Names, and the rows that say where an inode is.

use crate::ops::check::{entry_key, path_of};
use crate::ops::make_node::count_entry;
use crate::ops::restamp::Above;
use crate::ops::seal::{is_elsewhere, moves_sealed};
use crate::rows::{Entry, IdRow, flags, keys};
use crate::{OpError, Unit};
use braid_api::Code;
use braid_api::admin::PathEnd;
use braid_types::{FileKind, InodeId, Name, Timestamp};

/// Names tried for one lost inode.
const NAMES_MAX: u32 = 100;

/// `#<id>` in the root directory, or `#<id>.1` and so on if there is one.
pub async fn free_name(unit: &mut Unit<'_>, id: InodeId) -> Result<Name, OpError> {
    for n in 0..NAMES_MAX {
        let text = if n == 0 { format!("#{id}") } else { format!("#{id}.{n}") };
        let name = Name::new(text.as_bytes()).map_err(|_| OpError::from(Code::Internal))?;
        if unit.get::<Entry>(&keys::entry(InodeId::ROOT, &name)).await?.is_none() {
            return Ok(name);
        }
    }
    Err(Code::Exists.into())
}

/// One entry less in a directory, if that exists.
async fn uncount(unit: &mut Unit<'_>, now: Timestamp, parent: InodeId, is_dir: bool) -> Result<(), OpError> {
    match unit.find(&parent.into()).await {
        Ok(mut dir) if dir.inode.is_dir() => {
            count_entry(&mut dir.inode, now, -1, is_dir);
            unit.store(&dir);
            Ok(())
        }
        // Without a directory there is no count. One whose row is damaged (it "keeps moving") is counted again by
        // a repair of its own.
        Ok(_) => Ok(()),
        Err(OpError(e)) if matches!(e.code, Code::Stale | Code::Busy) => Ok(()),
        Err(e) => Err(e),
    }
}

pub async fn id_row(unit: &mut Unit<'_>, id: InodeId, parent: InodeId, name: &[u8]) -> Result<Option<String>, OpError> {
    match unit.get::<Entry>(&entry_key(parent, name)).await? {
        Some(Entry::Here(inode)) if inode.id == id => {}
        _ => return Ok(None),
    }
    match unit.get::<IdRow>(&keys::inode_id(id)).await? {
        // Attributes there are another fault: see `duplicate`.
        Some(IdRow::Attributes(_)) => return Ok(None),
        Some(IdRow::At { parent: p, name: n }) => {
            if let Some(Entry::Here(inode)) = unit.get::<Entry>(&entry_key(p, &n)).await?
                && inode.id == id
            {
                return Ok(None);
            }
        }
        None => {}
    }
    unit.put(keys::inode_id(id), &IdRow::At { parent, name: name.to_vec() });
    Ok(Some(format!("wrote where inode {id} is: \"{}\" in directory {parent}", name.escape_ascii())))
}

pub async fn drop_id_row(unit: &mut Unit<'_>, id: InodeId) -> Result<Option<String>, OpError> {
    let Some(IdRow::At { parent, name }) = unit.get::<IdRow>(&keys::inode_id(id)).await? else { return Ok(None) };
    if unit.get::<Entry>(&entry_key(parent, &name)).await?.is_some_and(|entry| entry.id() == id) {
        return Ok(None);
    }
    unit.delete(keys::inode_id(id));
    Ok(Some(format!("dropped the id row of inode {id}, which led nowhere")))
}

pub async fn drop_entry(
    unit: &mut Unit<'_>,
    now: Timestamp,
    parent: InodeId,
    name: &[u8],
) -> Result<Option<String>, OpError> {
    let key = entry_key(parent, name);
    let Some(Entry::Elsewhere { id, kind }) = unit.get::<Entry>(&key).await? else { return Ok(None) };
    if let Some(IdRow::Attributes(_)) = unit.get::<IdRow>(&keys::inode_id(id)).await? {
        return Ok(None);
    }
    unit.delete(key);
    uncount(unit, now, parent, kind == FileKind::Directory).await?;
    Ok(Some(format!("removed \"{}\" from directory {parent}: it led to no inode", name.escape_ascii())))
}

pub async fn duplicate(
    unit: &mut Unit<'_>,
    now: Timestamp,
    parent: InodeId,
    name: &[u8],
) -> Result<Option<String>, OpError> {
    let key = entry_key(parent, name);
    let shown = name.escape_ascii();
    let Some(Entry::Here(inode)) = unit.get::<Entry>(&key).await? else { return Ok(None) };
    match unit.get::<IdRow>(&keys::inode_id(inode.id)).await? {
        Some(IdRow::Attributes(_)) => {
            if inode.has(flags::SEALED) {
                is_elsewhere(unit, parent).await?;
            }
            unit.put(key, &Entry::Elsewhere { id: inode.id, kind: inode.kind });
            Ok(Some(format!("\"{shown}\" in directory {parent} now leads to the one inode {}", inode.id)))
        }
        Some(IdRow::At { parent: p, name: n }) if (p, n.as_slice()) != (parent, name) => {
            match unit.get::<Entry>(&entry_key(p, &n)).await? {
                Some(Entry::Here(other)) if other.id == inode.id => {}
                _ => return Ok(None),
            }
            unit.delete(key);
            uncount(unit, now, parent, inode.is_dir()).await?;
            let other = n.escape_ascii();
            Ok(Some(format!("removed \"{shown}\" from directory {parent}: inode {} is \"{other}\" in {p}", inode.id)))
        }
        _ => Ok(None),
    }
}

/// Moves an inode whose directory cannot be reached to `#<id>` in the root.
pub async fn reattach(unit: &mut Unit<'_>, now: Timestamp, id: InodeId) -> Result<Option<String>, OpError> {
    match unit.get::<IdRow>(&keys::inode_id(id)).await? {
        Some(IdRow::At { parent, name }) => move_entry(unit, now, parent, &name).await,
        _ => Ok(None),
    }
}

pub async fn move_entry(
    unit: &mut Unit<'_>,
    now: Timestamp,
    parent: InodeId,
    name: &[u8],
) -> Result<Option<String>, OpError> {
    let key = entry_key(parent, name);
    let Some(mut entry) = unit.get::<Entry>(&key).await? else { return Ok(None) };
    let reached = match path_of(unit, parent).await?.end {
        PathEnd::Root => crate::ops::check::is_dir(unit, parent).await?,
        // A directory above may be missing: then that one's entry is to be moved, not this.
        PathEnd::Missing(at) => at != parent,
        PathEnd::Circle(_) => false,
    };
    if reached || parent == keys::NO_PARENT {
        return Ok(None);
    }
    let (id, is_dir) = (entry.id(), entry.kind() == FileKind::Directory);
    let new = free_name(unit, id).await?;
    unit.delete(key);
    uncount(unit, now, parent, is_dir).await?;
    if let Entry::Here(inode) = &mut entry {
        if inode.has(flags::SEALED) {
            moves_sealed(unit, parent, InodeId::ROOT).await?;
        }
        // Snapshots that have it where it was go on having it: it stays their root's.
        crate::ops::restamp::come_below(unit, inode, &Above::NOTHING).await?;
    }
    unit.put(keys::entry(InodeId::ROOT, &new), &entry);
    if matches!(entry, Entry::Here(_)) {
        unit.put(keys::inode_id(id), &IdRow::At { parent: InodeId::ROOT, name: new.as_bytes().to_vec() });
    }
    let mut root = unit.find(&InodeId::ROOT.into()).await?;
    count_entry(&mut root.inode, now, 1, is_dir);
    unit.store(&root);
    Ok(Some(format!("gave inode {id} the name /{new}: its directory {parent} cannot be reached")))
}
