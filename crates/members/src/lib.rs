//! Which of several metadata servers answers for which slot (docs/design/0027-several-that-serve.md, *Members, as built*).
//!
//! Two pure machines over one row, the [`Roster`]. The [`Leader`], one at a time by `braid-election`, writes who is a member; from that row
//! alone follows which slot is whose. A [`Member`] asks the leader each round, and answers clients under the lease that comes back.
//!
//! Promises, as long as no clock is faster than another by more than [`braid_election::DRIFT`], whatever stands still, is lost or comes late:
//! - never do two processes hold one slot at once;
//! - who is not in the row as it stands answers nothing;
//! - a slot that stays with its holder is answered for without a pause when others come and go, the leader among them.
//!
//! Leaves to others: messages, the row and the engine's epoch, which are one transaction; that a transaction of a member fails under
//! another epoch; leases that a former holder gave on what is gained (`braid-lease`); which process leads.

mod follower;
mod leader;
mod limits;
mod member;
mod messages;
mod roster;

pub use braid_types::MemberId;
pub use leader::{Leader, Step, Written};
pub use limits::Limits;
pub use member::{Change, Member, Next};
pub use messages::{Answer, Heard, Question, Reply};
pub use roster::{Moved, Roster, Seat};

/// A process's own time: since anything, and it never goes back.
pub type Moment = std::time::Duration;
