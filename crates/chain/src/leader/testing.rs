//! What tests of the leader share.

use super::{Leader, LeaderCommand, LeaderEvent, Spares};
use crate::message::ToLeader;
use braid_types::{ContainerId, ServerId};
use std::time::Duration;

/// Nobody can take a place.
pub struct NoSpares;

impl Spares for NoSpares {
    fn successor(&mut self, _: ContainerId, _: &[ServerId], _: &[ServerId], _: u64) -> Option<ServerId> {
        None
    }
}

/// The first process of a server says this.
pub fn says(leader: &mut Leader, ms: u64, server: u64, message: ToLeader) -> Vec<LeaderCommand> {
    let event = LeaderEvent::FromServer { server: ServerId(server), incarnation: 1, message };
    leader.on(Duration::from_millis(ms), event, &mut NoSpares)
}
