use super::RowFormat;
use braid_api::meta::ContainerInfo;
use braid_types::{ChainEpoch, ChunkId, ContainerId, Layout, ServerId};
use serde::{Deserialize, Serialize};

/// A row of `containers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRow {
    pub epoch: ChainEpoch,
    pub chain: Vec<ServerId>,
    pub layout: Layout,
    pub chunk_bytes: u64,
    /// Chunks ever given out, at most [`braid_types::CONTAINER_CHUNKS_MAX`]; and those freed again.
    pub given: u32,
    pub freed: u32,
    /// Chains of epochs that are not open for every chunk yet (design.md *Take-over*).
    pub older: Vec<(ChainEpoch, Vec<ServerId>)>,
}

impl RowFormat for ContainerRow {}

impl ContainerRow {
    pub fn info(&self, id: ContainerId) -> ContainerInfo {
        ContainerInfo { id, epoch: self.epoch, chain: self.chain.clone() }
    }
}

/// A row of `servers`: what must outlive a metadata server. Liveness is soft.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRow {
    pub addresses: Vec<String>,
    pub host: String,
}

impl RowFormat for ServerRow {}

/// A row of `spares`: a chunk a session may put into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareRow {
    pub container: ContainerId,
}

impl RowFormat for SpareRow {}

/// A row of `reclaim`; the key says whether it is an inode or a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimRow {
    /// Of a chunk.
    pub container: ContainerId,
}

impl RowFormat for ReclaimRow {}

/// A row of `chunks`: a chunk of a file at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkRow {
    pub chunk: ChunkId,
    pub container: ContainerId,
}

impl RowFormat for ChunkRow {}
