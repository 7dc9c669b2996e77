//! What is to be kept of a row that is changed, as far as rows say it: no I/O.

use super::{damaged, inode_in};
use crate::rows::{ChunkRow, Inode, RowFormat, SnapshotsRow};
use braid_meta_engine::{EngineError, Key, Row, Table};
use braid_types::{ChunkId, InodeId};
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, EngineError>;

/// What an inode's row says of its snapshots.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    pub root: InodeId,
    /// `None`: it is made by this transaction.
    pub born: Option<u64>,
}

/// A row that is changed.
pub(super) struct Written {
    pub key: Key,
    pub before: Option<Row>,
    pub after: Option<Row>,
}

/// What is to be kept of it.
pub(super) enum Keep {
    /// Nobody has kept it since that snapshot, as the row itself says.
    Surely(InodeId),
    /// Unless it has been.
    Once(InodeId),
}

/// When its inode came.
pub(super) fn born_of(one: &Written, stamps: &BTreeMap<InodeId, Stamp>) -> Result<u64> {
    let own = match &one.before {
        Some(row) => inode_in(&one.key, row).map_err(damaged)?.map(|inode| inode.born),
        None => None,
    };
    let stamp = || stamps.get(&InodeId(one.key.partition())).and_then(|stamp| stamp.born);
    Ok(own.or_else(stamp).unwrap_or(0))
}

/// What has to be kept of a row that is changed.
pub(super) fn what_to_keep(
    one: &Written,
    stamps: &BTreeMap<InodeId, Stamp>,
    newest: &impl Fn(InodeId) -> u64,
) -> Result<Option<Keep>> {
    let Written { key, before, after } = one;
    let read = |row: &Option<Row>| match row {
        Some(row) => inode_in(key, row).map_err(damaged),
        None => Ok(None),
    };
    let inode = read(before)?;
    if let Some(inode) = &inode
        && inode.changed < newest(inode.snapshot_root)
    {
        return Ok(Some(Keep::Surely(inode.snapshot_root)));
    }
    let own = stamps.get(&InodeId(key.partition()));
    // Who changes what is there under a name has not always read the directory.
    let root = inode.map(|inode| inode.snapshot_root).or(own.map(|stamp| stamp.root)).unwrap_or_default();
    if newest(root) == 0 {
        return Ok(None);
    }
    let is_attributes = |row: &Option<Row>| row.is_some() && read(row).is_ok_and(|inode| inode.is_some());
    Ok(match key.table() {
        // A name that leads to attributes elsewhere says nothing of when it came: that there was none before it is kept as well.
        Table::Inodes => {
            let leads_elsewhere = |row: &Option<Row>| row.is_some() && !is_attributes(row);
            (leads_elsewhere(before) || leads_elsewhere(after)).then_some(Keep::Once(root))
        }
        _ if own.is_some_and(|stamp| stamp.born.is_none_or(|born| born >= newest(root))) => None,
        // Where an inode is that was nowhere before is found by nobody who reads what was.
        Table::InodeIds => (before.is_some() && !is_attributes(before)).then_some(Keep::Once(root)),
        // The same bytes, or the same bytes in another place.
        Table::Chunks if is_same_content(key, before, after)? => None,
        _ => (before != after).then_some(Keep::Once(root)),
    })
}

pub(super) fn snapshots_in(key: &Key, row: Option<&Row>) -> Result<Option<SnapshotsRow>> {
    row.map(|row| SnapshotsRow::decode(key, row).map_err(damaged)).transpose()
}

/// Under which rows may have been kept since its newest snapshot; none without one.
pub(super) fn numbers_in(root: Option<&SnapshotsRow>) -> Vec<u64> {
    root.filter(|row| row.newest() > 0).map(|row| row.numbers_from(row.newest())).unwrap_or_default()
}

pub(super) fn chunk_of(key: &Key, row: Option<&Row>) -> Result<Option<ChunkId>> {
    row.map(|row| Ok(ChunkRow::decode(key, row).map_err(damaged)?.chunk)).transpose()
}

/// A chunk that is moved says when it came, and one that is new does not.
pub(super) fn is_same_content(key: &Key, before: &Option<Row>, after: &Option<Row>) -> Result<bool> {
    let (Some(before), Some(after)) = (before, after) else { return Ok(before.is_none() && after.is_none()) };
    let [before, after] = [before, after].map(|row| ChunkRow::decode(key, row).map_err(damaged));
    let (before, after) = (before?, after?);
    Ok(before.chunk == after.chunk || after.born.is_some())
}

/// The chunk of which this was the row, if the file does not have it any more.
pub(super) fn gone_chunk(one: &Written) -> Result<Option<ChunkId>> {
    if one.key.table() != Table::Chunks {
        return Ok(None);
    }
    let [before, after] = [&one.before, &one.after].map(|row| chunk_of(&one.key, row.as_ref()));
    let (before, after) = (before?, after?);
    Ok(before.filter(|_| before != after))
}

pub(super) fn stamped(inode: Inode, stamps: &BTreeMap<InodeId, Stamp>, newest: &impl Fn(InodeId) -> u64) -> Inode {
    match newest(inode.snapshot_root) {
        0 => inode,
        changed => {
            let is_new = stamps.get(&inode.id).is_none_or(|stamp| stamp.born.is_none());
            let born = if is_new { changed } else { inode.born };
            Inode { born, changed, ..inode }
        }
    }
}
