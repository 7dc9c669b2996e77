//! Frames on their way to one connection.
//!
//! Whoever sends when nothing else is under way writes directly, which saves a switch of tasks; else frames queue
//! and the writer task sends many in one call. The queue is bounded in bytes: those who send wait for room.

use crate::frame::OutFrame;
use crate::sink::{Sink, Writer};
use braid_env::{Env, TaskHandle};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use tokio::sync::{Notify, Semaphore};

/// A payload from here on is written at once by whoever sends it: there is nothing to gain from gathering, and the
/// bytes are in this core's cache. Four senders of 1 MiB each got 2.8 to 3.2 GB/s through the writer task, 4.3 to 7.3
/// directly.
const BULK_BYTES: usize = 64 << 10;

pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Bytes of room.
    room: Semaphore,
    room_bytes: usize,
    /// Wakes the writer task.
    wake: Notify,
    broken: AtomicBool,
    broken_wake: Notify,
}

struct State {
    queue: VecDeque<OutFrame>,
    /// Away while somebody writes; gone for good when closed.
    sink: Option<Box<Sink>>,
    /// The connection takes no more at the moment and wakes the writer task when it does: nobody else may poll
    /// it, since that would replace the task's waker.
    blocked: bool,
    /// The writer task, while it waits for the connection.
    task: Option<Waker>,
    /// Close when the queue is empty.
    finishing: bool,
    error: Option<String>,
}

/// The connection is broken; the frame was not sent.
#[derive(Debug)]
pub(crate) struct Closed;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Write directly if possible: nothing else is likely to follow at once.
    Now,
    /// Leave it to the writer task, which gathers what comes from others.
    Soon,
    /// The caller is going to call [`Outbox::flush`].
    Later,
}

enum Turn {
    Empty,
    /// Somebody else writes and will see to what is queued.
    Taken,
    Blocked,
    Broken,
}

impl Outbox {
    pub fn start(env: &Env, io: Writer, room_bytes: usize) -> (Arc<Self>, TaskHandle) {
        let state = State {
            queue: VecDeque::new(),
            sink: Some(Box::new(Sink::new(io))),
            blocked: false,
            task: None,
            finishing: false,
            error: None,
        };
        let outbox = Arc::new(Outbox {
            state: Mutex::new(state),
            room: Semaphore::new(room_bytes),
            room_bytes,
            wake: Notify::new(),
            broken: AtomicBool::new(false),
            broken_wake: Notify::new(),
        });
        let task = env.spawn("wire writer", outbox.clone().run());
        (outbox, task)
    }

    fn cost(&self, frame: &OutFrame) -> u32 {
        frame.len().min(self.room_bytes).try_into().unwrap_or(u32::MAX)
    }

    /// Queues a frame, waiting for room. Dropped while it waits, nothing is sent.
    pub async fn send(&self, frame: OutFrame, urgency: Urgency) -> Result<(), Closed> {
        let cost = self.cost(&frame);
        match self.room.try_acquire_many(cost) {
            Ok(permit) => permit.forget(),
            Err(_) => {
                self.flush();
                self.room.acquire_many(cost).await.map_err(|_| Closed)?.forget();
            }
        }
        self.push(frame, urgency)
    }

    /// Queues a frame if there is room; for what is not worth waiting for.
    pub fn try_send(&self, frame: OutFrame) {
        if let Ok(permit) = self.room.try_acquire_many(self.cost(&frame)) {
            permit.forget();
            let _ = self.push(frame, Urgency::Soon);
        }
    }

    fn push(&self, frame: OutFrame, urgency: Urgency) -> Result<(), Closed> {
        let is_bulk = frame.payload.len() >= BULK_BYTES;
        {
            let mut state = self.state.lock();
            if state.error.is_some() {
                return Err(Closed);
            }
            state.queue.push_back(frame);
        }
        match urgency {
            Urgency::Now => self.flush(),
            Urgency::Soon if is_bulk => self.flush(),
            Urgency::Soon => self.wake.notify_one(),
            Urgency::Later => {}
        }
        Ok(())
    }

    /// Writes what is queued as far as the connection takes it now; the writer task does the rest.
    pub fn flush(&self) {
        let mut cx = Context::from_waker(Waker::noop());
        if let Turn::Blocked = self.turn(&mut cx, false) {
            self.wake.notify_one();
        }
    }

    fn turn(&self, cx: &mut Context<'_>, is_task: bool) -> Turn {
        loop {
            let mut sink = {
                let mut state = self.state.lock();
                if state.error.is_some() {
                    return Turn::Broken;
                }
                if state.blocked && !is_task {
                    return Turn::Taken;
                }
                let Some(mut sink) = state.sink.take() else { return Turn::Taken };
                sink.load(&mut state.queue);
                state.blocked = false;
                if sink.is_empty() {
                    state.sink = Some(sink);
                    if state.finishing && !is_task {
                        self.wake.notify_one();
                    }
                    return Turn::Empty;
                }
                sink
            };
            let outcome = sink.poll_write(cx);
            let mut state = self.state.lock();
            match outcome {
                _ if state.error.is_some() => return Turn::Broken,
                Poll::Ready(Ok(through)) => {
                    state.sink = Some(sink);
                    drop(state);
                    let cost = through.min(self.room_bytes);
                    self.room.add_permits(cost);
                }
                Poll::Ready(Err(error)) => {
                    drop(state);
                    self.close(&error.to_string());
                    return Turn::Broken;
                }
                Poll::Pending => {
                    state.sink = Some(sink);
                    state.blocked = true;
                    state.task = is_task.then(|| cx.waker().clone());
                    return Turn::Blocked;
                }
            }
        }
    }

    async fn run(self: Arc<Self>) {
        loop {
            self.wake.notified().await;
            // Those who are about to send get their turn first, so that their frames go in the same write.
            tokio::task::yield_now().await;
            let turn = poll_fn(|cx| match self.turn(cx, true) {
                Turn::Blocked => Poll::Pending,
                turn => Poll::Ready(turn),
            })
            .await;
            match turn {
                Turn::Broken => return,
                Turn::Empty if self.state.lock().finishing => return self.shut_down().await,
                _ => {}
            }
        }
    }

    async fn shut_down(&self) {
        let sink = self.state.lock().sink.take();
        if let Some(mut sink) = sink {
            let _ = poll_fn(|cx| sink.poll_shutdown(cx)).await;
        }
        self.close("closed");
    }

    /// Everything queued is written, then the connection is closed for writing. The writer task then ends.
    pub fn finish(&self) {
        self.state.lock().finishing = true;
        self.wake.notify_one();
    }

    /// At once; what is queued is lost.
    pub fn close(&self, why: &str) {
        let dropped = {
            let mut state = self.state.lock();
            state.error.get_or_insert_with(|| why.to_owned());
            if let Some(task) = state.task.take() {
                task.wake();
            }
            (state.sink.take(), std::mem::take(&mut state.queue))
        };
        drop(dropped);
        self.room.close();
        self.broken.store(true, Relaxed);
        self.wake.notify_one();
        self.broken_wake.notify_one();
    }

    pub fn is_closed(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// Waits until the connection cannot be written any more, for one waiter; tells why.
    pub async fn failed(&self) -> String {
        self.broken_wake.notified().await;
        self.state.lock().error.clone().unwrap_or_default()
    }
}
