//! What is wrong with the disk now, and how it was set up.

use crate::settle::Order;
use std::time::Duration;

/// How a [`crate::PowerCutDisk`] begins.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes that fit, or no limit.
    pub capacity: Option<u64>,
    /// The order in which changes survive; `None` draws one at each cut.
    pub order: Option<Order>,
    /// Threads that answer the kernel.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { capacity: None, order: None, threads: 3 }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Syncs say that they succeeded and do nothing.
    pub lose_syncs: bool,
    /// So many writes fail with EIO and change nothing.
    pub failing_writes: u64,
    /// So many syncs fail with EIO; what they were to write is then no longer waiting.
    pub failing_syncs: u64,
    pub capacity: Option<u64>,
    pub sync_delay: Duration,
    /// After so many more changes the disk is gone until the next cut.
    pub stop_after: Option<u64>,
}

impl Faults {
    pub fn is_stopped(&self) -> bool {
        self.stop_after == Some(0)
    }

    /// EIO if the disk is gone, else one change less to go.
    pub fn count_change(&mut self) -> Result<(), i32> {
        match &mut self.stop_after {
            Some(0) => Err(libc::EIO),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// True if this write, or sync, is one of those that fail.
    pub fn takes(count: &mut u64) -> bool {
        let fails = *count > 0;
        *count -= u64::from(fails);
        fails
    }
}
