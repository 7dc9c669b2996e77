//! One binary for all of them: each would build the code under test anew.

mod clone_copies;
mod clones;
mod copies;
mod full;
mod life;
mod mend;
mod metadata;
mod moves;
mod order;
mod regions;
mod report;
mod requests;
mod speed;
mod successor;
mod support;
mod wire;
