//! Operations on engines, without a server.
#![allow(clippy::unwrap_used)]

mod quotas;
mod shared;
mod snapshots;
mod tree;
