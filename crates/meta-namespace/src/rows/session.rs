use super::RowFormat;
use braid_types::{SessionEpoch, Timestamp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A row of `sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub epoch: SessionEpoch,
    /// Drawn by the client at its start; makes its registration idempotent.
    pub client: u64,
    pub description: String,
    pub host: String,
    pub since: Timestamp,
}

impl RowFormat for SessionRow {}

/// A row of `requests`: what a mutating request answered, so that a repetition takes effect once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRow {
    /// Which message it was, by its place in the protocol, to notice an id used twice.
    pub message: u8,
    /// The answer as it went over the wire.
    pub answer: Bytes,
}

impl RowFormat for RequestRow {}
