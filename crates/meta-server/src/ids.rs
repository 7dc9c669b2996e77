//! Fresh inode ids, from durable blocks.

use braid_api::{Error, Result};
use braid_env::Env;
use braid_meta_engine::{AnyEngine, Engine};
use braid_meta_namespace::ops::ids::{Counter, TakeIds};
use braid_types::{InodeId, SLOT_COUNT, Slot};
use parking_lot::Mutex;
use std::ops::Range;

/// Ids in a block: at 20,000 creations a second one more transaction in a fifth of a second; a restart loses at
/// most one block of the 2^52 there are.
const BLOCK: u64 = 4096;

pub struct InodeIds {
    left: Mutex<Range<u64>>,
    refill: tokio::sync::Mutex<()>,
}

impl InodeIds {
    pub fn new() -> Self {
        InodeIds { left: Mutex::new(0..0), refill: tokio::sync::Mutex::new(()) }
    }

    /// An id never given before, with a random slot.
    pub async fn fresh(&self, env: &Env, engine: &AnyEngine) -> Result<InodeId> {
        loop {
            if let Some(counter) = self.left.lock().next() {
                return Ok(InodeId::new(counter, Slot(env.random.below(SLOT_COUNT))));
            }
            let _one = self.refill.lock().await;
            if !self.left.lock().is_empty() {
                continue;
            }
            let first =
                engine.transact(0, TakeIds { counter: Counter::Inodes, count: BLOCK }).await.map_err(Error::from)?;
            *self.left.lock() = first..first + BLOCK;
        }
    }
}
