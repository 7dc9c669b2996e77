//! What a data server says of the chunks it has, in hashes: docs/design/0025-block-reports.md.

use crate::{ChunkId, ContainerId};
use serde::{Deserialize, Serialize};

/// How many there are of something, and the sum of a number drawn from each: what two sides compare instead of lists. The order in which
/// things come and go leaves no trace in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tally {
    pub count: u32,
    pub sum: u64,
}

impl Tally {
    pub fn add(&mut self, number: u64) {
        (self.count, self.sum) = (self.count.wrapping_add(1), self.sum.wrapping_add(number));
    }

    pub fn remove(&mut self, number: u64) {
        (self.count, self.sum) = (self.count.wrapping_sub(1), self.sum.wrapping_sub(number));
    }

    pub fn merge(&mut self, other: Tally) {
        (self.count, self.sum) = (self.count.wrapping_add(other.count), self.sum.wrapping_add(other.sum));
    }

    /// What would have to be added to `other` to have this one.
    pub fn without(self, other: Tally) -> Tally {
        Tally { count: self.count.wrapping_sub(other.count), sum: self.sum.wrapping_sub(other.sum) }
    }
}

/// From coarse to fine; who asks goes on with what differs. Shelves and buckets are powers of two and the asker's choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportAsk {
    /// All that is here now. It is looked for; what else is asked is answered as of then.
    All,
    /// Each of so many shelves, onto which containers are hashed.
    Shelves { shelves: u32 },
    /// The containers on these of them.
    Containers { shelves: u32, of: Vec<u32> },
    /// Of each of these containers so many buckets, into which its chunks are hashed.
    Buckets { of: Vec<(ContainerId, u32)> },
    /// The chunks in buckets of a container: container, how many buckets it has, which of them.
    Ids { of: Vec<(ContainerId, u32, Vec<u32>)> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportPart {
    All(Tally),
    /// In order.
    Shelves(Vec<Tally>),
    /// Those of which there is something.
    Containers(Vec<(ContainerId, Tally)>),
    /// As asked, in order.
    Buckets(Vec<Vec<Tally>>),
    /// As asked, in order.
    Ids(Vec<Vec<ChunkId>>),
}
