//! A clock that does not count the time during which this process stood still: a laptop that was closed, a virtual machine that was
//! paused, SIGSTOP.
//!
//! Why: what clients and data servers said meanwhile lies in the sockets, and timers come before it. By a clock that went on, all
//! sessions would be taken for gone at that moment, with what they had not saved yet.
//!
//! Promises: never ahead of the clock below, so that whatever is granted or waited for by it ends later, which is the safe side for a
//! holder: a client counts its term on a clock of its own. What the server itself is granted, the right to answer among it, must
//! not be counted by this clock (`copies` has the one below). Time that no look falls into for longer than [`STILL_MIN`]
//! counts as stood still; [`AwakeClock::keep_looking`] looks every [`LOOK`].

use braid_env::{BoxFuture, Clock, Env, Monotonic};
use braid_types::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(200);

/// Five looks that did not come: a busy machine is late by less, and sessions last for ten times that by default.
const STILL_MIN: Duration = Duration::from_secs(1);

pub struct AwakeClock {
    below: Arc<dyn Clock>,
    looked: Mutex<Looked>,
}

struct Looked {
    at: Monotonic,
    stood_still: Duration,
}

impl AwakeClock {
    pub fn over(below: Arc<dyn Clock>) -> Arc<Self> {
        let looked = Mutex::new(Looked { at: below.now(), stood_still: Duration::ZERO });
        Arc::new(AwakeClock { below, looked })
    }

    /// Looks, until nobody has the clock any more.
    pub fn keep_looking(self: &Arc<Self>, env: &Env) {
        let (clock, below) = (Arc::downgrade(self), self.below.clone());
        env.spawn("clock", async move {
            loop {
                below.sleep(LOOK).await;
                match clock.upgrade() {
                    Some(clock) => _ = clock.now(),
                    None => return,
                }
            }
        });
    }
}

impl Clock for AwakeClock {
    fn now(&self) -> Monotonic {
        // Read under the lock: a moment that was read before the end of a standstill would lie before moments that were told.
        let mut looked = self.looked.lock();
        let now = self.below.now();
        let since = now.since(looked.at);
        if since > STILL_MIN {
            looked.stood_still += since;
            tracing::warn!("stood still for {:.1} s, which is not counted", since.as_secs_f64());
        }
        looked.at = now;
        Monotonic(now.0.saturating_sub(looked.stood_still))
    }

    fn wall(&self) -> Timestamp {
        self.below.wall()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.below.sleep(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hand(Mutex<Duration>);

    impl Clock for Hand {
        fn now(&self) -> Monotonic {
            Monotonic(*self.0.lock())
        }
        fn wall(&self) -> Timestamp {
            Timestamp(0)
        }
        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn time_counts_while_somebody_looks_and_never_goes_back() {
        let hand = Arc::new(Hand(Mutex::new(Duration::from_secs(100))));
        let clock = AwakeClock::over(hand.clone());
        let begun = clock.now();
        for _ in 0..50 {
            *hand.0.lock() += Duration::from_millis(999);
            assert!(clock.now() > begun);
        }
        let counted = clock.now();
        assert_eq!(counted.since(begun), 50 * Duration::from_millis(999));
        *hand.0.lock() += Duration::from_secs(60);
        assert_eq!(clock.now(), counted);
        *hand.0.lock() += Duration::from_millis(500);
        assert_eq!(clock.now().since(counted), Duration::from_millis(500));
    }
}
