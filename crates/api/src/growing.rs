//! How a cluster grows and shrinks: what a drain has done, and what it has still to do.

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
