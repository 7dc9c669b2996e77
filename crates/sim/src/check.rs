//! Checkers that look past the servers: at histories, rows and chunks.

pub mod chains;
pub mod instant;
mod kept;
pub mod ledger;
pub mod rows;
pub mod unlinked;
