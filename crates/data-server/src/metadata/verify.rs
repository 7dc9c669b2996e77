//! The copy is read through now and then: what has rotted is found while the metadata server can give another.

use super::{MetadataCounters, MetadataKeeper, State};
use braid_env::Env;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Disks that rot do so over months; a copy is some gigabytes at the most.
const EVERY: Duration = Duration::from_secs(24 * 3600);
/// Read at a time, and the pause after it: 8 MiB/s at the most, as scrub.
const BATCH_BYTES: usize = 2 << 20;
const PAUSE: Duration = Duration::from_millis(250);

impl MetadataKeeper {
    /// Does so for as long as the keeper is there.
    pub fn keep_verifying(&self) {
        let (env, state, counters) = (self.env.clone(), Arc::downgrade(&self.state), self.counters.clone());
        self.env.spawn("metadata copy: verifying", async move {
            loop {
                env.sleep(EVERY).await;
                let Some(state) = state.upgrade() else { return };
                verify(&env, &state, &counters).await;
            }
        });
    }

    pub async fn verify(&self) {
        verify(&self.env, &self.state, &self.counters).await;
    }
}

/// The lock is not held while the disk is read: groups go on coming.
async fn verify(env: &Env, state: &Arc<Mutex<State>>, counters: &Arc<MetadataCounters>) {
    let found = {
        let state = state.lock().await;
        state.kept.as_ref().map(|kept| (kept.generation(), kept.handle(), kept.places()))
    };
    let Some((generation, file, places)) = found else { return };
    let mut places = places.into_iter().peekable();
    while places.peek().is_some() {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES
            && let Some(place) = places.next()
        {
            bytes += place.len();
            batch.push(place);
        }
        let file = file.clone();
        let read = move || batch.iter().try_for_each(|place| place.read(&*file).map(drop));
        if let Err(error) = env.blocking(read).await {
            state.lock().await.look_at(&error, generation, counters);
            return;
        }
        env.sleep(PAUSE).await;
    }
}
