//! One data server that a leader makes the owner of chunks it has nothing of yet.
#![allow(clippy::unwrap_used)]

use crate::support::cluster::{C, write_of};
use crate::support::{World, code, cx, quiet};
use braid_api::data::{LeaderSays, Make, PeerSays, WriteChunk, WriteCopies};
use braid_api::{Code, Context, DataNode};
use braid_chain::{BlockSet, Decision, FromLeader, Install, Lineage, Message};
use braid_data_server::{Arrival, ChainLinks, Room};
use braid_types::*;
use bytes::Bytes;
use std::sync::Arc;

const SOME: u64 = 5;

/// Nobody answers.
struct Silence;
impl ChainLinks for Silence {
    fn to_peer(&self, _: ServerId, _: PeerSays, _: Bytes, _: Room, _: Arrival) {}
    fn to_leader(&self, _: u64, _: Vec<u8>) {}
}

/// Else a client takes bytes that were on stable storage for lost, or begins the chunk anew over them.
#[tokio::test(start_paused = true)]
async fn an_owner_that_fetches_its_chunk_does_not_say_that_there_is_none() {
    let world = World::new(1);
    let server = world.serve(world.open(), quiet());
    let _task = server.join_chains(Arc::new(Silence));
    let (me, other, gone) = (ServerId(3), ServerId(2), ServerId(4));
    let opening = Version { chain_epoch: ChainEpoch(2), owner_term: OwnerTerm(1), counter: 0 };
    let decision = Decision {
        chunk: ChunkId(SOME),
        owner: me,
        term: opening.owner_term,
        lineage: Lineage::new(opening.chain_epoch),
        start: Version::default(),
        opening: BlockSet::of(0..4),
        fetch: vec![(gone, Version { chain_epoch: ChainEpoch(1), ..opening }, BlockSet::of(0..4))],
        lost: 0,
        sealed: 0,
        end: 4,
    };
    let (epoch, members, decisions) = (opening.chain_epoch, vec![me, other], vec![decision]);
    let install = Install { epoch, members, copies: 2, min_copies: 2, decisions };
    let asked = world.env.clock.now().0;
    for message in [
        FromLeader::Grant { asked, leader: LeaderEpoch(1), raised: vec![(C, epoch)] },
        FromLeader::Install { container: C, install },
    ] {
        let says = LeaderSays { incarnation: server.incarnation(), sync_floor: Default::default() };
        server.call(Context::default(), says, message.encode().into()).await.unwrap();
    }
    let say = async |chunk, make| {
        let write = WriteChunk { make, ..write_of(chunk, 100).write };
        let message = WriteCopies { write, ..write_of(chunk, 100) };
        code(server.call(cx(), message, Bytes::from(vec![2; 50])).await)
    };
    // Of this one nobody has ever said anything, so there is none; before that the server does not act in the epoch.
    while say(SOME + 1, Make::No).await != Code::ChunkUnknown {
        tokio::task::yield_now().await;
    }
    // Its disk knows nothing of this one either, at first.
    for make in [Make::No, Make::Yes, Make::No] {
        assert_eq!(say(SOME, make).await, Code::NotServing, "{make:?}");
    }
}
