//! What runs on each machine: the real servers and clients on the simulated environment.

mod beneath;
mod client;
mod data;
mod data_door;
mod meta_door;
mod metadata;
mod mount;
mod pages;
mod several;
mod snapshots;
mod words;

pub use beneath::Beneath;
pub use client::{Native, endpoint, namespace};
pub use mount::{Mount, mount};
pub use pages::{Mapping, PAGE_BYTES};
pub use words::Words;

use crate::cluster::Process;
use crate::machine::Role;
use crate::work::Work;
use std::sync::Arc;

/// Where servers listen, on every machine.
pub const PORT: u16 = 7000;

/// Runs a process until it is killed.
pub async fn run(process: Process, work: Arc<dyn Work>) {
    match process.machine.role() {
        Role::Meta if process.cluster.settings.several => several::run(process).await,
        Role::Meta => metadata::run(process).await,
        Role::Data => data::run(process).await,
        Role::Client => {
            work.run(process.clone()).await;
            process.cluster.left.lock().insert(process.machine);
        }
    }
    // A process that ended would be taken for one whose machine is off.
    std::future::pending().await
}
