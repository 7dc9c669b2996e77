//! What was seen once. It counts when the next round sees it again, with the chain in the same epoch: what is on its way is
//! somewhere else by then.

use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// A file has it, the server has not.
    Lost,
    /// The server has it, and no row names it.
    Extra,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Doubt {
    pub wrong: Wrong,
    pub container: ContainerId,
    pub chunk: ChunkId,
    /// Of the container's chain; 0 if it has no row.
    pub epoch: ChainEpoch,
}

#[derive(Clone, Debug, Default)]
pub struct Doubts {
    seen: BTreeMap<ServerId, BTreeSet<Doubt>>,
}

impl Doubts {
    /// What this round saw at the server, all of it; answers what was so in the last round as well.
    pub fn saw(&mut self, server: ServerId, now: BTreeSet<Doubt>) -> Vec<Doubt> {
        let before = self.seen.remove(&server).unwrap_or_default();
        let confirmed = now.intersection(&before).copied().collect();
        if !now.is_empty() {
            self.seen.insert(server, now);
        }
        confirmed
    }

    /// It was not looked at in this round: what was seen before is too old to count.
    pub fn forget(&mut self, server: ServerId) {
        self.seen.remove(&server);
    }

    pub fn all(&self) -> impl Iterator<Item = &Doubt> {
        self.seen.values().flatten()
    }
}
