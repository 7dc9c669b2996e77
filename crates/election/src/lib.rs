//! Which of several metadata servers over one database serves (design.md §4 *Election and membership*; HopsFS thesis, chapter 10:
//! leader election by rows of the database itself, so that whoever can serve can elect, and nobody else is needed).
//!
//! A pure machine, one for each process. There is one row: who leads, under which epoch, and a number that the leader raises
//! each round, its sign of life. Nobody compares clocks. Who leads may answer until its lease is over, counted from when it *began* to write its
//! last sign of life; who wants to lead takes the row when it has not changed for a lease, counted from when it *had read* it. The second
//! is later than the first on any clock, so that two never answer at once, as long as no clock is faster than another by more than
//! [`DRIFT`], however long either process stands still. What the one before still writes is fenced by the engine's epoch, which is
//! raised before anything is answered.
//!
//! A round takes as long as the database takes: when its answers come late the leader asks for a longer lease, before it is in danger, and
//! for a shorter one when they come soon again.
//!
//! Leaves to others: reading and writing the row (conditionally, in one transaction), the engine's epoch, sessions' leases.

mod candidate;
mod limits;
mod record;

pub use candidate::{Candidate, Role, Step, Written};
pub use limits::{DRIFT, Limits};
pub use record::Record;
