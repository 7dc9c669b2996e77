//! fsck over a metadata server on the in-memory engine and data servers that are a map each.
#![allow(clippy::unwrap_used)]

mod alive;
mod chunks;
mod names;
mod output;
mod side;
mod workload;
pub mod world;
