//! What several wait for, told once. They are woken in the order in which they began to wait, so that a run of the simulator can be
//! repeated; tokio's `watch` wakes them in a random one.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

enum State<T> {
    Open,
    Told(T),
    /// Nobody will tell it any more.
    Gone,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    told: Notify,
}

pub struct Tell<T>(Arc<Shared<T>>);

pub struct Outcome<T>(Arc<Shared<T>>);

pub fn outcome<T>() -> (Tell<T>, Outcome<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::Open), told: Notify::new() });
    (Tell(shared.clone()), Outcome(shared))
}

impl<T> Tell<T> {
    pub fn tell(self, value: T) {
        *self.0.state.lock() = State::Told(value);
    }

    /// For one more to wait.
    pub fn subscribe(&self) -> Outcome<T> {
        Outcome(self.0.clone())
    }
}

impl<T> Drop for Tell<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(*state, State::Open) {
            *state = State::Gone;
        }
        drop(state);
        self.0.told.notify_waiters();
    }
}

impl<T> Clone for Outcome<T> {
    fn clone(&self) -> Self {
        Outcome(self.0.clone())
    }
}

impl<T: Clone> Outcome<T> {
    /// `None` if it will never be told.
    pub async fn done(self) -> Option<T> {
        loop {
            let told = self.0.told.notified();
            let mut told = std::pin::pin!(told);
            // Registered before the look, so that nothing between the two is missed.
            told.as_mut().enable();
            match &*self.0.state.lock() {
                State::Told(value) => return Some(value.clone()),
                State::Gone => return None,
                State::Open => {}
            }
            told.await;
        }
    }
}
