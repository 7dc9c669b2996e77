//! File-system operations as transactions on normalized rows (design.md §4; HopsFS, thesis ch. 4).
//!
//! Each operation is a file in [`ops`] and runs in three phases: the first batch of rows it needs is read in one
//! round trip; it decides on the transaction's own cache ([`Unit`]); the difference goes out with the commit.
//! Promises: an operation is atomic; a mutating one runs once per request id, whatever is repeated; no operation
//! does I/O, reads a clock or draws a random number: ids and times come in with [`OpContext`].
//!
//! No path strings below this crate, no file-system meaning in the engine above which it stands.

mod charges;
mod context;
mod error;
mod format;
pub mod ops;
mod recorded;
pub mod rows;
pub mod snapshots;
mod unit;

pub use context::OpContext;
pub use error::OpError;
pub use format::{FORMAT_VERSION, FormatCluster, ReadFormat};
pub use recorded::{Mutation, Outcome, Query, ReadOnly, Recorded};
pub use unit::{Located, Place, Unit};
