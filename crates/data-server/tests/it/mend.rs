//! Blocks of copies that rot on a disk: nobody meets an error while another copy is good, and they are written again.
#![allow(clippy::unwrap_used)]

use crate::support::cluster::*;
use braid_api::data::*;
use braid_api::{Code, DataNode};
use braid_env::Disk;
use braid_types::*;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SOME: u64 = 5;
const LEN: usize = 200_000;

fn pattern() -> Vec<u8> {
    (0..LEN).map(|i| (i / 511) as u8 | 1).collect()
}

/// Three copies of the pattern, on stable storage.
async fn three(seed: u64) -> (Arc<Cluster>, Client) {
    let cluster = Cluster::new(seed, 3, 3, 2);
    let mut client = Client::new(&cluster);
    client.write(SOME, 0, pattern().into()).await;
    client.fsync(SOME).await;
    cluster.settled(SOME).await;
    (cluster, client)
}

/// One bit of the block turns over on the server's disk.
fn rot(cluster: &Cluster, server: u64, block: u64) {
    let machines = cluster.machines.lock();
    let disk = &machines[server as usize - 1].world.disk;
    let path = format!("/store/chunks/{SOME:02x}/{SOME:016x}.data");
    disk.corrupt(Path::new(&path), block * BLOCK_BYTES + 77, 0x10).unwrap();
    disk.drop_caches();
}

fn mended(cluster: &Cluster, server: u64) -> u64 {
    let text = cluster.server(server).unwrap().metrics_text();
    text.lines().find_map(|line| line.strip_prefix("braid_data_mended_blocks_total ")?.parse().ok()).unwrap()
}

