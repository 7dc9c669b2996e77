//! Copies against rows and against each other, over the servers and stores themselves.
//!
//! Run when every client has left and no fault is left: then every chain has its members, every chunk is open, every member
//! has all of it on stable storage, no request is left, and copies are equal.

use super::rows;
use crate::cluster::Cluster;
use braid_api::data::CopyState;
use braid_data_server::DataServer;
use braid_data_store::{ChunkStat, ChunkStore};
use braid_meta_engine::Table;
use braid_meta_namespace::rows::{ContainerRow, RowFormat};
use braid_types::{ChunkId, ContainerId, ServerId};
use std::collections::BTreeMap;
use std::sync::Arc;

type Servers = BTreeMap<ServerId, Arc<DataServer>>;

/// Containers of chunks with several copies, as their rows are now.
pub fn chains(cluster: &Cluster) -> Vec<(ContainerId, ContainerRow)> {
    let rows = cluster.meta_store.durable_rows(Table::Containers).into_iter();
    let decoded =
        rows.filter_map(|(key, row)| Some((ContainerId(key.partition()), ContainerRow::decode(&key, &row).ok()?)));
    decoded.filter(|(_, row)| row.copies.is_some()).collect()
}

/// Nothing of the chain is being changed, and every chunk is open.
pub fn is_settled(row: &ContainerRow) -> bool {
    row.copies.as_ref().is_none_or(|copies| copies.settled && copies.last_open.is_empty())
}

fn servers(cluster: &Cluster) -> Servers {
    cluster.servers().into_iter().map(|(_, server)| (server.id(), server)).collect()
}

/// Chunks of files and snapshots, by their containers, and whether their rows say that they are on stable storage.
fn chunks(cluster: &Cluster) -> BTreeMap<ContainerId, BTreeMap<ChunkId, bool>> {
    let mut chunks: BTreeMap<ContainerId, BTreeMap<ChunkId, bool>> = BTreeMap::new();
    for row in rows::named(cluster) {
        chunks.entry(row.container).or_default().insert(row.chunk, row.stable);
    }
    chunks
}

/// What is not as it is to be when all faults are over.
pub fn unwhole(cluster: &Cluster) -> Vec<String> {
    let (servers, chunks, mut all) = (servers(cluster), chunks(cluster), Vec::new());
    if !cluster.settings.has_copies() {
        return all;
    }
    for (id, server) in &servers {
        // Whoever waits here after every client has left waits for ever.
        let none = "braid_data_requests_in_process 0";
        if !server.metrics_text().lines().any(|line| line == none) {
            all.push(format!("data server {id} still has requests in process"));
        }
    }
    let copies: BTreeMap<ServerId, BTreeMap<ChunkId, CopyState>> = servers
        .iter()
        .map(|(id, server)| (*id, server.copies(ChunkId(0), usize::MAX).into_iter().map(|c| (c.chunk, c)).collect()))
        .collect();
    let rows: BTreeMap<ContainerId, ContainerRow> = chains(cluster).into_iter().collect();
    for (id, server) in &servers {
        let is_member = |copy: &CopyState| rows.get(&copy.container).is_some_and(|row| row.chain.contains(id));
        let strays = server.copies(ChunkId(0), usize::MAX).into_iter().filter(|copy| !is_member(copy));
        all.extend(strays.map(|copy| format!("data server {id} is no member and has {copy:?}")));
    }
    let drained = cluster.operator.drained();
    for (id, row) in rows {
        if drained.is_some_and(|drained| row.chain.contains(&drained)) {
            all.push(format!("container {id} counts a drained server: {row:?}"));
        }
        let wanted = row.copies.as_ref().map_or(0, |copies| usize::from(copies.copies));
        if !is_settled(&row) || row.chain.len() != wanted {
            all.push(format!("container {id}: {row:?}"));
            continue;
        }
        for (chunk, stable) in chunks.get(&id).into_iter().flatten() {
            let of = |server: &ServerId| copies.get(server).and_then(|copies| copies.get(chunk));
            let held: Vec<&CopyState> = row.chain.iter().filter_map(of).collect();
            // Only the owner had it, and that was lost, and so was the client that would have repeated it: nothing was promised.
            if held.is_empty() && !stable {
                continue;
            }
            let newest = held.iter().map(|copy| copy.told).max();
            let is_well = |copy: &&&CopyState| {
                (copy.epoch, copy.invalid_blocks) == (row.epoch, 0)
                    && Some(copy.told) == newest
                    && (copy.complete, copy.stable) == (copy.told, copy.told)
            };
            let owners = held.iter().filter(|copy| copy.is_owner && copy.is_open).count();
            for (server, known) in servers.iter().filter(|(server, _)| row.chain.contains(server)) {
                if let Err(error) = content(&**known.store(), *chunk) {
                    all.push(format!("chunk {chunk} at data server {server}: {error}"));
                }
            }
            if held.len() != row.chain.len() || owners != 1 || !held.iter().all(|copy| is_well(&copy)) {
                all.push(format!("chunk {chunk} of container {id} at epoch {}: {held:?}", row.epoch));
            }
        }
    }
    all
}

/// A copy's head and bytes.
fn content(store: &dyn ChunkStore, chunk: ChunkId) -> Result<(ChunkStat, Vec<u8>), String> {
    let stat = store.stat(chunk).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; stat.length as usize];
    store.read(chunk, 0, &mut bytes).map_err(|error| error.to_string())?;
    Ok((stat, bytes))
}

/// Copies that are not the same.
pub fn differences(cluster: &Cluster) -> Vec<String> {
    let (servers, chunks, mut all) = (servers(cluster), chunks(cluster), Vec::new());
    for (id, row) in chains(cluster) {
        for (chunk, stable) in chunks.get(&id).into_iter().flatten() {
            let of = |server: &ServerId| servers.get(server).map(|known| (*server, content(&**known.store(), *chunk)));
            let held: Vec<_> = row.chain.iter().filter_map(of).collect();
            if !stable && held.iter().all(|(_, content)| content.is_err()) {
                continue;
            }
            let mut whole = Vec::new();
            for (server, content) in held {
                match content {
                    Ok(content) => whole.push((server, content)),
                    Err(error) => all.push(format!("chunk {chunk} at data server {server}: {error}")),
                }
            }
            let Some((first, (head, bytes))) = whole.first() else { continue };
            for (server, (other, content)) in &whole[1..] {
                let of = |stat: &ChunkStat| (stat.length, stat.trunc_gen, stat.inode, stat.index, stat.chunk_bytes);
                if of(head) != of(other) {
                    all.push(format!("chunk {chunk}: data server {first} has {head:?}, {server} has {other:?}"));
                } else if bytes != content {
                    let at = bytes.iter().zip(content).position(|(a, b)| a != b);
                    all.push(format!("chunk {chunk}: data servers {first} and {server} differ from byte {at:?} on"));
                }
            }
        }
    }
    all
}
