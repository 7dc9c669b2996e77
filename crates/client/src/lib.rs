//! The client: caches, buffers and the way to the servers behind [`braid_api::FileSystem`].
//!
//! Promises: what a server may still lose is kept here and repeated; a read sees every write of this client that was
//! complete when it began; two overlapping writes are never reordered; nothing is shown without a lease on it;
//! memory is bounded by [`ClientConfig`]; every wait ends by its deadline with an error that names what it waited for;
//! a failed write is reported once to each open handle.
//!
//! Leaves to others: permissions (the door's kernel), the meaning of names (`meta-namespace`), repeated sending and
//! reconnecting (`wire`).

mod acks;
mod ahead;
mod behind;
mod believed;
mod beneath;
mod body;
mod buffer;
mod cache;
mod calls;
mod client;
mod commit;
mod config;
mod copies;
mod core;
mod creating;
mod cuts;
mod dirpages;
mod fetch;
mod files;
mod give_up;
mod handles;
mod inode;
mod layout;
mod leases;
mod leaving;
mod local;
mod locks;
mod lost;
mod lru;
mod map;
mod marks;
mod members;
mod memory;
mod mover;
mod moves;
mod nearer;
mod ops;
mod prefetch;
mod quota;
mod ranges;
mod readahead;
mod readers;
mod regions;
mod reopens;
mod replay;
mod requests;
mod retain;
mod room;
mod roster;
mod route;
mod send;
mod servers;
mod session;
mod shared;
mod spares;
mod stabilise;
mod stats;
mod stop;
mod thaw;
mod truncate;
mod unknown;
mod wait;
mod writeback;

pub use client::Client;
pub use config::{ClientConfig, Routing};
pub use mover::{keep_moving, keep_moving_among};
#[doc(hidden)]
pub use requests::{Asked, Requests};
pub use route::Ways;
pub use stats::Stats;
#[doc(hidden)]
pub use wait::Deadline;
