//! What is known of sessions in memory. Their rows say that they exist; this says that they live.

use braid_env::Monotonic;
use braid_types::{InodeId, RequestId, SessionEpoch, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct SessionState {
    pub epoch: SessionEpoch,
    pub description: String,
    pub host: String,
    pub seen: Monotonic,
    pub low_water: RequestId,
    /// Answers below this have been forgotten in the rows.
    pub pruned: RequestId,
    /// Up to where it has read the list of orphans, and which of those it holds.
    pub orphans_seen: u64,
    pub orphans_held: BTreeSet<InodeId>,
    /// It is being ended.
    pub ending: bool,
}

impl SessionState {
    pub fn new(epoch: SessionEpoch, description: String, host: String, now: Monotonic) -> Self {
        SessionState {
            epoch,
            description,
            host,
            seen: now,
            low_water: RequestId(0),
            pruned: RequestId(0),
            orphans_seen: 0,
            orphans_held: BTreeSet::new(),
            ending: false,
        }
    }
}

#[derive(Default)]
pub struct Sessions {
    all: Mutex<BTreeMap<SessionId, SessionState>>,
}

impl Sessions {
    pub fn insert(&self, id: SessionId, state: SessionState) {
        self.all.lock().entry(id).or_insert(state);
    }

    pub fn remove(&self, id: SessionId) {
        self.all.lock().remove(&id);
    }

    /// Live sessions other than `id` exist.
    pub fn others(&self, id: SessionId) -> bool {
        self.all.lock().keys().any(|other| *other != id)
    }

    /// `id` lives and is alone: what it caches nobody else changes.
    pub fn alone(&self, id: SessionId) -> bool {
        let all = self.all.lock();
        all.len() == 1 && all.contains_key(&id)
    }

    /// Runs `f` on a live session.
    pub fn with<R>(&self, id: SessionId, f: impl FnOnce(&mut SessionState) -> R) -> Option<R> {
        self.all.lock().get_mut(&id).filter(|s| !s.ending).map(f)
    }

    /// Marks a session as ending; false if it is unknown or already so.
    pub fn begin_end(&self, id: SessionId) -> bool {
        self.with(id, |s| s.ending = true).is_some()
    }

    /// It could not be ended now; it is tried again later.
    pub fn end_failed(&self, id: SessionId) {
        if let Some(s) = self.all.lock().get_mut(&id) {
            s.ending = false;
        }
    }

    pub fn silent_longer_than(&self, limit: Duration, now: Monotonic) -> Vec<SessionId> {
        let all = self.all.lock();
        all.iter().filter(|(_, s)| !s.ending && now.since(s.seen) > limit).map(|(id, _)| *id).collect()
    }

    pub fn snapshot(&self) -> Vec<(SessionId, SessionState)> {
        self.all.lock().iter().map(|(id, s)| (*id, s.clone())).collect()
    }

    pub fn len(&self) -> usize {
        self.all.lock().len()
    }
}
