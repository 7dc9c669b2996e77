use braid_types::Timestamp;
use std::sync::atomic::{AtomicI64, Ordering};

/// Where the model's times come from.
pub enum Clock {
    /// Each look is one microsecond after the last, from 2001-09-09 on: two changes never have one time.
    Counter(AtomicI64),
    Outside(Box<dyn Fn() -> Timestamp + Send + Sync>),
}

impl Clock {
    pub fn outside(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Clock::Outside(Box::new(clock))
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Clock::Counter(last) => Timestamp(last.fetch_add(1000, Ordering::Relaxed)),
            Clock::Outside(clock) => clock(),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::Counter(AtomicI64::new(1_000_000_000_000_000_000))
    }
}
