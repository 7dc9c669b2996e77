//! Servers that are drained and taken out: real data servers, the leader in the metadata server, rows in an engine.
#![allow(clippy::unwrap_used)]

use crate::chains::World;
use braid_api::Code;
use braid_api::admin::{AdminAnswer, AdminQuery, Drain};
use braid_api::meta::*;
use braid_types::*;
use std::time::Duration;

impl World {
    async fn duty(&self, server: u64, duty: Duty) -> braid_api::Result<Drain> {
        let set = AdminQuery::SetDuty { server: ServerId(server), duty, move_rate: None };
        let AdminAnswer::SetDuty(drain) = self.ask(set).await? else { panic!() };
        Ok(*drain)
    }

    async fn drain(&self, server: u64) -> braid_api::Result<Drain> {
        let AdminAnswer::Drain(drain) = self.ask(AdminQuery::Drain { server: ServerId(server) }).await? else {
            panic!()
        };
        Ok(*drain)
    }

    async fn drained(&self, server: u64) -> Drain {
        for _ in 0..1200 {
            let drain = self.drain(server).await.unwrap();
            if drain.duty == Duty::Drained {
                return drain;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{:?}", self.drain(server).await);
    }

    /// Some containers with a chunk each, all with this server.
    async fn with_chunks(&self, count: u8) -> Vec<(ChunkId, ContainerInfo, u8)> {
        self.with_long_chunks(count, 100_000).await
    }

    pub async fn with_long_chunks(&self, count: u8, len: usize) -> Vec<(ChunkId, ContainerInfo, u8)> {
        let mut all = Vec::new();
        for value in 1..=count {
            let (chunk, info) = self.spare().await;
            self.write_long(&info, chunk, value, len).await;
            all.push((chunk, info, value));
        }
        all
    }

    pub async fn check(&self, all: &[(ChunkId, ContainerInfo, u8)]) {
        for (chunk, info, value) in all {
            assert!(self.read(info, *chunk).await.iter().all(|b| b == value), "chunk {chunk}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drained_server_has_nothing_any_more_and_every_chunk_has_its_copies_elsewhere() {
    let world = World::new(5).await;
    let all = world.with_chunks(6).await;
    assert!(all.iter().all(|(_, info, _)| info.chain[0] == ServerId(1)), "it is the owner of all");
    let plan = world.drain(1).await.unwrap();
    assert_eq!((plan.duty, plan.left.chunks, plan.stuck.containers, plan.is_known), (Duty::Serves, 6, 0, true));
    let taken: u64 = plan.takers.iter().map(|taker| taker.load.chunks).sum();
    assert!(taken == 6 && plan.left.bytes >= 6 * 100_000, "{plan:?}");
    let row = world.row(all[0].1.id).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.row(all[0].1.id).await, row, "a plan changes nothing");

    world.duty(1, Duty::Drains).await.unwrap();
    // Writes go on meanwhile, and what is new goes elsewhere.
    let mut late = Vec::new();
    for value in 100..110 {
        world.write(&all[0].1, all[0].0, value).await;
        let (chunk, info) = world.spare().await;
        assert!(!info.chain.contains(&ServerId(1)), "{info:?}");
        world.write(&info, chunk, value).await;
        late.push((chunk, info, value));
    }
    let done = world.drained(1).await;
    assert!(done.is_done() && done.left.containers == 0, "{done:?}");
    world.write(&all[1].1, all[1].0, 77).await;
    for (chunk, info, _) in &all {
        let row = world.settled(info.id).await;
        assert!(!row.chain.contains(&ServerId(1)) && row.chain.len() == 3, "{row:?}");
        assert!(!world.held(1, *chunk).await, "chunk {chunk} is still at 1");
        for member in &row.chain {
            assert!(world.held(member.0, *chunk).await, "chunk {chunk} at {member}");
        }
    }
    // Its disk may go.
    world.power_cut(1, 3);
    world.check(&late).await;
    world.check(&all[2..]).await;
    assert!(world.read(&all[0].1, all[0].0).await.iter().all(|b| *b == 109));
    assert!(world.read(&all[1].1, all[1].0).await.iter().all(|b| *b == 77));
}

#[tokio::test(start_paused = true)]
async fn a_drain_goes_on_with_a_new_metadata_server_and_without_the_drained_one() {
    for lost in [false, true] {
        let mut world = World::new(5).await;
        world.moves.rate = 500_000;
        world.moves.at_once = 1;
        world.net.meta.lock().take().unwrap().stop();
        world.start_meta().await;
        tokio::time::sleep(Duration::from_secs(8)).await;
        let all = world.with_long_chunks(4, 2 << 20).await;
        world.duty(1, Duty::Drains).await.unwrap();
        tokio::time::sleep(Duration::from_secs(6)).await;
        let half = world.drain(1).await.unwrap();
        assert!(half.left.containers > 0 && half.moving.containers == 1 && half.duty == Duty::Drains, "{half:?}");
        world.net.meta.lock().take().unwrap().stop();
        if lost {
            world.power_cut(1, 8);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        world.start_meta().await;
        let done = world.drained(1).await;
        assert_eq!((done.left.containers, done.stuck.containers), (0, 0));
        for (_, info, _) in &all {
            assert!(!world.settled(info.id).await.chain.contains(&ServerId(1)));
        }
        world.check(&all).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_no_place_to_go_to_is_said_and_stays() {
    let world = World::new(3).await;
    let all = world.with_chunks(2).await;
    let plan = world.duty(2, Duty::Drains).await.unwrap();
    assert_eq!((plan.stuck.containers, plan.left.containers), (plan.left.containers, plan.left.containers));
    let reason = plan.reasons.first().unwrap();
    assert!(reason.contains("no data server for its place: 1 has a copy, 3 has a copy"), "{reason}");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(world.drain(2).await.unwrap().duty, Duty::Drains);
    for (_, info, _) in &all {
        assert!(world.row(info.id).await.chain.contains(&ServerId(2)), "never fewer copies");
    }
    let refused = world.duty(2, Duty::Decommissioned).await.unwrap_err();
    assert_eq!(refused.code, Code::Invalid, "{refused}");
    // A cancel: it serves as before.
    assert_eq!(world.duty(2, Duty::Serves).await.unwrap().duty, Duty::Serves);
    world.write(&all[0].1, all[0].0, 9).await;
    assert_eq!(world.spare().await.1.chain.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_paused_drain_keeps_what_is_there_and_takes_nothing_new() {
    let world = World::new(4).await;
    let all = world.with_chunks(3).await;
    let on_two: Vec<_> = all.iter().filter(|(_, info, _)| info.chain.contains(&ServerId(2))).collect();
    assert!(!on_two.is_empty());
    let refused = world.duty(2, Duty::Paused).await.unwrap_err();
    assert_eq!(refused.code, Code::Invalid, "it is not being drained: {refused}");
    let set = AdminQuery::SetDuty { server: ServerId(2), duty: Duty::Drains, move_rate: Some(1 << 16) };
    world.ask(set).await.unwrap();
    world.duty(2, Duty::Paused).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    for (_, info, _) in &on_two {
        assert!(world.row(info.id).await.chain.contains(&ServerId(2)));
    }
    assert!(!world.spare().await.1.chain.contains(&ServerId(2)));
    // The rate is kept, as the pause is, by the rows.
    world.net.meta.lock().take().unwrap().stop();
    world.start_meta().await;
    let seen = world.drain(2).await.unwrap();
    assert_eq!((seen.duty, seen.move_rate), (Duty::Paused, 1 << 16));
    world.duty(2, Duty::Drains).await.unwrap();
    world.drained(2).await;
    world.check(&all).await;
}

#[tokio::test(start_paused = true)]
async fn a_decommissioned_server_is_refused_for_ever_and_not_before_it_is_empty() {
    let world = World::new(4).await;
    let all = world.with_chunks(3).await;
    for duty in [Duty::Serves, Duty::Drains] {
        world.duty(1, duty).await.unwrap();
        let refused = world.duty(1, Duty::Decommissioned).await.unwrap_err();
        assert_eq!(refused.code, Code::Invalid, "{refused}");
    }
    world.drained(1).await;
    world.duty(1, Duty::Decommissioned).await.unwrap();
    for _ in 0..2 {
        let servers = world.ask(GetServers {}).await.unwrap().servers;
        assert_eq!(servers.iter().map(|info| info.id.0).collect::<Vec<_>>(), [2, 3, 4]);
        let back = RegisterServer {
            id: ServerId(1),
            incarnation: 99,
            addresses: vec!["unix:/1".into()],
            host: "host1".into(),
            clean_stop: false,
            rack: String::new(),
        };
        let refused = world.ask(back).await.unwrap_err();
        assert_eq!(refused.code, Code::Decommissioned);
        assert!(refused.to_string().contains("empty directory"), "{refused}");
        assert_eq!(world.drain(1).await.unwrap_err().code, Code::Decommissioned);
        assert_eq!(world.drain(9).await.unwrap_err().code, Code::NotFound);
        world.check(&all).await;
        world.net.meta.lock().take().unwrap().stop();
        world.start_meta().await;
    }
}

/// The rate holds for what is moved, whatever number of servers take part.
#[tokio::test(start_paused = true)]
async fn what_is_moved_keeps_to_the_rate_in_all() {
    let mut world = World::new(6).await;
    world.moves.rate = 1 << 20;
    world.net.meta.lock().take().unwrap().stop();
    world.start_meta().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let all = world.with_long_chunks(8, 2 << 20).await;
    let begun = tokio::time::Instant::now();
    world.duty(1, Duty::Drains).await.unwrap();
    world.drained(1).await;
    let took = begun.elapsed();
    // 16 MiB at 1 MiB a second; a second's worth may have been saved up at each of five takers.
    assert!(took >= Duration::from_secs(10), "16 MiB in {took:?}");
    assert!(took <= Duration::from_secs(60), "16 MiB in {took:?}");
    world.check(&all).await;
}

/// With three racks of two servers each.
#[tokio::test(start_paused = true)]
async fn copies_stay_in_three_racks_when_a_server_is_drained() {
    let world = World::in_racks(6, 3).await;
    let all = world.with_chunks(6).await;
    let racks = |chain: &[ServerId]| chain.iter().map(|id| id.0 % 3).collect::<std::collections::BTreeSet<_>>().len();
    assert!(all.iter().all(|(_, info, _)| racks(&info.chain) == 3), "{all:?}");
    world.duty(1, Duty::Drains).await.unwrap();
    world.drained(1).await;
    for (_, info, _) in &all {
        let chain = world.settled(info.id).await.chain;
        assert!(racks(&chain) == 3 && chain.contains(&ServerId(4)), "{chain:?}: 4 is in the rack of 1");
    }
    world.check(&all).await;
}

/// A rack that comes later: what is there is nearer than it would have to be, and is said to be.
#[tokio::test(start_paused = true)]
async fn chains_that_are_nearer_than_they_need_to_be_are_counted() {
    let world = World::in_racks(4, 2).await;
    let near = async |world: &World| {
        let AdminAnswer::Status(status) = world.ask(AdminQuery::Status).await.unwrap() else { panic!() };
        (status.chains.containers, status.chains.too_near)
    };
    let (chunk, info) = world.spare().await;
    world.write(&info, chunk, 1).await;
    assert_eq!(near(&world).await, (1, 0), "two racks are all there are");
    let third = RegisterServer {
        id: ServerId(0),
        incarnation: 7,
        addresses: vec!["unix:/5".into()],
        host: "host5".into(),
        clean_stop: false,
        rack: "new".into(),
    };
    world.ask(third).await.unwrap();
    assert_eq!(near(&world).await, (1, 1));
}

/// There is nobody for its places, and then nothing is left that would need one.
#[tokio::test(start_paused = true)]
async fn a_server_is_drained_when_what_could_not_move_is_removed() {
    let world = World::new(3).await;
    world.with_chunks(2).await;
    world.duty(3, Duty::Drains).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(world.drain(3).await.unwrap().stuck.containers > 0);
    world.leave().await;
    let done = world.drained(3).await;
    assert!(done.is_done(), "{done:?}");
}
