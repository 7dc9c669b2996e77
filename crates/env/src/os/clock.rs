use crate::{BoxFuture, Clock, Monotonic};
use braid_types::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// `CLOCK_BOOTTIME` and `CLOCK_REALTIME`; sleeps are tokio's, so one that spans a suspension of the machine ends
/// late by that much: whoever holds a lease compares with [`Clock::now`] after waking.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsClock;

impl Clock for OsClock {
    fn now(&self) -> Monotonic {
        let t = clock_gettime(ClockId::Boottime);
        // Both parts are never negative on this clock.
        Monotonic(Duration::new(t.tv_sec as u64, t.tv_nsec as u32))
    }

    fn wall(&self) -> Timestamp {
        let t = clock_gettime(ClockId::Realtime);
        Timestamp::from_parts(t.tv_sec, t.tv_nsec as u32)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        // The timer is made at the first poll, so that this may be called outside the runtime.
        Box::pin(async move { tokio::time::sleep(duration).await })
    }
}
