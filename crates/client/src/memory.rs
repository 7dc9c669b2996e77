//! How much of the bounds is used.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::Notify;

/// Bytes in use of one bound, and who waits for room.
#[derive(Default)]
pub struct Gauge {
    used: AtomicU64,
    pub room: Notify,
}

impl Gauge {
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The share of one holder changed.
    pub fn settle(&self, before: u64, after: u64) {
        if after >= before {
            self.used.fetch_add(after - before, Relaxed);
        } else {
            self.used.fetch_sub(before - after, Relaxed);
            self.room.notify_waiters();
        }
    }

    /// Takes `bytes` if they fit; anything fits into an unused bound, so that one large request cannot starve.
    pub fn take(&self, bytes: u64, max: u64) -> bool {
        let fits = |used: u64| (used == 0 || used + bytes <= max).then_some(used + bytes);
        self.used.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    pub fn fits(&self, bytes: u64, max: u64) -> bool {
        let used = self.used();
        used == 0 || used + bytes <= max
    }
}

#[derive(Default)]
pub struct Memory {
    pub buffered: Gauge,
    pub retained: Gauge,
    pub prefetched: Gauge,
}
