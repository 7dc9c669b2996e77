//! Running a request's future: once in place, the rest on the runtime.
//!
//! Most answers are at hand (a lease covers them), and a change of task would cost more than they do. So the FUSE
//! thread polls once itself. A future that is not ready then moves to the runtime. The waker of the first poll passes
//! wake-ups on to the task that took over, so one that comes in between is not lost, whoever kept it.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio::runtime::Handle;

/// The waker of the first poll. It remembers a wake-up until there is a task to pass it to.
#[derive(Default)]
struct First {
    state: Mutex<FirstState>,
}

#[derive(Default)]
struct FirstState {
    woken: bool,
    task: Option<Waker>,
}

impl Wake for First {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        state.woken = true;
        if let Some(task) = &state.task {
            task.wake_by_ref();
        }
    }
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

/// True if the future ended in place.
pub fn run(runtime: &Handle, future: impl Future<Output = ()> + Send + 'static) -> bool {
    let mut future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
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
    if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
        return true;
    }
    drop(entered);
    runtime.spawn(async move {
        poll_fn(|cx| {
            first.hand_over(cx.waker());
            match future.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
    });
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
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
        assert!(run(runtime.handle(), async move { ready.send(std::thread::current().id()).unwrap() }));
        assert_eq!(receive.recv().unwrap(), here);
        let slow = async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            send.send(std::thread::current().id()).unwrap();
        };
        assert!(!run(runtime.handle(), slow));
        assert_ne!(receive.recv_timeout(Duration::from_secs(5)).unwrap(), here);
    }

    /// A future that only ever wakes the waker it saw first, before and after it moved.
    #[test]
    fn wake_ups_of_the_first_waker_arrive() {
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
        assert!(!run(runtime.handle(), stubborn));
        receive.recv_timeout(Duration::from_secs(5)).unwrap();
    }
}
