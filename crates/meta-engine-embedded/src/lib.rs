//! The embedded engine: metadata rows on this machine's disk, in LMDB (design.md §4 *Embedded engine*).
//!
//! One thread executes transactions one after the other inside one LMDB transaction, writes what all that are queued have changed to a log
//! and syncs that once (`journal.rs`), then answers each: no row locks, no conflicts, no deadlocks. Each operation writes to a buffer
//! of its own that reaches LMDB only when the operation succeeded, so one that fails leaves no trace while the
//! others of its group commit. Reads run on the caller's thread on a lock-free snapshot and never wait, but where they
//! touch what was answered early and is not durable (`ordered.rs`): then they run on the write thread.
//!
//! It promises what [`Engine`](braid_meta_engine::Engine) promises; that a directory is open once; that a
//! newer format is refused; and that while the map or the disk is full, transactions that remove rows go
//! through. It leaves to others: where copies on other machines are (it
//! gives groups to an outlet and answers when they are kept), and leases on the right to answer.

mod checkpoint;
mod copied;
mod engine;
mod error;
mod format;
mod frozen;
mod job;
mod journal;
mod lock;
mod log;
mod options;
mod ordered;
mod queue;
mod read;
mod room;
mod rows;
mod settle;
mod snapshot;
mod store;
mod write;
mod writer;

pub use engine::EmbeddedEngine;
pub use format::FORMAT;
pub use options::EmbeddedOptions;
