//! Messages of who moves chunks with one copy off data servers that are drained (docs/design/0016-growing-and-shrinking.md,
//! *Chunks with one copy*).

use crate::meta::{ChunkRef, ContainerInfo, InodeRef};
use braid_types::*;
use serde::{Deserialize, Serialize};

/// Puts a chunk in the place of another one of a file: it has the same bytes, verified and on stable storage. Refused unless the session
/// may write the file alone, or the file is sealed and so has no writer; and unless the file was not cut since the bytes were copied. A
/// file that was, or has another chunk there by now, stays as it is, and the answer is false.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MoveChunk {
    pub inode: InodeRef,
    pub index: ChunkIndex,
    pub from: ChunkId,
    /// A spare of the session that was taken for moving.
    pub to: ChunkId,
    pub trunc_gen: TruncGen,
    pub why: MoveKind,
}

/// Why a chunk takes another one's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveKind {
    /// It has the same bytes, elsewhere. Snapshots that have the other one have this one from now on.
    Moved,
    /// It has the same bytes and is going to be written: the other one stays as it is, for snapshots.
    Thawed,
    /// As `Thawed`, but there is nothing in it, for its server has nothing of the other one, which nobody had synced: refused if the row
    /// says that somebody had.
    Lost,
}

/// A spare of the session in a container that has a chunk which is frozen ([`ChunkRef::frozen`]): to begin as that one is. Answered like
/// [`crate::meta::TakeSpares`], however full the container is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakeBeside {
    pub container: ContainerId,
}

/// Is this chunk one that only snapshots have, there in a file that may be gone? Answers where it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindKept {
    pub inode: InodeId,
    pub index: ChunkIndex,
    pub chunk: ChunkId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptChunk {
    pub container: ContainerInfo,
    pub chunk_bytes: u64,
}

/// As [`MoveChunk`], of a chunk that only snapshots have: nobody writes it, so nobody is asked. False: they do not have it any more, or a
/// file has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MoveKept {
    pub inode: InodeId,
    pub index: ChunkIndex,
    pub from: ChunkId,
    /// A spare of the session that was taken for moving.
    pub to: ChunkId,
}

/// These spares of the session are not used. Those that it does not have (any more) are passed over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReturnSpares {
    pub chunks: Vec<ChunkId>,
}

impl ReturnSpares {
    pub const MAX: usize = 1024;
}

/// As the session of who moves chunks with one copy is listed. By it a start of the metadata server knows that it is a dead one's, and a
/// session that is silent does not end because this one waits for a file.
pub const MOVER: &str = "moves chunks with one copy from data server to data server";

/// What stands in the way of moving a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckChunk {
    pub container: ContainerId,
    pub chunk: ChunkId,
    /// Whose it was last written for.
    pub inode: InodeId,
    pub cause: String,
}

/// Asked each second or so by who moves them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MovesOn {
    /// What does not move, at most [`MovesOn::MAX`]; `None` from who only looks whether there is anything.
    pub stuck: Option<Vec<StuckChunk>>,
    /// What was moved to even servers out, since that was said last.
    pub shifted: Vec<Shifted>,
}

/// So many bytes of chunks with one copy are to go from a server to another. Which of them is all one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShiftChunks {
    pub from: ServerId,
    pub to: ServerId,
    /// No more than this.
    pub bytes: u64,
    /// Those of `from` with one copy.
    pub containers: Vec<ContainerId>,
}

/// What was done of a [`ShiftChunks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shifted {
    pub from: ServerId,
    pub to: ServerId,
    pub chunks: u64,
    pub bytes: u64,
    /// Of what is still there nothing is small enough, or can be moved.
    pub is_over: bool,
}

impl MovesOn {
    pub const MAX: usize = 256;
}

/// Containers with one copy whose data servers are drained. None: there is nothing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToMove {
    pub containers: Vec<(ContainerId, ServerId)>,
    /// To even servers out; none while a server is drained.
    pub shifts: Vec<ShiftChunks>,
    /// To be copied a second, all together.
    pub bytes_per_s: u64,
}

/// Which chunks the rows of files place into these containers, with one copy each: of which their server may know nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListPlaced {
    pub containers: Vec<ContainerId>,
    /// After this one.
    pub after: Option<(InodeId, ChunkIndex)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    pub chunks: Vec<(InodeId, ChunkRef)>,
    /// Where the next page begins, if there is one. A page may be empty and not the last.
    pub next: Option<(InodeId, ChunkIndex)>,
}
