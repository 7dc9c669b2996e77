//! Messages of metadata servers to the data servers that keep copies of the rows: terms, sets, groups, bases.
//!
//! Each may be lost, repeated and late; each is answered with what the data server says of itself, and that alone tells what
//! came of it.

use braid_types::{CopySet, MetaPosition, MetaTerm};
pub use braid_types::{CopyStanding, KeeperReport};
use serde::{Deserialize, Serialize};

/// Asks for a promise to obey this term; without one, only how things are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PromiseTerm {
    pub term: Option<MetaTerm>,
}

/// The newest set of a metadata server that leads. It is recorded, and the answer lets that server answer for a while.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordSet {
    pub set: CopySet,
}

/// Groups that follow `prev`, their changes one after the other in the payload. With `sync` they are to be made stable soon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppendGroups {
    pub term: MetaTerm,
    pub prev: MetaPosition,
    /// Each with the length of its changes.
    pub groups: Vec<(MetaPosition, u32)>,
    /// The last number that was acknowledged.
    pub durable: u64,
}

/// Answered when all groups that had come before are on stable storage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncGroups {
    pub term: MetaTerm,
}

/// A page of a base that began at `from`; its rows are the payload. Page 0 begins it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutBase {
    pub term: MetaTerm,
    pub from: MetaPosition,
    pub page: u64,
    /// With the last page: up to which group rows are in it.
    pub upto: Option<u64>,
    pub durable: u64,
}

/// Asks for the copy itself, in pieces from the first on: the base, then the groups. The payload has changes of rows, which in
/// this order make the rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FetchRows {
    /// That was promised.
    pub term: MetaTerm,
    /// What the last piece said; zero at first.
    pub after: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedRows {
    pub next: Option<u64>,
    /// With the last piece: the copy is at this position.
    pub at: MetaPosition,
}
