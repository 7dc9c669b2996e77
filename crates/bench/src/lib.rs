//! Workloads with exact counters, run against two targets in turn, reported as ratios.
//!
//! Promises: every figure says what was cached, what was warmed up and what had reached the disk when an operation
//! returned; two targets that are compared take turns within one run, so that a slow minute of the machine hits both;
//! counters (round trips, messages, payload bytes, syncs an operation) are exact and repeatable, times are not.
//!
//! Leaves to others: FUSE workloads, which run against any directory (`scripts/peers-bench`).

pub mod data;
pub mod metadata;
mod report;
mod turns;

pub use report::{Cell, Counters, Latency, Report};
pub use turns::{Outcome, Workload, take_turns};
