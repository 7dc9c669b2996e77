//! Data servers that are drained: what this client has there in advance goes back, and what it has not yet told of goes into its files,
//! so that nobody waits for a mount that does nothing.

use crate::body::Body;
use crate::commit::Reach;
use crate::core::Core;
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
        let leaves = |container: ContainerId| self.servers.is_leaving(container);
        let spares = self.spares.take(|spare| leaves(spare.container));
        for part in spares.chunks(ReturnSpares::MAX) {
            let chunks: Vec<ChunkId> = part.iter().map(|(_, spare)| spare.chunk).collect();
            match self.call(ReturnSpares { chunks }, self.own_op()).await {
                Ok(()) => part.iter().for_each(|(_, spare)| self.servers.release_room(spare.chunk, spare.container)),
                // Asked for again with the next renewal.
                Err(error) => {
                    tracing::debug!(%error, "spares were not given back");
                    part.iter().for_each(|(policy, spare)| self.spares.give_back(*policy, *spare));
                }
            }
        }
        for inode in self.inodes.all() {
            let has_fresh = match &inode.state.lock().body {
                Body::Inline(_) => false,
                Body::Chunked(table) => table.slots.values().any(|slot| slot.fresh.is_some() && leaves(slot.container)),
            };
            if has_fresh && let Err(error) = self.commit(&inode, Reach::Answered, self.own_op()).await {
                tracing::debug!(%error, inode = inode.id.0, "not told of its chunks yet");
            }
        }
    }
}
