use std::sync::atomic::{AtomicU64, Ordering};

/// What the door counted since it was opened.
#[derive(Debug, Default)]
pub struct Stats {
    pub requests: AtomicU64,
    /// Requests whose answer was not at hand and went on as a task.
    pub waited: AtomicU64,
    pub errors: AtomicU64,
    /// Nodes the kernel forgot. The door keeps nothing per node, so they only tell how large its cache is.
    pub forgotten: AtomicU64,
    pub interrupts: AtomicU64,
    /// Entry invalidations that were not back in time and became an end of the epoch.
    pub epochs_ended: AtomicU64,
}

impl Stats {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
