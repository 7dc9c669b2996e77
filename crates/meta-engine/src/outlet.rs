//! The way of committed groups to copies in other places. An engine knows no servers: it gives each group to its
//! [`Outlet`] and waits there until the group is kept; who empties it is none of its business.

use crate::EngineError;
use braid_types::{MetaPosition, MetaTerm};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What an engine says, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// The changes of a group, on its way to the engine's own disk too.
    Group { number: u64, changes: Arc<Vec<u8>> },
    /// The last group failed on the engine's own disk: there never was one of this number.
    Retract { number: u64 },
}

/// How far the copies are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub received: u64,
    pub synced: u64,
}

#[derive(Default)]
struct State {
    outgoing: Vec<Outgoing>,
    /// Of the last group.
    last: u64,
    kept: Kept,
    /// Somebody waits for stable storage of everything up to here.
    sync_wanted: u64,
    closed: Option<String>,
}

/// Groups go in at one end, and what is kept comes back.
pub struct Outlet {
    term: MetaTerm,
    state: Mutex<State>,
    /// For threads that wait, and for tasks.
    kept: Condvar,
    kept_told: Notify,
    filled: Notify,
}

impl Outlet {
    /// For a server of `term`, whose engine has everything up to `last`.
    pub fn new(term: MetaTerm, last: u64) -> Outlet {
        let state = Mutex::new(State { last, ..State::default() });
        Outlet { term, state, kept: Condvar::new(), kept_told: Notify::new(), filled: Notify::new() }
    }

    /// Gives a group its number. Waits for nothing.
    pub fn push(&self, changes: Arc<Vec<u8>>) -> MetaPosition {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.outgoing.push(Outgoing::Group { number, changes });
        drop(state);
        self.filled.notify_one();
        MetaPosition { term: self.term, number }
    }

    /// The position the next group will have.
    pub fn next(&self) -> MetaPosition {
        MetaPosition { term: self.term, number: self.state.lock().last + 1 }
    }

    /// The last number given.
    pub fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// The group, which was the last, is not on the engine's own disk. Its number is not used again.
    pub fn retract(&self, number: u64) {
        self.state.lock().outgoing.push(Outgoing::Retract { number });
        self.filled.notify_one();
    }

    /// Everything up to this number is to be on the copies' stable storage soon.
    pub fn want_sync(&self, number: u64) {
        let mut state = self.state.lock();
        state.sync_wanted = state.sync_wanted.max(number);
        drop(state);
        self.filled.notify_one();
    }

    /// Whether everything up to `number` is kept; an error when it never will be.
    fn look(state: &State, number: u64, synced: bool) -> Option<Result<(), EngineError>> {
        let kept = if synced { state.kept.synced.min(state.kept.received) } else { state.kept.received };
        if kept >= number {
            return Some(Ok(()));
        }
        let told = |cause: &String| Err(EngineError::MaybeCommitted(format!("its copies: {cause}")));
        state.closed.as_ref().map(told)
    }

    /// Blocks until everything up to `number` is kept, on stable storage too with `synced`, or the outlet is closed.
    pub fn wait(&self, number: u64, synced: bool) -> Result<(), EngineError> {
        let mut state = self.state.lock();
        loop {
            if let Some(done) = Outlet::look(&state, number, synced) {
                return done;
            }
            // The bound is that of the callers; this one is against a notice that was missed.
            self.kept.wait_for(&mut state, Duration::from_secs(1));
        }
    }

    /// The same for a task.
    pub async fn kept(&self, number: u64, synced: bool) -> Result<(), EngineError> {
        loop {
            let mut told = std::pin::pin!(self.kept_told.notified());
            told.as_mut().enable();
            if let Some(done) = Outlet::look(&self.state.lock(), number, synced) {
                return done;
            }
            told.await;
        }
    }

    /// What has come in since the last call, and up to where stable storage is wanted. Returns at once, maybe with nothing.
    pub fn take(&self) -> (Vec<Outgoing>, u64) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.outgoing), state.sync_wanted)
    }

    /// Returns when there may be something to take.
    pub async fn filled(&self) {
        self.filled.notified().await;
    }

    /// The copies are so far; never goes back.
    pub fn keep(&self, kept: Kept) {
        let mut state = self.state.lock();
        let now = Kept { received: state.kept.received.max(kept.received), synced: state.kept.synced.max(kept.synced) };
        if now != state.kept {
            state.kept = now;
            drop(state);
            self.kept.notify_all();
            self.kept_told.notify_waiters();
        }
    }

    /// Nothing more will be kept: whoever waits is told.
    pub fn close(&self, cause: &str) {
        self.state.lock().closed.get_or_insert_with(|| cause.to_owned());
        self.kept.notify_all();
        self.kept_told.notify_waiters();
        self.filled.notify_one();
    }

    pub fn is_closed(&self) -> bool {
        self.state.lock().closed.is_some()
    }
}

/// A page of all rows, for the base of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BasePage {
    pub rows: Vec<u8>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<(u8, Vec<u8>)>,
    /// Everything up to this group is in these rows.
    pub at: MetaPosition,
}

/// An engine whose groups can be kept in other places as well. These calls block; none is made while transactions run, but for
/// [`Copied::base_page`] and [`Copied::store_set`].
pub trait Copied: Send + Sync + 'static {
    /// The last group on the engine's disk.
    fn position(&self) -> Result<MetaPosition, EngineError>;

    /// What [`Copied::store_set`] stored last.
    fn stored_set(&self) -> Result<Option<Vec<u8>>, EngineError>;

    /// Stores these bytes durably, beside the rows.
    fn store_set(&self, set: &[u8]) -> Result<(), EngineError>;

    /// From now on nothing is answered before it is kept there, and nobody is shown it.
    fn copy_to(&self, outlet: Arc<Outlet>);

    /// Rows from `from` on in the order of tables and keys, about `bytes_max` of them.
    fn base_page(&self, from: Option<(u8, Vec<u8>)>, bytes_max: usize) -> Result<BasePage, EngineError>;

    /// Writes changes into a store that nobody uses yet, which then is at `at`.
    fn load(&self, changes: &[u8], at: MetaPosition) -> Result<(), EngineError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_it_is_kept_or_never_will_be() {
        let outlet = Outlet::new(MetaTerm { counter: 3, nonce: 0 }, 7);
        assert_eq!(outlet.next(), outlet.push(Arc::default()));
        assert_eq!(outlet.take().0.len(), 1);
        outlet.keep(Kept { received: 8, synced: 7 });
        assert!(outlet.wait(8, false).is_ok() && outlet.wait(7, true).is_ok());
        outlet.keep(Kept { received: 2, synced: 2 });
        assert!(outlet.wait(8, false).is_ok(), "never goes back");
        outlet.close("fenced");
        assert!(outlet.wait(8, false).is_ok(), "what is kept is kept");
        assert!(matches!(outlet.wait(8, true), Err(EngineError::MaybeCommitted(cause)) if cause.contains("fenced")));
    }
}
