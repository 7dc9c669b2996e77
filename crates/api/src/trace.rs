//! Which file operation the running code works for.
//!
//! A door knows it, and so does every message that leaves the client. In between lie calls that name no caller (write,
//! fsync and close of a handle), which find it here: it goes with the future of the operation, on whatever thread that
//! is polled. What an operation starts beside itself has none,
//! unless it is told to ([`under`]); bytes that are buffered go on under the trace of the last write.

use braid_types::TraceId;
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;

thread_local! {
    static CURRENT: Cell<TraceId> = const { Cell::new(TraceId(0)) };
}

/// The operation that is being worked for here; 0 if none is known.
pub fn current() -> TraceId {
    CURRENT.get()
}

/// What runs on this thread until this is dropped works for one operation.
pub struct Entered(TraceId);

pub fn enter(trace: TraceId) -> Entered {
    Entered(CURRENT.replace(trace))
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// `future`, working for `trace` wherever it is polled.
pub async fn under<F: Future>(trace: TraceId, future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        let _entered = enter(trace);
        future.as_mut().poll(cx)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_trace_goes_with_its_future_and_no_further() {
        let seen = || async { current() };
        let mut first = std::pin::pin!(under(TraceId(7), async {
            let before = current();
            let mut once = false;
            std::future::poll_fn(|_| if std::mem::replace(&mut once, true) { Poll::Ready(()) } else { Poll::Pending })
                .await;
            (before, current(), under(TraceId(9), seen()).await, seen().await)
        }));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert_eq!(current(), TraceId(0));
        let traces = (TraceId(7), TraceId(7), TraceId(9), TraceId(7));
        assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(traces));
        assert_eq!(current(), TraceId(0));
    }
}
