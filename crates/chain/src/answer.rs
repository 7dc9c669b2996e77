//! What each call waits for (design.md §5 *Acknowledgement*).

use braid_types::{ChainEpoch, ChunkId, ContainerId, Durability, ServerId, Version};
use std::fmt;

/// How the session that calls holds the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileLease {
    Exclusive,
    Sync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Write {
        /// O_SYNC or O_DSYNC.
        sync: bool,
    },
    Close,
    Fsync,
    /// The file lease leaves `exclusive`, or the session is fenced.
    Flush,
    /// A flush and an fsync: who wrote forgets it.
    Settle,
}

/// What must be so, beyond the owner having it, before the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Until {
    /// Every member has acknowledged what changed and serves none of it, and `min_copies` have the bytes.
    pub shared: bool,
    /// `min_copies` have every write up to this one on stable storage.
    pub stable: bool,
}

pub fn until(call: Call, lease: FileLease, durability: Durability) -> Until {
    let stable = match call {
        Call::Fsync | Call::Settle | Call::Write { sync: true } => true,
        Call::Write { sync: false } => durability == Durability::Write,
        Call::Close => durability != Durability::Fsync,
        Call::Flush => false,
    };
    let shared = match call {
        Call::Flush | Call::Settle => true,
        Call::Write { .. } => lease == FileLease::Sync,
        Call::Close | Call::Fsync => false,
    };
    Until { shared, stable }
}

/// A call was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    pub version: Version,
    /// Writes up to here need not be kept by the client any more.
    pub kept: Version,
}

/// A call was not carried out; nothing was promised. All but `Deadline` are to be repeated, elsewhere or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// This server may not act now: it has no lease from the leader.
    NoLease,
    /// The container's chain is changing, or this server is not in it.
    NotInChain,
    NotOwner {
        owner: ServerId,
    },
    /// This copy is not known to be right there, or not as new as asked for.
    Invalid,
    /// The owner fetches newer blocks from other servers.
    NotReady,
    /// Another server is about to own the chunk: to be asked again in a moment.
    Moving,
    UnknownChunk,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoLease => write!(f, "it has no lease from the leader"),
            Refusal::NotInChain => write!(f, "the chain is changing, or this server is not in it"),
            Refusal::NotOwner { owner } => write!(f, "data server {owner} owns the chunk"),
            Refusal::Invalid => write!(f, "this copy is not known to be right there"),
            Refusal::NotReady => write!(f, "the owner fetches newer blocks first"),
            Refusal::Moving => write!(f, "another data server is about to own the chunk"),
            Refusal::UnknownChunk => write!(f, "nothing was written to it here"),
        }
    }
}

/// What a call waits for, for `braid admin why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    pub op: u64,
    pub container: ContainerId,
    /// Of the container's chain, as this server has it.
    pub chain_epoch: ChainEpoch,
    pub chunk: ChunkId,
    pub version: Version,
    /// Members that have not said yet that they serve nothing older.
    pub invalidation: Vec<ServerId>,
    /// Members without the bytes, and how many more of them are needed.
    pub bytes: (Vec<ServerId>, usize),
    /// The same of stable storage.
    pub stable: (Vec<ServerId>, usize),
    /// The epoch is not open yet, or the server has no lease.
    pub epoch: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/design/0006-replica-chains.md.
    #[test]
    fn calls_wait_for_what_the_page_says() {
        use Durability::*;
        let name = |until: Until| match (until.shared, until.stable) {
            (false, false) => "owner",
            (true, false) => "shared",
            (false, true) => "stable",
            (true, true) => "both",
        };
        let write = |sync| Call::Write { sync };
        let calls = [write(false), write(true), Call::Close, Call::Fsync, Call::Flush, Call::Settle];
        for (lease, durability, expected) in [
            (FileLease::Exclusive, Fsync, ["owner", "stable", "owner", "stable", "shared", "both"]),
            (FileLease::Exclusive, Close, ["owner", "stable", "stable", "stable", "shared", "both"]),
            (FileLease::Exclusive, Write, ["stable", "stable", "stable", "stable", "shared", "both"]),
            (FileLease::Sync, Fsync, ["shared", "both", "owner", "stable", "shared", "both"]),
            (FileLease::Sync, Close, ["shared", "both", "stable", "stable", "shared", "both"]),
            (FileLease::Sync, Write, ["both", "both", "stable", "stable", "shared", "both"]),
        ] {
            assert_eq!(calls.map(|call| name(until(call, lease, durability))), expected, "{lease:?} {durability:?}");
        }
    }
}
