//! The contract of a transactional store of metadata rows (design.md §4 *Engine trait*).
//!
//! An engine knows tables, keys, bytes and transactions, and nothing of file systems. It is cut at the
//! transaction: an [`Operation`] reads and writes rows through [`Tx`], so the meaning of `rename` is written
//! once, for every engine. Promises of every engine, examined by [`conformance`]:
//!
//! - serializable outcome for operations that lock what they read, in the order of [`Key`];
//! - a committed transaction survives a crash of the process and of the machine;
//! - an operation that returns an error leaves no trace;
//! - [`Engine::read`] sees a committed and durable snapshot at least as new as every transaction that was
//!   answered before the read began;
//! - what was answered early ([`Engine::transact_early`]) becomes durable in the order of its numbers, a crash takes a
//!   suffix of it, and until then nobody is shown it but its owner;
//! - what is added to a row of numbers ([`Tx::add`]) is added once, by whoever, and no adding waits to learn what they are;
//! - an [`Engine::snapshot`] is one moment of what is durable, for as long as its user wants it;
//! - where groups are kept in other places too ([`Outlet`]), nothing is durable before it is kept there.
//!
//! What it leaves to others: the meaning of rows and their versions, retries across servers, fencing.

mod any;
mod awaited;
mod between;
pub mod conformance;
mod counts;
mod early;
mod error;
mod held;
mod key;
mod led;
mod mem;
mod outlet;
mod over;
mod overlay;
mod ready;
mod snapshot;
mod stats;
mod tx;

pub use any::AnyEngine;
pub use awaited::Awaited;
pub use between::{Between, Passing, Unseen, Watch};
pub use counts::Counts;
pub use early::{Dirty, Early, Order, Touched, may_answer};
pub use error::{EngineError, TxError};
pub use held::HeldEngine;
pub use key::{Key, Table};
pub use mem::{CommitDelay, CommitFault, MemEngine, MemStore, PlantedBug};
pub use outlet::{BasePage, Copied, Kept, Outgoing, Outlet};
pub use overlay::{Overlay, Pending, ScanRange};
pub use ready::run_ready;
pub use snapshot::{Snapshot, not_asked_for};
pub use stats::{EngineStats, StatsSnapshot};
pub use tx::{Engine, Lock, Operation, Page, Row, Tx};
