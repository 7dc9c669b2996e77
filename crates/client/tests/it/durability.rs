//! What close and write have reached when they return, by the policy's durability: the client dies and the servers lose
//! their power right after.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::FileSystem;
use braid_types::{Durability, Policy};
use bytes::Bytes;

const LEN: usize = CHUNK as usize + 300_000;

/// Writes a file and maybe closes it; whether another client finds its bytes after the writer and the power are gone.
async fn survives(seed: u64, durability: Durability, closed: bool) -> bool {
    let world = World::new(Storage::Disk, Policy { durability, ..SMALL }).await;
    let client = world.client().await;
    let (id, handle) = create(&client, "file").await;
    let data = pattern(seed, LEN);
    client.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
    if closed {
        close(&client, handle).await.unwrap();
    }
    let session = world.sessions().await[0];
    drop(client);
    world.nodes.iter().enumerate().for_each(|(n, node)| node.lose_power(seed * 10 + n as u64));
    world.end_session(session).await;
    let other = world.client().await;
    let handle = open(&other, id, READ).await;
    match tokio::time::timeout(std::time::Duration::from_secs(5), other.read(handle, 0, LEN as u32)).await {
        Ok(Ok(read)) => read.concat() == data,
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_close_returned_for_under_durability_close_survives_power() {
    for seed in 0..6 {
        assert!(survives(seed, Durability::Close, true).await, "seed {seed}: lost what close had returned for");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_write_returned_for_under_durability_write_survives_power() {
    for seed in 0..6 {
        assert!(survives(seed, Durability::Write, false).await, "seed {seed}: lost what write had returned for");
    }
}

/// The default promises less; were nothing lost here, the two tests above would show nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mere_close_of_a_large_file_leaves_the_sync_to_the_server() {
    let mut lost = 0;
    for seed in 0..6 {
        lost += u32::from(!survives(seed, Durability::Fsync, true).await);
    }
    assert!(lost > 0, "no power cut lost anything");
}
