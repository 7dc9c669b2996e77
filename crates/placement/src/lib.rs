//! Where new chunks go: pure functions over what is known of the servers.
//!
//! Promises: no I/O, no clock, no randomness of its own: the same question with the same state has the same
//! answer; a chain never names a server twice, spreads over racks, hosts and disks as long as there are enough, and never
//! names a server that is down, full or leaves.

mod apart;
mod rebalance;
mod rendezvous;
mod spread;
mod successor;

pub use apart::{Apart, Domain, apart, apart_at_best, unite_disks};
pub use rebalance::{Fill, Goal, Holding, Loose, Move, Plan, Shift, rebalance};
pub use rendezvous::{rendezvous, rendezvous_score};
pub use spread::Spread;
pub use successor::successor;

use braid_types::ServerId;

/// A data server as placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: ServerId,
    pub domain: Domain,
    /// Which file system of its host: servers on one see the same bytes free. 0 if that is not known, and then it is its own.
    pub filesystem: u64,
    pub bytes_free: u64,
    pub up: bool,
    /// False for one that is drained: what is there goes elsewhere, nothing comes.
    pub takes_new: bool,
}

impl Candidate {
    fn is_usable(&self, bytes_needed: u64) -> bool {
        self.up && self.takes_new && self.bytes_free >= bytes_needed
    }
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

#[cfg(test)]
mod testing {
    use super::{Candidate, Domain};
    use braid_types::ServerId;

    pub fn at(rack: &str, host: &str, disk: u64) -> Domain {
        Domain { rack: rack.to_owned(), host: host.to_owned(), disk }
    }

    pub fn candidate(id: u64, domain: Domain, bytes_free: u64) -> Candidate {
        let filesystem = domain.disk;
        Candidate { id: ServerId(id), domain, filesystem, bytes_free, up: true, takes_new: true }
    }
}
