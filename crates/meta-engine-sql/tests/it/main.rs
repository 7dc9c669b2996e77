//! One binary for all of them: they share a database server, and each would build the code under test anew.

mod conflicts;
mod conformance;
mod fences;
mod kill;
mod lost;
mod opening;
mod ops;
mod proxy;
mod server;
mod wire;
