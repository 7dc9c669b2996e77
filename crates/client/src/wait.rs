//! Waiting: deadlines, growing pauses, and who waits for what.

use braid_api::admin::Waiting;
use braid_api::{Code, Error, Result, Retry, trace};
use braid_env::{Env, Monotonic};
use braid_types::{ContainerId, InodeId, ServerId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// When an operation gives up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(pub Monotonic);

impl Deadline {
    pub fn after(env: &Env, duration: Duration) -> Self {
        Deadline(env.clock.now() + duration)
    }

    pub fn left(self, env: &Env) -> Duration {
        self.0.since(env.clock.now())
    }
}

/// Asking again after errors that allow it, with pauses that double.
pub struct Attempts {
    deadline: Deadline,
    pause: Duration,
}

impl Attempts {
    pub fn until(deadline: Deadline) -> Self {
        Attempts { deadline, pause: PAUSE_MIN }
    }

    /// Pauses before the next attempt; the error itself if there will be none.
    pub async fn again(&mut self, env: &Env, error: Error) -> Result<()> {
        let left = self.deadline.left(env);
        if error.retry() == Retry::No || left.is_zero() {
            return Err(error);
        }
        env.sleep(self.pause.min(left)).await;
        if self.deadline.left(env).is_zero() {
            // No attempt without time, whose answer would say less than this one did.
            return Err(error);
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

/// Waits on `notify` until `ready` gives something, at most to the deadline.
pub async fn wait_until<T>(
    env: &Env,
    notify: &Notify,
    deadline: Deadline,
    mut ready: impl FnMut() -> Option<T>,
) -> Option<T> {
    loop {
        let notified = notify.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if let Some(value) = ready() {
            return Some(value);
        }
        let left = deadline.left(env);
        if left.is_zero() || env.timeout(left, notified).await.is_err() {
            return ready();
        }
    }
}

pub fn timed_out(who: impl std::fmt::Display, for_what: impl std::fmt::Display) -> Error {
    Error::new(Code::DeadlineExceeded, who, for_what)
}

/// All of them at once, in the caller's task.
pub async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        let mut pending = false;
        for (future, slot) in waiting.iter_mut().zip(&mut done) {
            if slot.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *slot = Some(value),
                    Poll::Pending => pending = true,
                }
            }
        }
        match pending {
            true => Poll::Pending,
            false => Poll::Ready(done.drain(..).flatten().collect()),
        }
    })
    .await
}

#[derive(Default)]
struct Entries {
    next: u64,
    open: BTreeMap<u64, (Waiting, Monotonic)>,
}

/// What waits in this client, for `braid admin why`. Entered only where a wait is unusual.
#[derive(Default)]
pub struct Waits(Mutex<Entries>);

pub struct Entered<'a>(&'a Waits, u64);

impl Waits {
    pub fn enter(&self, env: &Env, who: impl ToString, for_what: impl ToString) -> Entered<'_> {
        let mut entries = self.0.lock();
        entries.next += 1;
        let key = entries.next;
        let waiting = Waiting { trace: trace::current(), ..Waiting::new(who.to_string(), for_what.to_string()) };
        entries.open.insert(key, (waiting, env.clock.now()));
        Entered(self, key)
    }

    pub fn list(&self, env: &Env) -> Vec<Waiting> {
        let now = env.clock.now();
        let show = |(waiting, since): &(Waiting, Monotonic)| Waiting {
            since_ms: now.since(*since).as_millis() as u64,
            ..waiting.clone()
        };
        self.0.lock().open.values().map(show).collect()
    }
}

impl Entered<'_> {
    fn with(self, add: impl FnOnce(&mut Waiting)) -> Self {
        if let Some((waiting, _)) = self.0.0.lock().open.get_mut(&self.1) {
            add(waiting);
        }
        self
    }

    /// It has to do with this file.
    pub fn of(self, inode: InodeId) -> Self {
        self.with(|waiting| waiting.inodes = (inode.0 != 0).then_some(inode).into_iter().collect())
    }

    /// And with copies of this container.
    pub fn within(self, container: ContainerId) -> Self {
        self.with(|waiting| waiting.container = (container.0 != 0).then_some(container))
    }

    /// A data server has it to do.
    pub fn at(self, server: ServerId) -> Self {
        self.with(|waiting| waiting.servers = vec![server])
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.0.lock().open.remove(&self.1);
    }
}
