use crate::body::message_number;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Exact counts of what went over the connections of one [`crate::Remote`] or one server.
///
/// A frame counts as sent when it is handed to a connection that was not known to be broken, as received when it
/// is complete. Hellos and cancels are not messages; they are counted apart or not at all.
pub struct WireStats {
    names: &'static [&'static str],
    /// A cell a name and one for what has none.
    sent: Box<[AtomicU64]>,
    received: Box<[AtomicU64]>,
    counts: Counts,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        #[derive(Default)]
        struct Counts { $($name: AtomicU64,)* }

        /// The counts at one moment. Names that did not occur are left out.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct WireSnapshot {
            /// Requests at the side that asks, answers and errors by their request's name at the side that serves.
            pub sent: BTreeMap<&'static str, u64>,
            pub received: BTreeMap<&'static str, u64>,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl WireStats {
            pub fn snapshot(&self) -> WireSnapshot {
                WireSnapshot {
                    sent: self.by_name(&self.sent),
                    received: self.by_name(&self.received),
                    $($name: self.counts.$name.load(Relaxed),)*
                }
            }

            $(pub(crate) fn $name(&self, n: usize) {
                self.counts.$name.fetch_add(n as u64, Relaxed);
            })*
        }
    };
}

counts! {
    /// Of whole frames, payload included.
    bytes_sent;
    bytes_received;
    payload_bytes_sent;
    payload_bytes_received;
    /// Answers, sent or received, that were errors.
    errors;
    /// Hellos that ended well.
    connects;
    /// Connections refused by a hello, or by the server for their number.
    refusals;
    /// Attempts after the first of a call.
    retries;
    /// Cancels sent or received.
    cancels;
    /// Requests that were answered without a task of their own.
    inline;
}

impl WireStats {
    pub fn new(names: &'static [&'static str]) -> Arc<Self> {
        let cells = || (0..=names.len()).map(|_| AtomicU64::new(0)).collect();
        Arc::new(WireStats { names, sent: cells(), received: cells(), counts: Counts::default() })
    }

    /// The number of the message in a body, or of "none of them".
    pub(crate) fn message(&self, body: &[u8]) -> usize {
        message_number(body).min(self.names.len())
    }

    pub(crate) fn name(&self, message: usize) -> &'static str {
        self.names.get(message).copied().unwrap_or("unknown message")
    }

    pub(crate) fn sent(&self, message: usize, bytes: usize, payload_bytes: usize) {
        self.sent[message].fetch_add(1, Relaxed);
        self.bytes_sent(bytes);
        self.payload_bytes_sent(payload_bytes);
    }

    pub(crate) fn received(&self, message: usize, bytes: usize, payload_bytes: usize) {
        self.received[message].fetch_add(1, Relaxed);
        self.bytes_received(bytes);
        self.payload_bytes_received(payload_bytes);
    }

    fn by_name(&self, cells: &[AtomicU64]) -> BTreeMap<&'static str, u64> {
        let counts = cells.iter().enumerate().map(|(message, cell)| (self.name(message), cell.load(Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}
