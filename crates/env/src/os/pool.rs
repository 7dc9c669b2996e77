use crate::{BoxFuture, Spawn, TaskHandle};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Threads for blocking work. Each holds one whole request at the disk; four keep a queue of four at a virtio or
/// SATA disk, and a machine with a fast disk sets more.
pub const IO_THREADS_DEFAULT: usize = 4;

type Work = Box<dyn FnOnce() + Send>;

/// Tasks on a tokio runtime, blocking work on threads of our own: tokio's `spawn_blocking` costs 14 µs a call
/// here and lets 512 threads queue at the disk.
///
/// The queue of work is not bounded: its callers are, by the permits they hold for requests and memory.
pub struct OsSpawn {
    runtime: Option<Handle>,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    closed: bool,
}

impl OsSpawn {
    /// Starts `io_threads` (at least one) threads, named `braid-io-N`. They end, after all that is queued, when
    /// this value is dropped.
    ///
    /// # Panics
    /// If the system refuses the first thread: nothing can run then.
    pub fn new(io_threads: usize) -> Self {
        let queue = Arc::new(Queue::default());
        for n in 0..io_threads.max(1) {
            let of_thread = queue.clone();
            let started = std::thread::Builder::new().name(format!("braid-io-{n}")).spawn(move || of_thread.serve());
            match started {
                Ok(_) => {}
                Err(error) if n == 0 => panic!("cannot start an I/O thread: {error}"),
                Err(error) => {
                    tracing::warn!("only {n} of {io_threads} I/O threads could be started: {error}");
                    break;
                }
            }
        }
        OsSpawn { runtime: Handle::try_current().ok(), queue }
    }
}

impl Queue {
    fn serve(&self) {
        while let Some(work) = self.next() {
            // A panic is a bug of one request, whose caller sees its channel close; the thread serves the others.
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                tracing::error!("blocking work panicked; the request it belonged to gets no answer");
            }
        }
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.waiting.pop_front() {
                return Some(work);
            }
            if state.closed {
                return None;
            }
            self.wake.wait(&mut state);
        }
    }
}

impl Spawn for OsSpawn {
    /// # Panics
    /// Outside a tokio runtime, if this value was also made outside one.
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        let handle = Handle::try_current().ok().or_else(|| self.runtime.clone());
        match handle {
            Some(handle) => TaskHandle(handle.spawn(task)),
            None => panic!("a task was spawned outside a tokio runtime"),
        }
    }

    fn run_blocking(&self, work: Work) {
        self.queue.state.lock().waiting.push_back(work);
        self.queue.wake.notify_one();
    }
}

impl Drop for OsSpawn {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_panic_does_not_take_the_thread_along() {
        let pool = OsSpawn::new(1);
        let (send, receive) = mpsc::channel();
        pool.run_blocking(Box::new(|| panic!("planted")));
        pool.run_blocking(Box::new(move || send.send(std::thread::current().name().map(str::to_owned)).unwrap()));
        assert_eq!(receive.recv().unwrap().as_deref(), Some("braid-io-0"));
    }

    #[test]
    fn queued_work_is_done_after_the_drop() {
        let pool = OsSpawn::new(2);
        let (send, receive) = mpsc::channel();
        for n in 0..100 {
            let send = send.clone();
            pool.run_blocking(Box::new(move || send.send(n).unwrap()));
        }
        drop((pool, send));
        assert_eq!(receive.iter().count(), 100);
    }
}
