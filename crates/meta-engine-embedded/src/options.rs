use std::time::Duration;

/// How an [`EmbeddedEngine`](crate::EmbeddedEngine) is opened. None of these is stored: each may be another at
/// the next start.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedOptions {
    /// The most the store can grow to. It reserves address space and nothing else. A file is about 0.5 KiB of
    /// rows without its inline bytes, so 256 GiB hold 500 million of them; more would not fit the 512 GiB of
    /// address space that 39-bit kernels (small ARM machines) give a process. A store that is larger already
    /// gets the map it needs.
    pub map_bytes: u64,
    /// Kept free in the map and allocated ahead on the disk, so that removing works when either is full. A
    /// transaction that removes a row copies up to 5 pages in each of about 4 tables: 64 MiB are good for 800 of
    /// them before the first freed page comes back, and it comes back two commits later.
    pub reserve_bytes: u64,
    /// Read transactions at one time: one a thread that reads, and a copy.
    pub readers_max: u32,
    /// Transactions that share a sync. At 5 to 20 µs each, the last waits some 10 ms for the others.
    pub group_ops_max: usize,
    /// Bytes of rows written after which a group takes no further transaction: 8 MiB are 10 ms of a common disk.
    pub group_bytes_max: usize,
    /// How long a group in which everything was answered early stays open for more. Nobody ever waits for it: whoever
    /// wants durability ends it. What it can cost is what was answered in it, if this server and the client that
    /// keeps it are lost together.
    pub group_hold: Duration,
    /// A snapshot that is kept for longer moves to a copy. Design: no read transaction is older than 5 s, but for the time that takes.
    pub read_age_max: Duration,
    /// A checkpoint is made so long after the last, if anything was committed since; what was logged since is done again by a start after a
    /// crash: at 20,000 groups a second some 0.2 s.
    pub checkpoint_every: Duration,
    /// And before the store's file has grown so far, because pages of the last checkpoint are not used again before the next.
    pub checkpoint_growth_bytes: u64,
    /// And before the log is so long.
    pub checkpoint_log_bytes: u64,
    /// Planted fault, for tests of the tests: commits are not synced.
    #[cfg(feature = "planted")]
    pub plant_no_syncs: bool,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        EmbeddedOptions {
            map_bytes: 256 << 30,
            reserve_bytes: 64 << 20,
            readers_max: 1024,
            group_ops_max: 512,
            group_bytes_max: 8 << 20,
            group_hold: Duration::from_millis(20),
            read_age_max: Duration::from_secs(2),
            checkpoint_every: Duration::from_secs(1),
            checkpoint_growth_bytes: 32 << 20,
            checkpoint_log_bytes: 16 << 20,
            #[cfg(feature = "planted")]
            plant_no_syncs: false,
        }
    }
}

impl EmbeddedOptions {
    #[cfg(feature = "planted")]
    pub(crate) fn syncs(&self) -> bool {
        !self.plant_no_syncs
    }

    #[cfg(not(feature = "planted"))]
    pub(crate) fn syncs(&self) -> bool {
        true
    }
}
