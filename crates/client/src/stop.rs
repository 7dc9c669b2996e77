//! The end of a client, for its tasks beside the calls.
//!
//! Whoever waits is woken in the order in which it began to wait. `tokio::sync::watch` draws the order at random, and a
//! simulated history is to be its seed's own: the calls of two tasks that end are given up in that order.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tokio::sync::Notify;

#[derive(Default)]
struct Inner {
    over: AtomicBool,
    told: Notify,
}

/// Held by the client; when it is gone, the end has come as well.
#[derive(Default)]
pub struct Stop(Arc<Inner>);

pub struct Stopped(Arc<Inner>);

impl Stop {
    pub fn stop(&self) {
        self.0.over.store(true, SeqCst);
        self.0.told.notify_waiters();
    }

    pub fn is_over(&self) -> bool {
        self.0.over.load(SeqCst)
    }

    pub fn listen(&self) -> Stopped {
        Stopped(self.0.clone())
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Stopped {
    /// Returns once the end has come.
    pub async fn wait(&self) {
        let mut told = pin!(self.0.told.notified());
        // From here on no end is missed.
        told.as_mut().enable();
        if !self.0.over.load(SeqCst) {
            told.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_is_woken_in_order_and_who_comes_late_does_not_wait() {
        let (stop, order) = (Stop::default(), Arc::new(parking_lot::Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for i in 0..20 {
            let (stopped, order) = (stop.listen(), order.clone());
            tasks.push(tokio::spawn(async move {
                stopped.wait().await;
                order.lock().push(i);
            }));
            tokio::task::yield_now().await;
        }
        let late = stop.listen();
        assert!(!stop.is_over() && order.lock().is_empty());
        drop(stop);
        for task in tasks {
            task.await.expect("nothing panics");
        }
        assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
        late.wait().await;
    }
}
