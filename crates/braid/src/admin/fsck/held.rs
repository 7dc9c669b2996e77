//! What data servers say that they have. Read before any row: a chunk's life goes spare, file, waiting to be freed,
//! gone, and never back, so a chunk that was there first and that no row names afterwards is named by none for ever.
//!
//! A chunk costs 16 bytes.

use braid_api::data::{ChunkStatus, DamagedChunk, DeleteChunks, ListChunks, SetAside, StatChunk};
use braid_api::meta::{ServerInfo, ServerState};
use braid_api::{Code, Context, DataNode, DataPeers, Result};
use braid_types::{ByteRange, ChunkId, ContainerId, ServerId};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Chunks in one message.
const PAGE: u32 = 1024;
/// Chunks deleted with one message.
const DELETED_AT_ONCE: usize = 256;

#[derive(Clone, Copy)]
pub struct Held {
    pub chunk: ChunkId,
    pub len: u64,
}

/// The chunks of one server.
pub struct Listing {
    pub info: ServerInfo,
    /// In order; without those of which nothing can be read.
    pub chunks: Vec<Held>,
    pub damaged: BTreeMap<ChunkId, DamagedChunk>,
}

impl Listing {
    /// Whole or not.
    pub fn has(&self, chunk: ChunkId) -> bool {
        self.get(chunk).is_some() || self.damaged.contains_key(&chunk)
    }

    /// And nothing is known against it.
    pub fn has_sound(&self, chunk: ChunkId) -> bool {
        self.get(chunk).is_some() && !self.damaged.contains_key(&chunk)
    }

    pub fn get(&self, chunk: ChunkId) -> Option<Held> {
        self.chunks.binary_search_by_key(&chunk, |h| h.chunk).ok().map(|i| self.chunks[i])
    }
}

pub type Listings = BTreeMap<ServerId, Listing>;

/// Asks every server; says of which there is no list.
pub async fn list<P: DataPeers>(peers: &P, servers: Vec<ServerInfo>, seen: &dyn Fn(u64)) -> (Listings, Vec<String>) {
    let (mut listings, mut missing) = (Listings::new(), Vec::new());
    for info in servers {
        let (id, host) = (info.id, info.host.clone());
        if info.state == ServerState::Down {
            missing.push(format!("data server {id} on {host} is down"));
            continue;
        }
        match list_one(peers, &info, seen).await {
            Ok(listing) => drop(listings.insert(id, listing)),
            Err(e) => missing.push(format!("data server {id} on {host}: {e}")),
        }
    }
    (listings, missing)
}

async fn list_one<P: DataPeers>(peers: &P, info: &ServerInfo, seen: &dyn Fn(u64)) -> Result<Listing> {
    let node = peers.node(info);
    let mut listing = Listing { info: info.clone(), chunks: Vec::new(), damaged: BTreeMap::new() };
    let mut after = ChunkId(0);
    loop {
        let (page, _) = node.call(Context::default(), ListChunks { after, limit: PAGE }, Bytes::new()).await?;
        seen(page.chunks.len() as u64);
        let Some(last) = page.last() else { return Ok(listing) };
        after = last;
        listing.chunks.extend(page.chunks.iter().map(|c| Held { chunk: c.chunk, len: c.len }));
        listing.damaged.extend(page.damaged.into_iter().map(|d| (d.chunk, d)));
        if !page.more {
            return Ok(listing);
        }
    }
}

/// What is damaged in a chunk now, if anything is.
pub async fn damage<P: DataPeers>(peers: &P, info: &ServerInfo, chunk: ChunkId) -> Result<Option<DamagedChunk>> {
    let message = ListChunks { after: ChunkId(chunk.0.saturating_sub(1)), limit: 1 };
    let (page, _) = peers.node(info).call(Context::default(), message, Bytes::new()).await?;
    Ok(page.damaged.into_iter().find(|d| d.chunk == chunk))
}

/// Takes the files of damaged chunks out of the server's store.
pub async fn set_aside<P: DataPeers>(peers: &P, info: &ServerInfo, chunk: ChunkId) -> Result<()> {
    peers.node(info).call(Context::default(), SetAside { chunks: vec![chunk] }, Bytes::new()).await.map(drop)
}

/// The chunk as the server has it now, if it does.
pub async fn stat<P: DataPeers>(
    peers: &P,
    info: &ServerInfo,
    chunk: ChunkId,
    container: ContainerId,
) -> Result<Option<ChunkStatus>> {
    let message = StatChunk { chunk, container, extents_in: ByteRange::default(), cuts: Vec::new() };
    match peers.node(info).call(Context::default(), message, Bytes::new()).await {
        Ok((status, _)) => Ok(Some(status)),
        Err(e) if e.code == Code::ChunkUnknown => Ok(None),
        Err(e) => Err(e),
    }
}

pub async fn delete<P: DataPeers>(peers: &P, info: &ServerInfo, chunks: &[ChunkId]) -> Result<()> {
    for some in chunks.chunks(DELETED_AT_ONCE) {
        let message = DeleteChunks { chunks: some.to_vec() };
        peers.node(info).call(Context::default(), message, Bytes::new()).await?;
    }
    Ok(())
}
