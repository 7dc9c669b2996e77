//! Counts: whether a test reached what it is about can only be seen here.

use crate::settle::{Order, Tally};
use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub reads: u64,
    pub writes: u64,
    pub bytes_written: u64,
    /// Syncs of files and of directories that were answered with success, the lost ones included.
    pub file_syncs: u64,
    pub directory_syncs: u64,
    pub lost_syncs: u64,
    /// Requests that were answered with EIO or ENOSPC because that was asked for.
    pub injected: u64,
    pub cuts: u64,
    /// What would be at risk now: writes, their bytes, changes of names.
    pub pending_writes: u64,
    pub pending_bytes: u64,
    pub pending_names: u64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reads, writes, bytes_written, file_syncs, directory_syncs, lost_syncs, injected, cuts, .. } = self;
        write!(f, "reads={reads} writes={writes} bytes_written={bytes_written} file_syncs={file_syncs} ")?;
        write!(f, "directory_syncs={directory_syncs} lost_syncs={lost_syncs} injected={injected} cuts={cuts} ")?;
        let Self { pending_writes, pending_bytes, pending_names, .. } = self;
        write!(f, "pending_writes={pending_writes} pending_bytes={pending_bytes} pending_names={pending_names}")
    }
}

/// What a cut did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutReport {
    pub order: Order,
    pub writes: Tally,
    pub names_kept: u64,
    pub names_dropped: u64,
}

impl fmt::Display for CutReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order, writes, names_kept, names_dropped } = self;
        let order = format!("{order:?}").to_lowercase();
        let Tally { kept, dropped, torn } = writes;
        write!(f, "order={order} writes_kept={kept} writes_dropped={dropped} writes_torn={torn} ")?;
        write!(f, "names_kept={names_kept} names_dropped={names_dropped}")
    }
}
