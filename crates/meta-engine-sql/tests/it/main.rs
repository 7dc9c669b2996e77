//! One binary for all of them: they share a database server, and each would build the code under test anew.

mod conformance;
mod lost;
mod ops;
mod proxy;
mod server;
