//! Data servers that are drained: what this client has there in advance goes back, and what it has not yet told of goes into its files,
//! so that nobody waits for a mount that does nothing.

use crate::body::{Body, ChunkSlot};
use crate::commit::Reach;
use crate::core::Core;
use crate::inode::FileState;
use crate::room::drop_unused;
use braid_api::meta::ReturnSpares;
use braid_types::{ChunkId, ContainerId};
use std::sync::Arc;

impl Core {
    /// To be called with each renewal.
    pub fn look_at_leaving(self: &Arc<Self>) {
        if !self.servers.any_leaves() {
            return;
        }
        let core = self.clone();
        self.env.spawn("leaving data servers", async move { core.leave_servers().await });
    }

    async fn leave_servers(self: &Arc<Self>) {
        // Whoever came before does it.
        let Ok(_one) = self.spares.giving_back.try_lock() else { return };
        let leaves = |container: ContainerId| self.servers.is_leaving(container);
        let spares = self.spares.let_go(|spare| leaves(spare.container));
        for part in spares.chunks(ReturnSpares::MAX) {
            self.give_back(part.iter().map(|spare| spare.chunk).collect()).await;
        }
        // In an order that is the same each time a seed is run.
        let mut inodes = self.inodes.all();
        inodes.sort_unstable_by_key(|inode| inode.id);
        for inode in inodes {
            let (has_fresh, unused) = self.update(&inode, |state| let_go(state, leaves));
            if !unused.is_empty() {
                self.give_back(unused).await;
            }
            if has_fresh && let Err(error) = self.commit(&inode, Reach::Answered, self.own_op()).await {
                tracing::debug!(%error, inode = inode.id.0, "not told of its chunks yet");
            }
        }
    }

    /// Where it fails they are asked to be taken with the next renewal, and with the session's end at the latest.
    async fn give_back(&self, chunks: Vec<ChunkId>) {
        match self.call(ReturnSpares { chunks: chunks.clone() }, self.own_op()).await {
            Ok(()) => self.spares.are_back(&chunks),
            Err(error) => tracing::debug!(%error, "spares were not given back"),
        }
    }
}

/// Takes out of the file what it has at such places and nothing was written to. Whether there is more that no row names yet, and all spares
/// that the file does not use.
fn let_go(state: &mut FileState, leaves: impl Fn(ContainerId) -> bool) -> (bool, Vec<ChunkId>) {
    let mut unused = state.unused.clone();
    let Body::Chunked(table) = &state.body else { return (false, unused) };
    let fresh = |slot: &ChunkSlot| slot.fresh.is_some() && leaves(slot.container);
    let found: Vec<_> =
        table.slots.iter().filter(|(_, slot)| fresh(slot)).map(|(at, slot)| (*at, slot.chunk)).collect();
    let count = found.len();
    let before = unused.len();
    for (index, chunk) in found {
        if state.unanswered(index) == 0 && drop_unused(state, index, chunk) {
            unused.push(chunk);
        }
    }
    (unused.len() - before < count, unused)
}
