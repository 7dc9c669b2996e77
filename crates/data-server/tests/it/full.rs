//! A member of a chain whose disk is full: what it has is served, what is deleted makes room, and nobody waits for it.
#![allow(clippy::unwrap_used)]

use crate::support::cluster::*;
use braid_api::data::*;
use braid_api::{Code, Context, DataNode};
use braid_env::Disk;
use braid_types::*;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const BEFORE: u64 = 5;
const LARGE: u64 = 6;
const AFTER: u64 = 7;
const MIB: usize = 1 << 20;

fn bytes(value: u8, len: usize) -> Bytes {
    Bytes::from(vec![value; len])
}

/// Its disk takes so much more than it has.
fn fills_up(cluster: &Cluster, server: u64, room: u64) {
    let machines = cluster.machines.lock();
    let disk = &machines[server as usize - 1].world.disk;
    disk.set_capacity(Some(1 << 40));
    let space = disk.space(Path::new("/store")).unwrap();
    disk.set_capacity(Some(space.total - space.free + room));
}

/// One chunk that every copy has, and one for which server 3 has no room.
async fn third_is_full(seed: u64, servers: u64, room: u64) -> (Arc<Cluster>, Client) {
    let cluster = Cluster::new(seed, servers, 3, 2);
    let mut client = Client::new(&cluster);
    client.write(BEFORE, 0, bytes(1, MIB)).await;
    client.fsync(BEFORE).await;
    cluster.settled(BEFORE).await;
    fills_up(&cluster, 3, room);
    for part in 0..4 {
        client.write(LARGE, part << 20, bytes(2, MIB)).await;
    }
    client.fsync(LARGE).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let third = cluster.copy(3, LARGE).await.unwrap();
    assert!(third.invalid_blocks > 0, "{third:?}");
    (cluster, client)
}

async fn delete(cluster: &Cluster, server: u64, chunk: u64) {
    let cx = Context { deadline: Duration::from_secs(2), ..Context::default() };
    let asked = cluster.server(server).unwrap();
    let deleted = asked.call(cx, DeleteChunks { chunks: vec![ChunkId(chunk)] }, Bytes::new());
    tokio::time::timeout(Duration::from_secs(2), deleted).await.expect("it waits for room").unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_makes_room_on_the_full_disk_and_writing_goes_on() {
    // Not even for a name; for a part.
    for room in [0, 512 << 10, 2 << 20] {
        let (cluster, mut client) = third_is_full(60, 3, room).await;
        // Two have all: nobody waits for the third.
        client.write(AFTER, 0, bytes(3, MIB / 2)).await;
        client.fsync(AFTER).await;
        assert!(client.read_at(3, BEFORE, 0, MIB as u32).await.unwrap() == bytes(1, MIB), "it takes part");
        for (chunk, server) in [LARGE, BEFORE].into_iter().flat_map(|chunk| (1..=3).map(move |server| (chunk, server)))
        {
            delete(&cluster, server, chunk).await;
        }
        client.write(AFTER, 0, bytes(4, MIB / 2)).await;
        client.fsync(AFTER).await;
        cluster.settled(AFTER).await;
        for server in 1..=3 {
            assert!(client.read_at(server, AFTER, 0, MIB as u32 / 2).await.unwrap() == bytes(4, MIB / 2));
            assert!(cluster.copy(server, LARGE).await.is_none(), "{room}: {server}");
        }
        assert_eq!(cluster.row.lock().epoch(), ChainEpoch(1), "nobody was lost");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_takes_what_it_lacks_when_there_is_room() {
    let (cluster, client) = third_is_full(61, 3, 512 << 10).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    fills_up(&cluster, 3, 16 << 20);
    tokio::time::sleep(Duration::from_secs(15)).await;
    let read = client.read_at(3, LARGE, 0, 4 * MIB as u32).await.unwrap();
    assert!(read == bytes(2, 4 * MIB));
}

/// A server that says nothing of one chunk gets no lease for any.
#[tokio::test(start_paused = true)]
async fn a_server_with_a_full_chunk_serves_the_others_after_an_epoch_change() {
    let (cluster, mut client) = third_is_full(62, 3, 512 << 10).await;
    cluster.kill(2, Some(1));
    tokio::time::sleep(Duration::from_secs(10)).await;
    cluster.start(2);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(cluster.row.lock().epoch() > ChainEpoch(1), "it was about a new epoch");
    let read = client.read_at(3, BEFORE, 0, MIB as u32).await;
    assert!(read.unwrap() == bytes(1, MIB));
    client.write(BEFORE, 0, bytes(9, 5000)).await;
    client.fsync(BEFORE).await;
    cluster.settled(BEFORE).await;
    let read = client.read_at(3, BEFORE, 0, MIB as u32).await.unwrap();
    assert!(read[..5000] == bytes(9, 5000) && read[5000..] == bytes(1, MIB)[5000..]);
    // What it does not have is read elsewhere.
    assert_eq!(client.read_at(3, LARGE, 0, 4 * MIB as u32).await.unwrap_err().code, Code::NotOwner);
    assert!(client.read(LARGE, 0, 4 * MIB as u32).await.unwrap() == bytes(2, 4 * MIB));
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_disk_stays_full_gives_its_place_to_a_server_with_room() {
    let (cluster, mut client) = third_is_full(63, 4, 512 << 10).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    cluster.settled(LARGE).await;
    let members = cluster.row.lock().members().to_vec();
    assert!(members.contains(&ServerId(4)) && !members.contains(&ServerId(3)), "{members:?}");
    for (chunk, value, len) in [(BEFORE, 1, MIB), (LARGE, 2, 4 * MIB)] {
        assert!(client.read_at(4, chunk, 0, len as u32).await.unwrap() == bytes(value, len), "chunk {chunk}");
    }
    client.write(LARGE, 4 << 20, bytes(3, MIB)).await;
    client.fsync(LARGE).await;
    cluster.settled(LARGE).await;
    assert_eq!(cluster.live_copies(), (3, 3));
}
