//! One binary for all of them: each would build the code under test anew.

mod binary;
mod common;
mod files;
mod lmdb;
mod promises;
