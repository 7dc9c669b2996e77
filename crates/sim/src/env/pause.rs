//! A process that is stopped and goes on, as by SIGSTOP and SIGCONT.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// While it is closed, no task of the process runs. Time goes on, and what arrives waits in its sockets.
#[derive(Default)]
pub struct PauseGate {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed: bool,
    next: u64,
    /// Tasks that wanted to run; in order, so that they go on in order.
    stopped: BTreeMap<u64, Waker>,
}

impl PauseGate {
    pub fn pause(&self) {
        self.state.lock().closed = true;
    }

    pub fn resume(&self) {
        let stopped = {
            let mut state = self.state.lock();
            state.closed = false;
            std::mem::take(&mut state.stopped)
        };
        stopped.into_values().for_each(Waker::wake);
    }

    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// `task`, at the mercy of this gate.
    pub fn stoppable<F>(self: &std::sync::Arc<Self>, task: F) -> Stoppable<F> {
        let mut state = self.state.lock();
        state.next += 1;
        Stoppable { gate: self.clone(), id: state.next, task }
    }
}

pub struct Stoppable<F> {
    gate: std::sync::Arc<PauseGate>,
    id: u64,
    task: F,
}

impl<F: Future + Unpin> Future for Stoppable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        {
            let mut state = self.gate.state.lock();
            if state.closed {
                state.stopped.insert(self.id, cx.waker().clone());
                return Poll::Pending;
            }
        }
        Pin::new(&mut self.task).poll(cx)
    }
}
