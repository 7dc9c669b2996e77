//! One thing at a time, each in one snapshot: how fsck makes sure of what it suspects while the cluster works.

use super::admin::{is_to_be_freed, shown_entry, shown_id_row};
use crate::rows::{ChunkRow, Entry, IdRow, ReclaimRow, RowFormat, SpareRow, keys};
use crate::{OpError, Query, Unit};
use braid_api::Code;
use braid_api::admin::{self, ChunkCheck, EntryCheck, FileCheck, InodeCheck, PathCheck, PathEnd};
use braid_meta_engine::{Key, Table};
use braid_types::{ChunkIndex, FileKind, InodeId, SessionId};

/// Entries read at once while a directory is counted.
const ENTRIES_A_PAGE: usize = 4096;
/// Directories below one another, as in `rename`: far more than PATH_MAX allows.
const DEPTH_MAX: usize = 65_536;

/// The key of an entry, also of a name that no [`braid_types::Name`] can be.
pub(super) fn entry_key(parent: InodeId, name: &[u8]) -> Key {
    Key::new(Table::Inodes, parent.0, name)
}

async fn entry_at(unit: &mut Unit<'_>, parent: InodeId, name: &[u8]) -> Result<Option<admin::InodeRow>, OpError> {
    let key = entry_key(parent, name);
    match unit.get::<Entry>(&key).await? {
        Some(entry) => Ok(Some(shown_entry(unit, &key, &entry).await?)),
        None => Ok(None),
    }
}

async fn id_row(unit: &mut Unit<'_>, id: InodeId) -> Result<Option<admin::IdRow>, OpError> {
    match unit.get::<IdRow>(&keys::inode_id(id)).await? {
        Some(row) => Ok(Some(shown_id_row(unit, id, row).await?)),
        None => Ok(None),
    }
}

/// Where `id_row` leads.
async fn there(unit: &mut Unit<'_>, id_row: Option<&admin::IdRow>) -> Result<Option<admin::InodeRow>, OpError> {
    match id_row.and_then(|row| row.place.as_ref()) {
        Some((parent, name)) => entry_at(unit, *parent, name).await,
        None => Ok(None),
    }
}

/// (entries, subdirectories) of a directory, counted.
pub(super) async fn count(unit: &mut Unit<'_>, dir: InodeId) -> Result<(u64, u64), OpError> {
    let (mut entries, mut subdirs, mut after) = (0, 0, None);
    loop {
        let page = unit.scan(&keys::entries(dir), after.as_ref(), ENTRIES_A_PAGE).await?;
        for (key, row) in &page.rows {
            entries += 1;
            subdirs += u64::from(Entry::decode(key, row)?.kind() == FileKind::Directory);
        }
        match page.rows.into_iter().next_back() {
            Some((key, _)) if page.more => after = Some(key),
            _ => return Ok((entries, subdirs)),
        }
    }
}

/// [`admin::AdminQuery::Inode`].
pub struct CheckInode(pub InodeId);

impl Query for CheckInode {
    type Answer = InodeCheck;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<InodeCheck, OpError> {
        let id = self.0;
        let id_row = id_row(unit, id).await?;
        let entry = match id {
            InodeId::ROOT => entry_at(unit, keys::NO_PARENT, b"").await?,
            _ => there(unit, id_row.as_ref()).await?,
        };
        let is_dir = entry.as_ref().is_some_and(|e| e.id == id && e.kind == FileKind::Directory);
        let (entries, subdirs) = if is_dir { count(unit, id).await? } else { (0, 0) };
        let orphan = is_to_be_freed(unit, id).await?;
        let reclaim = unit.get::<ReclaimRow>(&keys::reclaim_inode(id)).await?.is_some();
        Ok(InodeCheck { id_row, entry, entries, subdirs, orphan, reclaim })
    }
}

/// [`admin::AdminQuery::Entry`].
pub struct CheckEntry {
    pub parent: InodeId,
    pub name: Vec<u8>,
}

