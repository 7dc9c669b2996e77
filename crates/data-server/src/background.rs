//! What the server does without being asked: syncs what is dirty, verifies what nobody reads.
//!
//! Both end with the server, because they hold it only while they work.

use crate::core::Core;
use crate::stats::count;
use braid_data_store::ScrubCursor;
use braid_types::ChunkId;
use std::sync::Arc;
use std::time::Duration;

/// Verified between two pauses.
const SCRUB_STEP_BYTES: u64 = 1 << 20;
const SCRUB_PAUSE_MIN: Duration = Duration::from_millis(10);
/// How often it is written down how far that has come: a restart goes on there.
const SCRUB_KEEP: Duration = Duration::from_secs(60);

impl Core {
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
            let Some(mut at) = (match core.upgrade() {
                Some(core) => Some(core.scrub_begins().await),
                None => None,
            }) else {
                return;
            };
            let (mut pause, mut kept) = (SCRUB_PAUSE_MIN, env.clock.now());
            loop {
                env.sleep(pause).await;
                let Some(core) = core.upgrade() else { return };
                let (next, checked) = core.scrub_on(at).await;
                pause = match next {
                    Some(_) => Duration::from_secs_f64(checked as f64 / rate as f64).max(SCRUB_PAUSE_MIN),
                    None => round_pause.max(SCRUB_PAUSE_MIN),
                };
                at = next.unwrap_or_default();
                let now = env.clock.now();
                if next.is_none() || now.since(kept) >= SCRUB_KEEP {
                    kept = now;
                    core.scrub_is_at(at).await;
                }
            }
        });
    }

    async fn scrub_begins(&self) -> ScrubCursor {
        let store = self.store.clone();
        self.env.blocking(move || store.scrub_cursor()).await
    }

    async fn scrub_is_at(&self, at: ScrubCursor) {
        let store = self.store.clone();
        if let Err(error) = self.env.blocking(move || store.keep_scrub_cursor(at)).await {
            tracing::warn!("data server {}: after a restart scrub begins anew: {error}", self.id);
        }
    }

    /// One step; where the next begins, and how many bytes were verified.
    async fn scrub_on(&self, at: ScrubCursor) -> (Option<ScrubCursor>, u64) {
        let store = self.store.clone();
        let step = self.env.blocking(move || store.scrub_step(at, SCRUB_STEP_BYTES)).await;
        match step {
            Ok(step) => {
                count(&self.stats.scrubbed_bytes, step.checked_bytes as usize);
                count(&self.stats.scrubbed_bad, step.bad.len());
                for bad in step.bad.chunk_by(|a, b| a.0 == b.0) {
                    let (chunk, first) = bad[0];
                    let count = bad.len();
                    tracing::error!(
                        "data server {}: scrub found {count} bad in chunk {chunk}, block {first} on",
                        self.id
                    );
                    self.chains.flawed(chunk, bad.iter().map(|(_, block)| *block));
                }
                if let Some((chunk, error)) = &step.failed {
                    tracing::error!("data server {}: scrub of chunk {chunk}: {error}", self.id);
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
