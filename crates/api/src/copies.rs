//! Messages about chunks with several copies: a client's calls to the data server that owns a chunk, and what data servers
//! and the leader say to each other.
//!
//! The latter are written and read by `braid-chain`, in a format with a number of its own; here they are bytes. None of
//! them has an answer that means anything: they may be lost, repeated and late, and are sent again by who needs them.

use crate::data::{CloneChunk, Make, Once, WriteChunk};
use crate::meta::Cuts;
use braid_types::*;
use serde::{Deserialize, Serialize};

/// How the session that calls holds the file: it decides what a call waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Held {
    /// It alone reads and writes, and keeps what it wrote until [`CopiesAnswer::kept`] covers it.
    #[default]
    Exclusive,
    /// Others read and write too: a write is answered when no copy serves anything older.
    Sync,
}

/// Writes the payload to all copies of a chunk, in the order of its owner. [`WriteChunk::sync`] is O_SYNC; [`WriteChunk::alone`] says how
/// the sender holds the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteCopies {
    pub write: WriteChunk,
    pub durability: Durability,
}

/// Makes a chunk with copies that begins as another of its chain is, at the owner of the new one, which need not own the other: so all that
/// was written to that was settled before ([`WaitFor::Settle`]). Answered when no copy shows anything else and `min_copies` have it on
/// stable storage: the sender keeps nothing of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloneCopies {
    pub clone: CloneChunk,
    pub durability: Durability,
}

/// A call at a chunk's owner was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiesAnswer {
    pub chunk: ChunkId,
    /// Of the write, or of the last one the call waited for. Its chain epoch is the owner's.
    pub version: Version,
    /// Writes of the same chain epoch up to this version need not be kept by who wrote them any more. Those of an older
    /// epoch say nothing to this one: they are repeated at the chunk's new owner before anything of it is read.
    pub kept: Version,
}

/// Reads from a copy, which refuses if it is not known to be right there, or may lack the version `at_least`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadCopy {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub offset: u64,
    pub len: u32,
    pub cuts: Cuts,
    /// The last version of the chunk that the reader knows of; zero where it knows of none.
    pub at_least: Version,
    /// As in [`ReadChunk`](crate::data::ReadChunk).
    pub kept_beside: bool,
    /// As in [`ReadChunk`](crate::data::ReadChunk).
    pub ordered: bool,
    /// As in [`ReadChunk`](crate::data::ReadChunk).
    pub hold: Option<Once>,
}

/// For what it is waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitFor {
    Close,
    Fsync,
    /// The file lease leaves `exclusive`: every copy knows what changed, and `min_copies` have it.
    Flush,
    /// Both: nothing of it is kept by who wrote it any more, and any copy may be read.
    Settle,
}

/// Waits for all that was written to these chunks of a container; answered as soon as it is so for all of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WaitCopies {
    pub container: ContainerId,
    pub chunks: Vec<ChunkId>,
    pub wait: WaitFor,
    pub held: Held,
    pub durability: Durability,
}

/// Frees a range of a chunk with copies, which reads as zero afterwards.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PunchCopies {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub range: ByteRange,
    pub cuts: Cuts,
    pub held: Held,
    pub durability: Durability,
}

/// Applies truncations now, at the owner; on `min_copies` stable storages when it is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CutCopies {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub cuts: Cuts,
}

/// As [`crate::data::StatChunk`], of a copy that may be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatCopy {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub extents_in: ByteRange,
    pub cuts: Cuts,
    pub at_least: Version,
}

/// Reserves space for a copy at this server, so that writing it cannot end in ENOSPC here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReserveCopy {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub chunk_bytes: u64,
    pub bytes: u64,
    pub make: Make,
}

/// What a chunk is beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHead {
    pub chunk_bytes: u64,
    pub length: u64,
    pub trunc_gen: TruncGen,
    pub inode: InodeId,
    pub index: ChunkIndex,
}

/// Content of the blocks that a message between data servers names: the payload has those of `data` in order, 4 KiB
/// each, zeros behind the chunk's end; the others are holes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockContent {
    pub head: CopyHead,
    /// First block and how many, ascending.
    pub data: Vec<(u64, u64)>,
    /// Blocks that are those of another chunk: they are in neither of the above.
    pub same: Option<SameBlocks>,
}

/// Blocks of a chunk that are what those of another chunk of its chain are, at the same places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameBlocks {
    pub from: ChunkId,
    /// Whoever acts in the chain epoch of this version and has `from` up to there, with nothing missing, has them.
    pub at: Version,
    /// As in [`BlockContent::data`].
    pub runs: Vec<(u64, u64)>,
}

/// From one data server of a chain to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerSays {
    pub from: ServerId,
    /// A `braid_chain::Envelope`.
    pub message: Vec<u8>,
    pub content: Option<BlockContent>,
    /// What is said to be the same as another chunk's cannot be taken from there: the bytes of this chunk are wanted.
    pub wants_bytes: bool,
}

/// From the leader to the process of a data server that is named. The payload is a `braid_chain::FromLeader`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaderSays {
    pub incarnation: u64,
    /// Leases `sync` with tokens up to this one are for repetitions only, see [`crate::data::Once`].
    pub sync_floor: LeaseGen,
}

