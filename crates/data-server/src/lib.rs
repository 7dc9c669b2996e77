//! The data server: answers [`braid_api::DataNode`] requests from a [`braid_data_store::ChunkStore`].
//!
//! Promises: writes to one chunk are applied in the order in which they arrived; a write that is answered survives
//! the death of the process, and one that [`WriteAnswer::stable`](braid_api::data::WriteAnswer) covers that of the
//! machine; what is dirty is synced every second without being asked; a request of a fenced session, or one that
//! carries an old epoch or truncate generation, changes nothing once the fence is acknowledged; every error names
//! this server and the chunk, and the file where there is one; memory for requests in process is bounded; the thread
//! that reads a connection never waits for a sync; a request may be dropped at any await, and is then carried out whole
//! or not at all.
//!
//! Leaves to others: bytes and checksums (`data-store`), framing (`wire`), what a file is and which chunks it has
//! (`client`, `meta-namespace`), and reading a spare chunk that was never written, which is unknown here.

mod background;
mod budget;
mod chain;
mod config;
mod core;
mod error;
mod gate;
mod grown;
mod lane;
mod late;
mod local;
mod metadata;
mod metrics;
mod newest;
mod once;
mod ops;
mod regions;
mod registration;
mod reservations;
mod server;
mod stats;
mod syncs;
mod versions;
mod work;

pub use chain::{Arrival, ChainLinks, Room, SharedLinks, Stands, Waiting, WireLinks};
pub use config::DataServerConfig;
pub use metadata::MetadataKeeper;
pub use registration::{Announcement, enrol};
pub use server::DataServer;
pub use stats::DataCounters;
