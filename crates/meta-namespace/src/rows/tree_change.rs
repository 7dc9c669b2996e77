//! Rows of chmod -R, chown -R and setfacl -R.

use super::RowFormat;
use braid_api::meta::{TreeChange, TreeOp};
use braid_types::{InodeId, Timestamp};
use serde::{Deserialize, Serialize};

/// A directory in which everything is to be changed, a page at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRow {
    /// Go on after this name; empty: from the first.
    pub after: Vec<u8>,
    /// Of which this is a part.
    pub op: TreeOp,
    pub change: TreeChange,
}

impl RowFormat for ChangeRow {}

/// What was left as it is in a page of a directory. Nothing is to be done about it: whoever asked for the change is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftRow {
    pub dir: InodeId,
    /// By name.
    pub sealed: Vec<Vec<u8>>,
    /// Its access list would have names and no mask, or is damaged.
    pub refused: Vec<Vec<u8>>,
    /// When, by the clock of the server that looked: it is kept for a time.
    pub at: Timestamp,
}

impl RowFormat for LeftRow {}
