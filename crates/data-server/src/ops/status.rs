//! GetDataStatus.

use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::DataStatus;
use braid_data_store::StoreUsage;
use braid_types::{BLOCK_BYTES, ChunkId};
use std::sync::Arc;
use std::time::Duration;

const USAGE_WITHIN: Duration = Duration::from_millis(500);

impl Core {
    pub async fn status(self: &Arc<Self>, call: &Call) -> Result<DataStatus> {
        let _working = self.working(call, ChunkId(0), "the disk");
        // Whoever asks this may want to know why the disk does not answer: then with what was last known.
        let usage = match self.env.timeout(USAGE_WITHIN, self.look_at_usage()).await {
            Ok(usage) => usage?,
            Err(_) => *self.usage.lock(),
        };
        let counters = self.stats.snapshot();
        let lacks = self.chains.lacks();
        Ok(DataStatus {
            id: self.id,
            incarnation: self.incarnation,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: self.env.clock.now().since(self.started).as_millis() as u64,
            bytes_total: usage.total_bytes,
            bytes_free: usage.free_bytes,
            bytes_reserved: usage.reserved_bytes,
            chunks: usage.chunks,
            bad_blocks: usage.bad_blocks,
            sealed_blocks: usage.sealed_blocks,
            reads: counters.reads,
            writes: counters.writes,
            syncs: counters.syncs,
            bytes_read: counters.bytes_read,
            bytes_written: counters.bytes_written,
            waiting: self.work.list(self.id, &self.chains.waits()),
            mended_blocks: self.chains.mended(),
            chunks_lacking: lacks.chunks,
            copies_lacking: lacks.copies,
            bytes_lacking: lacks.blocks * BLOCK_BYTES,
            lacking_ms: self.chains.behind().as_millis() as u64,
        })
    }

    /// Asks the store what it occupies, and remembers it.
    pub async fn look_at_usage(&self) -> Result<StoreUsage> {
        let store = self.store.clone();
        let usage = self.env.blocking(move || store.usage()).await;
        let usage = usage.map_err(|error| self.error(ChunkId(0), &error))?;
        *self.usage.lock() = usage;
        Ok(usage)
    }
}
