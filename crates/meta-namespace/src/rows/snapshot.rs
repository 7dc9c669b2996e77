//! Rows of snapshots: docs/design/0028-snapshots.md.

use super::RowFormat;
use braid_types::{SessionId, Timestamp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The snapshots of a directory, which is a snapshot root as long as there is this row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsRow {
    /// By number, rising.
    pub kept: Vec<SnapshotEntry>,
    /// Numbers of snapshots that are gone, whose rows are being looked through.
    pub going: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotEntry {
    /// Of one counter for all, so that it says of any row whether it changed before.
    pub number: u64,
    pub name: Vec<u8>,
    pub made: Timestamp,
}

impl RowFormat for SnapshotsRow {}

impl SnapshotsRow {
    /// 0: there is none.
    pub fn newest(&self) -> u64 {
        self.kept.last().map_or(0, |snapshot| snapshot.number)
    }

    /// From this one on, rising: under which numbers rows may have been kept.
    pub fn numbers_from(&self, least: u64) -> Vec<u64> {
        let all = self.kept.iter().map(|snapshot| snapshot.number).chain(self.going.iter().copied());
        let mut numbers: Vec<u64> = all.filter(|number| *number >= least).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The newest that is older than this one, also of those that are gone: where that one has another version of a row, the ones before it do
    /// not have this one's.
    pub fn before(&self, number: u64) -> Option<u64> {
        self.numbers_from(0).into_iter().take_while(|older| *older < number).last()
    }
}

/// When a handle was let go of. Whoever had a session before this one, or has had one since then, may know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandleRow {
    pub next_session: SessionId,
}

impl RowFormat for HandleRow {}

/// A row as it was until it was changed for the first time after a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldRow {
    /// Of its inode, as in [`super::Inode::born`].
    pub born: u64,
    /// `None`: there was none.
    pub row: Option<Bytes>,
}

impl RowFormat for OldRow {}

/// A file that has gone, and is in snapshots: those of its chunks that they name stay in `chunks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptInode {
    /// The first snapshot it can be in comes after this number.
    pub born: u64,
    /// The last one it can be in.
    pub until: u64,
}

impl RowFormat for KeptInode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_under_which_rows_may_be_kept() {
        let entry = |number| SnapshotEntry { number, name: vec![], made: Timestamp::default() };
        let row = SnapshotsRow { kept: vec![entry(2), entry(5), entry(9)], going: vec![7, 3] };
        assert_eq!((row.newest(), SnapshotsRow::default().newest()), (9, 0));
        assert_eq!(row.numbers_from(3), [3, 5, 7, 9]);
        assert_eq!([2, 3, 5, 9].map(|number| row.before(number)), [None, Some(2), Some(3), Some(7)]);
    }
}
