//! What a member and its leader say to each other. Any of it may be lost, late, or told to one that leads no more.

use crate::{MemberId, Moment, Roster};
use braid_types::{LeaderEpoch, MembershipEpoch};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A member's sign of life, or the wish to become one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub member: MemberId,
    pub addresses: Vec<String>,
    /// The newest roster it follows: for what it lost under that it answers no more. `None`: it has never been a member.
    pub knows: Option<MembershipEpoch>,
    /// The newest answer it has heard.
    pub heard: Option<Heard>,
    /// It stops, and answers nothing any more: a last word, with no answer that it would need.
    pub leaves: bool,
}

/// Names an answer: whose, and when on that leader's clock, which nobody else reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Heard {
    pub elected: LeaderEpoch,
    pub given: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Written, for sure.
    pub roster: Roster,
    /// Nobody answers any more for what is another's under this roster: what is gained by it may be answered for.
    pub is_settled: bool,
    /// The member may answer for so long from when it asked. Nothing, if it seems not to hear what it is answered.
    pub lease: Duration,
    /// To be told with the next question.
    pub given: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To be asked is another, or nobody at the moment.
    NotLeading,
    /// Not yet, or not at the moment: to be asked again in a round.
    Wait,
    Member(Answer),
    /// It has been one and is none any more, under this epoch.
    Out(MembershipEpoch),
}
