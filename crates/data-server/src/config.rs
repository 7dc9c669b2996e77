use braid_chain::Limits;
use std::time::Duration;

/// What a data server may use and how often it tidies up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataServerConfig {
    /// Bytes of requests that are processed at once; more wait, and their connections are not read further. A single
    /// request may be larger and then runs alone.
    pub memory_bytes: u64,
    /// The most one read may ask for: what fits a frame.
    pub read_bytes_max: u32,
    /// Free read buffers kept for reads to come.
    pub pool_bytes: usize,
    /// Writes up to this size are done by whoever calls, if nothing says that they could wait for the disk.
    pub inline_write_bytes: usize,
    /// The same for reads that the page cache can answer.
    pub inline_read_bytes: usize,
    /// How often all that is dirty is synced; zero is never.
    pub sync_every: Duration,
    /// Syncs of chunks that run at once.
    pub syncs_at_once: usize,
    /// How fast checksums are verified in the background; zero is not at all.
    pub scrub_bytes_per_s: u64,
    /// Between two rounds of that.
    pub scrub_pause: Duration,
    /// Chunks whose version and generation are kept in memory, about 200 bytes each.
    pub lanes_max: usize,
    /// Times and bounds of chunks with several copies; the same at every server and at the leader.
    pub chain_limits: Limits,
}

impl Default for DataServerConfig {
    fn default() -> Self {
        DataServerConfig {
            memory_bytes: 256 << 20,
            read_bytes_max: 16 << 20,
            pool_bytes: 64 << 20,
            // Handing work to an I/O thread and back costs 10 to 25 µs (tests/it/speed.rs); writing 128 KiB into the page
            // cache takes 15, reading and verifying 256 KiB 18. Below these sizes the hand-over would cost more than
            // the work, above them the other requests of the connection would notice.
            inline_write_bytes: 128 << 10,
            inline_read_bytes: 256 << 10,
            sync_every: Duration::from_secs(1),
            // With the one of the background, one of the four I/O threads is left for reads and writes.
            syncs_at_once: 2,
            // A terabyte in a day and a half.
            scrub_bytes_per_s: 8 << 20,
            scrub_pause: Duration::from_secs(24 * 3600),
            lanes_max: 16 << 10,
            chain_limits: Limits::default(),
        }
    }
}
