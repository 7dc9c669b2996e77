use crate::job::Job;
use braid_meta_engine::Outlet;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;

/// Transactions that wait for the write thread, in the order they came. It is as long as there are callers
/// waiting: bounding them is the servers' admission, not the queue's.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    ended: Notify,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Box<dyn Job>>,
    closed: bool,
    outlet: Option<Arc<Outlet>>,
}

impl Queue {
    /// Drops the job, which answers its caller that the engine is closed, if the queue is.
    pub fn push(&self, job: Box<dyn Job>) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            drop(job);
            return;
        }
        state.jobs.push_back(job);
        drop(state);
        self.filled.notify_one();
    }

    /// Waits for a job; `None` once the queue is closed.
    pub fn wait(&self) -> Option<Box<dyn Job>> {
        let mut state = self.state.lock();
        while state.jobs.is_empty() && !state.closed {
            self.filled.wait(&mut state);
        }
        state.jobs.pop_front()
    }

    /// Waits for a job until then; `None` if none came, or once the queue is closed.
    pub fn wait_until(&self, end: Instant) -> Option<Box<dyn Job>> {
        let mut state = self.state.lock();
        while state.jobs.is_empty() && !state.closed {
            if self.filled.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        state.jobs.pop_front()
    }

    /// A job that is there already.
    pub fn try_take(&self) -> Option<Box<dyn Job>> {
        self.state.lock().jobs.pop_front()
    }

    pub fn len(&self) -> usize {
        self.state.lock().jobs.len()
    }

    /// Where the write thread sends what it commits, from the next group on.
    pub fn copy_to(&self, outlet: Arc<Outlet>) {
        self.state.lock().outlet = Some(outlet);
    }

    pub fn outlet(&self) -> Option<Arc<Outlet>> {
        self.state.lock().outlet.clone()
    }

    /// Takes no further jobs and drops those that wait.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        drop(jobs);
        self.filled.notify_all();
        self.ended.notify_waiters();
    }

    /// Returns once the queue is closed.
    pub async fn closed(&self) {
        let mut ended = std::pin::pin!(self.ended.notified());
        // From here on no closing is missed.
        ended.as_mut().enable();
        if !self.state.lock().closed {
            ended.await;
        }
    }
}
