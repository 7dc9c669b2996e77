use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        #[derive(Default)]
        pub(crate) struct Stats { $(pub $name: AtomicU64,)* }

        /// Exact counts since this start of the server.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct DataCounters { $($(#[$doc])* pub $name: u64,)* }

        impl Stats {
            pub fn snapshot(&self) -> DataCounters {
                DataCounters { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Reads that were answered.
    reads;
    /// Of those, the ones that no I/O thread was needed for.
    reads_inline;
    bytes_read;
    /// Writes that were applied.
    writes;
    writes_inline;
    bytes_written;
    /// SyncChunks requests and writes that asked for one.
    sync_requests;
    /// Syncs of chunks, or of the whole store, that were carried out.
    syncs;
    /// Bytes verified in the background.
    scrubbed_bytes;
    /// Bad blocks found so.
    scrubbed_bad;
    /// Requests that ended with an error.
    errors;
}

pub(crate) fn count(cell: &AtomicU64, n: usize) {
    cell.fetch_add(n as u64, Relaxed);
}
