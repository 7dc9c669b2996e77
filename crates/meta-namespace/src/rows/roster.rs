use super::RowFormat;
use braid_members::Roster;
use serde::{Deserialize, Serialize};

/// The row of `elections` that says which metadata servers serve at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterRow {
    pub roster: Roster,
    /// The engine's epoch under which the members of the roster commit.
    pub fence: u64,
}

impl RowFormat for RosterRow {}
