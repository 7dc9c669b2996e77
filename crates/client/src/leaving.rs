//! Data servers that are drained: what this client has there in advance goes back, and what it has not yet told of goes into its files,
//! so that nobody waits for a mount that does nothing.

use crate::body::{Body, ChunkSlot};
use crate::commit::Reach;
use crate::core::Core;
use braid_api::meta::ReturnSpares;
use braid_types::{ByteRange, ChunkId, ChunkIndex, ContainerId};
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
            let (has_fresh, unused) = self.update(&inode, |state| {
                let mut unused = state.unused.clone();
                let Body::Chunked(table) = &mut state.body else { return (false, unused) };
                // Room was asked for in them, and nothing was written.
                let empty = |slot: &ChunkSlot| slot.fresh.is_some() && !slot.exists() && leaves(slot.container);
                let is_written = |index: ChunkIndex| {
                    let all = ByteRange::at(index.0.saturating_mul(state.policy.chunk_bytes), state.policy.chunk_bytes);
                    state.dirty.ranges().iter().any(|range| range.overlaps(all))
                        || state.inflight.values().any(|write| write.range.overlaps(all))
                };
                let gone: Vec<ChunkIndex> =
                    table.slots.iter().filter(|(_, slot)| empty(slot)).map(|(index, _)| *index).collect();
                for index in gone.into_iter().filter(|index| !is_written(*index)) {
                    unused.extend(table.slots.remove(&index).map(|slot| slot.chunk));
                }
                let fresh = table.slots.values().any(|slot| slot.fresh.is_some() && leaves(slot.container));
                (fresh, unused)
            });
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
