//! How a file's bytes are found.
use braid_types::*;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Where one chunk of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkRef {
    pub index: ChunkIndex,
    pub chunk: ChunkId,
    pub container: ContainerId,
    /// Its server has it on stable storage: if it is missing, bytes are lost. Else it may have gone with the server's power, unsynced,
    /// and reads as a hole. Never said early; a writer that was not asked for an fsync says it late.
    pub stable: bool,
    /// A snapshot has it too: nobody writes it any more. Who writes the file there puts another into its place first, which begins as this
    /// one is ([`crate::data::CloneChunk`], [`MoveChunk`]).
    pub frozen: bool,
}

/// A chain: the data servers of a container, in order, under an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerInfo {
    pub id: ContainerId,
    pub epoch: ChainEpoch,
    pub chain: Vec<ServerId>,
}

/// How a file's bytes are found: chunks from `first` on, as many as fit a page, with their containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkPage {
    pub chunks: Vec<ChunkRef>,
    pub containers: Vec<ContainerInfo>,
    /// There are chunks after the last one.
    pub more: bool,
}

/// Truncations a data server may not have seen yet: "before generation `.0` was current, the file was cut to
/// `.1` bytes". Generations rise, sizes rise.
pub type Cuts = Vec<(TruncGen, u64)>;

/// What a client must know to read and write a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMap {
    pub policy: Policy,
    pub layout_gen: LayoutGen,
    pub cuts: Cuts,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// All of the file's bytes, exactly as many as its size (shorter if the rest is zero).
    Inline(Bytes),
    Chunked(ChunkPage),
}
