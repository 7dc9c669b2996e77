//! Counters of one client.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a client did and holds, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Messages sent, by kind; the answer may have been an error.
    pub messages: BTreeMap<&'static str, u64>,
    pub bytes_written: u64,
    /// Answered to whoever reads.
    pub bytes_read: u64,
    /// Had from servers, or from the files of one on this host.
    pub bytes_fetched: u64,
    /// Reads of chunks from the files of a server on this host.
    pub local_reads: u64,
    /// Sealed files of which a cache above was given the file of a server on this host, to read it without asking.
    pub beneath: u64,
    /// Of them, those that it may read now.
    pub sealed_held: u64,
    /// Lookups and attributes answered here, and those that had to be asked.
    pub cache_hits: u64,
    pub cache_misses: u64,
    /// Files opened without a message, because they were held.
    pub opens_known: u64,
    /// Writes repeated to a server that had restarted.
    pub writes_repeated: u64,
    /// Sessions that ended while this client lived.
    pub sessions_lost: u64,
    /// Chunks found lost unsynced, which read as holes.
    pub chunks_lost: u64,
    /// Chunks that were brought to a data server on this host, as they were written here again and again.
    pub chunks_brought: u64,
    /// Changes sent again to a metadata server that had answered them and started again before they were durable.
    pub changes_replayed: u64,
    /// Such changes that could not be: the session had ended.
    pub changes_lost: u64,
    /// Changes that are answered and not known to be durable, now.
    pub changes_kept: u64,
    /// Names removed of which their programs were told before the metadata server had answered.
    pub removed_behind: u64,
    /// Of them, those that it has not answered yet.
    pub removals_unanswered: u64,
    /// Bytes given up after their error was reported.
    pub bytes_lost: u64,
    /// Files of which bytes went with a session that ended while this client lived.
    pub files_lost: u64,
    pub bytes_buffered: u64,
    pub bytes_retained: u64,
    pub bytes_prefetched: u64,
    pub open_inodes: u64,
    pub open_handles: u64,
}

impl Stats {
    /// Messages of this kind.
    pub fn sent(&self, kind: &str) -> u64 {
        self.messages.get(kind).copied().unwrap_or(0)
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    messages: Mutex<BTreeMap<&'static str, u64>>,
    pub bytes_written: AtomicU64,
    pub bytes_read: AtomicU64,
    pub bytes_fetched: AtomicU64,
    pub local_reads: AtomicU64,
    pub beneath: AtomicU64,
    pub cache_hits: AtomicU64,
    pub cache_misses: AtomicU64,
    pub opens_known: AtomicU64,
    pub writes_repeated: AtomicU64,
    pub chunks_lost: AtomicU64,
    pub chunks_brought: AtomicU64,
    pub sessions_lost: AtomicU64,
    pub changes_replayed: AtomicU64,
    pub changes_lost: AtomicU64,
    pub removed_behind: AtomicU64,
    pub bytes_lost: AtomicU64,
    pub files_lost: AtomicU64,
}

impl Counters {
    pub fn message(&self, kind: &'static str) {
        *self.messages.lock().entry(kind).or_default() += 1;
    }

    pub fn read(&self) -> Stats {
        Stats {
            messages: self.messages.lock().clone(),
            bytes_written: self.bytes_written.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_fetched: self.bytes_fetched.load(Relaxed),
            local_reads: self.local_reads.load(Relaxed),
            beneath: self.beneath.load(Relaxed),
            cache_hits: self.cache_hits.load(Relaxed),
            cache_misses: self.cache_misses.load(Relaxed),
            opens_known: self.opens_known.load(Relaxed),
            writes_repeated: self.writes_repeated.load(Relaxed),
            chunks_lost: self.chunks_lost.load(Relaxed),
            chunks_brought: self.chunks_brought.load(Relaxed),
            sessions_lost: self.sessions_lost.load(Relaxed),
            changes_replayed: self.changes_replayed.load(Relaxed),
            changes_lost: self.changes_lost.load(Relaxed),
            removed_behind: self.removed_behind.load(Relaxed),
            bytes_lost: self.bytes_lost.load(Relaxed),
            files_lost: self.files_lost.load(Relaxed),
            ..Stats::default()
        }
    }
}
