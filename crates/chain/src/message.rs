//! What data servers and the leader say to each other about chains.
//!
//! Any message may be lost, repeated or late. What repeats is harmless, because numbers only rise and every message
//! between data servers names the chain epoch and owner term it belongs to; every message of the leader names the
//! incarnation of the process it is for.

use crate::limits::Moment;
use crate::{BlockSet, Claims, Decision};
use braid_types::{ChainEpoch, ChunkId, ContainerId, LeaderEpoch, OwnerTerm, ServerId, Version};
use serde::{Deserialize, Serialize};

/// Between two data servers of a chain, about one chunk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Envelope {
    pub container: ContainerId,
    pub chunk: ChunkId,
    pub epoch: ChainEpoch,
    pub term: OwnerTerm,
    pub body: Body,
}

/// Changes after `base`, up to `upto`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Told {
    pub base: Version,
    pub upto: Version,
    pub blocks: BlockSet,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// Member to owner, in a new epoch: what I was told before that is still true.
    Hello { told: Version },
    /// Owner to member: what changed. Without groups it asks how things are.
    Tell {
        groups: Vec<Told>,
        /// All members have everything up to here on stable storage.
        agreed: Version,
        /// Somebody waits until this is on stable storage.
        want_stable: Version,
        /// The blocks follow without being asked for.
        pushed: bool,
        /// How many copies have all of the epoch's start: the fewer, the more urgent is repair.
        copies: u8,
        end: u64,
    },
    /// Member to owner: invalid here up to `told`, here up to `complete`, on stable storage up to `stable`.
    Ack { told: Version, complete: Version, stable: Version, gap: bool },
    /// Member to owner.
    Pull { blocks: BlockSet },
    /// Owner to member, with the content: it has every write up to `at`, and none after `upto`.
    Blocks { at: Version, upto: Version, blocks: BlockSet },
    /// Successor to whoever holds newer blocks, before it begins.
    Fetch { blocks: BlockSet },
    /// The answer, with the content.
    Fetched { blocks: BlockSet },
}

/// What a data server says of one chunk when it has stopped obeying older epochs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Report {
    pub chunk: ChunkId,
    pub claims: Claims,
    /// It owns the chunk, and has not restarted since it does.
    pub owns: bool,
}

/// A chain and its epoch, and how each chunk goes on. A chunk that is not named begins with nothing, at the first
/// member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Install {
    pub epoch: ChainEpoch,
    pub members: Vec<ServerId>,
    /// Copies there should be.
    pub copies: u8,
    pub min_copies: u8,
    pub decisions: Vec<Decision>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FromLeader {
    /// The lease asked for at `asked`, and the chain epochs this server must not act under any more.
    Grant {
        asked: Moment,
        leader: LeaderEpoch,
        raised: Vec<(ContainerId, ChainEpoch)>,
    },
    /// No lease before you say what chains you know.
    TellChains {
        leader: LeaderEpoch,
    },
    /// Stop acting under older epochs, and say what you have.
    Prepare {
        container: ContainerId,
        epoch: ChainEpoch,
    },
    Install {
        container: ContainerId,
        install: Install,
    },
    /// These chunks are open in this epoch, durably.
    Opened {
        container: ContainerId,
        epoch: ChainEpoch,
        chunks: Vec<ChunkId>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToLeader {
    /// Asks for a lease; with the epochs this server acts under, if the leader may not know them.
    Renew {
        asked: Moment,
        chains: Option<Vec<(ContainerId, ChainEpoch)>>,
    },
    Prepared {
        container: ContainerId,
        epoch: ChainEpoch,
        reports: Vec<Report>,
    },
    Installed {
        container: ContainerId,
        epoch: ChainEpoch,
    },
    /// `min_copies` members have the start of the epoch on stable storage.
    Open {
        container: ContainerId,
        epoch: ChainEpoch,
        chunks: Vec<ChunkId>,
    },
    /// This member does not answer.
    Remove {
        container: ContainerId,
        epoch: ChainEpoch,
        server: ServerId,
    },
}
