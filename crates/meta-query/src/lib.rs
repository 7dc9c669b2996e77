//! SQL over the metadata's rows: SQLite's own planner and functions over tables that are read from a
//! [`Snapshot`](braid_meta_engine::Snapshot) when they are asked for.
//!
//! Promises: nothing is written and nothing outside is reached, whatever the query says; memory is bounded, and what does not fit
//! goes to nameless files; a query ends soon after it is told to; what names an inode, a directory or a path reads that alone.
//! Tables and columns are those of docs/sql-metadata.md, on every engine, and stay.
//!
//! What it leaves to others: whose thread it runs on, clocks, where the answer goes, who may ask.

mod cell;
mod error;
mod guard;
mod module;
mod pages;
mod paths;
mod plan;
mod relation;
mod run;
mod schema;
mod source;
mod tables;

pub use error::QueryError;
pub use run::{Asker, Done, Stop, TABLES, run};
pub use schema::{Column, Kind, TableDoc, schema};
