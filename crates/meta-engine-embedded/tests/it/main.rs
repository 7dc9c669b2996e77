//! One binary for all of them: each would build the code under test anew.

mod conformance;
mod copies;
mod crash;
mod early;
mod full;
mod groups;
mod kill;
mod opening;
mod snapshots;