async fn all_copies_are(cluster: &Cluster, client: &Client, expected: &[u8]) {
    for server in 1..=3 {
        let read = client.read_at(server, SOME, 0, LEN as u32).await.unwrap();
        assert!(read == expected, "data server {server} has something else");
        let bad = cluster.server(server).unwrap().store().usage().unwrap().bad_blocks;
        assert_eq!(bad, 0, "data server {server}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_block_that_a_reader_meets_is_read_elsewhere_and_mended() {
    // At the owner, and at a member.
    for bad in [1, 2] {
        let (cluster, client) = three(bad).await;
        rot(&cluster, bad, 3);
        let refused = client.read_at(bad, SOME, 0, LEN as u32).await.unwrap_err();
        assert_eq!(refused.code, Code::BadBlock, "{refused}");
        let read = client.read(SOME, 0, LEN as u32).await.unwrap();
        assert!(read == pattern(), "another copy is good");
        tokio::time::sleep(Duration::from_secs(2)).await;
        all_copies_are(&cluster, &client, &pattern()).await;
        assert_eq!((1..=3).map(|server| mended(&cluster, server)).sum::<u64>(), 1);
        assert_eq!(mended(&cluster, bad), 1);
        let status = cluster.server(bad).unwrap().call(crate::support::cx(), GetDataStatus {}, Bytes::new()).await;
        assert_eq!(status.unwrap().0.mended_blocks, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_scrub_finds_on_every_disk_is_mended_from_whichever_copy_is_good() {
    let (cluster, client) = three(7).await;
    for (server, blocks) in [(1, [3, 9]), (2, [4, 10]), (3, [5, 11])] {
        blocks.into_iter().for_each(|block| rot(&cluster, server, block));
        let scrub = ScrubChunk { chunk: ChunkId(SOME) };
        let found = cluster.server(server).unwrap().call(crate::support::cx(), scrub, Bytes::new()).await.unwrap().0;
        assert_eq!(found.bad, blocks.map(|block| block * BLOCK_BYTES));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    all_copies_are(&cluster, &client, &pattern()).await;
    assert_eq!([1, 2, 3].map(|server| mended(&cluster, server)), [2, 2, 2]);
}

/// The owner cannot write a part of a block that it cannot read. Were that told as a change, the others would give up the
/// good copies they have.
#[tokio::test(start_paused = true)]
async fn a_write_of_a_part_of_a_bad_block_waits_until_it_is_mended() {
    let (cluster, mut client) = three(9).await;
    rot(&cluster, 1, 3);
    let at = 3 * BLOCK_BYTES as usize + 100;
    client.write(SOME, at as u64, vec![200; 1000].into()).await;
    client.fsync(SOME).await;
    cluster.settled(SOME).await;
    let mut expected = pattern();
    expected[at..at + 1000].fill(200);
    all_copies_are(&cluster, &client, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_bad_block_is_mended_by_whoever_owns_the_chunk_next() {
    let (cluster, mut client) = three(11).await;
    // The members' copies of two blocks rot, and nobody notices until the owner is gone.
    rot(&cluster, 2, 3);
    rot(&cluster, 3, 4);
    cluster.kill(1, Some(5));
    client.write(SOME, 100_000, vec![9; 10].into()).await;
    let mut expected = pattern();
    expected[100_000..100_010].fill(9);
    assert!(client.read(SOME, 0, 8192).await.unwrap() == expected[..8192]);
    for server in [2, 3] {
        let _ = client.read_at(server, SOME, 0, LEN as u32).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    for server in [2, 3] {
        assert!(client.read_at(server, SOME, 0, LEN as u32).await.unwrap() == expected, "data server {server}");
    }
}

fn data_file(chunk: u64) -> String {
    format!("/store/chunks/{chunk:02x}/{chunk:016x}.data")
}

async fn scrub(cluster: &Cluster, server: u64) -> usize {
    let scrub = ScrubChunk { chunk: ChunkId(SOME) };
    cluster.server(server).unwrap().call(crate::support::cx(), scrub, Bytes::new()).await.unwrap().0.bad.len()
}

/// Somebody removed it: what the process has open is written again, and a restart finds it.
#[tokio::test(start_paused = true)]
async fn a_data_file_that_is_gone_is_made_anew_while_the_server_runs() {
    for server in [1, 3] {
        let (cluster, mut client) = three(20 + server).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        cluster.machines.lock()[server as usize - 1].world.disk.remove(Path::new(&data_file(SOME))).unwrap();
        assert_eq!(scrub(&cluster, server).await, 0);
        client.write(SOME, 1_000, vec![9; 10].into()).await;
        client.fsync(SOME).await;
        cluster.settled(SOME).await;
        let mut expected = pattern();
        expected[1_000..1_010].fill(9);
        all_copies_are(&cluster, &client, &expected).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        cluster.kill(server, Some(9));
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = cluster.content_bytes.load(std::sync::atomic::Ordering::SeqCst);
        cluster.start(server);
        cluster.settled(SOME).await;
        all_copies_are(&cluster, &client, &expected).await;
        let copied = cluster.content_bytes.load(std::sync::atomic::Ordering::SeqCst) - before;
        assert!(copied < LEN as u64 / 2, "data server {server}: {copied} bytes were copied");
    }
}

/// As of a copy of which nothing is left: the pause between two questions is for what nobody has.
#[tokio::test(start_paused = true)]
async fn a_copy_that_is_bad_from_end_to_end_is_mended_in_seconds() {
    for server in [1, 2] {
        let (cluster, mut client) = three(30 + server).await;
        let mib = 1 << 20;
        for part in 0..8 {
            client.write(SOME, part * mib, vec![7; mib as usize].into()).await;
        }
        client.fsync(SOME).await;
        cluster.settled(SOME).await;
        (0..8 * mib / BLOCK_BYTES).for_each(|block| rot(&cluster, server, block));
        assert_eq!(scrub(&cluster, server).await, 2048);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let read = client.read_at(server, SOME, 0, 8 * mib as u32).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 7));
        assert_eq!(mended(&cluster, server), 2048);
    }
}
