//! One binary for all of them: each would build the code under test anew.

mod explore;
mod files;
mod holdings;
mod locks;
mod names;
mod rules;
mod server;
