//! Where new chunks go: pure functions over what is known of the servers.
//!
//! Promises: no I/O, no clock, no randomness of its own: the same question with the same state has the same
//! answer; a chain never names a server twice, spreads over hosts as long as there are enough, and never names
//! a server that is down or full.

mod rendezvous;
mod spread;
mod successor;

pub use rendezvous::{rendezvous, rendezvous_score};
pub use spread::Spread;
pub use successor::successor;

use braid_types::ServerId;

/// A data server as placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: ServerId,
    /// The failure domain: two copies on one host are lost together.
    pub host: String,
    pub bytes_free: u64,
    pub up: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Servers in each chain.
    pub chain_len: usize,
    /// Chains wanted.
    pub count: usize,
    /// Bytes a server must have free to be chosen.
    pub bytes_needed: u64,
    /// The server beside the writer: first in every chain it can be first in (local-write). `None` spreads.
    pub beside: Option<ServerId>,
}

/// There are not enough servers for one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEnough {
    pub wanted: usize,
    pub usable: usize,
}

/// Chooses chains for new chunks. May keep a position, so that successive calls go round.
pub trait Placement: Send {
    fn choose(&mut self, want: Want, candidates: &[Candidate]) -> Result<Vec<Vec<ServerId>>, NotEnough>;
}
