//! What clients do in a world, and how they know that it was right.

mod bytes;
mod durable;
mod evicted;
mod handover;
mod litmus;
mod modelled;
mod names;
mod queued;
mod removals;
mod shared;
mod snapshots;
mod tree;

pub use bytes::{ByteOp, Bytes};
pub use durable::{Durable, Sure};
pub use evicted::Evicted;
pub use handover::Handover;
pub use litmus::{Ahead, Listings, Locks, Mapped, OpenFiles, Rights, Sealed, Sizes};
pub use modelled::Modelled;
pub use names::{NameOp, Names};
pub use queued::Queued;
pub use removals::Removals;
pub use shared::Shared;
pub use snapshots::Snapshots;
pub use tree::Tree;

use crate::cluster::{Cluster, Process};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A workload of one world. It outlives the processes that work on it: what they must not forget is in here.
pub trait Work {
    /// What the process of a client machine does. Called at each of its starts; returns when this client has nothing
    /// left to do. While the cluster is not calm it goes on working, then it checks and leaves.
    fn run(self: Arc<Self>, process: Process) -> Task;

    /// Two data servers with copies of each other's chunks stopped, one before the chains had gone on without the other:
    /// what has not been synced by now may be lost, and a later sync does not bring it back.
    fn may_be_forgotten(&self) {}

    /// For the failure that not every client has left, beside who has.
    fn waits_for(&self) -> String {
        String::new()
    }

    /// What can only be checked at the end.
    fn check(&self, _: &Cluster) {}
}
