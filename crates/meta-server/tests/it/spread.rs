//! Where spare chunks come from: one copy is spread over all servers, chunk by chunk.
#![allow(clippy::unwrap_used)]

use crate::common::{World, beat, registers};
use braid_api::Code;
use braid_api::meta::{GetStatFs, Heartbeat, TakeSpares};
use braid_types::{InodeId, Policy, ServerId};
use std::collections::{BTreeMap, BTreeSet};

#[tokio::test]
async fn the_chunks_of_a_plain_file_go_round_all_servers_whoever_is_beside_the_writer() {
    let world = World::new().await;
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(world.add_data_server().await);
    }
    let mut owners: Vec<ServerId> = Vec::new();
    for _ in 0..4 {
        let take = TakeSpares { policy: Policy::PLAIN, count: 6, beside: Some(servers[0]), for_moves: false };
        let given = world.call(take).await.unwrap();
        let chains: BTreeMap<_, _> = given.containers.iter().map(|info| (info.id, info.chain[0])).collect();
        owners.extend(given.spares.iter().map(|(_, container)| chains[container]));
    }
    assert_eq!(owners.len(), 24);
    for three in owners.chunks(3) {
        let mut three = three.to_vec();
        three.sort_unstable();
        assert_eq!(three, servers, "{owners:?}");
    }
}

/// Servers that are down are waited for; full ones are told at once, since only a person makes room there.
#[tokio::test]
async fn full_disks_are_no_space_and_missing_servers_are_no_servers() {
    let world = World::new().await;
    let take = || TakeSpares { policy: Policy::PLAIN, count: 1, beside: None, for_moves: false };
    assert_eq!(world.call(take()).await.unwrap_err().code, Code::NoServers);
    let id = world.add_data_server().await;
    world.call(take()).await.unwrap();
    let full = Heartbeat {
        id,
        incarnation: 1,
        disk: 0,
        filesystem: 0,
        bytes_total: 1 << 30,
        bytes_free: 1 << 20,
        chunks: 1,
        bad_blocks: 0,
        sealed_blocks: 0,
    };
    world.call(full).await.unwrap();
    let error = world.call(take()).await.unwrap_err();
    assert_eq!(error.code, Code::NoSpace);
    assert!(error.to_string().contains("256 MiB free; there are 0 of 1"), "{error}");
}

/// Found by `scripts/power-rounds`: in the moment after a start, applications were told that the disks are full.
#[tokio::test]
async fn a_server_whose_room_is_not_known_yet_is_waited_for() {
    let world = World::new().await;
    world.call(registers(ServerId(0))).await.unwrap();
    let take = TakeSpares { policy: Policy::PLAIN, count: 1, beside: None, for_moves: false };
    assert_eq!(world.call(take).await.unwrap_err().code, Code::NoServers);
}

/// What `df` shows of a machine whose servers are on one file system is that file system.
#[tokio::test]
async fn servers_of_a_host_on_one_file_system_count_its_room_once() {
    let world = World::new().await;
    // All that is asked for here is of file systems: they say that they are on one disk.
    let beat = |id, filesystem, bytes_total, bytes_free| {
        let (incarnation, disk, chunks, bad_blocks, sealed_blocks) = (1, 9, 0, 0, 0);
        Heartbeat { id, incarnation, disk, bytes_total, bytes_free, chunks, bad_blocks, sealed_blocks, filesystem }
    };
    let [one, two, three] =
        [world.add_data_server().await, world.add_data_server().await, world.add_data_server().await];
    // Each has set something aside of what is free.
    world.call(beat(one, 7, 1000, 500)).await.unwrap();
    world.call(beat(two, 7, 1000, 400)).await.unwrap();
    world.call(beat(three, 8, 100, 50)).await.unwrap();
    let space = world.call(GetStatFs { of: InodeId::ROOT }).await.unwrap();
    assert_eq!((space.bytes_total, space.bytes_free), (1100, 450));
    // Those who cannot tell have one each.
    world.call(beat(one, 0, 1000, 500)).await.unwrap();
    world.call(beat(two, 0, 1000, 400)).await.unwrap();
    let space = world.call(GetStatFs { of: InodeId::ROOT }).await.unwrap();
    assert_eq!((space.bytes_total, space.bytes_free), (2100, 950));
}

/// Partitions of a disk fail together: with three servers of a host on two disks, each chain is on both.
#[tokio::test]
async fn copies_are_kept_on_different_disks_whatever_file_systems_these_have() {
    let world = World::new().await;
    let mut of_disk = BTreeMap::new();
    for (filesystem, disk) in [(1, 7), (2, 7), (3, 8)] {
        let id = world.add_data_server().await;
        of_disk.insert(id, disk);
        world.call(Heartbeat { disk, filesystem, ..beat(id) }).await.unwrap();
    }
    let take = TakeSpares { policy: "replica:2".parse().unwrap(), count: 8, beside: None, for_moves: false };
    let given = world.call(take).await.unwrap();
    for container in &given.containers {
        let disks: BTreeSet<u64> = container.chain.iter().map(|id| of_disk[id]).collect();
        assert_eq!(disks.len(), 2, "{:?}", container.chain);
    }
    assert!(!given.containers.is_empty());
}
