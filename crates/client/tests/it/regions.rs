//! Reads and writes beside others that take several requests (docs/design/0018-region-locks.md).

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{FileSystem, HandleId, OpenFlags};
use braid_client::Client;
use braid_types::*;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const DIRECT: OpenFlags = OpenFlags { direct: true, ..READ_WRITE };
const HALF: u64 = 4096;
const LEN: usize = 2 * HALF as usize;

/// A file of several chunks that these mounts, and as many as are asked for, have open with O_DIRECT, and know to be shared.
async fn shared(world: &World, chunks: u64, mounts: usize) -> Vec<(Arc<Client>, HandleId)> {
    let first = world.client().await;
    let (entry, opened) = first.create(&cx(), InodeId::ROOT, &name("f"), Mode(0o644), DIRECT).await.unwrap();
    let size = chunks * world.policy().chunk_bytes;
    first.write(opened.handle, size - 1, Bytes::from_static(&[1])).await.unwrap();
    for chunk in 0..chunks {
        first.write(opened.handle, chunk * world.policy().chunk_bytes, Bytes::from_static(&[1])).await.unwrap();
    }
    let mut all = vec![(first, opened.handle)];
    for _ in 1..mounts {
        let client = world.client().await;
        let handle = open(&client, entry.attr.id, DIRECT).await;
        all.push((client, handle));
    }
    for round in 0..2 {
        for (client, handle) in &all {
            client.write(*handle, 0, Bytes::copy_from_slice(&[round; 10])).await.unwrap();
        }
    }
    all
}

fn is_one(bytes: &[u8]) -> bool {
    bytes.len() == LEN && bytes.iter().all(|byte| *byte == bytes[0])
}

