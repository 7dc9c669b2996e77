//! How a cluster grows and shrinks: what a drain or a rebalance has done, and what it has still to do.

use crate::meta::Duty;
use braid_types::*;
use serde::{Deserialize, Serialize};

/// So much of containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub containers: u64,
    pub chunks: u64,
    /// That they occupy at the server that is drained.
    pub bytes: u64,
}

impl Load {
    pub fn add(&mut self, other: Load) {
        self.containers += other.containers;
        self.chunks += other.chunks;
        self.bytes += other.bytes;
    }
}

/// How the drain of a data server stands, or what one would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    pub server: ServerId,
    pub duty: Duty,
    /// What is still there, whatever becomes of it.
    pub left: Load,
    /// False if the server did not say what is there: then bytes and chunks are 0.
    pub is_known: bool,
    /// Of this another server is taking the place now.
    pub moving: Load,
    /// Of this nobody could take the place now, and why, the first of them.
    pub stuck: Load,
    pub reasons: Vec<String>,
    /// Who would take the rest, as things are now.
    pub takers: Vec<Taker>,
    /// Copies that nobody needs any more, and are still to be deleted.
    pub strays: bool,
    /// It keeps a copy of the metadata, or is to keep one.
    pub keeps_metadata: bool,
    /// Bytes a second for all moves of the cluster.
    pub move_rate: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taker {
    pub server: ServerId,
    pub load: Load,
}

impl Drain {
    /// Nothing counts the server any more, and it holds nothing that anybody needs.
    pub fn is_done(&self) -> bool {
        self.left.containers == 0 && !self.strays && !self.keeps_metadata
    }
}

/// Whether data servers are being evened out. In a row, so that it outlives every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RebalanceState {
    /// Nobody asked for it, or it was cancelled.
    #[default]
    Off,
    Runs,
    Paused,
    /// The last one came to its end.
    Done,
}

impl std::fmt::Display for RebalanceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RebalanceState::Off => "off",
            RebalanceState::Runs => "running",
            RebalanceState::Paused => "paused",
            RebalanceState::Done => "done",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RebalanceChange {
    /// Begins one, or goes on with the one there is.
    Run,
    Pause,
    /// Goes on after a pause; refused if there is none.
    Resume,
    /// What was moved stays where it is; what is half moved goes back.
    Cancel,
}

/// How full a data server is, against the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFill {
    pub server: ServerId,
    /// Bytes of chunks that it has and could have more.
    pub capacity: u64,
    pub bytes_now: u64,
    /// When the plan has been carried out.
    pub bytes_then: u64,
    /// Its part of all bytes, by its part of all capacity.
    pub bytes_fair: u64,
    /// As near to its fair share then as was asked for.
    pub is_even: bool,
}

/// A copy of a container that goes from a server to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyMove {
    pub container: ContainerId,
    pub from: ServerId,
    pub to: ServerId,
    pub bytes: u64,
    /// Of these are there already.
    pub bytes_there: u64,
    /// The chain is farther apart then.
    pub spreads: bool,
}

/// So many copies of containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    pub copies: u64,
    pub bytes: u64,
}

/// So many bytes of chunks with one copy, from a server to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShiftLeft {
    pub from: ServerId,
    pub to: ServerId,
    pub bytes: u64,
}

/// How evening out stands, or what it would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rebalance {
    pub state: RebalanceState,
    /// Why nothing begins now; empty if nothing stands in the way.
    pub waits_for: String,
    /// How far from its fair share a server may be, in thousandths of it.
    pub within_permille: u32,
    pub fills: Vec<ServerFill>,
    /// The first of what is planned and has not begun.
    pub planned: Vec<CopyMove>,
    /// All of it.
    pub left: Moves,
    /// Bytes of chunks with one copy that are to go, behind all of these.
    pub shifts: Vec<ShiftLeft>,
    pub moving: Vec<CopyMove>,
    /// Since it began.
    pub moved: Moves,
    /// Bytes a second for all moves of the cluster.
    pub move_rate: u64,
}
