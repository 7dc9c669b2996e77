use super::RowFormat;
use serde::{Deserialize, Serialize};

/// The row of `elections`: which metadata server leads. The words are those of `braid-election`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadRow {
    pub epoch: u64,
    pub leader: u64,
    pub beat: u64,
    pub lease_ms: u64,
    pub released: bool,
}

impl RowFormat for LeadRow {}
