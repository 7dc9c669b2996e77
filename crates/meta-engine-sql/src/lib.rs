//! The SQL engine: metadata rows in a database behind the MySQL protocol (design.md §4 *SQL engine*).
//!
//! Transactions run at READ COMMITTED with row locks, many at once. Every call of a transaction is one message, the commit with
//! its writes is one more, and nobody waits for any other. A transaction that met another one, or whose server was lost, is
//! begun again, within bounds; whether one committed whose answer was lost is found out (`settle.rs`). Only SQL that
//! MariaDB, MySQL, NDB Cluster and TiDB share is used, but for the tail of a CREATE TABLE; what the database can do is
//! tried when it is opened (`probe.rs`).
//!
//! It promises what [`Engine`](braid_meta_engine::Engine) promises, with the two limits of such a database: a row that is not
//! there cannot be locked, so absence is proved by the primary key when the row is written, and is not proved where none
//! is; and reads without a lock inside a transaction are each of a moment of their own. It leaves to others: how many servers
//! keep the database and which of them is used, durability of the database itself, and who raises the epoch.

mod capabilities;
mod commit;
mod engine;
mod failure;
mod fence;
mod literal;
mod options;
mod planted;
mod pool;
mod probe;
mod read;
mod retry;
mod schema;
mod select;
mod session;
mod settle;
mod snapshot;
mod tx;
mod under_way;
mod write;

pub use capabilities::{Capabilities, Kind};
pub use engine::SqlEngine;
pub use options::{Address, Fencing, SqlOptions, hidden};
#[cfg(feature = "planted")]
pub use planted::PlantedBug;
pub use schema::FORMAT;
