//! One binary for all of them: each would build the code under test anew.

mod common;
mod kernel;
mod memory;
mod passthrough;
