//! Chunks that were on stable storage and whose files are gone: nothing is made up for them.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::meta::AdminQuery;
use braid_api::{Code, Context, FileSystem, Namespace, OpenFlags, SeekWhence, SetAttr};
use braid_client::{Client, ClientConfig};
use braid_types::*;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LEN: usize = 100_000;

fn quick() -> ClientConfig {
    let ms = Duration::from_millis;
    ClientConfig { lost_after: ms(100), stabilise_after: ms(100), ..ClientConfig::default() }
}

async fn lose_all(world: &World) -> usize {
    let chunks = world.chunks().await;
    for chunk in &chunks {
        world.nodes.iter().for_each(|node| node.lose_chunk(*chunk));
    }
    assert_eq!(world.chunks().await, []);
    chunks.len()
}

async fn written(client: &Client, text: &str, sync: bool) -> InodeId {
    let (id, handle) = create(client, text).await;
    client.write(handle, 0, Bytes::from(pattern(1, LEN))).await.unwrap();
    if sync {
        client.fsync(handle, false).await.unwrap();
    }
    close(client, handle).await.unwrap();
    id
}

/// A world with one file, that was told to be stable and is gone.
async fn with_lost_file(sync: bool) -> (World, Arc<Client>, InodeId) {
    let world = World::new(Storage::Disk, SMALL).await;
    let writer = world.client_with(quick()).await;
    let id = written(&writer, "file", sync).await;
    if !sync {
        // Within the time after which it is stable, and that for which marks are gathered.
        let begun = Instant::now();
        while !world.take_messages().0.contains_key("MarkStable") {
            assert!(begun.elapsed() < Duration::from_secs(20), "nobody says that the chunk is stable");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    writer.shutdown().await.unwrap();
    assert_eq!(lose_all(&world).await, 1);
    let reader = world.client_with(quick()).await;
    (world, reader, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_synced_and_is_gone_is_an_error_and_no_zeros() {
    let (_world, reader, id) = with_lost_file(true).await;
    let handle = open(&reader, id, READ).await;
    for _ in 0..2 {
        let error = reader.read(handle, 5000, 100).await.unwrap_err();
        assert_eq!(error.code, Code::ChunkLost, "{error}");
    }
    let error = reader.seek(handle, 0, SeekWhence::Data).await.unwrap_err();
    assert_eq!(error.code, Code::ChunkLost, "a hole would be passed over by who copies the file: {error}");
    assert_eq!(reader.stats().chunks_lost, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_became_stable_without_being_asked_and_is_gone_is_an_error_too() {
    let (_world, reader, id) = with_lost_file(false).await;
    let handle = open(&reader, id, READ).await;
    let error = reader.read(handle, 0, 100).await.unwrap_err();
    assert_eq!(error.code, Code::ChunkLost, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_gone_and_in_a_snapshot_is_an_error_and_is_not_made_anew() {
    let (world, client, id) = with_lost_file(true).await;
    let create = AdminQuery::CreateSnapshot { dir: InodeId::ROOT, name: name("one"), wait_ms: 20_000 };
    world.meta.call(Context::default(), create).await.unwrap();
    let handle = open(&client, id, READ_WRITE).await;
    let error = client.write(handle, 10, Bytes::from_static(b"some bytes")).await.unwrap_err();
    assert_eq!(error.code, Code::ChunkLost, "{error}");
    let error = client.read(handle, 5000, 100).await.unwrap_err();
    assert_eq!(error.code, Code::ChunkLost, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_into_what_is_gone_does_not_bring_zeros_back_and_a_new_file_can_be_written() {
    let (_world, client, id) = with_lost_file(true).await;
    let handle = open(&client, id, READ_WRITE).await;
    client.write(handle, 10, Bytes::from_static(b"some bytes")).await.unwrap();
    let error = client.fsync(handle, false).await.unwrap_err();
    assert_eq!(error.code, Code::ChunkLost, "{error}");
    let error = client.read(handle, 5000, 100).await.unwrap_err();
    assert_eq!(error.code, Code::ChunkLost, "{error}");
    // Emptied, it is a file like any other.
    client.set_attr(&cx(), id, Some(handle), SetAttr { size: Some(0), ..SetAttr::default() }).await.unwrap();
    let data = pattern(2, LEN);
    client.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
    client.fsync(handle, false).await.unwrap();
    assert_same(&read(&client, handle, 0, 1 << 20).await, &data, "written again");
    let _ = close(&client, handle).await;
}

/// What a client has written since and not synced goes with the chunk, and fsync says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_to_a_chunk_that_is_gone_is_told_by_fsync() {
    let world = World::new(Storage::Disk, SMALL).await;
    let client = world.client_with(ClientConfig { stabilise_after: Duration::from_secs(600), ..quick() }).await;
    let id = written(&client, "file", true).await;
    let handle = open(&client, id, OpenFlags { ..READ_WRITE }).await;
    client.write(handle, 10, Bytes::from_static(b"sent, not synced")).await.unwrap();
    client.flush(handle).await.unwrap();
    lose_all(&world).await;
    let error = client.fsync(handle, false).await.unwrap_err();
    assert_eq!(error.code, Code::ChunkLost, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_with_a_lost_chunk_can_be_cut_to_a_few_bytes_and_given_to_another_mount() {
    let (world, client, id) = with_lost_file(true).await;
    let handle = open(&client, id, READ_WRITE).await;
    client.set_attr(&cx(), id, Some(handle), SetAttr { size: Some(10), ..SetAttr::default() }).await.unwrap();
    client.fsync(handle, false).await.unwrap();
    let other = world.client_with(quick()).await;
    let begun = Instant::now();
    let of_other = open(&other, id, READ_WRITE).await;
    assert_eq!(other.get_attr(&cx(), id, None).await.unwrap().attr.size, 10);
    assert_eq!(other.read(of_other, 0, 10).await.unwrap_err().code, Code::ChunkLost);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    close(&client, handle).await.unwrap();
}

/// A map of more than one page: fetched anew, it is known up to the first only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_first_page_of_a_map_nothing_is_taken_for_a_hole() {
    const SMALLEST: u64 = 64 << 10;
    const CHUNKS: u64 = 300;
    let policy = Policy { chunk_bytes: SMALLEST, ..SMALL };
    let world = World::new(Storage::Disk, policy).await;
    let writer = world.client_with(quick()).await;
    let (id, handle) = create(&writer, "long").await;
    for index in 0..CHUNKS {
        writer.write(handle, index * SMALLEST, Bytes::from(pattern(index, 5000))).await.unwrap();
    }
    writer.fsync(handle, false).await.unwrap();
    close(&writer, handle).await.unwrap();
    let reader = world.client_with(quick()).await;
    let of_reader = open(&reader, id, READ).await;
    let last = (CHUNKS - 1) * SMALLEST;
    assert_same(&read(&reader, of_reader, last, 5000).await, &pattern(CHUNKS - 1, 5000), "the last");
    let chunks = world.chunks().await;
    assert_eq!(chunks.len() as u64, CHUNKS);
    writer.shutdown().await.unwrap();
    // Ids rise with the order in which they were taken, as a rule: the last ones lie beyond the first page.
    let newest = chunks.iter().max().copied().unwrap();
    world.nodes.iter().for_each(|node| node.lose_chunk(newest));
    let fresh = world.client_with(quick()).await;
    let of_fresh = open(&fresh, id, READ).await;
    let mut lost = Vec::new();
    for index in 0..CHUNKS {
        match fresh.read(of_fresh, index * SMALLEST, 5000).await {
            Ok(bytes) => assert_same(&bytes.concat(), &pattern(index, 5000), format_args!("chunk {index}")),
            Err(error) => {
                assert_eq!(error.code, Code::ChunkLost, "{error}");
                lost.push(index);
            }
        }
    }
    assert!(lost.len() == 1 && lost[0] > 256, "{lost:?}");
}
