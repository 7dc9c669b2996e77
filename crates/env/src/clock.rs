use crate::BoxFuture;
use braid_types::Timestamp;
use std::ops::Add;
use std::time::Duration;

/// A moment on this machine's monotonic clock, which counts suspension (`CLOCK_BOOTTIME`). Comparable within
/// one process only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(pub Duration);

impl Monotonic {
    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Monotonic) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Monotonic {
    type Output = Monotonic;
    fn add(self, duration: Duration) -> Monotonic {
        Monotonic(self.0.saturating_add(duration))
    }
}

/// Time. Leases and deadlines use `now`; `wall` is only ever shown (design.md: wall clocks decide nothing).
pub trait Clock: Send + Sync {
    fn now(&self) -> Monotonic;
    fn wall(&self) -> Timestamp;
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}