/// Writers on two mounts, readers on those and on a third: each read is one write's, and so is what is left.
async fn all_or_nothing(world: &World, at: u64) {
    let mounts = shared(world, 3, 3).await;
    for (client, handle) in &mounts {
        client.write(*handle, at, Bytes::from(vec![0; LEN])).await.unwrap();
    }
    // Long enough for others to come in between.
    world.nodes.iter().for_each(|node| node.slow(Duration::from_millis(1)));
    let over = Arc::new(AtomicBool::new(false));
    let readers = mounts.iter().cloned().map(|(client, handle)| {
        let over = over.clone();
        tokio::spawn(async move {
            let (mut seen, mut reads) = (BTreeMap::new(), 0);
            while !over.load(Relaxed) {
                let bytes = read(&client, handle, at, LEN as u32).await;
                assert!(is_one(&bytes), "a mixture of {} and {}", bytes[0], bytes[LEN - 1]);
                *seen.entry(bytes[0]).or_insert(0) += 1;
                reads += 1;
            }
            (seen.len(), reads)
        })
    });
    let readers: Vec<_> = readers.collect();
    let writers = mounts.iter().take(2).cloned().enumerate().map(|(who, (client, handle))| {
        tokio::spawn(async move {
            for n in 0..40u8 {
                let bytes = Bytes::from(vec![2 * n + 1 + who as u8; LEN]);
                client.write(handle, at, bytes).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    over.store(true, Relaxed);
    for reader in readers {
        let (values, reads) = reader.await.unwrap();
        assert!(values > 5, "{reads} reads saw {values} values: they were not beside the writes");
    }
    let (client, handle) = &mounts[2];
    assert!(is_one(&read(client, *handle, at, LEN as u32).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_over_two_chunks_is_one_to_all_who_read_and_write_there() {
    let world = World::new(Storage::Memory, SMALL).await;
    all_or_nothing(&world, CHUNK - HALF).await;
}

/// Within a chunk too, wherever it begins: it was two requests where it went over a multiple of 1 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_within_a_chunk_is_one_wherever_it_begins() {
    let world = World::new(Storage::Memory, Policy { chunk_bytes: 4 << 20, ..SMALL }).await;
    all_or_nothing(&world, (1 << 20) - HALF).await;
}

/// Each write is half over the end of the file: a reader there sees what was before, or all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_over_the_end_sees_all_of_a_write_that_moves_the_end_or_nothing() {
    let world = World::new(Storage::Memory, SMALL).await;
    let mounts = shared(&world, 1, 3).await;
    // The second chunk is there, so that nothing changes the file's map.
    let size = CHUNK + HALF;
    mounts[0].0.write(mounts[0].1, CHUNK, Bytes::from(vec![1; HALF as usize])).await.unwrap();
    for (client, handle) in &mounts {
        client.write(*handle, 0, Bytes::from_static(&[1])).await.unwrap();
    }
    world.nodes.iter().for_each(|node| node.slow(Duration::from_millis(2)));
    let mut seen = [0, 0];
    for n in 0..20 {
        let at = size - HALF + n * HALF;
        let writes = {
            let (client, handle) = mounts[0].clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                client.write(handle, at, Bytes::from(vec![n as u8 + 2; LEN])).await.unwrap();
            })
        };
        while !writes.is_finished() {
            let (client, handle) = &mounts[1 + n as usize % 2];
            let bytes = read(client, *handle, at, LEN as u32).await;
            let is_before = bytes == vec![n as u8 + 1; HALF as usize];
            let is_after = bytes == vec![n as u8 + 2; LEN];
            assert!(is_before || is_after, "{} bytes, of {:?} and {:?}", bytes.len(), bytes.first(), bytes.last());
            seen[usize::from(is_after)] += 1;
        }
        writes.await.unwrap();
    }
    assert!(seen.iter().all(|reads| *reads >= 10), "{seen:?}: too few reads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_within_a_chunk_costs_no_message_for_its_lock_and_what_is_not_one_question() {
    let world = World::new(Storage::Memory, SMALL).await;
    let mounts = shared(&world, 2, 2).await;
    let asked = async |write: bool, at: u64| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.take_messages();
        for (client, handle) in &mounts {
            match write {
                true => drop(client.write(*handle, at, Bytes::from(vec![7; LEN])).await.unwrap()),
                false => drop(read(client, *handle, at, LEN as u32).await),
            }
        }
        // What is unlocked is said behind the answer.
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.take_messages().1
    };
    assert_eq!(asked(true, 0).await, BTreeMap::from([("UnlockRegion", 2), ("WriteChunk", 2)]));
    assert_eq!(asked(false, 0).await, BTreeMap::from([("ReadChunk", 2)]));
    let (writes, reads) = (asked(true, CHUNK - HALF).await, asked(false, CHUNK - HALF).await);
    assert_eq!(writes, BTreeMap::from([("CheckRegion", 2), ("UnlockRegion", 4), ("WriteChunk", 4)]));
    assert_eq!(reads, BTreeMap::from([("CheckRegion", 2), ("ReadChunk", 4), ("UnlockRegion", 2)]));
}

/// The server of the first chunk starts anew while the second is being written: another locks what was locked there, and is through with
/// both before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_lock_is_lost_with_a_server_is_whole_all_the_same() {
    let world = World::new(Storage::Memory, SMALL).await;
    let mounts = shared(&world, 6, 3).await;
    let mut tried = 0;
    for border in 1..6 {
        let at = border * CHUNK - HALF;
        world.take_messages();
        let (first, second) = (world.server_of(border - 1).await, world.server_of(border).await);
        if first == second {
            continue;
        }
        tried += 1;
        let node = |id| world.nodes.iter().find(|node| node.id == id).unwrap();
        node(second).slow(Duration::from_millis(300));
        let writes = mounts.iter().take(2).cloned().enumerate().map(|(who, (client, handle))| {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(150 * who as u64)).await;
                client.write(handle, at, Bytes::from(vec![1 + who as u8; LEN])).await.unwrap();
            })
        });
        let writes: Vec<_> = writes.collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        node(first).down();
        node(first).up();
        // The other write comes to the second chunk before the first one does.
        node(second).slow(Duration::ZERO);
        for write in writes {
            write.await.unwrap();
        }
        let (client, handle) = &mounts[2];
        let bytes = read(client, *handle, at, LEN as u32).await;
        assert!(is_one(&bytes), "border {border}: {} and {}", bytes[0], bytes[LEN - 1]);
        let again = world.take_messages().1;
        assert!(again["WriteChunk"] > 4, "border {border}: the lock was not lost: {again:?}");
    }
    assert!(tried > 0, "all chunks are on one server");
}

/// Whoever has locked something and is not heard of any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_session_has_locked_ends_with_it() {
    let world = World::new(Storage::Memory, SMALL).await;
    let mounts = shared(&world, 2, 2).await;
    let at = CHUNK - HALF;
    let second = world.server_of(1).await;
    let node = world.nodes.iter().find(|node| node.id == second).unwrap();
    // It does not come to its second chunk.
    node.slow(Duration::from_secs(3600));
    let before = world.sessions().await;
    let (client, handle) = mounts[0].clone();
    let stuck = tokio::spawn(async move { client.write(handle, at, Bytes::from(vec![1; LEN])).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    node.slow(Duration::ZERO);
    let (other, at_other) = mounts[1].clone();
    let waits = tokio::spawn(async move { other.write(at_other, at, Bytes::from(vec![2; 100])).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waits.is_finished(), "it waits for what the other has locked in the first chunk");
    world.end_session(before[0]).await;
    tokio::time::timeout(Duration::from_secs(20), waits).await.unwrap().unwrap().unwrap();
    stuck.abort();
}
