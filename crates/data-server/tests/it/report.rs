//! What a data server says of its chunks in hashes, and what it does when some are gone.
#![allow(clippy::unwrap_used)]

use crate::support::cluster::{C, Client, Cluster};
use crate::support::*;
use braid_api::DataNode;
use braid_api::data::*;
use braid_env::Disk;
use braid_report::{Holdings, Mixer};
use braid_types::*;
use bytes::Bytes;
use std::path::PathBuf;
use std::time::Duration;

const KEY: u64 = 77;

/// Of these chunks, all in the container of [`write_of`].
fn expected(chunks: impl IntoIterator<Item = u64>) -> Holdings {
    let mut there = Holdings::default();
    there.use_key(KEY);
    chunks.into_iter().for_each(|chunk| there.insert(ChunkId(chunk), ContainerId(9)));
    there
}

fn report(ask: ReportAsk) -> GetReport {
    GetReport { key: KEY, ask }
}

fn files(chunk: u64) -> [PathBuf; 3] {
    ["meta", "data", "chain"].map(|suffix| format!("{DIR}/chunks/{:02x}/{chunk:016x}.{suffix}", chunk % 256).into())
}

#[tokio::test(start_paused = true)]
async fn a_report_is_of_what_is_there_now() {
    let world = World::new(1);
    let server = world.serve(world.open(), quiet());
    for chunk in 1..=40 {
        write(&*server, chunk, 0, b"x").await.unwrap();
    }
    let all = || async { ask(&*server, report(ReportAsk::All)).await.unwrap() };
    assert_eq!(all().await, ReportPart::All(expected(1..=40).all()));
    ask(&*server, DeleteChunks { chunks: vec![ChunkId(7)] }).await.unwrap();
    write(&*server, 50, 0, b"x").await.unwrap();
    // As of the last look, until it is asked for all again.
    let shelves = ReportAsk::Shelves { shelves: 1 };
    let of = |tally| ReportPart::Shelves(vec![tally]);
    assert_eq!(ask(&*server, report(shelves.clone())).await.unwrap(), of(expected(1..=40).all()));
    let now = expected((1..=40).filter(|chunk| *chunk != 7).chain([50]));
    assert_eq!(all().await, ReportPart::All(now.all()));
    let ids = ReportAsk::Ids { of: vec![(ContainerId(9), 4, vec![1, 3]), (ContainerId(10), 1, vec![0])] };
    assert_eq!(ask(&*server, report(ids.clone())).await.unwrap(), now.answer(&ids));
    // Another asker, another key.
    let other = GetReport { key: KEY + 1, ask: ReportAsk::All };
    assert_ne!(ask(&*server, other).await.unwrap(), ReportPart::All(now.all()));
    assert_eq!(all().await, ReportPart::All(now.all()));
}

#[tokio::test(start_paused = true)]
async fn a_report_after_a_restart_is_the_same() {
    let world = World::new(2);
    let server = world.serve(world.open(), quiet());
    for chunk in 1..=300 {
        write(&*server, chunk, 0, b"x").await.unwrap();
    }
    ask(&*server, SyncChunks::of((1..=300).map(ChunkId).collect())).await.unwrap();
    drop(server);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.disk.kill_process();
    let server = world.serve(world.open(), quiet());
    let all = ask(&*server, report(ReportAsk::All)).await.unwrap();
    assert_eq!(all, ReportPart::All(expected(1..=300).all()));
}

/// Also while the process has it open, and reads of it go on.
#[tokio::test(start_paused = true)]
async fn chunks_whose_files_are_gone_are_not_reported() {
    let world = World::new(3);
    let server = world.serve(world.open(), quiet());
    for chunk in 1..=3 {
        write(&*server, chunk, 0, b"x").await.unwrap();
    }
    world.disk.remove(&files(2)[0]).unwrap();
    world.disk.remove(&files(3)[1]).unwrap();
    assert_eq!(ask(&*server, report(ReportAsk::All)).await.unwrap(), ReportPart::All(expected([1]).all()));
    let (container, chunks) = (ContainerId(9), (1..=4).map(ChunkId).collect());
    let lose = LoseChunks { container, chunks, begin_anew: true };
    assert_eq!(ask(&*server, lose).await.unwrap(), [false, true, true, true]);
    assert_eq!(read(&*server, 2, 0, 1).await.unwrap(), b"x"[..], "nothing was done to a chunk with one copy");
}

/// What is known of a copy whose files are gone goes with the next epoch, and not before; of one that is there it stays.
#[tokio::test(start_paused = true)]
async fn a_copy_that_is_lost_begins_anew_with_the_next_epoch() {
    for server in [1, 3] {
        let cluster = Cluster::new(40 + server, 3, 3, 2);
        let mut client = Client::new(&cluster);
        let mixer = Mixer { key: KEY };
        for chunk in [5, 6] {
            client.write(chunk, 0, vec![chunk as u8; 200_000].into()).await;
            client.fsync(chunk).await;
            cluster.settled(chunk).await;
        }
        for file in files(5) {
            let _ = cluster.machines.lock()[server as usize - 1].world.disk.remove(&file);
        }
        let node = cluster.server(server).unwrap();
        let all = node.call(cx(), report(ReportAsk::All), Bytes::new()).await.unwrap().0;
        assert_eq!(all, ReportPart::All(Tally { count: 1, sum: mixer.number(C, ChunkId(6)) }));
        let lose = LoseChunks { container: C, chunks: vec![ChunkId(5), ChunkId(6)], begin_anew: true };
        assert_eq!(node.call(cx(), lose, Bytes::new()).await.unwrap().0, [true, false]);
        assert!(cluster.copy(server, 5).await.is_some(), "others count on it until they know better");
        let before = cluster.content_bytes.load(std::sync::atomic::Ordering::SeqCst);
        cluster.lost();
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.settled(5).await;
        cluster.settled(6).await;
        let copied = cluster.content_bytes.load(std::sync::atomic::Ordering::SeqCst) - before;
        assert!((200_000..300_000).contains(&copied), "{copied} bytes were copied: the other chunk was there");
        let all = node.call(cx(), report(ReportAsk::All), Bytes::new()).await.unwrap().0;
        assert!(matches!(all, ReportPart::All(Tally { count: 2, .. })), "{all:?}");
        for chunk in [5, 6] {
            for member in 1..=3 {
                let read = client.read_at(member, chunk, 0, 200_000).await.unwrap();
                assert!(read.iter().all(|byte| *byte == chunk as u8), "chunk {chunk} at {member}");
            }
        }
        // The word is good for a moment only.
        let lose = LoseChunks { container: C, chunks: vec![ChunkId(6)], begin_anew: true };
        for file in files(6) {
            let _ = cluster.machines.lock()[1].world.disk.remove(&file);
        }
        let node = cluster.server(2).unwrap();
        assert_eq!(node.call(cx(), lose, Bytes::new()).await.unwrap().0, [true]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        cluster.lost();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let disk = cluster.machines.lock()[1].world.disk.clone();
        assert!(disk.open(&files(6)[0], braid_env::OpenMode::ReadOnly).is_err(), "it was not forgotten so much later");
    }
}
