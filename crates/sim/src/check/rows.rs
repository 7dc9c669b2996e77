//! Rows against rows, and rows against chunks: fsck, over the stores themselves.
//!
//! Run when every client has left and housekeeping has had time: then no orphan, no spare and nothing to reclaim may
//! be left, and every chunk on a server is a file's.

use super::kept::Kept;
use crate::cluster::Cluster;
use crate::failures::Invariant;
use braid_meta_engine::{Key, Row, Table};
use braid_meta_namespace::rows::{
    ChunkRow, ContainerRow, Entry, IdRow, Inode, RowFormat, SessionRow, SnapshotsRow, flags, keys,
};
use braid_types::{ChunkId, ContainerId, InodeId, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// One complaint.
pub type Fault = (Invariant, String);

pub(super) struct Rows<'a>(&'a Cluster);

impl Rows<'_> {
    pub(super) fn table(&self, table: Table) -> Vec<(Key, Row)> {
        self.0.meta_store.durable_rows(table)
    }

    pub(super) fn decoded<R: RowFormat>(&self, table: Table, faults: &mut Vec<Fault>) -> Vec<(Key, R)> {
        let mut rows = Vec::new();
        for (key, row) in self.table(table) {
            match R::decode(&key, &row) {
                Ok(row) => rows.push((key, row)),
                Err(error) => faults.push((Invariant::RowsAgree, format!("{key:?}: {error:?}"))),
            }
        }
        rows
    }
}

/// Rows that say that housekeeping is not done.
pub fn unfinished(cluster: &Cluster) -> Vec<String> {
    let rows = Rows(cluster);
    let ended: BTreeSet<u64> = rows
        .decoded::<SessionRow>(Table::Sessions, &mut Vec::new())
        .into_iter()
        .filter(|(_, row)| row.has_ended())
        .map(|(key, _)| key.partition())
        .collect();
    // What only they had is freed behind the answer.
    let going = rows.decoded::<SnapshotsRow>(Table::Snapshots, &mut Vec::new()).into_iter();
    let going = going.filter(|(_, row)| !row.going.is_empty()).map(|(key, row)| format!("{key:?}: {:?}", row.going));
    [Table::Orphans, Table::Spares, Table::Reclaim, Table::Sessions, Table::Requests]
        .into_iter()
        .flat_map(|table| cluster.meta_store.durable_rows(table).into_iter().map(move |(key, _)| (table, key)))
        // What is remembered for clients that may live is forgotten by and by.
        .filter(|(table, key)| !matches!(table, Table::Sessions | Table::Requests) || !ended.contains(&key.partition()))
        .map(|(_, key)| format!("{key:?}"))
        .chain(going)
        .collect()
}

/// Everything that is wrong. With `lossy`, chunks whose client and server were both lost may be missing.
pub fn check(cluster: &Cluster, lossy: bool) -> Vec<Fault> {
    let (rows, mut faults) = (Rows(cluster), Vec::new());
    let inodes = check_names(&rows, &mut faults);
    check_chunks(&rows, &inodes, lossy, &mut faults);
    faults
}

