//! What the owner of a chunk refuses because it comes late, told to the next (docs/design/0014-migration.md).
//!
//! A change that was given up by its sender is refused by its place, one under a lease that has passed on by the lease under which the
//! chunk was changed last. Both are known only where later requests came, which is the owner. When ownership moves, the next owner may
//! be where the late change is on its way to. So what the owner knows goes with `Hand`, behind the message: whoever does not know of it reads the
//! message as it was.
//!
//! Promises: what was refused by an owner is refused by the next in the same epoch. A take-over needs none of it: the chain's epoch is another.

use crate::gate::Gate;
use crate::newest::Newest;
use braid_env::Monotonic;
use braid_types::{ChunkId, ContainerId, LeaseGen, SessionId};
use std::sync::Arc;

pub(crate) struct Late {
    pub gate: Arc<Gate>,
    pub newest: Arc<Newest>,
}

/// Under which lease the chunk was changed last, and where each session that changed the container waits from. 16 bytes at most a session,
/// and those that have ended are not among them.
type Words = (u64, Vec<(u64, u64)>);

impl Late {
    /// To be asked by who has just stopped to own the chunk.
    pub fn words(&self, container: ContainerId, chunk: ChunkId) -> Vec<u8> {
        let settled = self.gate.settled(container).into_iter().map(|(session, place)| (session.0, place)).collect();
        let words: Words = (self.newest.of(chunk).0, settled);
        // Plain data into a vector: nothing in it can fail.
        postcard::to_stdvec(&words).unwrap_or_default()
    }

    /// To be heard before what they came behind. Empty is of a server that does not say them. False if they are damaged.
    pub fn hear(&self, container: ContainerId, chunk: ChunkId, words: &[u8], now: Monotonic) -> bool {
        if words.is_empty() {
            return true;
        }
        let Ok((lease, settled)) = postcard::from_bytes::<Words>(words) else { return false };
        self.newest.raise(chunk, LeaseGen(lease), now);
        self.gate.learn_settled(container, settled.into_iter().map(|(session, place)| (SessionId(session), place)));
        true
    }
}
