//! Whole clusters in one thread, from one seed (design.md §9).
//!
//! A [`world`](run) is a metadata server, three data servers and two clients: the real ones, over the real wire, on an
//! [`env`] whose network and time are the crate `turmoil` and whose disks are `braid_env::simdisk`. A [`Scenario`] says
//! what its clients do ([`work`]), what goes wrong ([`fault`]) and for how long; first the system must stay right, then
//! the faults stop and it must come back. Checkers say what is right by name ([`Invariant`]), and [`coverage`] says
//! what was reached at all.
//!
//! Promises: the same seed gives the same history, byte for byte; what is found has a seed and a command that shows it.
//! Left out: threads (blocking work runs in place), the kernel above the client, more than one metadata server.

mod bug;
pub mod check;
mod cluster;
pub mod coverage;
pub mod env;
mod failures;
pub mod fault;
mod history;
mod host;
mod inject;
mod machine;
mod operator;
pub mod scenario;
pub mod seed;
mod settings;
mod witness;
pub mod work;
mod world;

pub use bug::Bug;
pub use cluster::{Cluster, Process};
pub use failures::{Failure, Failures, Invariant};
pub use history::History;
pub use machine::{Machine, Role};
pub use scenario::Scenario;
pub use settings::Settings;
pub use world::{Outcome, run};
