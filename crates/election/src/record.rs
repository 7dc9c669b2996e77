use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Rises by one with each leader.
    pub epoch: u64,
    /// Drawn at each start of a process: nobody is taken for its predecessor.
    pub leader: u64,
    /// Rises with each sign of life.
    pub beat: u64,
    /// From the beginning of the write of this record on.
    pub lease_ms: u64,
    /// It leads no more, and said so itself: nobody has to wait for the end of its lease.
    pub released: bool,
}

impl Record {
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}
