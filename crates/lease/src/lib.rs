//! Leases: what lets mounts cache and still agree, as pure state machines for both ends.
//!
//! - [`Holder`] is the slot holder's side: leases on the namespace, file leases, locks. One call,
//!   [`Holder::on`], takes what happened and gives what is to be done; [`Holder::wakeup`] says when to call again.
//! - [`Holdings`] is a client's side: what it holds of one slot holder, what it may answer from its cache now, what it
//!   must do before it acknowledges.
//! - [`Announcer`] is a metadata server's side that runs changes, where several hold slots: it announces each at the holders of
//!   what it changes, and says when to transact it. [`Roster`] says who holds what; [`ManyHoldings`] is a client's side then.
//! - [`Limits`] is the table of all time limits, with the inequalities between them.
//!
//! Promises: no I/O, no clock, no randomness: the caller reads its monotonic clock and passes the [`Moment`]. A message
//! that is lost, repeated or overtaken makes a lease shorter or an answer later, never a stale answer. No wait is
//! without an end: who does not answer loses its term, and with it what it held. `docs/design/0005-leases.md` has states,
//! messages, invariants and the arithmetic; `tests/` explores small systems of these machines exhaustively.

mod alone;
mod announcer;
mod client;
mod command;
mod event;
mod few;
mod files;
mod holder;
mod key;
mod limits;
mod locks;
mod names;
mod roster;
mod slots;
mod table;
mod terms;
mod time;

pub use alone::Alone;
pub use announcer::{Announcer, Happened, Step, Why};
pub use client::{Holdings, ManyHoldings, ManyTodo, Renewal, Seen, Ticket, Todo};
pub use command::{Command, EndReason, Refusal};
pub use event::Event;
pub use files::{Generation, Grown, Handles, HeldLock, Mode, Reasserted, Want};
pub use holder::{Holder, Waits};
pub use key::{AnnouncementId, AskId, Key, KeyRef, RevocationId};
pub use limits::Limits;
pub use locks::{LockAnswer, LockOwner, LockSpec, Space};
pub use roster::Roster;
pub use time::{DRIFT_PERCENT, Moment, usable};
