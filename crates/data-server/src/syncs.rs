//! Syncs shared by all who wait for them.
//!
//! A sync of a chunk covers every write that was applied before it began. Whoever asks while none waits to begin
//! starts one; whoever asks before it begins joins it; one that has begun already may have missed the newest write,
//! so the next is shared by all who came meanwhile. At most two syncs of one chunk are therefore between a request and
//! its answer, however many ask.

use crate::lane::Lanes;
use crate::stats::{Stats, count};
use braid_data_store::{ChunkStore, StoreError};
use braid_env::Env;
use braid_env::outcome::{Outcome, Tell, outcome};
use braid_types::ChunkId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tracing::Instrument;

pub(crate) type Synced = Result<(), StoreError>;
type Asked = Tell<Synced>;

pub(crate) struct Syncs {
    env: Env,
    store: Arc<dyn ChunkStore>,
    lanes: Arc<Lanes>,
    stats: Arc<Stats>,
    /// Chunks that a task is at work for, with the outcome that those who ask now share; `None` while nobody has
    /// asked since the running sync began.
    chunks: Mutex<HashMap<ChunkId, Option<Asked>>>,
    at_once: Semaphore,
    /// Held by the one sync of everything.
    all: tokio::sync::Mutex<()>,
}

/// A sync somebody asked for; it goes on if this is dropped.
pub(crate) struct Pending(Outcome<Synced>);

impl Pending {
    /// `None` if the process is going down.
    pub async fn done(self) -> Option<Synced> {
        self.0.done().await
    }
}

impl Syncs {
    pub fn new(
        env: Env,
        store: Arc<dyn ChunkStore>,
        lanes: Arc<Lanes>,
        stats: Arc<Stats>,
        at_once: usize,
    ) -> Arc<Self> {
        let (at_once, all) = (Semaphore::new(at_once.max(1)), tokio::sync::Mutex::default());
        Arc::new(Syncs { env, store, lanes, stats, chunks: Mutex::default(), at_once, all })
    }

    /// Asks for a sync of a chunk, which begins without anybody waiting for it.
    pub fn ask(self: &Arc<Self>, chunk: ChunkId) -> Pending {
        let mut chunks = self.chunks.lock();
        let new = || {
            let (tell, outcome) = outcome();
            (Some(tell), Pending(outcome))
        };
        if let Some(next) = chunks.get_mut(&chunk) {
            if let Some(shared) = next {
                return Pending(shared.subscribe());
            }
            let (send, pending) = new();
            *next = send;
            return pending;
        }
        let (send, pending) = new();
        chunks.insert(chunk, send);
        let this = self.clone();
        // Logged under the request that asked first; the others share its sync.
        let serving = async move { this.serve(chunk).await }.instrument(tracing::Span::current());
        self.env.spawn("sync of a chunk", serving);
        pending
    }

    /// Syncs the chunk until nobody asks any more.
    async fn serve(&self, chunk: ChunkId) {
        loop {
            // The semaphore is never closed.
            let _turn = self.at_once.acquire().await;
            let asked = {
                let mut chunks = self.chunks.lock();
                match chunks.get_mut(&chunk).and_then(Option::take) {
                    Some(outcome) => outcome,
                    None => {
                        chunks.remove(&chunk);
                        return;
                    }
                }
            };
            self.lanes.sync_begins(chunk);
            count(&self.stats.syncs, 1);
            let store = self.store.clone();
            let synced = self.env.blocking(move || store.sync(&[chunk]).map(drop)).await;
            asked.tell(synced);
        }
    }

    /// Syncs everything that was written before, if anything was.
    pub async fn all(&self) -> Synced {
        let _one = self.all.lock().await;
        if self.store.stable_seq() >= self.store.write_seq() {
            return Ok(());
        }
        self.lanes.sync_of_all_begins();
        count(&self.stats.syncs, 1);
        let store = self.store.clone();
        self.env.blocking(move || store.sync_all().map(drop)).await
    }
}
