//! Promises that were broken once.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{FileSystem, OpenFlags, RenameMode, SetAttr, TimeOrNow};
use braid_client::{Client, ClientConfig};
use braid_types::{InodeId, Mode, Policy, Timestamp};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Nothing becomes stable by itself while the test looks.
fn never_stable() -> ClientConfig {
    ClientConfig { stabilise_after: Duration::from_secs(600), ..ClientConfig::default() }
}

/// The client is gone, and every data server loses its power.
fn lose_client_and_power(world: &World, client: Arc<Client>, seed: u64) {
    drop(client);
    world.nodes.iter().for_each(|node| node.lose_power(seed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_synced_inline_stays_when_the_file_grows_into_a_chunk() {
    for seed in 0..6 {
        let world = World::new(Storage::Disk, SMALL).await;
        let client = world.client_with(never_stable()).await;
        let (id, handle) = create(&client, "file").await;
        let synced = pattern(seed, 3000);
        client.write(handle, 0, Bytes::from(synced.clone())).await.unwrap();
        client.fsync(handle, false).await.unwrap();
        // The commit drops the inline bytes; nobody asks for another sync.
        client.write(handle, 3000, Bytes::from(pattern(seed, 50_000))).await.unwrap();
        close(&client, handle).await.unwrap();
        lose_client_and_power(&world, client, seed);
        let other = world.client().await;
        let handle = open(&other, id, READ).await;
        assert_same(&read(&other, handle, 0, 3000).await, &synced, format_args!("seed {seed}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_synced_inline_stays_when_the_client_dies_before_its_commit() {
    let world = World::new(Storage::Disk, SMALL).await;
    let config = ClientConfig { write_back_after: Duration::from_secs(600), ..never_stable() };
    let client = world.client_with(config).await;
    let (id, handle) = create(&client, "file").await;
    let synced = pattern(1, 3000);
    client.write(handle, 0, Bytes::from(synced.clone())).await.unwrap();
    client.fsync(handle, false).await.unwrap();
    // A whole run far behind is sent at once, the moved bytes are not due; then the client is gone.
    client.write(handle, 10_000, Bytes::from(pattern(2, CHUNK as usize - 10_000))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let session = world.sessions().await[0];
    drop(client);
    world.end_session(session).await;
    world.nodes.iter().for_each(|node| node.lose_power(1));
    let other = world.client().await;
    let handle = open(&other, id, READ).await;
    assert_same(&read(&other, handle, 0, 3000).await, &synced, "what fsync returned for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_writes_stay_visible_over_a_restart_whoever_opens_again() {
    let none = SetAttr::default();
    let time = Some(TimeOrNow::At(Timestamp(1_000_000_007)));
    // What this client changes itself, before it opens the file once more: nobody else touched it.
    for (change, len) in [
        (SetAttr { mode: Some(Mode(0o600)), ..none }, 2 << 20),
        (SetAttr { mtime: time, ..none }, 2 << 20),
        (SetAttr { size: Some(3 << 20), ..none }, 2 << 20),
        (SetAttr { size: Some(1_500_000), ..none }, 1_500_000),
    ] {
        let world = World::new(Storage::Disk, SMALL).await;
        let client = world.client_with(never_stable()).await;
        let (id, handle) = create(&client, "file").await;
        let mut data = pattern(1, 2 << 20);
        client.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
        client.flush(handle).await.unwrap();
        client.set_attr(&cx(), id, None, change).await.unwrap();
        let second = open(&client, id, READ).await;
        world.nodes.iter().for_each(|node| node.lose_power(3));
        data.truncate(len);
        data.resize(change.size.unwrap_or(len as u64) as usize, 0);
        assert_same(&read(&client, second, 0, 4 << 20).await, &data, format_args!("after {change:?}"));
    }
}

/// The file's row names the chunk, whatever became of what was written to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_whose_bytes_were_all_cut_again_is_there_after_a_restart() {
    let mut lost = 0;
    for seed in 0..20 {
        let world = World::new(Storage::Disk, SMALL).await;
        let client = world.client_with(never_stable()).await;
        let (id, handle) = create(&client, "file").await;
        client.write(handle, 70_000, Bytes::from(pattern(1, 30_000))).await.unwrap();
        client.flush(handle).await.unwrap();
        let written = world.chunks().await;
        let shorter = SetAttr { size: Some(60_000), ..SetAttr::default() };
        client.set_attr(&cx(), id, Some(handle), shorter).await.unwrap();
        assert_eq!((world.chunks().await, written.len()), (written.clone(), 1));
        world.nodes.iter().for_each(|node| node.lose_power(seed));
        lost += usize::from(world.chunks().await.is_empty());
        let begun = Instant::now();
        assert_same(&read(&client, handle, 0, 100_000).await, &[0; 60_000], "a hole");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        client.fsync(handle, false).await.unwrap();
        assert_eq!(world.chunks().await, written, "seed {seed}");
    }
    assert!(lost > 0, "no loss of power took the chunk along");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rename_over_a_file_brings_what_was_written() {
    let world = World::new(Storage::Memory, SMALL).await;
    let client = world.client().await;
    let (_, old) = create(&client, "target").await;
    client.write(old, 0, Bytes::from_static(b"old")).await.unwrap();
    close(&client, old).await.unwrap();
    let (_, handle) = create(&client, "new").await;
    client.write(handle, 0, Bytes::from_static(b"brand new")).await.unwrap();
    // Not closed: design.md, a rename over a file first flushes the source.
    let (from, to) = (name("new"), name("target"));
    client.rename(&cx(), (InodeId::ROOT, &from), (InodeId::ROOT, &to), RenameMode::Replace).await.unwrap();
    let other = world.client().await;
    let id = other.lookup(&cx(), InodeId::ROOT, &to).await.unwrap().attr.unwrap().id;
    let reader = open(&other, id, READ).await;
    assert_eq!(read(&other, reader, 0, 100).await, b"brand new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_save_is_told_once_to_each_handle() {
    let world = World::new(Storage::Memory, SMALL).await;
    let config = ClientConfig { deadline: Duration::from_secs(1), ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (id, first) = create(&client, "file").await;
    let sync = open(&client, id, OpenFlags { sync: true, ..READ_WRITE }).await;
    world.nodes.iter().for_each(|node| node.down());
    let data = pattern(1, 100_000);
    assert!(client.write(sync, 0, Bytes::from(data.clone())).await.is_err());
    world.nodes.iter().for_each(|node| node.up());
    client.flush(sync).await.expect("this handle knows, and now it is saved");
    assert!(client.flush(first).await.is_err(), "this one did not know");
    client.flush(first).await.unwrap();
    assert_same(&read(&client, first, 0, 200_000).await, &data, "nothing was dropped");
}

/// Waits until the metadata server has freed what it wants to free.
async fn until_no_chunk_is_left(world: &World) {
    for _ in 0..100 {
        if world.chunks().await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not freed: {:?}", world.chunks().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_write_brings_no_deleted_chunk_back() {
    let world = World::new(Storage::Disk, SMALL).await;
    let (a, b) = (world.client_with(never_stable()).await, world.client().await);
    let (id, handle) = create(&a, "file").await;
    a.write(handle, 0, Bytes::from(pattern(1, 100_000))).await.unwrap();
    close(&a, handle).await.unwrap();
    let emptied = open(&b, id, OpenFlags { truncate: true, ..READ_WRITE }).await;
    close(&b, emptied).await.unwrap();
    until_no_chunk_is_left(&world).await;
    // What a retains would be repeated to servers that have restarted, and to those that know nothing of it.
    world.nodes.iter().for_each(|node| node.lose_power(1));
    a.sync_fs().await.unwrap();
    assert_eq!(world.chunks().await, [], "nobody would ever free them");
    assert_eq!(a.stats().bytes_retained, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_makes_no_chunk_that_another_client_removed() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let (id, handle) = create(&a, "file").await;
    a.write(handle, 0, Bytes::from(pattern(1, 100_000))).await.unwrap();
    a.fsync(handle, false).await.unwrap();
    let emptied = open(&b, id, OpenFlags { truncate: true, ..READ_WRITE }).await;
    close(&b, emptied).await.unwrap();
    until_no_chunk_is_left(&world).await;
    // a has not heard of it and writes to where its chunk was.
    let data = pattern(2, 50_000);
    a.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
    close(&a, handle).await.unwrap();
    assert_eq!(world.chunks().await.len(), 1, "the file's, and no other");
    let handle = open(&b, id, READ).await;
    assert_same(&read(&b, handle, 0, 1 << 20).await, &data, "what was written last");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_lost_with_client_and_server_reads_as_a_hole() {
    let mut lost = 0;
    for seed in 0..4 {
        let world = World::new(Storage::Disk, SMALL).await;
        let client = world.client_with(never_stable()).await;
        let (id, handle) = create(&client, "file").await;
        let data = pattern(seed, 100_000);
        client.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
        close(&client, handle).await.unwrap();
        lose_client_and_power(&world, client, seed);
        let config = ClientConfig { lost_after: Duration::from_millis(200), ..ClientConfig::default() };
        let other = world.client_with(config).await;
        let handle = open(&other, id, READ).await;
        let begun = std::time::Instant::now();
        let got = read(&other, handle, 0, 1 << 20).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(got.len(), data.len());
        if world.chunks().await.is_empty() {
            assert!(got.iter().all(|byte| *byte == 0), "never written reads as zero");
            assert_eq!(other.stats().chunks_lost, 1);
            lost += 1;
        }
        // The file can be used like any other.
        let handle = open(&other, id, READ_WRITE).await;
        other.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
        close(&other, handle).await.unwrap();
        let third = world.client().await;
        let handle = open(&third, id, READ).await;
        assert_same(&read(&third, handle, 0, 1 << 20).await, &data, "written again");
    }
    assert!(lost > 0, "the power cuts lost nothing, so this has shown nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_that_its_writer_repeats_is_not_taken_for_lost() {
    let world = World::new(Storage::Disk, SMALL).await;
    let config = ClientConfig { stabilise_after: Duration::from_millis(400), ..ClientConfig::default() };
    let writer = world.client_with(config).await;
    let (id, handle) = create(&writer, "file").await;
    let data = pattern(1, 100_000);
    writer.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
    close(&writer, handle).await.unwrap();
    world.nodes.iter().for_each(|node| node.lose_power(0));
    let reader = world.client().await;
    let handle = open(&reader, id, READ).await;
    assert_same(&read(&reader, handle, 0, 1 << 20).await, &data, "the writer lives");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_ended_begins_no_session() {
    for shut_down in [true, false] {
        let world = World::new(Storage::Memory, SMALL).await;
        let client = world.client().await;
        world.late.lock().insert("TakeSpares", Duration::from_millis(300));
        // Of eight spares five are used, so that more are fetched in the background.
        for n in 0..5 {
            let (_, handle) = create(&client, &format!("file {n}")).await;
            client.write(handle, 0, Bytes::from(pattern(n, 100_000))).await.unwrap();
            close(&client, handle).await.unwrap();
        }
        if shut_down {
            client.shutdown().await.unwrap();
        } else {
            let session = world.sessions().await[0];
            drop(client);
            world.end_session(session).await;
        }
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert_eq!(world.sessions().await, [], "shut down: {shut_down}");
    }
}

/// An open is on its way while the last other handle of the file is closed: the client forgets the file and meets it
/// anew in the answer, which is all it knows of it then. (It read zeros of the right length.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_that_overtakes_the_last_close_reads_the_file() {
    let world = World::new(Storage::Memory, SMALL).await;
    let client = world.client().await;
    let (id, handle) = create(&client, "file").await;
    // In the second chunk, so that nothing of the file is inline.
    client.write(handle, CHUNK + 1, Bytes::from_static(b"data")).await.unwrap();
    client.flush(handle).await.unwrap();
    world.late.lock().insert("OpenFile", Duration::from_millis(200));
    let opening = tokio::spawn({
        let client = client.clone();
        async move { open(&client, id, READ).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.release(handle).await;
    let opened = opening.await.unwrap();
    assert_eq!(read(&client, opened, CHUNK + 1, 4).await, b"data");
}

/// Design.md §8: a write that reached its owner survives the loss of its client, also in a chunk the file had before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_client_had_appended_and_sent_is_in_the_file() {
    let world = World::new(Storage::Memory, Policy { chunk_bytes: 4 << 20, ..SMALL }).await;
    let later = Duration::from_secs(600);
    let config = ClientConfig { write_back_after: later, ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (id, handle) = create(&client, "file").await;
    let (saved, run) = (256 << 10, 1 << 20);
    let bytes = pattern(7, saved + run);
    client.write(handle, 0, Bytes::from(bytes[..saved].to_vec())).await.unwrap();
    client.fsync(handle, false).await.unwrap();
    // A run of 1 MiB is sent at once; nobody reports the size.
    client.write(handle, saved as u64, Bytes::from(bytes[saved..].to_vec())).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let session = world.sessions().await[0];
    drop(client);
    world.end_session(session).await;
    let other = world.client().await;
    let handle = open(&other, id, READ).await;
    assert_same(&read(&other, handle, 0, 4 << 20).await, &bytes, "the file");
}

/// Nobody has been told of what a dead client sent beyond the size. Whoever wants to write the file waits until its session has
/// ended, and finds it there; a truncate takes it, also one that makes the file longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncate_takes_what_a_lost_client_had_sent_beyond_a_size_nobody_was_told() {
    let world = World::new(Storage::Memory, Policy { chunk_bytes: 4 << 20, ..SMALL }).await;
    // Data servers are looked through for sizes once, when they are first heard of. Later they would tell.
    let looked_through = async {
        while world.asked_by_meta("ListChunks") < world.nodes.len() as u64 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), looked_through).await.expect("housekeeping looks through them");
    let later = Duration::from_secs(600);
    let config = ClientConfig { write_back_after: later, ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (id, handle) = create(&client, "file").await;
    let (saved, run) = (256 << 10, 1 << 20);
    let mut bytes = pattern(7, saved + run);
    client.write(handle, 0, Bytes::from(bytes[..saved].to_vec())).await.unwrap();
    client.fsync(handle, false).await.unwrap();
    // A run of 1 MiB is sent at once; nobody reports the size.
    client.write(handle, saved as u64, Bytes::from(bytes[saved..].to_vec())).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let session = world.sessions().await[0];
    drop(client);

    let other = world.client().await;
    let handle = open(&other, id, READ_WRITE).await;
    let known = other.get_attr(&cx(), id, Some(handle)).await.unwrap().attr.size;
    assert_eq!(known, (saved + run) as u64, "what reached its owner survives its client");
    let cut = saved + 100_000;
    let change = SetAttr { size: Some(cut as u64), ..SetAttr::default() };
    other.set_attr(&cx(), id, Some(handle), change).await.unwrap();
    let end = 2 << 20;
    other.write(handle, end - 1, Bytes::from_static(b"e")).await.unwrap();
    other.fsync(handle, false).await.unwrap();
    // Below the cut is what the dead client wrote; nothing of it beyond.
    bytes.truncate(cut);
    bytes.resize(end as usize - 1, 0);
    bytes.push(b'e');
    assert_same(&read(&other, handle, 0, 4 << 20).await, &bytes, "grown over it");
    world.end_session(session).await;
    let third = world.client().await;
    let handle = open(&third, id, READ).await;
    assert_same(&read(&third, handle, 0, 4 << 20).await, &bytes, "after its session");
}

/// Few cuts are remembered of a file, and none is contained in a later one if sizes rise; the map of this one has two
/// pages, so that the chunk at the border is not known when it is opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_may_grow_by_truncates_as_often_as_one_likes() {
    const BYTES: u64 = 4096;
    let world = World::new(Storage::Memory, Policy { inline_bytes: 0, chunk_bytes: BYTES, ..SMALL }).await;
    let client = world.client().await;
    let (id, handle) = create(&client, "file").await;
    for chunk in 0..300 {
        client.write(handle, chunk * BYTES, Bytes::from_static(b"x")).await.unwrap();
    }
    close(&client, handle).await.unwrap();
    // One that died would hold changes up until its leases are over.
    client.shutdown().await.unwrap();
    for round in 1..=40 {
        let config = ClientConfig { deadline: Duration::from_secs(5), ..ClientConfig::default() };
        let client = world.client_with(config).await;
        let size = 299 * BYTES + 10 + round;
        client.set_attr(&cx(), id, None, SetAttr { size: Some(size), ..SetAttr::default() }).await.unwrap();
        assert_eq!(client.get_attr(&cx(), id, None).await.unwrap().attr.size, size);
        client.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stable_and_went_with_its_session_is_in_its_file() {
    // A run of 1 MiB is sent at once; nothing is committed by itself.
    let world = World::new(Storage::Disk, Policy { chunk_bytes: 4 << 20, ..SMALL }).await;
    let config = ClientConfig { write_back_after: Duration::from_secs(600), ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (id, handle) = create(&client, "file").await;
    let (first, second) = (pattern(1, 1 << 20), pattern(2, 1 << 20));
    client.write(handle, 0, Bytes::from(first.clone())).await.unwrap();
    // It is stable one second after it was answered, and not retained any more.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let stable = async {
        while client.stats().bytes_retained > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), stable).await.expect("it is made stable");
    client.write(handle, 1 << 20, Bytes::from(second.clone())).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    // Another client writes into the same chunk, which is saved for it; then the session ends behind the client's back.
    let other = world.client().await;
    let beside = open(&other, id, READ_WRITE).await;
    other.write(beside, 3 << 20, Bytes::from_static(b"theirs")).await.unwrap();
    other.fsync(beside, false).await.unwrap();
    let session = world.sessions().await.into_iter().min().unwrap();
    world.end_session(session).await;
    let gone = async {
        while world.chunks().await.len() > 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("spares are freed");
    client.fsync(handle, false).await.expect("nothing of it was only the session's");
    let third = world.client().await;
    let handle = open(&third, id, READ).await;
    assert_same(&read(&third, handle, 0, 1 << 20).await, &first, "what was stable");
    assert_same(&read(&third, handle, 1 << 20, 1 << 20).await, &second, "what was retained");
    assert_eq!(read(&third, handle, 3 << 20, 10).await, b"theirs");
}

/// Two clients fill the same part of a file before either has committed its chunk. The second learns of the first one's chunk by a
/// look at the file, not by its own commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_before_another_chunk_was_first_is_not_forgotten() {
    let world = World::new(Storage::Disk, Policy { chunk_bytes: 4 << 20, ..SMALL }).await;
    let config = ClientConfig { write_back_after: Duration::from_secs(600), ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (id, handle) = create(&client, "file").await;
    let run = pattern(1, 1 << 20);
    // A run of 1 MiB is sent at once; nothing is committed by itself.
    client.write(handle, 0, Bytes::from(run.clone())).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let other = world.client().await;
    let theirs = open(&other, id, READ_WRITE).await;
    other.write(theirs, 3 << 20, Bytes::from_static(b"theirs")).await.unwrap();
    other.fsync(theirs, false).await.unwrap();
    // Another client cuts what is behind both: the first has to look at the file again.
    let change = SetAttr { size: Some((3 << 20) + 6), ..SetAttr::default() };
    other.set_attr(&cx(), id, Some(theirs), change).await.unwrap();
    client.write(handle, 1 << 20, Bytes::from_static(b"more")).await.unwrap();
    client.fsync(handle, false).await.unwrap();
    let third = world.client().await;
    let handle = open(&third, id, READ).await;
    assert_same(&read(&third, handle, 0, 1 << 20).await, &run, "what was sent first");
    assert_eq!(read(&third, handle, 1 << 20, 4).await, b"more");
    assert_eq!(read(&third, handle, 3 << 20, 10).await, b"theirs");
}

/// Looks at the file until told to stop; how often it did.
async fn watch(client: Arc<Client>, id: InodeId, by_name: bool, over: Arc<AtomicBool>) -> u32 {
    let (mut before, mut looks) = ((0, Timestamp(0), Timestamp(0)), 0);
    while !over.load(SeqCst) {
        let attr = match by_name {
            true => client.lookup(&cx(), InodeId::ROOT, &name("file")).await.unwrap().attr.unwrap(),
            false => client.get_attr(&cx(), id, None).await.unwrap().attr,
        };
        let now = (attr.size, attr.ctime, attr.mtime);
        assert!(now.0 >= before.0 && now.1 >= before.1, "{now:?} after {before:?} (by name: {by_name})");
        (before, looks) = (now, looks + 1);
        tokio::task::yield_now().await;
    }
    looks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn sizes_and_times_never_go_back_while_saves_end() {
    let world = World::new(Storage::Memory, SMALL).await;
    let client = world.client().await;
    let (id, handle) = create(&client, "file").await;
    let over = Arc::new(AtomicBool::new(false));
    let watchers = [true, false].map(|by_name| tokio::spawn(watch(client.clone(), id, by_name, over.clone())));
    for step in 0..1000 {
        client.write(handle, step * 100, Bytes::from(pattern(step, 100))).await.unwrap();
        client.flush(handle).await.unwrap();
    }
    over.store(true, SeqCst);
    for watcher in watchers {
        assert!(watcher.await.unwrap() > 100, "too few looks prove nothing");
    }
}
