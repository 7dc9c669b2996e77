//! What is known of sessions in memory. Their rows say that they exist; this says that they live.

use braid_env::Monotonic;
use braid_types::{InodeId, RequestId, SessionEpoch, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::Notify;

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
    /// It is being ended; see [`Ending`].
    pub ending: bool,
    /// It is to end: nothing is answered under it any more.
    pub abandoned: bool,
    /// Its process is known to have gone, and shows nothing.
    pub gone: bool,
    /// When something was last answered early; `None` if its row says that it keeps nothing.
    pub keeps_since: Option<Monotonic>,
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
            abandoned: false,
            gone: false,
            keeps_since: None,
        }
    }
}

#[derive(Default)]
pub struct Sessions {
    all: Mutex<BTreeMap<SessionId, SessionState>>,
    /// Have ended, and their answers are kept for clients that live.
    remembered: Mutex<BTreeMap<SessionId, Monotonic>>,
    /// An end was reached or given up.
    ended: Notify,
}

/// The right to end a session, which one at a time has. Dropped, in whatever way, it leaves the session alive, to be
/// ended later: only [`Ending::done`] takes it away.
pub struct Ending<'a> {
    sessions: &'a Sessions,
    id: SessionId,
    pub epoch: SessionEpoch,
}

impl Sessions {
    pub fn insert(&self, id: SessionId, state: SessionState) {
        self.all.lock().entry(id).or_insert(state);
    }

    pub fn is_known(&self, id: SessionId) -> bool {
        self.all.lock().contains_key(&id)
    }

    /// It has ended, at another server.
    pub fn remove(&self, id: SessionId) {
        self.all.lock().remove(&id);
    }

    pub fn remember(&self, id: SessionId, now: Monotonic) {
        self.remembered.lock().insert(id, now);
    }

    /// Ended before then.
    pub fn remembered(&self, before: Monotonic) -> Vec<SessionId> {
        self.remembered.lock().iter().filter(|(_, at)| **at < before).map(|(id, _)| *id).collect()
    }

    pub fn forget(&self, id: SessionId) {
        self.remembered.lock().remove(&id);
    }

    /// Live sessions other than `id` exist.
    pub fn others(&self, id: SessionId) -> bool {
        self.all.lock().keys().any(|other| *other != id)
    }

    /// Runs `f` on a live session.
    pub fn with<R>(&self, id: SessionId, f: impl FnOnce(&mut SessionState) -> R) -> Option<R> {
        self.all.lock().get_mut(&id).filter(|s| !s.ending).map(f)
    }

    /// The right to end the session; `None` if there is no such session (any more). Waits while another ends it.
    pub async fn begin_end(&self, id: SessionId) -> Option<Ending<'_>> {
        loop {
            let ended = self.ended.notified();
            let mut ended = std::pin::pin!(ended);
            // Registered before the look, so that no end between the two is missed.
            ended.as_mut().enable();
            match self.all.lock().get_mut(&id) {
                None => return None,
                Some(s) if !s.ending => {
                    s.ending = true;
                    return Some(Ending { sessions: self, id, epoch: s.epoch });
                }
                Some(_) => {}
            }
            ended.await;
        }
    }

    pub fn ending(&self) -> BTreeSet<SessionId> {
        self.all.lock().iter().filter(|(_, s)| s.ending).map(|(id, _)| *id).collect()
    }

    pub fn silent_longer_than(&self, limit: Duration, now: Monotonic) -> Vec<SessionId> {
        let all = self.all.lock();
        all.iter().filter(|(_, s)| !s.ending && (s.abandoned || now.since(s.seen) > limit)).map(|(id, _)| *id).collect()
    }

    /// From now on until it has ended the session is no use to anybody.
    pub fn abandon(&self, id: SessionId) {
        if let Some(s) = self.all.lock().get_mut(&id) {
            s.abandoned = true;
        }
    }

    pub fn is_gone(&self, id: SessionId) -> bool {
        self.all.lock().get(&id).is_some_and(|s| s.gone)
    }

    pub fn is_abandoned(&self, id: SessionId) -> bool {
        self.all.lock().get(&id).is_some_and(|s| s.abandoned)
    }

    /// Sessions that are on record as keeping something and have had no early answer since `before`, which are taken
    /// off the list; all of them without it. But for those of which `stays` says otherwise.
    pub fn keeping(&self, before: Option<Monotonic>, stays: impl Fn(SessionId) -> bool) -> Vec<SessionId> {
        let mut all = self.all.lock();
        let due = |s: &SessionState| s.keeps_since.is_some_and(|at| before.is_none_or(|before| at < before));
        let due = |id: SessionId, s: &SessionState| due(s) && !stays(id);
        all.iter_mut().filter(|(id, s)| due(**id, s)).map(|(id, s)| (*id, s.keeps_since = None).0).collect()
    }

    pub fn snapshot(&self) -> Vec<(SessionId, SessionState)> {
        self.all.lock().iter().map(|(id, s)| (*id, s.clone())).collect()
    }

    pub fn len(&self) -> usize {
        self.all.lock().len()
    }
}

impl Ending<'_> {
    /// It has ended: every row and every data server says so.
    pub fn done(self) {
        self.sessions.all.lock().remove(&self.id);
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Some(s) = self.sessions.all.lock().get_mut(&self.id) {
            s.ending = false;
        }
        self.sessions.ended.notify_waiters();
    }
}
