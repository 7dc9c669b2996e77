//! What happened, in order: hashed, and printed on demand.

use parking_lot::Mutex;
use std::fmt::Arguments;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Messages may carry a file's bytes.
const DETAIL_CHARS_MAX: usize = 600;

/// The history of one world. Two runs of one seed have the same hash, or something is not deterministic.
#[derive(Default)]
pub struct History {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    hasher: DefaultHasher,
    events: u64,
    now: Duration,
    print: bool,
}

impl History {
    /// Prints events from now on, one a line.
    pub fn print(&self, print: bool) {
        self.inner.lock().print = print;
    }

    /// The time of events to come.
    pub fn tick(&self, now: Duration) {
        self.inner.lock().now = now;
    }

    /// An event that a reader wants to see.
    pub fn note(&self, machine: &str, what: Arguments<'_>) {
        let text = what.to_string();
        let mut inner = self.inner.lock();
        let now = inner.now;
        (now, machine, &text).hash(&mut inner.hasher);
        inner.events += 1;
        if inner.print {
            println!("{:>9.3} {machine:<8} {text}", now.as_secs_f64());
        }
    }

    /// What only a reader of this one history wants to know. Costs nothing while nobody reads.
    pub fn detail(&self, machine: &str, what: impl FnOnce() -> String) {
        let inner = self.inner.lock();
        if inner.print {
            let text: String = what().chars().take(DETAIL_CHARS_MAX).collect();
            println!("{:>9.3} {machine:<8}     {text}", inner.now.as_secs_f64());
        }
    }

    /// Bytes on the network: counted and hashed, never shown.
    pub fn bytes(&self, from: &str, to: &str, bytes: &[u8]) {
        let mut inner = self.inner.lock();
        let now = inner.now;
        (now, from, to, bytes).hash(&mut inner.hasher);
        inner.events += 1;
    }

    /// (hash, events).
    pub fn hash(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.hasher.finish(), inner.events)
    }
}
