//! Running a request's future: once in place, the rest on the runtime.
//!
//! Most answers are at hand (a lease covers them), and a change of task would cost more than they do. So the FUSE
//! thread polls once itself. A future that is not ready then waits for its first wake-up, which makes it a task (but for reads, see [`Then`]): to make it one at
//! once would wake a thread of the runtime for nothing but to find that it is not ready, while the other core is about to
//! serve the request. The waker of the first poll passes later wake-ups on to the task, so that none is lost, whoever kept it.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use tokio::runtime::Handle;

/// The waker of the first poll. It remembers a wake-up until there is a task to pass it to.
#[derive(Default)]
struct First {
    state: Mutex<FirstState>,
}

#[derive(Default)]
struct FirstState {
    woken: bool,
    /// Until the first wake-up.
    parked: Option<(Handle, Request)>,
    task: Option<Waker>,
}

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Wake for First {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        if let Some((runtime, future)) = state.parked.take() {
            drop(state);
            return spawn(&runtime, self, future);
        }
        state.woken = true;
        if let Some(task) = &state.task {
            task.wake_by_ref();
        }
    }
}

fn spawn(runtime: &Handle, first: Arc<First>, mut future: Request) {
    runtime.spawn(async move {
        poll_fn(|cx| {
            first.hand_over(cx.waker());
            future.as_mut().poll(cx)
        })
        .await;
    });
}

impl First {
    /// From now on wake-ups go to `task`.
    fn hand_over(&self, task: &Waker) {
        let mut state = self.state.lock();
        if !state.task.as_ref().is_some_and(|old| old.will_wake(task)) {
            state.task = Some(task.clone());
        }
        if std::mem::take(&mut state.woken) {
            task.wake_by_ref();
        }
    }
}

thread_local! {
    /// Used again as long as nobody kept a waker of it.
    static FIRST: RefCell<Arc<First>> = RefCell::default();
}

/// What becomes of a future that is not ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It waits for its first wake-up.
    Waits,
    /// It becomes a task at once. The thread that this wakes finds nothing to do, but its core does not sleep when the answer comes. For
    /// reads, whose answers come about as soon as a core wakes: random ones of 4 KiB had 16 to 29 MiB/s so and 16 to 18 otherwise.
    IsTask,
}

/// True if the future ended in place. `places`: so many threads may wait for the disk in it.
pub fn run(runtime: &Handle, places: usize, future: impl Future<Output = ()> + Send + 'static, then: Then) -> bool {
    let mut future: Request = Box::pin(future);
    let first = FIRST.with(|cell| {
        let mut first = cell.borrow_mut();
        if Arc::strong_count(&first) > 1 {
            *first = Arc::default();
        }
        first.clone()
    });
    // Timers and sockets that the future makes find the runtime.
    let entered = runtime.enter();
    let waker = Waker::from(first.clone());
    // Here alone: the rest is polled by threads of the runtime.
    let first_poll = || future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
    if braid_env::may_wait_during(places, first_poll) {
        return true;
    }
    drop((entered, waker));
    let mut state = first.state.lock();
    // Besides the one here and the thread's own: nobody would ever wake what has kept no waker.
    let is_kept = Arc::strong_count(&first) > 2;
    if then == Then::Waits && is_kept && !state.woken {
        state.parked = Some((runtime.clone(), future));
    } else {
        state.woken = false;
        drop(state);
        spawn(runtime, first, future);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;
    use std::time::Duration;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    #[test]
    fn what_is_ready_ends_in_place_and_the_rest_elsewhere() {
        let runtime = runtime();
        let here = std::thread::current().id();
        let (send, receive) = std::sync::mpsc::channel();
        let ready = send.clone();
        assert!(run(runtime.handle(), 0, async move { ready.send(std::thread::current().id()).unwrap() }, Then::Waits));
        assert_eq!(receive.recv().unwrap(), here);
        let slow = async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            send.send(std::thread::current().id()).unwrap();
        };
        assert!(!run(runtime.handle(), 0, slow, Then::Waits));
        assert_ne!(receive.recv_timeout(Duration::from_secs(5)).unwrap(), here);
    }

    /// A future that only ever wakes the waker it saw first, before and after it moved.
    #[test]
    fn wake_ups_of_the_first_waker_arrive() {
        [Then::Waits, Then::IsTask].into_iter().for_each(wake_ups_arrive);
    }

    fn wake_ups_arrive(then: Then) {
        let runtime = runtime();
        let (send, receive) = std::sync::mpsc::channel();
        let polls = Arc::new(AtomicUsize::new(0));
        let mut kept: Option<Waker> = None;
        let counted = polls.clone();
        let stubborn = async move {
            poll_fn(move |cx| {
                let waker = kept.get_or_insert_with(|| cx.waker().clone()).clone();
                if counted.fetch_add(1, Ordering::SeqCst) == 5 {
                    return Poll::Ready(());
                }
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(2));
                    waker.wake();
                });
                Poll::Pending
            })
            .await;
            send.send(()).unwrap();
        };
        assert!(!run(runtime.handle(), 0, stubborn, then));
        receive.recv_timeout(Duration::from_secs(5)).unwrap();
    }

    /// No thread of the runtime has anything to do for it before its answer comes.
    #[test]
    fn what_waits_becomes_a_task_with_its_first_wake_up() {
        let runtime = runtime();
        let (answer, answered) = tokio::sync::oneshot::channel::<()>();
        let (send, receive) = std::sync::mpsc::channel();
        assert!(!run(runtime.handle(), 0, async move { send.send(answered.await).unwrap() }, Then::Waits));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(runtime.metrics().num_alive_tasks(), 0);
        answer.send(()).unwrap();
        assert_eq!(receive.recv_timeout(Duration::from_secs(5)).unwrap(), Ok(()));
    }

    #[test]
    fn a_wake_up_during_the_first_poll_and_a_waker_that_nobody_keeps_are_no_reason_to_wait() {
        let runtime = runtime();
        for keeps in [true, false] {
            let (send, receive) = std::sync::mpsc::channel();
            let mut polled = false;
            let twice = async move {
                poll_fn(move |cx| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    if keeps {
                        cx.waker().wake_by_ref();
                    }
                    Poll::Pending
                })
                .await;
                send.send(()).unwrap();
            };
            assert!(!run(runtime.handle(), 0, twice, Then::Waits));
            receive.recv_timeout(Duration::from_secs(5)).unwrap();
        }
    }

    #[test]
    fn what_waits_ends_with_the_runtime() {
        let runtime = runtime();
        let held = Arc::new(());
        let of_request = held.clone();
        let waits = async move {
            tokio::time::sleep(Duration::from_secs(600)).await;
            drop(of_request);
        };
        assert!(!run(runtime.handle(), 0, waits, Then::Waits));
        assert_eq!(Arc::strong_count(&held), 2);
        drop(runtime);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