/// Names, ids, counts. Answers the inodes.
fn check_names(rows: &Rows<'_>, faults: &mut Vec<Fault>) -> BTreeMap<InodeId, Inode> {
    let entries: Vec<(Key, Entry)> = rows.decoded(Table::Inodes, faults);
    let ids: BTreeMap<InodeId, IdRow> =
        rows.decoded(Table::InodeIds, faults).into_iter().map(|(key, row)| (InodeId(key.partition()), row)).collect();
    let mut inodes: BTreeMap<InodeId, Inode> = BTreeMap::new();
    let mut wrong = |text: String| faults.push((Invariant::RowsAgree, text));
    for (id, row) in &ids {
        if let IdRow::Attributes(inode) = row {
            inodes.insert(*id, inode.clone());
        }
    }
    let (mut names, mut children, mut subdirs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (key, entry) in &entries {
        let (parent, id) = (InodeId(key.partition()), entry.id());
        *names.entry(id).or_insert(0u32) += 1;
        *children.entry(parent).or_insert(0u64) += 1;
        *subdirs.entry(parent).or_insert(0u32) += u32::from(entry.kind() == braid_types::FileKind::Directory);
        match (entry, ids.get(&id)) {
            (Entry::Here(inode), Some(IdRow::At { parent: there, name })) => {
                if (*there, name.as_slice()) != (parent, key.rest()) {
                    wrong(format!("{key:?} is inode {id}, whose id row says {there} {name:?}"));
                }
                if inodes.insert(id, inode.clone()).is_some() {
                    wrong(format!("inode {id} has two rows"));
                }
            }
            (Entry::Elsewhere { .. }, Some(IdRow::Attributes(_))) => {}
            // Everybody knows where the root is.
            (Entry::Here(inode), None) if id == InodeId::ROOT && parent == keys::NO_PARENT => {
                inodes.insert(id, inode.clone());
            }
            (_, row) => wrong(format!("{key:?} is inode {id}, whose id row is {row:?}")),
        }
    }
    for (id, row) in &ids {
        if !inodes.contains_key(id) {
            wrong(format!("the id row of {id} leads nowhere: {row:?}"));
        }
    }
    for (id, inode) in &inodes {
        let named = names.get(id).copied().unwrap_or(0);
        let (entries, dirs) = (children.get(id).copied().unwrap_or(0), subdirs.get(id).copied().unwrap_or(0));
        if inode.is_dir() && (inode.size, inode.nlink) != (entries, 2 + dirs) {
            wrong(format!(
                "directory {id} counts {} entries and {} links, has {entries} and {}",
                inode.size,
                inode.nlink,
                2 + dirs
            ));
        }
        if !inode.is_dir() && inode.nlink != named {
            wrong(format!("inode {id} counts {} links and has {named} names", inode.nlink));
        }
    }
    for parent in children.keys().filter(|parent| **parent != keys::NO_PARENT) {
        if !inodes.get(parent).is_some_and(Inode::is_dir) {
            wrong(format!("there are names in {parent}, which is no directory"));
        }
    }
    inodes
}

/// Which server has which chunks.
fn chunks_on_servers(cluster: &Cluster) -> BTreeMap<ServerId, BTreeSet<ChunkId>> {
    let stores = cluster.stores().into_iter();
    stores.map(|(server, store)| (server, store.list(ChunkId(0), usize::MAX).into_iter().collect())).collect()
}

fn check_chunks(rows: &Rows<'_>, inodes: &BTreeMap<InodeId, Inode>, lossy: bool, faults: &mut Vec<Fault>) {
    let containers: BTreeMap<ContainerId, ContainerRow> = rows
        .decoded(Table::Containers, faults)
        .into_iter()
        .map(|(key, row)| (ContainerId(key.partition()), row))
        .collect();
    let stored = chunks_on_servers(rows.0);
    let kept = Kept::of(rows, faults);
    rows.0.coverage.add("file without a name kept for a snapshot", kept.unseen());
    let mut owned: BTreeMap<ChunkId, InodeId> = BTreeMap::new();
    let live: Vec<(Key, ChunkRow)> = rows.decoded(Table::Chunks, faults);
    let named: BTreeSet<(Key, ChunkId)> = live.iter().map(|(key, row)| (key.clone(), row.chunk)).collect();
    // A file may have again what it had when there was a snapshot.
    let then = kept.chunks.iter().filter(|(key, row)| !named.contains(&(key.clone(), row.chunk)));
    for (key, row, is_live) in live.iter().map(|(k, r)| (k, r, true)).chain(then.map(|(k, r)| (k, r, false))) {
        let id = InodeId(key.partition());
        if let Some(other) = owned.insert(row.chunk, id) {
            faults.push((Invariant::RowsAgree, format!("chunk {} belongs to inodes {other} and {id}", row.chunk)));
        }
        let inode = inodes.get(&id);
        let has_gone = inode.is_none() && kept.inodes.contains(&id);
        let is_seen = !has_gone || kept.named.contains(&id);
        if is_live && !has_gone && !inode.is_some_and(|inode| inode.has(flags::CHUNKED)) {
            faults.push((Invariant::RowsAgree, format!("{key:?}: inode {id} has no chunks")));
        }
        let Some(container) = containers.get(&row.container) else {
            faults
                .push((Invariant::RowsAgree, format!("chunk {} is in unknown container {}", row.chunk, row.container)));
            continue;
        };
        let missing = |server: &&ServerId| !stored.get(server).is_some_and(|chunks| chunks.contains(&row.chunk));
        // What a row says is on stable storage is on some server, whatever was lost with clients and power: before a snapshot was made, too.
        let is_lost = row.stable && container.chain.iter().all(|server| missing(&server));
        if let Some(server) = container.chain.iter().find(missing)
            && (!lossy || is_lost)
            && is_seen
        {
            let text = format!("chunk {} of inode {id} is not on data server {server}", row.chunk);
            faults.push((Invariant::RowsHaveChunks, text));
        }
    }
    for (server, chunks) in &stored {
        for chunk in chunks.iter().filter(|chunk| !owned.contains_key(chunk)) {
            // Room that was reserved where a chain was before, for a chunk that nobody ever wrote there: see *What is left* in
            // docs/design/0016-growing-and-shrinking.md.
            if rows.0.settings.operator && is_bare(rows.0, *server, *chunk) {
                continue;
            }
            // A write that was late made it again; a block report finds it by and by.
            if rows.0.witness.was_revived(*chunk) {
                rows.0.coverage.count("deleted chunk made again by a late copy");
                continue;
            }
            let deleted = if rows.0.witness.was_deleted(*chunk) { " after it was deleted" } else { "" };
            let text = format!("chunk {chunk} on data server {server} belongs to nobody{deleted}");
            faults.push((Invariant::ChunksHaveRows, text));
        }
    }
}

/// Nothing was ever written to it, and no chain knows it there.
fn is_bare(cluster: &Cluster, server: ServerId, chunk: ChunkId) -> bool {
    let found = cluster.servers().into_iter().find(|(_, known)| known.id() == server);
    found.is_some_and(|(_, known)| {
        let is_copy = known.copies(ChunkId(chunk.0.saturating_sub(1)), 1).iter().any(|copy| copy.chunk == chunk);
        !is_copy && known.store().stat(chunk).is_ok_and(|stat| stat.length == 0)
    })
}

/// All chunks of all files, and those that only snapshots have.
pub fn chunk_ids(cluster: &Cluster) -> Vec<ChunkId> {
    named(cluster).into_iter().map(|row| row.chunk).collect()
}

/// Rows of all chunks of all files, and of those that only snapshots have; each chunk once. What cannot be read is the check's.
pub fn named(cluster: &Cluster) -> Vec<ChunkRow> {
    let (rows, mut faults) = (Rows(cluster), Vec::new());
    let (live, kept) = (rows.decoded::<ChunkRow>(Table::Chunks, &mut faults), Kept::of(&rows, &mut faults));
    let mut seen = BTreeSet::new();
    let all = live.into_iter().chain(kept.chunks).map(|(_, row)| row);
    all.filter(|row| seen.insert(row.chunk)).collect()
}
