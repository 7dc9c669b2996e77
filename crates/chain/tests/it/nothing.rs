//! A chunk of which nothing is at a data server: it was never written, or deleted before the server began.
#![allow(clippy::unwrap_used)]

use crate::repair::{ME, OTHER, goes_on};
use braid_chain::{Answer, Command, DataServer, Event, FromLeader, Limits, Until};
use braid_types::{ChunkId, ContainerId, LeaderEpoch, Version};
use std::time::Duration;

/// Else an empty copy came to be, which nobody deletes any more, and a write that is repeated would find a chunk to write to.
#[test]
fn who_waits_for_a_chunk_that_is_not_here_is_answered_and_nothing_begins_to_be() {
    let now = Duration::from_secs(10);
    let mut server = DataServer::new(ME, 1, Limits::default(), []);
    let tick = server.on(now, Event::Tick);
    goes_on(&mut server, now, (1, 1), 1, OTHER);
    let message = FromLeader::Grant { asked: now, leader: LeaderEpoch(1), raised: Vec::new() };
    server.on(now, Event::FromLeader { incarnation: 1, message });
    let (container, chunk, until) = (ContainerId(1), ChunkId(2), Until { shared: true, stable: true });
    let said = server.on(now, Event::Wait { op: 7, container, chunk, until });
    let nothing = Answer { version: Version::default(), kept: Version::default() };
    assert!(
        matches!(&said[..], [Command::Answer { op: 7, result: Ok(answer) }] if *answer == nothing),
        "{said:?} after {tick:?}"
    );
}
