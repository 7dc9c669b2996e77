//! One binary for all of them: each would build the code under test anew.

mod conformance;
mod faults;
mod golden;
mod sharing;
