//! What happens at a data server, as its part in chains hears of it.

use crate::BlockSet;
use crate::answer::Until;
use crate::message::{Envelope, FromLeader};
#[cfg(doc)]
use crate::server::Command;
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId, Version};

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed; every 50 ms or so.
    Tick,
    /// The leader knows this process now: what was asked of it before was not heard.
    Registered,
    /// So many bytes a second may be moved to here from now on; see [`crate::Limits::move_bytes_per_s`].
    MoveRate(u64),
    /// A client's write; its token has passed the gate.
    Write {
        op: u64,
        container: ContainerId,
        chunk: ChunkId,
        blocks: BlockSet,
        until: Until,
    },
    /// A close, an fsync or a flush.
    Wait {
        op: u64,
        container: ContainerId,
        chunk: ChunkId,
        until: Until,
    },
    /// A client beside this server writes to the chunk: it had better be owned here.
    Want {
        container: ContainerId,
        chunk: ChunkId,
    },
    /// These blocks were found not to match their checksum.
    Flawed {
        container: ContainerId,
        chunk: ChunkId,
        blocks: BlockSet,
    },
    /// As [`Event::Applied`], but the store refused the write: of its blocks only these changed.
    Unchanged {
        container: ContainerId,
        chunk: ChunkId,
        version: Version,
        kept: BlockSet,
    },
    /// Done what [`Command::Apply`] says. Reads of other requests see all of the write or nothing.
    Applied {
        container: ContainerId,
        chunk: ChunkId,
        version: Version,
    },
    /// Done what [`Command::Store`] says.
    Stored {
        container: ContainerId,
        chunk: ChunkId,
        number: u64,
    },
    /// There was no room for what [`Command::Store`] says: a part of it may be there. Nothing is tried again unasked.
    Unstored {
        container: ContainerId,
        chunk: ChunkId,
        number: u64,
    },
    /// There was no room for what [`Command::Sync`] or [`Command::Persist`] says; the record is the one before.
    Unsynced {
        container: ContainerId,
        chunk: ChunkId,
        number: u64,
    },
    /// Done what [`Command::Invalidate`] says.
    Invalidated {
        container: ContainerId,
        chunk: ChunkId,
        upto: Version,
    },
    /// Done what [`Command::Sync`] says.
    Synced {
        container: ContainerId,
        chunk: ChunkId,
        number: u64,
    },
    /// Done what [`Command::Persist`] says.
    Persisted {
        container: ContainerId,
        chunk: ChunkId,
        number: u64,
    },
    /// Done what [`Command::HandsOff`] says.
    HandsOff {
        container: ContainerId,
        epoch: ChainEpoch,
    },
    FromPeer {
        from: ServerId,
        envelope: Envelope,
    },
    /// `incarnation` is the one the leader speaks to.
    FromLeader {
        incarnation: u64,
        message: FromLeader,
    },
}