impl Query for CheckEntry {
    type Answer = EntryCheck;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<EntryCheck, OpError> {
        let entry = entry_at(unit, self.parent, &self.name).await?;
        let id_row = match &entry {
            Some(entry) => id_row(unit, entry.id).await?,
            None => None,
        };
        let there = there(unit, id_row.as_ref()).await?;
        let parent_exists = is_dir(unit, self.parent).await?;
        Ok(EntryCheck { entry, id_row, there, parent_exists })
    }
}

/// An inode can be found.
pub(super) async fn exists(unit: &mut Unit<'_>, id: InodeId) -> Result<bool, OpError> {
    match unit.get::<IdRow>(&keys::inode_id(id)).await? {
        _ if id == InodeId::ROOT => Ok(true),
        None => Ok(false),
        Some(IdRow::Attributes(_)) => Ok(true),
        Some(IdRow::At { parent, name }) => {
            let entry = unit.get::<Entry>(&entry_key(parent, &name)).await?;
            Ok(matches!(entry, Some(Entry::Here(inode)) if inode.id == id))
        }
    }
}

/// A directory can be found.
pub(super) async fn is_dir(unit: &mut Unit<'_>, id: InodeId) -> Result<bool, OpError> {
    Ok(exists(unit, id).await? && unit.find(&id.into()).await?.inode.is_dir())
}

/// [`admin::AdminQuery::PathOf`].
pub struct CheckPath(pub InodeId);

impl Query for CheckPath {
    type Answer = PathCheck;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<PathCheck, OpError> {
        path_of(unit, self.0).await
    }
}

pub(super) async fn path_of(unit: &mut Unit<'_>, id: InodeId) -> Result<PathCheck, OpError> {
    let (mut names, mut at, mut passed) = (Vec::new(), id, std::collections::HashSet::new());
    let end = loop {
        if at == InodeId::ROOT {
            break PathEnd::Root;
        }
        if !passed.insert(at) || passed.len() > DEPTH_MAX {
            break PathEnd::Circle(at);
        }
        match unit.get::<IdRow>(&keys::inode_id(at)).await? {
            Some(IdRow::At { parent, name }) => {
                names.push(name);
                at = parent;
            }
            _ => break PathEnd::Missing(at),
        }
    };
    names.reverse();
    Ok(PathCheck { names, end })
}

/// [`admin::AdminQuery::Chunk`].
pub struct CheckChunk {
    pub inode: InodeId,
    pub index: ChunkIndex,
    pub session: SessionId,
}

impl Query for CheckChunk {
    type Answer = ChunkCheck;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<ChunkCheck, OpError> {
        let row = unit.get::<ChunkRow>(&keys::chunk(self.inode, self.index)).await?;
        let mut found = ChunkCheck { file: file(unit, self.inode).await?, ..ChunkCheck::default() };
        found.reclaim_inode = unit.get::<ReclaimRow>(&keys::reclaim_inode(self.inode)).await?.is_some();
        if let Some(row) = row {
            found.spare = unit.get::<SpareRow>(&keys::spare(self.session, row.chunk)).await?.is_some();
            found.reclaim = unit.get::<ReclaimRow>(&keys::reclaim_chunk(row.chunk)).await?.is_some();
            let (inode, index) = (self.inode, self.index);
            found.row =
                Some(admin::ChunkRow { inode, index, chunk: row.chunk, container: row.container, stable: row.stable });
        }
        Ok(found)
    }
}

/// The inode, if it is a file that can be found.
pub(super) async fn file(unit: &mut Unit<'_>, id: InodeId) -> Result<Option<FileCheck>, OpError> {
    if !exists(unit, id).await? {
        return Ok(None);
    }
    match unit.find(&id.into()).await {
        Ok(located) if located.inode.is_file() => Ok(Some(FileCheck {
            size: located.inode.size,
            chunk_bytes: super::content::policy_of(&located.inode).chunk_bytes,
            trunc_gen: located.inode.trunc_gen,
            cuts: located.inode.cuts.len() as u32,
        })),
        Ok(_) => Ok(None),
        Err(OpError(e)) if e.code == Code::Stale => Ok(None),
        Err(e) => Err(e),
    }
}
