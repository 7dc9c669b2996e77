//! What a file system promised, and whether it kept it: a load that records what was acknowledged, and a check that
//! compares what is there after a crash.
//!
//! The record (one file a worker, on another disk than the one under test) says of each call that it begins and how it
//! ended. Replaying it gives every state that may be found: [`state`] knows which call promises what, [`check()`] compares.
//! Workers have a directory each, so what one may find never depends on how calls of two were ordered.

mod bytes;
mod check;
mod load;
mod op;
mod record;
mod state;
mod worker;

pub use check::{Expect, Verdict, check};
pub use load::{Load, LoadReport, load};

/// The name of a worker's directory in the tree, and of its record beside the others.
fn worker_name(worker: u64) -> String {
    format!("w{worker}")
}
