//! What the server does without being asked: syncs what is dirty, verifies what nobody reads.
//!
//! Both end with the server, because they hold it only while they work.

use crate::core::Core;
use crate::stats::count;
use braid_data_store::{ChunkStore, ScrubCursor};
use braid_types::ChunkId;
use std::sync::Arc;
use std::time::Duration;

/// Verified between two pauses.
const SCRUB_STEP_BYTES: u64 = 1 << 20;
const SCRUB_PAUSE_MIN: Duration = Duration::from_millis(10);

impl<S: ChunkStore + 'static> Core<S> {
    pub fn keep_stable(self: &Arc<Self>) {
        let (env, every, core) = (self.env.clone(), self.config.sync_every, Arc::downgrade(self));
        if every.is_zero() {
            return;
        }
        self.env.spawn("background sync", async move {
            let mut before = 0;
            loop {
                env.sleep(every).await;
                let Some(core) = core.upgrade() else { return };
                let now = core.store.write_seq();
                if std::mem::replace(&mut before, now) == now {
                    core.rest().await;
                }
                if let Err(error) = core.sync_all().await {
                    tracing::error!("background sync: {error}");
                }
                if let Err(error) = core.look_at_usage().await {
                    tracing::warn!("{error}");
                }
            }
        });
    }

    async fn rest(&self) {
        let store = self.store.clone();
        if let Err(error) = self.env.blocking(move || store.rest()).await {
            tracing::warn!("data server {}: {error}", self.id);
        }
    }

    pub fn keep_scrubbing(self: &Arc<Self>) {
        let (env, core, rate) = (self.env.clone(), Arc::downgrade(self), self.config.scrub_bytes_per_s);
        let round_pause = self.config.scrub_pause;
        if rate == 0 {
            return;
        }
        self.env.spawn("scrub", async move {
            let mut at = Some(ScrubCursor::default());
            let mut pause = SCRUB_PAUSE_MIN;
            loop {
                env.sleep(pause).await;
                let Some(core) = core.upgrade() else { return };
                let checked;
                (at, checked) = core.scrub_on(at.unwrap_or_default()).await;
                pause = match at {
                    Some(_) => Duration::from_secs_f64(checked as f64 / rate as f64).max(SCRUB_PAUSE_MIN),
                    None => round_pause.max(SCRUB_PAUSE_MIN),
                };
            }
        });
    }

    /// One step; where the next begins, and how many bytes were verified.
    async fn scrub_on(&self, at: ScrubCursor) -> (Option<ScrubCursor>, u64) {
        let store = self.store.clone();
        let step = self.env.blocking(move || store.scrub_step(at, SCRUB_STEP_BYTES)).await;
        match step {
            Ok(step) => {
                count(&self.stats.scrubbed_bytes, step.checked_bytes as usize);
                count(&self.stats.scrubbed_bad, step.bad.len());
                for (chunk, block) in &step.bad {
                    tracing::error!("data server {}: scrub found chunk {chunk}, block {block} bad", self.id);
                    self.chains.flawed(*chunk, [*block]);
                }
                (step.next, step.checked_bytes)
            }
            Err(error) => {
                // The next chunk may be well.
                tracing::error!("data server {}: scrub: {error}", self.id);
                (Some(ScrubCursor { chunk: ChunkId(at.chunk.0.saturating_add(1)), block: 0 }), SCRUB_STEP_BYTES)
            }
        }
    }
}
