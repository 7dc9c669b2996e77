//! Rows of policies.

use super::RowFormat;
use braid_types::{InodeId, Policy};
use serde::{Deserialize, Serialize};

/// The policy that a directory has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRow {
    pub policy: Policy,
}

impl RowFormat for PolicyRow {}

/// A directory in which directories are to be told whose policy holds for them: they are looked through, a page at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadRow {
    /// Go on after this name; empty: from the first.
    pub after: Vec<u8>,
    /// The directory whose policy was set or cleared.
    pub top: InodeId,
}

impl RowFormat for SpreadRow {}
