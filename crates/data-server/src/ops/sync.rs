//! SyncChunks: covers every write to these chunks that was answered before the request came.

use crate::core::{Call, Core, ONE_COPY};
use crate::stats::count;
use braid_api::Result;
use braid_api::data::{SyncAnswer, SyncChunks};
use braid_types::{ChunkId, ContainerId};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Chunks asked for together; each is a task.
const CHUNKS_AT_ONCE: usize = 256;

impl Core {
    pub async fn sync(self: &Arc<Self>, call: &Call, m: SyncChunks) -> Result<SyncAnswer> {
        self.gate.check(&call.token, ContainerId(0))?;
        self.gate.settle(call, ONE_COPY)?;
        self.release(call, &m.release);
        count(&self.stats.sync_requests, 1);
        let _working = self.working(call, m.chunks.first().copied().unwrap_or_default(), "a sync");
        let mut first_error = None;
        for group in m.chunks.chunks(CHUNKS_AT_ONCE) {
            let pending: Vec<_> = group.iter().map(|chunk| (*chunk, self.syncs.ask(*chunk))).collect();
            for (chunk, pending) in pending {
                let synced = self.synced(chunk, pending).await;
                first_error = first_error.or(synced.err());
            }
        }
        match first_error {
            Some(error) => Err(error),
            None => Ok(SyncAnswer {
                incarnation: self.incarnation,
                stable: self.store.stable_seq(),
                deletions: self.deletions.load(SeqCst),
            }),
        }
    }

    /// For tests and for stopping: everything, now.
    pub async fn sync_all(&self) -> Result<()> {
        self.syncs.all().await.map_err(|error| self.error(ChunkId(0), &error))
    }
}
