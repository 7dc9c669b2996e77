//! Blocks of a copy that are still those of the chunk it was made from: they are said to other copies, and not sent.
//!
//! Why a member that takes them from its own copy of that chunk has what the owner has:
//! - The chunk is written by nobody any more, and all of it was told to every copy before it was made from.
//! - The owner's copy of it lacked nothing when it was made from, up to the version that is said: the last one of it there is, of the chain epoch in
//!   which both are. Each epoch begins with an opening of every chunk, so a copy that acts in the same epoch, has been told as much and lacks
//!   nothing has every block as the chain has it: what an older epoch left behind is invalid there until it has been pulled.
//! - With the next epoch all of this is forgotten. What goes on then of either chunk is for that epoch to say, and bytes are sent.
//!
//! A member that cannot take them asks for bytes, of all of the chunk, and is sent nothing else in this epoch: so it ends.

use super::State;
use braid_api::data::SameBlocks;
use braid_chain::BlockSet;
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId, Version};
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub(super) struct Same {
    /// The call that made it.
    op: u64,
    from: ChunkId,
    at: Version,
    /// As it will be when all that is ordered has been applied.
    blocks: BlockSet,
    is_applied: bool,
    wants_bytes: BTreeSet<ServerId>,
}

impl Same {
    pub fn new(op: u64, from: ChunkId, at: Version, blocks: BlockSet) -> Same {
        Same { op, from, at, blocks, is_applied: false, wants_bytes: BTreeSet::new() }
    }

    /// It was made from that chunk, here and in this epoch.
    pub fn is_made_from(&self, from: ChunkId) -> bool {
        self.is_applied && self.from == from
    }

    pub fn is_of(&self, op: u64) -> bool {
        self.op == op
    }

    pub fn applied(&mut self) {
        self.is_applied = true;
    }

    /// Something else is ordered for these blocks.
    pub fn changed(&mut self, blocks: &BlockSet) {
        self.blocks.subtract(blocks);
    }

    /// The member wants bytes; false if that was known.
    pub fn send_bytes(&mut self, to: ServerId) -> bool {
        self.wants_bytes.insert(to)
    }

    /// What need not be sent to this member.
    pub fn blocks_for(&self, to: ServerId) -> BlockSet {
        if self.wants_bytes.contains(&to) { BlockSet::new() } else { self.blocks.clone() }
    }

    /// What of it is so now, of what was when a message was put into the queue: what is ordered since is behind that.
    pub fn still(&self, then: &Same) -> BlockSet {
        if self.op == then.op && self.is_applied { self.blocks.intersection(&then.blocks) } else { BlockSet::new() }
    }

    pub fn say(&self, blocks: &BlockSet) -> SameBlocks {
        let runs = super::blocks::data(blocks).map(|run| (run.start, run.end - run.start)).collect();
        SameBlocks { from: self.from, at: self.at, runs }
    }
}

impl State {
    /// Has this server all of a chunk, up to there and nothing missing, in this epoch?
    pub(super) fn has_all(&self, container: ContainerId, chunk: ChunkId, at: Version, epoch: ChainEpoch) -> bool {
        let is_whole = |copy: braid_chain::CopyStatus| {
            copy.epoch == Some(epoch) && copy.complete >= at && copy.complete == copy.told && copy.invalid.is_empty()
        };
        at.chain_epoch == epoch && self.machine.copy(container, chunk).is_some_and(is_whole)
    }
}
