//! Copies of the metadata on data servers: who keeps them, who may answer, what a lost machine takes with it.
//!
//! Pure state machines: no I/O, no clock; `Duration`s are moments of the monotonic clock of the process that calls.
//!
//! - [`Keeper`]: a data server's part. It records terms and sets, and knows which groups of rows its copy has.
//! - [`Candidate`]: a metadata server that starts, or a recovery on another machine, until it may lead or is told why not.
//! - [`Leader`]: the metadata server's part. It says what counts as kept, until when it may answer, who is asked for what.
//!
//! Promises, each examined by `tests/explore.rs` against loss, repetition, restarts and two metadata servers at once:
//! never two answer; what was acknowledged is lost only with the metadata's disk *and* every member of the set.
//! What it leaves to others: rows, files, messages and tasks (`meta-server`, `data-server`).

mod candidate;
mod keeper;
mod leader;
mod limits;
mod quorum;
mod report;

pub use candidate::{Candidate, OwnDisk, Source, Verdict};
pub use keeper::{Copy, Keeper, Refused, Room};
pub use leader::{Append, Health, Leader, Progress};
pub use limits::Limits;
pub use quorum::quorum;
pub use report::{Report, Standing};
