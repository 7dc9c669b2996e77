//! Policies, spare chunks and data servers.
use super::{ContainerInfo, InodeRef};
use braid_types::*;
use serde::{Deserialize, Serialize};

/// The policy in force, and the directory it comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetPolicy {
    pub inode: InodeRef,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyAnswer {
    pub policy: Policy,
    pub root: InodeId,
}

/// Sets a directory's policy, or with `None` returns it to its parent's. What exists keeps its layout; what is
/// made from now on below it takes the new one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetPolicy {
    pub inode: InodeRef,
    pub policy: Option<Policy>,
}

/// Spare chunks for files this session is going to write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakeSpares {
    pub policy: Policy,
    pub count: u32,
    /// The data server beside the client, to be first in the chains.
    pub beside: Option<ServerId>,
    /// Copies of other chunks go there: should the session be lost, what is in them is in no file, and never comes into one.
    pub for_moves: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spares {
    pub spares: Vec<(ChunkId, ContainerId)>,
    pub containers: Vec<ContainerInfo>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetContainers {
    pub ids: Vec<ContainerId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetServers {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    pub id: ServerId,
    /// As [`Address`](../../braid_env/enum.Address.html) reads them; the first that works is used.
    pub addresses: Vec<String>,
    /// Name of the machine, so that a client knows which server is beside it.
    pub host: String,
    pub state: ServerState,
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub chunks: u64,
    /// Milliseconds since its last heartbeat.
    pub silent_ms: u64,
    /// As configured; empty where it is not.
    pub rack: String,
    /// As in [`Heartbeat::disk`].
    pub disk: u64,
    pub duty: Duty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerState {
    Up,
    Down,
}

/// What a data server is there for. In its row, so that it outlives every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Duty {
    #[default]
    Serves,
    /// Nothing new goes there, and what is there goes elsewhere.
    Drains,
    /// Nothing new goes there; the rest stays for now.
    Paused,
    /// Nothing is there any more.
    Drained,
    /// Its id is never used again.
    Decommissioned,
}

impl Duty {
    pub fn takes_new(self) -> bool {
        self == Duty::Serves
    }
}

impl std::fmt::Display for Duty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Duty::Serves => "serves",
            Duty::Drains => "draining",
            Duty::Paused => "drain paused",
            Duty::Drained => "drained",
            Duty::Decommissioned => "decommissioned",
        })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Servers {
    pub version: u64,
    pub servers: Vec<ServerInfo>,
}

/// A data server's start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegisterServer {
    /// 0 at its very first start: the answer brings an id.
    pub id: ServerId,
    /// Drawn at each start.
    pub incarnation: u64,
    pub addresses: Vec<String>,
    pub host: String,
    pub clean_stop: bool,
    pub rack: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegisterAnswer {
    pub id: ServerId,
    pub cluster: ClusterId,
    pub heartbeat_ms: u32,
    pub sessions: LiveSessions,
    /// As in [`crate::data::LeaderSays`].
    pub sync_floor: LeaseGen,
    /// A data server that is silent for longer is taken for down, and sessions end without a word to it.
    pub lease_ms: u32,
    /// Of the metadata server: [`crate::data::FenceSession::by`] is not older from now on.
    pub epoch: MembershipEpoch,
    /// From when this was asked for no other metadata server leads for so long, unless this one stops in good order. `u32::MAX`: no other
    /// ever does. A [`crate::data::FenceSession`] that comes later than that is refused, since its sender may have been succeeded.
    pub leads_for_ms: u32,
}

/// Which sessions may still send something to data servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveSessions {
    /// Sessions from this number on began later: of them nothing is said here.
    pub before: SessionId,
    pub live: Vec<SessionId>,
}

impl LiveSessions {
    /// `live` is in order.
    pub fn may_live(&self, session: SessionId) -> bool {
        session >= self.before || self.live.binary_search(&session).is_ok()
    }
}

/// A data server's sign of life, on a connection of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    pub id: ServerId,
    pub incarnation: u64,
    /// Which disk of its host: servers on one disk fail together. 0 if that is not known.
    pub disk: u64,
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub chunks: u64,
    pub bad_blocks: u64,
    pub sealed_blocks: u64,
    /// Which file system of its host: servers on one share its room. 0 if that is not known.
    pub filesystem: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    /// The server is not known (any more): register again.
    pub register_again: bool,
    /// So much may be moved to it a second: its part of what the operator allows.
    pub move_bytes_per_s: u64,
    /// As in [`RegisterAnswer`].
    pub epoch: MembershipEpoch,
    /// As in [`RegisterAnswer`].
    pub leads_for_ms: u32,
}
