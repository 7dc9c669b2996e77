//! One binary for all of them: each would build the code under test anew.

mod copies;
mod growing;
mod hunt;
mod litmus;
mod many;
mod messages;
mod planted;
mod removals;
mod replay;
mod reports;
mod sealed;
mod seeds;
mod several;
mod snapshots;
mod trees;
