use braid_types::{CopySet, MetaPosition, MetaTerm};
use serde::{Deserialize, Serialize};

/// What a data server says of itself, with every answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// It obeys nobody of an older term.
    pub promised: MetaTerm,
    /// The newest it has recorded.
    pub set: Option<CopySet>,
    /// Its copy, if it is whole.
    pub copy: Option<Standing>,
    /// A copy that comes, and how many pages of its base are here.
    pub forming: Option<(Standing, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The last group it has.
    pub last: MetaPosition,
    /// Everything up to this number is on stable storage.
    pub synced: u64,
    /// Since its process started it had, at some moment, everything that was acknowledged. A member that is current has
    /// everything that is acknowledged; one that is not may have lost what it had not synced.
    pub current: bool,
}
