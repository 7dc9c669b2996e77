//! Early answers: design.md §4 *Early reply*; docs/design/0007-early-reply.md says who keeps what, and why.
use super::MetaRequest;
use braid_types::*;
use serde::{Deserialize, Serialize};

/// How far the metadata server is, beside every answer to a caller that asks for it by [`Context::when`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Drawn at each start of the server; numbers of different ones have nothing to do with each other. 0: this server
    /// answers nothing early.
    pub incarnation: u64,
    /// What was answered early under a number up to this one is durable.
    pub durable: u64,
    /// The server has all that was kept of its predecessor's answers, and it is durable.
    pub open: bool,
    pub early: Option<EarlyMark>,
}

/// An answer that came before what it tells of is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyMark {
    /// Durable when [`Mark::durable`] reaches it.
    pub number: u64,
    /// What the server had drawn for the request: with both it can be repeated exactly.
    pub fresh: InodeId,
    pub now: Timestamp,
}

impl EarlyMark {
    /// The number of a change that its program was told of and that was not answered: none of an answer is above it.
    pub const UNANSWERED: u64 = u64::MAX;
}

/// A change that was answered early, as its client keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    pub request: RequestId,
    pub mark: EarlyMark,
    /// Whoever asked has been told, so that it must not fail. Else it is only kept for the sake of others that were.
    pub told: bool,
    pub message: MetaRequest,
}

/// What a session keeps, in pages, after a start of the server. Can be repeated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replay {
    pub kept: Vec<Kept>,
    /// Nothing follows.
    pub last: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayAnswer {
    /// Of these, changes that the server no longer takes and does not have: they are lost.
    pub lost: Vec<RequestId>,
}

/// Answered when everything that was ordered before is durable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settle {}
