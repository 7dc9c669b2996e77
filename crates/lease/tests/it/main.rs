//! One binary for all of them: each would build the code under test anew.

mod announcers;
mod explore;
mod files;
mod holders;
mod holdings;
mod locks;
mod many;
mod names;
mod rules;
mod server;
