use std::sync::atomic::{AtomicU64, Ordering};

/// Exact, repeatable counters; the budget tests read them.
#[derive(Debug, Default)]
pub struct EngineStats {
    /// `get` and `scan` calls and commits that carried writes: what would be a message to a database.
    pub round_trips: AtomicU64,
    pub transactions: AtomicU64,
    pub reads: AtomicU64,
    pub retries: AtomicU64,
    /// Times stable storage was waited for; many transactions may share one.
    pub syncs: AtomicU64,
}

/// [`EngineStats`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    pub round_trips: u64,
    pub transactions: u64,
    pub reads: u64,
    pub retries: u64,
    pub syncs: u64,
}

impl EngineStats {
    pub fn snapshot(&self) -> StatsSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StatsSnapshot {
            round_trips: load(&self.round_trips),
            transactions: load(&self.transactions),
            reads: load(&self.reads),
            retries: load(&self.retries),
            syncs: load(&self.syncs),
        }
    }
}
