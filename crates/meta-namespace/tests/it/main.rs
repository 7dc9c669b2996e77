//! Operations on engines, without a server.
#![allow(clippy::unwrap_used)]

mod quotas;
mod roster;
mod shared;
mod snapshots;
mod tree;
