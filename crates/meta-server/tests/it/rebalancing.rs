//! Data servers that are evened out: real data servers, the leader in the metadata server, rows in an engine.
#![allow(clippy::unwrap_used)]

use crate::chains::World;
use braid_api::Code;
use braid_api::admin::{AdminAnswer, AdminQuery, Rebalance, RebalanceChange, RebalanceState};
use braid_api::meta::{ContainerInfo, Duty};
use braid_env::simdisk::SimDisk;
use braid_types::*;
use std::collections::BTreeSet;
use std::time::Duration;

const LEN: usize = 2 << 20;

impl World {
    async fn rebalance(&self, change: RebalanceChange) -> braid_api::Result<Rebalance> {
        let set = AdminQuery::SetRebalance { change, within_permille: None, move_rate: None };
        let AdminAnswer::SetRebalance(seen) = self.ask(set).await? else { panic!() };
        Ok(*seen)
    }

    async fn balance(&self) -> Rebalance {
        let query = AdminQuery::Rebalance { within_permille: None };
        let AdminAnswer::Rebalance(seen) = self.ask(query).await.unwrap() else { panic!() };
        *seen
    }

    async fn evened(&self) -> Rebalance {
        for _ in 0..1200 {
            let seen = self.balance().await;
            if seen.state == RebalanceState::Done {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{:?}", self.balance().await);
    }

    async fn join(&mut self, id: u64) {
        self.disks.insert(ServerId(id), SimDisk::new());
        self.start(id, true).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }

    async fn starts_anew(&self) {
        self.net.meta.lock().take().unwrap().stop();
        self.start_meta().await;
    }

    async fn chains_of(&self, all: &[(ChunkId, ContainerInfo, u8)]) -> BTreeSet<(ContainerId, Vec<ServerId>)> {
        let mut chains = BTreeSet::new();
        for (_, info, _) in all {
            chains.insert((info.id, self.settled(info.id).await.chain));
        }
        chains
    }
}

#[tokio::test(start_paused = true)]
async fn servers_that_come_later_get_their_part_and_nothing_is_lost_on_the_way() {
    let mut world = World::new(4).await;
    let all = world.with_long_chunks(18, LEN).await;
    assert_eq!(world.balance().await.state, RebalanceState::Off);
    world.join(5).await;
    world.join(6).await;
    let plan = world.balance().await;
    let before = world.chains_of(&all).await;
    assert!(plan.left.copies > 0 && plan.left.bytes == plan.planned.iter().map(|it| it.bytes).sum::<u64>(), "{plan:?}");
    let held: Vec<(u64, u64)> = plan.fills.iter().map(|fill| (fill.server.0, fill.bytes_now)).collect();
    assert!(held[4..].iter().all(|(_, bytes)| *bytes == 0) && held[0].1 > 18 * LEN as u64 - 1, "{held:?}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.chains_of(&all).await, before, "a plan changes nothing");

    world.rebalance(RebalanceChange::Run).await.unwrap();
    // Writes go on meanwhile.
    for value in 100..110 {
        world.write_long(&all[0].1, all[0].0, value, LEN).await;
    }
    let done = world.evened().await;
    assert_eq!((done.left.copies, done.moving.len()), (0, 0), "{done:?}");
    assert!(done.moved.copies > 0 && done.moved.bytes >= plan.left.bytes / 2, "{done:?}");
    let most = |seen: &Rebalance| seen.fills.iter().map(|fill| fill.bytes_now).max();
    assert!(most(&done) < most(&plan), "the fullest is less full: {done:?}");
    let (now, then): (Vec<u64>, Vec<u64>) = done.fills.iter().map(|fill| (fill.bytes_now, fill.bytes_then)).unzip();
    assert!(now == then && now[4..].iter().all(|bytes| *bytes > 0), "{done:?}");
    for (chunk, info, _) in &all {
        let chain = world.settled(info.id).await.chain;
        for server in 1..=6 {
            assert_eq!(world.held(server, *chunk).await, chain.contains(&ServerId(server)), "{chunk} at {server}");
        }
    }
    // Whatever a server has left can be lost with its disk.
    let gave = plan.planned[0].from.0;
    world.power_cut(gave, 3);
    world.check(&all[1..]).await;
    assert!(world.read(&all[0].1, all[0].0).await.iter().all(|b| *b == 109));
}

#[tokio::test(start_paused = true)]
async fn evening_out_goes_on_with_a_new_metadata_server_and_is_paused_and_cancelled() {
    let mut world = World::new(4).await;
    world.moves.rate = 1 << 20;
    world.moves.at_once = 1;
    world.starts_anew().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let all = world.with_long_chunks(12, LEN).await;
    let refused = world.rebalance(RebalanceChange::Pause).await.unwrap_err();
    assert_eq!(refused.code, Code::Invalid, "{refused}");
    world.join(5).await;
    world.rebalance(RebalanceChange::Run).await.unwrap();
    let begun = async |world: &World| {
        for _ in 0..100 {
            let seen = world.balance().await;
            if seen.moving.iter().any(|it| it.bytes_there > 0) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{:?}", world.balance().await);
    };
    let seen = begun(&world).await;
    assert_eq!((seen.state, seen.moving.len()), (RebalanceState::Runs, 1));
    world.rebalance(RebalanceChange::Pause).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let paused = world.balance().await;
    world.starts_anew().await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    let still = world.balance().await;
    assert_eq!((still.state, still.moved), (RebalanceState::Paused, paused.moved), "{still:?}");
    assert_eq!(still.moving, paused.moving, "not a byte more");
    world.rebalance(RebalanceChange::Resume).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.starts_anew().await;
    let done = world.evened().await;
    assert!(done.moved.copies > 0, "{done:?}");
    // Given up in the middle: what is half moved goes back.
    world.join(6).await;
    world.rebalance(RebalanceChange::Run).await.unwrap();
    begun(&world).await;
    world.rebalance(RebalanceChange::Cancel).await.unwrap();
    assert_eq!(world.balance().await.state, RebalanceState::Off);
    world.chains_of(&all).await;
    world.check(&all).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_comes_first_and_evening_out_waits_for_it_and_says_so() {
    let mut world = World::new(5).await;
    let set = AdminQuery::SetDuty { server: ServerId(1), duty: Duty::Drains, move_rate: Some(1 << 19) };
    let all = world.with_long_chunks(8, LEN).await;
    world.join(6).await;
    world.ask(set).await.unwrap();
    world.rebalance(RebalanceChange::Run).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let waits = world.balance().await;
    assert_eq!((waits.state, waits.moving.len(), waits.moved.copies), (RebalanceState::Runs, 0, 0), "{waits:?}");
    assert_eq!(waits.waits_for, "the drain of data server 1");
    let done = world.evened().await;
    let AdminAnswer::Drain(drain) = world.ask(AdminQuery::Drain { server: ServerId(1) }).await.unwrap() else {
        panic!()
    };
    assert_eq!((drain.duty, drain.left.containers), (Duty::Drained, 0), "{drain:?}");
    assert!(done.fills.iter().all(|fill| fill.server != ServerId(1)), "{done:?}");
    for (_, info, _) in &all {
        assert!(!world.settled(info.id).await.chain.contains(&ServerId(1)));
    }
    world.check(&all).await;
}

/// And while a chain lacks a live server, nothing is moved for the sake of room.
#[tokio::test(start_paused = true)]
async fn repair_comes_before_evening_out() {
    let mut world = World::new(3).await;
    let all = world.with_long_chunks(4, LEN).await;
    world.power_cut(3, 9);
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.rebalance(RebalanceChange::Run).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let waits = world.balance().await;
    assert!(waits.moved.copies == 0 && waits.waits_for.contains("repair comes first"), "{waits:?}");
    world.start(3, false).await;
    world.join(4).await;
    world.evened().await;
    world.check(&all).await;
}

/// With two racks of two servers each, and a third rack that comes later.
#[tokio::test(start_paused = true)]
async fn a_rack_that_comes_later_gets_a_copy_of_everything_and_no_chain_comes_nearer() {
    let mut world = World::in_racks(4, 2).await;
    let all = world.with_long_chunks(6, LEN).await;
    let near = async |world: &World| {
        let AdminAnswer::Status(status) = world.ask(AdminQuery::Status).await.unwrap() else { panic!() };
        status.chains.too_near
    };
    assert_eq!(near(&world).await, 0, "two racks are all there are");
    // 5 is in a rack of its own.
    world.racks = 3;
    world.join(5).await;
    assert!(near(&world).await > 0);
    let plan = world.balance().await;
    assert!(plan.planned.iter().all(|it| it.spreads && it.to == ServerId(5)), "{plan:?}");
    world.rebalance(RebalanceChange::Run).await.unwrap();
    world.evened().await;
    assert_eq!(near(&world).await, 0);
    for (_, chain) in world.chains_of(&all).await {
        assert!(chain.contains(&ServerId(5)), "{chain:?}");
    }
    world.check(&all).await;
}
