use super::RowFormat;
use braid_types::Timestamp;
use serde::{Deserialize, Serialize};

/// The row of `globals` that says of rows that nobody may serve them. Most stores have none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoverRow {
    /// Not all of them are here yet.
    Arriving {
        from: String,
        since: Timestamp,
        /// Drawn by the command that brings them: another one's is not its to take away.
        by: u64,
    },
    /// They are somewhere else now.
    Left { to: String, at: Timestamp },
}

impl RowFormat for HandoverRow {}

/// The row of `globals` that says that all others come from a backup, until an administrator confirms that they are the right ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredRow {
    /// When the backup was taken.
    pub taken: Timestamp,
}

impl RowFormat for RestoredRow {}
