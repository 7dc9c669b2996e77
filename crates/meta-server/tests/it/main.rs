//! One binary for all of them: each would build the code under test anew.

mod at_path;
mod beside;
mod budget;
mod chains;
mod common;
mod copies;
mod early;
mod freeing;
mod growing;
mod ids;
mod lead;
mod leases;
mod lost;
mod membership;
mod namespace;
mod next_session;
mod policies;
mod quotas;
mod rebalancing;
mod rename;
mod reports;
mod requests;
mod silent;
mod spread;
mod tree_changes;
mod trees;
