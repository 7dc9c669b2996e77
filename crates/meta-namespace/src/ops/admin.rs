//! Rows page by page, for fsck and administrators.

use crate::rows::{
    ChunkRow, Entry, IdRow, InlineState, Inode, OrphanRow, ReclaimRow, RowFormat, SpareRow, flags, keys,
};
use crate::{OpError, Query, Unit};
use braid_api::admin;
use braid_meta_engine::{Key, Table};
use braid_types::{ChunkId, ChunkIndex, InodeId, SessionId};

/// Rows in one answer, whatever was asked for: about 500 KiB.
const ROWS_MAX: usize = 4096;

fn limit(asked: u32) -> usize {
    (asked as usize).clamp(1, ROWS_MAX)
}

async fn inline_len(unit: &mut Unit<'_>, inode: &Inode) -> Result<u64, OpError> {
    Ok(super::content::inline_bytes(unit, inode).await?.len() as u64)
}

/// An entry as fsck sees it.
pub(super) async fn shown_entry(unit: &mut Unit<'_>, key: &Key, entry: &Entry) -> Result<admin::InodeRow, OpError> {
    let mut found = admin::InodeRow {
        parent: InodeId(key.partition()),
        name: key.rest().to_vec(),
        id: entry.id(),
        kind: entry.kind(),
        attr: None,
        entries: 0,
        inline: false,
        inline_bytes: 0,
        chunk_bytes: 0,
    };
    if let Entry::Here(inode) = entry {
        found.attr = Some(inode.attr());
        found.entries = if inode.is_dir() { inode.size } else { 0 };
        found.inline = !inode.has(flags::CHUNKED);
        if inode.inline != InlineState::None {
            found.inline_bytes = inline_len(unit, inode).await?;
        }
        found.chunk_bytes = super::content::policy_of(inode).chunk_bytes;
    }
    Ok(found)
}

/// A row of `inode_ids` as fsck sees it.
pub(super) async fn shown_id_row(unit: &mut Unit<'_>, id: InodeId, row: IdRow) -> Result<admin::IdRow, OpError> {
    let mut found =
        admin::IdRow { id, place: None, attr: None, inline: false, inline_bytes: 0, chunk_bytes: 0, orphan: false };
    match row {
        IdRow::At { parent, name } => found.place = Some((parent, name)),
        IdRow::Attributes(inode) => {
            found.attr = Some(inode.attr());
            found.inline = !inode.has(flags::CHUNKED);
            found.inline_bytes = inline_len(unit, &inode).await?;
            found.chunk_bytes = super::content::policy_of(&inode).chunk_bytes;
            found.orphan = is_to_be_freed(unit, id).await?;
        }
    }
    Ok(found)
}

/// What has no name is listed: a file as an orphan, a directory as one that is to be emptied.
pub(super) async fn is_to_be_freed(unit: &mut Unit<'_>, id: InodeId) -> Result<bool, OpError> {
    let (orphan, tree) = (keys::orphan(id), keys::reclaim_tree(id));
    unit.load(&[orphan.clone(), tree.clone()]).await?;
    Ok(unit.get::<OrphanRow>(&orphan).await?.is_some() || unit.get::<ReclaimRow>(&tree).await?.is_some())
}

pub struct InodeRows {
    pub after: Option<(InodeId, Vec<u8>)>,
    pub limit: u32,
}

impl Query for InodeRows {
    type Answer = Vec<admin::InodeRow>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Self::Answer, OpError> {
        let after = self.after.as_ref().map(|(p, n)| Key::new(Table::Inodes, p.0, n));
        let page = unit.scan_table(Table::Inodes, after.as_ref(), limit(self.limit)).await?;
        let mut rows = Vec::with_capacity(page.rows.len());
        for (key, row) in &page.rows {
            rows.push(shown_entry(unit, key, &Entry::decode(key, row)?).await?);
        }
        Ok(rows)
    }
}

pub struct IdRows {
    pub after: Option<InodeId>,
    pub limit: u32,
}

impl Query for IdRows {
    type Answer = Vec<admin::IdRow>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Self::Answer, OpError> {
        let after = self.after.map(keys::inode_id);
        let page = unit.scan_table(Table::InodeIds, after.as_ref(), limit(self.limit)).await?;
        let mut rows = Vec::with_capacity(page.rows.len());
        for (key, row) in &page.rows {
            rows.push(shown_id_row(unit, InodeId(key.partition()), IdRow::decode(key, row)?).await?);
        }
        Ok(rows)
    }
}

pub struct ChunkRows {
    pub after: Option<(InodeId, ChunkIndex)>,
    pub limit: u32,
}

impl Query for ChunkRows {
    type Answer = Vec<admin::ChunkRow>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Self::Answer, OpError> {
        let after = self.after.map(|(inode, index)| keys::chunk(inode, index));
        let page = unit.scan_table(Table::Chunks, after.as_ref(), limit(self.limit)).await?;
        page.rows
            .iter()
            .map(|(key, row)| {
                let value = ChunkRow::decode(key, row)?;
                Ok(admin::ChunkRow {
                    inode: InodeId(key.partition()),
                    index: keys::chunk_index(key).ok_or_else(|| super::content::damaged(key))?,
                    chunk: value.chunk,
                    container: value.container,
                    stable: value.stable,
                })
            })
            .collect()
    }
}

/// [`admin::AdminQuery::Pending`].
pub struct PendingRows {
    pub after: Option<admin::Pending>,
    pub limit: u32,
}

impl Query for PendingRows {
    type Answer = Vec<admin::Pending>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Self::Answer, OpError> {
        let mut begin = self.after.as_ref().map(key_of_pending);
        let mut found = Vec::new();
        for table in [Table::Orphans, Table::Spares, Table::Reclaim] {
            let after = match &begin {
                Some(key) if key.table() != table => continue,
                _ => begin.take(),
            };
            let room = limit(self.limit) - found.len();
            if room == 0 {
                break;
            }
            for (key, row) in unit.scan_table(table, after.as_ref(), room).await?.rows {
                found.extend(pending_of(&key, &row)?);
            }
        }
        Ok(found)
    }
}

fn key_of_pending(pending: &admin::Pending) -> Key {
    match pending {
        admin::Pending::Orphan(inode) => keys::orphan(*inode),
        admin::Pending::Spare(session, chunk, _) => keys::spare(*session, *chunk),
        admin::Pending::Inode(inode) => keys::reclaim_inode(*inode),
        admin::Pending::Chunk(chunk, _) => keys::reclaim_chunk(*chunk),
        admin::Pending::Tree(dir) => keys::reclaim_tree(*dir),
    }
}

fn pending_of(key: &Key, row: &[u8]) -> Result<Option<admin::Pending>, OpError> {
    Ok(match key.table() {
        Table::Orphans => Some(admin::Pending::Orphan(InodeId(key.partition()))),
        Table::Spares => {
            let chunk = keys::trailing_number(key).ok_or_else(|| super::content::damaged(key))?;
            let container = SpareRow::decode(key, row)?.container;
            Some(admin::Pending::Spare(SessionId(key.partition()), ChunkId(chunk), container))
        }
        _ => match keys::reclaimed(key) {
            Some(keys::Reclaimed::Inode(id)) => Some(admin::Pending::Inode(id)),
            Some(keys::Reclaimed::Chunk(id)) => {
                Some(admin::Pending::Chunk(id, ReclaimRow::decode(key, row)?.container))
            }
            Some(keys::Reclaimed::Tree(dir)) => Some(admin::Pending::Tree(dir)),
            None => None,
        },
    })
}
