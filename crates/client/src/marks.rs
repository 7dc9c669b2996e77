//! Telling the metadata server which chunks are on stable storage.
//!
//! Promises: never early, so that a chunk whose row says it and that is missing is a loss and no hole; late by seconds at most while
//! the metadata server answers. A commit after a sync says it of its own chunks; what became stable in the background is said here,
//! of many files in one message.

use crate::core::{Core, Op};
use crate::retain::ChunkKey;
use braid_api::Result;
use braid_api::meta::MarkStable;
use braid_types::ChunkId;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What became stable is gathered for so long.
const GATHER: Duration = Duration::from_secs(1);
/// After a failure, beyond the attempts of the call itself.
const AGAIN: Duration = Duration::from_secs(5);

impl Core {
    /// A write to the chunk is known to be stable.
    pub fn is_proven(&self, chunk: ChunkId) -> bool {
        self.servers.lanes().iter().any(|lane| lane.retained(|retain| retain.is_proven(chunk)))
    }

    /// The chunk's row says so.
    pub fn marked(&self, chunk: ChunkId) {
        self.servers.lanes().iter().for_each(|lane| lane.retained(|retain| retain.marked(chunk)));
    }

    pub fn keep_marking(self: &Arc<Self>) {
        let (weak, env, stop) = (Arc::downgrade(self), self.env.clone(), self.stop.listen());
        let due = self.marks.clone();
        self.env.spawn("marking chunks as stable", async move {
            let mut pause = GATHER;
            loop {
                let wait = async {
                    due.notified().await;
                    env.sleep(pause).await;
                };
                tokio::select! {
                    biased;
                    () = stop.wait() => return,
                    () = wait => {}
                }
                let Some(core) = Weak::upgrade(&weak) else { return };
                pause = GATHER;
                if let Err(error) = core.mark_stable(core.own_op()).await {
                    tracing::debug!(%error, "chunks are not marked as stable yet");
                    pause = AGAIN;
                    due.notify_one();
                }
            }
        });
    }

    /// Says it of all chunks that are in their files' rows.
    pub async fn mark_stable(&self, op: Op) -> Result<()> {
        let lanes = self.servers.lanes();
        let proven = lanes.iter().flat_map(|lane| lane.retained(|retain| retain.proven()));
        let due: Vec<ChunkKey> = proven.filter(|key| self.is_committed(key)).collect();
        for some in due.chunks(MarkStable::MAX) {
            let chunks = some.iter().map(|key| (key.inode, key.index, key.chunk)).collect();
            self.call(MarkStable { chunks }, op).await?;
            for key in some {
                self.marked(key.chunk);
                if let Some(inode) = self.inodes.get(key.inode)
                    && let Some(slot) = inode.state.lock().body.slot_mut(key.index)
                    && slot.chunk == key.chunk
                {
                    slot.stable = true;
                }
            }
        }
        Ok(())
    }

    /// Not of chunks that wait for a commit, which will say it itself.
    fn is_committed(&self, key: &ChunkKey) -> bool {
        self.inodes.get(key.inode).is_none_or(|inode| {
            let state = inode.state.lock();
            state.body.slot(key.index).is_none_or(|slot| slot.chunk != key.chunk || slot.fresh.is_none())
        })
    }
}