/// From a data server to the leader: a piece of a `braid_chain::ToLeader`. A report of a container in a bad moment is
/// larger than a message may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSays {
    pub server: ServerId,
    pub incarnation: u64,
    /// Of the message, rising.
    pub number: u64,
    pub part: u32,
    pub parts: u32,
    pub bytes: Vec<u8>,
}

/// Bytes of a piece: well below what the body of a message may have.
pub const PART_BYTES: usize = 512 << 10;
/// Pieces of the largest message that is put together: 128 MiB.
pub const PARTS_MAX: u32 = 256;

impl ServerSays {
    /// The pieces of a message; none if it is too large to be said.
    pub fn split(server: ServerId, incarnation: u64, number: u64, message: &[u8]) -> Vec<ServerSays> {
        let parts = message.len().div_ceil(PART_BYTES).max(1);
        if parts > PARTS_MAX as usize {
            return Vec::new();
        }
        let piece = |(part, bytes): (usize, &[u8])| ServerSays {
            server,
            incarnation,
            number,
            part: part as u32,
            parts: parts as u32,
            bytes: bytes.to_vec(),
        };
        match message {
            [] => vec![piece((0, &[]))],
            _ => message.chunks(PART_BYTES).enumerate().map(piece).collect(),
        }
    }
}

/// Puts the pieces of one sender's messages together again, of the newest few: a piece that was lost takes its message
/// with it.
#[derive(Debug, Default)]
pub struct Joiner {
    open: std::collections::BTreeMap<u64, Vec<Option<Vec<u8>>>>,
}

/// Messages of one sender that may be incomplete at once.
const OPEN_MAX: usize = 8;

impl Joiner {
    /// The message, if this was its last piece.
    pub fn add(&mut self, piece: ServerSays) -> Option<Vec<u8>> {
        let ServerSays { number, part, parts, bytes, .. } = piece;
        if parts == 0 || parts > PARTS_MAX || part >= parts || bytes.len() > PART_BYTES {
            return None;
        }
        if parts == 1 {
            return Some(bytes);
        }
        let pieces = self.open.entry(number).or_insert_with(|| vec![None; parts as usize]);
        *pieces.get_mut(part as usize)? = Some(bytes);
        if pieces.iter().all(Option::is_some) {
            return self.open.remove(&number).map(|pieces| pieces.into_iter().flatten().flatten().collect());
        }
        while self.open.len() > OPEN_MAX {
            self.open.pop_first();
        }
        None
    }
}

/// How the copies at this server stand, for status and checks, and for who waits for them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GetCopies {
    pub after: ChunkId,
    pub limit: u32,
    /// If there are any: these, and no others.
    pub of: Vec<ChunkId>,
}

impl GetCopies {
    /// A page of all.
    pub fn after(after: ChunkId, limit: u32) -> GetCopies {
        GetCopies { after, limit, of: Vec::new() }
    }

    pub fn of(chunks: Vec<ChunkId>) -> GetCopies {
        GetCopies { of: chunks, ..GetCopies::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyState {
    pub chunk: ChunkId,
    pub container: ContainerId,
    /// The chain epoch this server acts in; 0 between two.
    pub epoch: ChainEpoch,
    pub owner: ServerId,
    pub is_owner: bool,
    /// Of an owner: writes are answered.
    pub is_open: bool,
    /// The last version this copy knows of, has all writes up to, and has on stable storage.
    pub told: Version,
    pub complete: Version,
    pub stable: Version,
    /// Blocks that are not served, the head among them.
    pub invalid_blocks: u64,
    /// Content of it is on its way from here to others, or has its place in the queue, and they take what comes.
    pub is_sent: bool,
    /// Messages with content of it that have been sent from here since this server began, and are not on their way any more.
    pub sent: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_in_pieces_is_put_together_in_whatever_order_they_come() {
        let message: Vec<u8> = (0..3 * PART_BYTES + 5).map(|i| (i % 251) as u8).collect();
        let mut pieces = ServerSays::split(ServerId(1), 2, 9, &message);
        assert_eq!(pieces.len(), 4);
        pieces.reverse();
        let mut joiner = Joiner::default();
        let last = pieces.pop().unwrap();
        assert!(pieces.iter().all(|piece| joiner.add(piece.clone()).is_none()));
        assert!(joiner.add(pieces[0].clone()).is_none(), "a repeated one");
        assert_eq!(joiner.add(last), Some(message));
        let small = ServerSays::split(ServerId(1), 2, 10, b"x").remove(0);
        assert_eq!(joiner.add(small.clone()), Some(b"x".to_vec()));
        assert_eq!(joiner.add(ServerSays { part: 1, ..small.clone() }), None);
        assert_eq!(joiner.add(ServerSays { parts: u32::MAX, ..small }), None);
    }

    #[test]
    fn lost_pieces_cost_bounded_memory() {
        let message = vec![0; 2 * PART_BYTES];
        let mut joiner = Joiner::default();
        for number in 0..100 {
            assert!(joiner.add(ServerSays::split(ServerId(1), 2, number, &message).remove(0)).is_none());
        }
        assert!(joiner.open.len() <= OPEN_MAX + 1);
        let rest = ServerSays::split(ServerId(1), 2, 99, &message).remove(1);
        assert_eq!(joiner.add(rest), Some(message));
    }
}
