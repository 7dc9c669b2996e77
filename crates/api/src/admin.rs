//! What administrators ask a metadata server: status, rows page by page for fsck, repairs.

use braid_types::*;
use serde::{Deserialize, Serialize};

/// One question; answered by the variant of [`AdminAnswer`] with the same name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AdminQuery {
    Status,
    Sessions,
    /// Containers after this id.
    Containers {
        after: ContainerId,
        limit: u32,
    },
    /// Inodes as rows, in key order, after this (parent, name).
    InodeRows {
        after: Option<(InodeId, Vec<u8>)>,
        limit: u32,
    },
    /// `inode_ids` rows after this id.
    IdRows {
        after: Option<InodeId>,
        limit: u32,
    },
    /// Chunk rows after this (inode, index).
    ChunkRows {
        after: Option<(InodeId, ChunkIndex)>,
        limit: u32,
    },
    /// Orphans, spares and what waits to be freed.
    Pending,
    /// What a request, a session or a path waits for at this server.
    Why,
    /// Carry out one repair of fsck in a transaction that checks first that the fault is still there.
    Repair(Repair),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AdminAnswer {
    Status(Status),
    Sessions(Vec<SessionStatus>),
    Containers(Vec<ContainerStatus>),
    InodeRows(Vec<InodeRow>),
    IdRows(Vec<IdRow>),
    ChunkRows(Vec<ChunkRow>),
    Pending(Pending),
    Why(Vec<Waiting>),
    Repaired { done: bool, what: String },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    pub cluster: ClusterId,
    pub version: String,
    pub engine: String,
    pub uptime_ms: u64,
    pub sessions: u32,
    pub servers_up: u32,
    pub servers_down: u32,
    pub inodes: u64,
    pub metadata_bytes: u64,
    pub metadata_copies: u32,
    pub round_trips: u64,
    pub transactions: u64,
    pub reads: u64,
    pub syncs: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionStatus {
    pub session: SessionId,
    pub epoch: SessionEpoch,
    pub description: String,
    pub host: String,
    pub silent_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerStatus {
    pub id: ContainerId,
    pub epoch: ChainEpoch,
    pub chain: Vec<ServerId>,
    pub layout: Layout,
    pub chunk_bytes: u64,
    pub chunks_given: u32,
    pub chunks_freed: u32,
}

/// An inode row as fsck sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InodeRow {
    pub parent: InodeId,
    pub name: Vec<u8>,
    pub id: InodeId,
    pub kind: FileKind,
    /// Attributes are in `inode_ids` (several links) if `None`.
    pub attr: Option<Attr>,
    /// Children a directory's row counts.
    pub entries: u64,
    pub inline: bool,
    pub inline_bytes: u64,
    pub chunk_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdRow {
    pub id: InodeId,
    /// Where its row is, if the attributes are not here.
    pub place: Option<(InodeId, Vec<u8>)>,
    pub attr: Option<Attr>,
    pub inline: bool,
    pub inline_bytes: u64,
    pub chunk_bytes: u64,
    pub orphan: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChunkRow {
    pub inode: InodeId,
    pub index: ChunkIndex,
    pub chunk: ChunkId,
    pub container: ContainerId,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pending {
    pub orphans: Vec<InodeId>,
    pub spares: Vec<(SessionId, ChunkId, ContainerId)>,
    pub reclaim_inodes: Vec<InodeId>,
    pub reclaim_chunks: Vec<(ChunkId, ContainerId)>,
}

/// Something that waits, what for, on whom and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// `write of inode 4097`, `Rename of session 3`.
    pub who: String,
    /// `data server 2 at tcp:…: connection refused`.
    pub for_what: String,
    pub since_ms: u64,
}

/// What `fsck --repair` may do. Each is checked again inside its transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repair {
    /// Set a link count, or a directory's count of entries, to what the rows say.
    Links { inode: InodeId, nlink: u32, entries: u64 },
    /// Write the missing or wrong `inode_ids` row.
    IdRow { inode: InodeId, parent: InodeId, name: Vec<u8> },
    /// Drop an `inode_ids` row that leads nowhere.
    DropIdRow { inode: InodeId },
    /// Drop a chunk row whose file does not exist.
    DropChunkRow { inode: InodeId, index: ChunkIndex },
    /// A name leads to no inode: remove the name.
    DropEntry { parent: InodeId, name: Vec<u8> },
    /// A tree that cannot be reached: give it a name below `lost+found`.
    Reattach { inode: InodeId },
    /// Size beyond what any chunk can hold, or the like.
    Size { inode: InodeId, size: u64 },
}
