//! The reasoning of `replica:N`: who orders writes to a chunk, who may serve it, when a call is answered, who goes on
//! when a server is gone, and what is copied to whom.
//!
//! Three state machines, each fed with `on(now, event)` and answering with commands: [`DataServer`] is all chains of
//! one data server, [`Leader`] all chains of the cluster, [`Repair`] the order of mending. Around them: sets of blocks,
//! the lease, fencing, what a call waits for, the record on disk. docs/design/0006-replica-chains.md has the states,
//! messages and invariants, 0014-migration.md those of a move of ownership.
//!
//! Promises: no I/O, no clock, no randomness: the same events give the same commands. Nothing here touches content:
//! it is only ever named by blocks. Any message may be lost, repeated, late or out of order.
//!
//! Left to others: writing and reading content, recalling descriptors, transactions of rows, choosing spare servers.

mod answer;
mod behind;
mod blocks;
mod changes;
mod container;
mod event;
pub mod fence;
mod leader;
mod lease;
mod limits;
mod lineage;
mod message;
mod record;
pub mod region;
mod repair;
mod replica;
mod server;
mod takeover;

pub use answer::{Answer, Call, FileLease, Refusal, Until, Waits, until};
pub use behind::Behind;
pub use blocks::{BLOCKS_MAX, BlockSet};
pub use changes::{Changes, Group};
pub use event::Event;
pub use leader::{
    ChainRow, ContainerRow, Leader, LeaderCommand, LeaderEvent, LeaderWaits, Leaving, Place, Spares, Step,
};
pub use lease::{LeaseBook, ServerLease};
pub use limits::{DRIFT_PERCENT, Limits, Moment, held_of};
pub use lineage::{Lineage, Start, common};
pub use message::{Body, Envelope, FromLeader, Install, MESSAGE_FORMAT, Message, MessageError, Report, ToLeader, Told};
pub use record::{ChunkRecord, Claims, FORMAT, RecordError};
pub use repair::Repair;
pub use server::{Command, CopyStatus, DataServer, Found, Lacks};
pub use takeover::{Answer as TakeoverAnswer, Decision, Question, TooFew, answers_needed, decide};
