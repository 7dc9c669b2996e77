//! What data servers say that they have. Read before any row: a chunk's life goes spare, file, waiting to be freed,
//! gone, and never back, so a chunk that was there first and that no row names afterwards is named by none for ever.
//!
//! A chunk costs 16 bytes.

use braid_api::data::{ChunkStatus, DeleteChunks, ListChunks, StatChunk};
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

/// The chunks of one server, in order.
pub struct Listing {
    pub info: ServerInfo,
    pub chunks: Vec<Held>,
}

impl Listing {
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
            Ok(chunks) => drop(listings.insert(id, Listing { info, chunks })),
            Err(e) => missing.push(format!("data server {id} on {host}: {e}")),
        }
    }
    (listings, missing)
}

async fn list_one<P: DataPeers>(peers: &P, info: &ServerInfo, seen: &dyn Fn(u64)) -> Result<Vec<Held>> {
    let node = peers.node(info);
    let mut chunks: Vec<Held> = Vec::new();
    loop {
        let after = chunks.last().map_or(ChunkId(0), |h| h.chunk);
        let (page, _) = node.call(Context::default(), ListChunks { after, limit: PAGE }, Bytes::new()).await?;
        chunks.extend(page.chunks.iter().map(|c| Held { chunk: c.chunk, len: c.len }));
        seen(page.chunks.len() as u64);
        if !page.more || page.chunks.is_empty() {
            return Ok(chunks);
        }
    }
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
