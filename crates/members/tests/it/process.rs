//! One process of the world, and what may be wrong with it.

use crate::world::Us;
use braid_election::Candidate;
use braid_members::{Leader, Member, MemberId, Moment, Step};
use braid_types::SlotSet;
use std::time::Duration;

/// A mistake in what surrounds the machines, or in their limits, that is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// A lease is counted from when the answer came.
    CountsFromTheAnswer,
    /// The leader allows for no drift.
    IgnoresDrift,
    /// A write of which nothing is heard is taken for done.
    BelievesEveryWrite,
    /// A leader that takes over waits for nobody's lease.
    ForgetsPredecessors,
    /// A member that is elected goes on under the lease it had.
    KeepsItsLeaseAsLeader,
    /// A member says that it follows what it has not heard of.
    SaysWhatItDoesNotKnow,
    /// What is gained is answered for at once.
    NeverWaitsForOthers,
    /// A leader that is to serve alone takes others for gone at once.
    TakesAtOnce,
    /// Clocks that differ by more than a twentieth.
    Clocks,
}

pub struct Call<S> {
    pub number: u64,
    pub step: S,
    pub began: Moment,
    pub deadline: Us,
}

pub struct Process {
    pub id: MemberId,
    pub candidate: Candidate,
    pub member: Member,
    pub leader: Option<Leader>,
    /// Its clock's speed in millionths.
    pub speed: u64,
    pub offset: Us,
    /// It stands still until then; for ever if it has ended.
    pub paused: Us,
    /// Messages to and from it are lost until then. It still reaches the database.
    pub cut: Us,
    /// What it asks the database is lost until then, or the answer is.
    pub apart: Us,
    pub election_call: Option<Call<braid_election::Step>>,
    pub roster_call: Option<Call<Step>>,
    pub wake: Us,
    /// Answered for once, and the row has given it to this process ever since.
    pub stays: SlotSet,
}

impl Process {
    pub fn clock(&self, now: Us) -> Moment {
        Duration::from_micros((u128::from(now + self.offset) * u128::from(self.speed) / 1_000_000) as u64)
    }

    /// When its clock shows this.
    pub fn time_of(&self, moment: Moment) -> Us {
        let shown = moment.as_micros().min(u128::from(u64::MAX / 2_000_000)) * 1_000_000;
        (shown.div_ceil(u128::from(self.speed)) as u64).saturating_sub(self.offset)
    }

    pub fn is_alive(&self) -> bool {
        self.paused != Us::MAX
    }
}
