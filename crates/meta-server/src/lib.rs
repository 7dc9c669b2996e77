//! The metadata server: turns messages into transactions of an engine, and keeps house.
//!
//! Promises: it keeps no state that it cannot rebuild from rows and from what clients and data servers say when
//! they come back; a mutating request takes effect once; ids are never reused; what nobody has open any more is
//! freed, what somebody may have open is not. It answers only what is durable, or what the asker has said to keep until
//! it is (`recovery.rs`).
//!
//! What it leaves to others: the meaning of operations (`meta-namespace`), the store (`meta-engine`), which
//! servers suit a chunk (`placement`).

mod admin;
mod alone;
mod announcing;
mod arrivals;
mod at_path;
mod awake;
mod background;
mod beside;
mod call;
mod chains;
mod changes;
mod complete;
mod config;
mod containers;
mod copies;
mod data_servers;
mod dispatch;
mod files;
mod freeing;
mod growing;
mod handover;
mod hints;
mod ids;
mod lead;
mod leases;
mod locks;
mod looks;
mod mailbox;
mod membership;
mod orphans;
mod plain;
mod policies;
mod queries;
mod quotas;
mod rebalancing;
mod recovery;
mod reports;
mod seals;
mod server;
mod sessions;
mod settling;
mod sizes;
mod snapshots;
mod spares;
mod strays;
mod subtree_ops;
mod trash;
mod tree_changes;
mod trees;
mod walks;
mod why;

pub use beside::Others;
pub use braid_copyset::Limits as CopyLimits;
pub use braid_election::Limits as LeadLimits;
pub use braid_members::Limits as MemberLimits;
pub use config::{MetaConfig, PlantedBug};
pub use copies::{CopyConfig, CopyError, CopySet, RecoverError, Recovered, Registrations, recover};
pub use handover::{HOLD_MAX, Handovers};
pub use lead::Lead;
pub use membership::{Holding, Membership};
pub use queries::Queries;
pub use server::{Backing, MetaServer, StartError};
