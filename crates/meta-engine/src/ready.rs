use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Runs a future that never waits: `None` if it did. Engines whose [`Tx`](crate::Tx) is always ready run
/// operations with it, so that an operation that waits for something else is an error and not a hang.
pub fn run_ready<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::run_ready;

    #[test]
    fn only_what_is_ready_has_an_output() {
        assert_eq!(run_ready(std::future::ready(7)), Some(7));
        assert_eq!(run_ready(std::future::pending::<u32>()), None);
    }
}
