//! Where spare chunks come from: one copy is spread over all servers, chunk by chunk.
#![allow(clippy::unwrap_used)]

mod common;

use braid_api::meta::TakeSpares;
use braid_types::{Policy, ServerId};
use common::World;
use std::collections::BTreeMap;

#[tokio::test]
async fn the_chunks_of_a_plain_file_go_round_all_servers_whoever_is_beside_the_writer() {
    let world = World::new().await;
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(world.add_data_server().await);
    }
    let mut owners: Vec<ServerId> = Vec::new();
    for _ in 0..4 {
        let take = TakeSpares { policy: Policy::PLAIN, count: 6, beside: Some(servers[0]) };
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
