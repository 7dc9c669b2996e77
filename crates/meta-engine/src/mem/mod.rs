//! An engine in memory: for the simulator and for tests of everything above.
//!
//! [`MemStore`] is the disk, [`MemEngine`] the process that has it open. No threads, no clock, no randomness of
//! its own: the same calls give the same answers. The durability contract is the embedded engine's:
//! transactions run one after the other in the order they were first polled, and see all that was ordered
//! before them; each is answered only when it and everything ordered before it is durable; [`Engine::read`]
//! sees durable rows only. What may be answered early waits for nothing, and becomes durable with the next that waits
//! or when the hook of [`MemStore::set_hold`] says so. Between order and durability lies the await of [`MemStore::set_commit_delay`], and
//! [`MemStore::crash`] decides what of the not yet durable survives: a prefix in order, each transaction whole.
//!
//! [`Engine::read`]: crate::Engine::read

mod engine;
mod fault;
mod snapshot;
mod store;
mod tx;

pub use engine::MemEngine;
pub use fault::{CommitFault, PlantedBug};
pub use store::{CommitDelay, MemStore};

#[cfg(test)]
mod tests;
