//! Servers that restart, go away or are slow; two clients on one file.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::data::GetDataStatus;
use braid_api::meta::GetAttr;
use braid_api::{Code, Context, DataNode, FileSystem, HandleId, Namespace, SetAttr};
use braid_client::{Client, ClientConfig};
use braid_meta_server::MetaConfig;
use braid_types::{InodeId, Policy};
use bytes::Bytes;
use std::time::{Duration, Instant};

/// What a server lost with its power is written again while the client lives, and stays when the client has gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_written_is_lost_when_servers_lose_their_power() {
    let mut repeated = 0;
    for seed in 0..12 {
        let world = World::new(Storage::Disk, SMALL).await;
        let client = world.client().await;
        let (id, handle) = create(&client, "file").await;
        let data = pattern(seed, 5 * CHUNK as usize + 777);
        for (i, part) in data.chunks(300_000).enumerate() {
            client.write(handle, i as u64 * 300_000, Bytes::copy_from_slice(part)).await.unwrap();
            if i % 6 == 5 {
                // What close waits for: the servers have the bytes, but not stable.
                client.flush(handle).await.unwrap();
                for (n, node) in world.nodes.iter().enumerate() {
                    node.lose_power(seed * 100 + i as u64 * 10 + n as u64);
                }
                let end = ((i + 1) * 300_000).min(data.len());
                assert_same(&read(&client, handle, 0, end as u32).await, &data[..end], format_args!("seed {seed}"));
            }
        }
        client.fsync(handle, false).await.unwrap();
        world.nodes.iter().for_each(|node| node.lose_power(seed));
        close(&client, handle).await.unwrap();
        repeated += client.stats().writes_repeated;
        drop(client);
        let other = world.client().await;
        let handle = open(&other, id, READ).await;
        assert_same(&read(&other, handle, 0, 8 << 20).await, &data, format_args!("another client, seed {seed}"));
    }
    assert!(repeated > 0, "the power cuts lost nothing, so this has shown nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_for_a_while_is_waited_for() {
    let world = World::new(Storage::Disk, SMALL).await;
    let client = world.client().await;
    let (_, handle) = create(&client, "file").await;
    let data = pattern(5, 3 * CHUNK as usize);
    world.nodes.iter().for_each(|node| node.down());
    client.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
    let back = async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        world.nodes.iter().for_each(|node| node.up());
    };
    let started = Instant::now();
    let (synced, ()) = tokio::join!(client.fsync(handle, false), back);
    synced.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(600));
    assert_same(&read(&client, handle, 0, 4 << 20).await, &data, "read back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_deadline_fsync_names_the_server_once_a_handle() {
    let world = World::new(Storage::Memory, SMALL).await;
    let config = ClientConfig { deadline: Duration::from_secs(2), ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (id, first) = create(&client, "file").await;
    let second = open(&client, id, READ_WRITE).await;
    world.nodes.iter().for_each(|node| node.down());
    client.write(first, 0, Bytes::from(pattern(1, 100_000))).await.unwrap();
    let started = Instant::now();
    let error = client.fsync(first, false).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(matches!(error.code, Code::Unreachable | Code::DeadlineExceeded), "{error}");
    assert!(error.to_string().contains("data server"), "{error}");
    world.nodes.iter().for_each(|node| node.up());
    // The bytes are still here and are saved now; the second handle hears of the failure once.
    client.fsync(first, false).await.unwrap();
    assert!(client.fsync(second, false).await.is_err());
    client.fsync(second, false).await.unwrap();
    assert_same(&read(&client, first, 0, 1 << 20).await, &pattern(1, 100_000), "nothing was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_filled_the_disks_ends_where_its_bytes_end() {
    let world = World::new(Storage::Disk, SMALL).await;
    let client = world.client().await;
    for node in &world.nodes {
        node.disk.set_capacity(Some(2_000_000));
    }
    let (id, handle) = create(&client, "file").await;
    let data = pattern(9, 12 << 20);
    let mut told = false;
    for (i, part) in data.chunks(128 << 10).enumerate() {
        told |= client.write(handle, i as u64 * (128 << 10), Bytes::copy_from_slice(part)).await.is_err();
    }
    told |= client.flush(handle).await.is_err();
    assert!(told, "there is room for half of it at most");
    client.release(handle).await;
    until_nothing_is_buffered(&client).await;
    let other = world.client().await;
    let begun = Instant::now();
    let size = loop {
        let size = other.get_attr(&cx(), id, None).await.unwrap().attr.size;
        let settled = client.stats().open_inodes == 0 || begun.elapsed() > Duration::from_secs(5);
        if settled && size == client.get_attr(&cx(), id, None).await.unwrap().attr.size {
            break size as usize;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{size} bytes at the metadata server");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(size > 0 && size < data.len(), "{size} bytes of {} are shown", data.len());
    let reader = open(&other, id, READ).await;
    let end = read(&other, reader, size as u64 - 4096, 4096).await;
    assert_same(&end, &data[size - 4096..size], "the last bytes are what was written");
}

/// Many programs look at what `write` says and at nothing after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_by_the_write_that_finds_no_room() {
    for piece in [256 << 10, 100_000, 5_000] {
        // A disk keeps a 64th back for headers and tables of chunks.
        let world = World::new(Storage::Disk, Policy { chunk_bytes: 8 << 20, ..SMALL }).await;
        let client = world.client().await;
        for node in &world.nodes {
            node.disk.set_capacity(Some(20 << 20));
            // Which makes it look.
            node.call(Context::default(), GetDataStatus {}, Bytes::new()).await.unwrap();
        }
        let mut files = Vec::new();
        for n in 0..3 {
            let (id, handle) = create(&client, &format!("file {n}")).await;
            files.push((id, handle, pattern(n, 28 << 20), 0));
        }
        // In turn, so that each takes room that others could use; until none of them finds any.
        let mut refused = 0;
        while refused < files.len() {
            refused = 0;
            for (_, handle, data, end) in &mut files {
                if *end + piece > data.len() {
                    refused += 1;
                    continue;
                }
                let bytes = Bytes::copy_from_slice(&data[*end..*end + piece]);
                match client.write(*handle, *end as u64, bytes).await {
                    Ok(written) => *end += written as usize,
                    Err(error) => {
                        assert!(matches!(error.code, Code::NoSpace | Code::DiskFull), "{error}");
                        refused += 1;
                    }
                }
            }
        }
        let other = world.client().await;
        let mut total = 0;
        for (id, handle, data, end) in files {
            client.fsync(handle, false).await.expect("what was answered has room");
            client.flush(handle).await.unwrap();
            client.release(handle).await;
            let reader = open(&other, id, READ).await;
            assert_same(&read(&other, reader, 0, 32 << 20).await, &data[..end], "what was answered");
            total += end;
        }
        let room = world.nodes.len() * (20 << 20);
        // A file ends where the server of its last chunk has no more, and two others may have some.
        assert!(total > room / 3, "{total} bytes of {room} were used in pieces of {piece}");
        assert_eq!(client.stats().bytes_lost, 0);
    }
}

/// A file that needs no more gives back what was set aside for it, and one that never needed any takes none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_that_files_do_not_need_any_more_comes_back() {
    let world = World::new(Storage::Memory, Policy { chunk_bytes: 16 << 20, ..SMALL }).await;
    let client = world.client().await;
    let reserved = async || {
        let mut sum = 0;
        for node in &world.nodes {
            sum += node.call(Context::default(), GetDataStatus {}, Bytes::new()).await.unwrap().0.bytes_reserved;
        }
        sum
    };
    let (_, handle) = create(&client, "file").await;
    for n in 0..40 {
        client.write(handle, n << 17, Bytes::from(pattern(n, 1 << 17))).await.unwrap();
    }
    client.fsync(handle, false).await.unwrap();
    let spares = reserved().await;
    close(&client, handle).await.unwrap();
    let begun = Instant::now();
    // With the next sync of the server, which more files bring.
    while reserved().await >= spares {
        assert!(begun.elapsed() < Duration::from_secs(10), "{spares} bytes, now {}", reserved().await);
        let (_, handle) = create(&client, &format!("more {:?}", begun.elapsed())).await;
        client.write(handle, 0, Bytes::from(pattern(1, 100_000))).await.unwrap();
        client.fsync(handle, false).await.unwrap();
        close(&client, handle).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Past its own deadline, with what a close could not save.
async fn close_without_servers(client: &Client, handle: HandleId) {
    assert!(client.flush(handle).await.is_err(), "nobody is there to take it");
    client.release(handle).await;
}

async fn until_nothing_is_buffered(client: &Client) {
    let begun = Instant::now();
    while client.stats().bytes_buffered > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} bytes are kept", client.stats().bytes_buffered);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_closed_file_had_is_kept_past_the_deadline_and_sent_when_the_server_is_back() {
    let world = World::new(Storage::Disk, SMALL).await;
    let config = ClientConfig { deadline: Duration::from_secs(1), ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (id, handle) = create(&client, "file").await;
    let data = pattern(1, 300_000);
    client.fsync(handle, false).await.unwrap();
    world.nodes.iter().for_each(|node| node.down());
    client.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
    close_without_servers(&client, handle).await;
    // More than one more attempt in the background fails as well.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!((client.stats().bytes_lost, client.stats().bytes_buffered), (0, 300_000));
    let again = open(&client, id, READ_WRITE).await;
    assert_same(&read(&client, again, 0, 1 << 20).await, &data, "it is shown");
    assert!(client.fsync(again, false).await.is_err(), "and not called safe");
    client.release(again).await;
    world.nodes.iter().for_each(|node| node.up());
    until_nothing_is_buffered(&client).await;
    let other = world.client().await;
    let handle = open(&other, id, READ).await;
    assert_same(&read(&other, handle, 0, 1 << 20).await, &data, "another client");
    assert_eq!(client.stats().open_inodes, 0, "nothing is left of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_closed_files_keep_counts_in_the_write_buffer_and_writes_wait_for_room() {
    let world = World::new(Storage::Memory, SMALL).await;
    let deadline = Duration::from_secs(1);
    let config = ClientConfig { deadline, write_buffer_bytes: 500_000, ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (_, first) = create(&client, "first").await;
    let (_, second) = create(&client, "second").await;
    world.nodes.iter().for_each(|node| node.down());
    client.write(first, 0, Bytes::from(pattern(1, 300_000))).await.unwrap();
    close_without_servers(&client, first).await;
    let full = client.write(second, 0, Bytes::from(pattern(2, 300_000))).await.unwrap_err();
    assert!(full.code == Code::DeadlineExceeded && full.to_string().contains("room in the write buffer"), "{full}");
    assert_eq!(client.stats().bytes_buffered, 300_000);
    // A file that is removed needs no room any more, whether or not a server is there.
    client.unlink(&cx(), InodeId::ROOT, &name("first")).await.unwrap();
    client.write(second, 0, Bytes::from(pattern(2, 300_000))).await.unwrap();
    world.nodes.iter().for_each(|node| node.up());
    client.fsync(second, false).await.unwrap();
    assert_same(&read(&client, second, 0, 1 << 20).await, &pattern(2, 300_000), "read back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_of_a_closed_file_that_no_disk_takes_are_told_to_who_saves_it_next_once() {
    let world = World::new(Storage::Disk, SMALL).await;
    let config = ClientConfig { deadline: Duration::from_secs(1), ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (id, handle) = create(&client, "file").await;
    world.nodes.iter().for_each(|node| node.down());
    client.write(handle, 0, Bytes::from(pattern(1, 300_000))).await.unwrap();
    close_without_servers(&client, handle).await;
    // The servers are back, on disks that are full.
    for node in &world.nodes {
        node.disk.set_capacity(Some(280_000));
        node.up();
    }
    until_nothing_is_buffered(&client).await;
    assert!(client.stats().bytes_lost > 0);
    let reader = open(&client, id, READ).await;
    let writer = open(&client, id, READ_WRITE).await;
    let told = client.fsync(writer, false).await.unwrap_err();
    assert!(matches!(told.code, Code::NoSpace | Code::DiskFull), "{told}");
    client.fsync(writer, false).await.expect("once");
    client.fsync(reader, false).await.expect("to whoever asks first");
}

/// Else its bytes stay at the data servers for as long as the mount lives, on the disks that are full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_removed_while_its_last_writes_found_no_room_is_freed() {
    let config = MetaConfig {
        session_renew: Duration::from_millis(100),
        housekeeping: Duration::from_millis(50),
        ..MetaConfig::default()
    };
    let world = World::with(Storage::Disk, SMALL, config).await;
    let client = world.client().await;
    let (id, handle) = create(&client, "file").await;
    client.write(handle, 0, Bytes::from(pattern(1, 100_000))).await.unwrap();
    client.fsync(handle, false).await.unwrap();
    for node in &world.nodes {
        node.disk.set_capacity(Some(110_000));
        node.slow(Duration::from_millis(300));
    }
    client.write(handle, 100_000, Bytes::from(pattern(2, 400_000))).await.unwrap();
    let saving = tokio::spawn({
        let client = client.clone();
        async move { client.fsync(handle, false).await }
    });
    // Its writes are on their way when the name goes and the last handle is closed.
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.unlink(&cx(), InodeId::ROOT, &name("file")).await.unwrap();
    client.release(handle).await;
    assert!(saving.await.unwrap().is_err(), "the disks are full");
    let exists = async || world.meta.call(Context::default(), GetAttr { inode: id.into() }).await.is_ok();
    let begun = std::time::Instant::now();
    while exists().await || client.stats().open_inodes > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", client.stats());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_bounded_when_servers_are_slow() {
    let world = World::new(Storage::Disk, SMALL).await;
    let config = ClientConfig {
        write_buffer_bytes: 2 << 20,
        file_buffer_bytes: 2 << 20,
        retained_bytes: 3 << 20,
        ..ClientConfig::default()
    };
    let client = world.client_with(config.clone()).await;
    world.nodes.iter().for_each(|node| node.slow(Duration::from_millis(20)));
    let (_, handle) = create(&client, "file").await;
    let data = pattern(3, 12 << 20);
    for (i, part) in data.chunks(128 << 10).enumerate() {
        client.write(handle, i as u64 * (128 << 10), Bytes::copy_from_slice(part)).await.unwrap();
        let stats = client.stats();
        assert!(stats.bytes_buffered <= config.write_buffer_bytes, "{} buffered", stats.bytes_buffered);
        // Each write on its way may still be retained when its answer comes.
        let slack = config.write_buffer_bytes;
        assert!(stats.bytes_retained <= config.retained_bytes + slack, "{} retained", stats.bytes_retained);
    }
    client.fsync(handle, false).await.unwrap();
    assert_same(&read(&client, handle, 0, 16 << 20).await, &data, "read back");
}

/// What is buffered takes longer to be sent than any wait may: as long as it goes on nobody is told of a failure, neither who waits for it
/// nor who waits behind that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_way_is_no_failure_as_long_as_bytes_get_there() {
    const PIECES: u64 = 48;
    let world = World::new(Storage::Memory, SMALL).await;
    // Eight times what a message takes: a busy machine adds to that.
    let deadline = Duration::from_secs(2);
    let config = ClientConfig { deadline, file_writes_max: 12, server_writes_max: 1, ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (id, handle) = create(&client, "file").await;
    let second = open(&client, id, READ_WRITE).await;
    world.nodes.iter().for_each(|node| node.slow(Duration::from_millis(250)));
    // Each is a message of its own.
    for piece in 0..PIECES {
        client.write(handle, piece * 30_000, Bytes::from(pattern(piece, 4096))).await.unwrap();
    }
    let begun = Instant::now();
    let last = (PIECES - 1) * 30_000;
    let cut = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let size = SetAttr { size: Some(last), ..SetAttr::default() };
        client.set_attr(&cx(), id, Some(second), size).await
    };
    let (synced, cut) = tokio::join!(client.fsync(handle, false), cut);
    synced.expect("all of it was stored");
    cut.expect("it came after that");
    assert!(begun.elapsed() > 2 * deadline, "it was slow: {:?}", begun.elapsed());
    client.fsync(second, false).await.expect("nothing has failed");
    world.nodes.iter().for_each(|node| node.slow(Duration::ZERO));
    let now = read(&client, handle, 0, 2 << 20).await;
    assert_eq!(now.len() as u64, last);
    for piece in 0..PIECES - 1 {
        let at = piece as usize * 30_000;
        assert_same(&now[at..at + 4096], &pattern(piece, 4096), format_args!("piece {piece}"));
    }
}

/// What cannot be saved is waited for once, and not for each file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_in_one_deadline_however_many_files_cannot_be_saved() {
    let world = World::new(Storage::Memory, SMALL).await;
    let deadline = Duration::from_secs(2);
    let write_back_after = Duration::from_secs(3600);
    let client = world.client_with(ClientConfig { deadline, write_back_after, ..ClientConfig::default() }).await;
    for n in 0..10 {
        let (_, handle) = create(&client, &format!("file{n}")).await;
        client.write(handle, 0, Bytes::from(pattern(n, 100_000))).await.unwrap();
    }
    world.nodes.iter().for_each(|node| node.down());
    let begun = Instant::now();
    client.sync_fs().await.expect_err("nobody takes it");
    assert!(begun.elapsed() < 4 * deadline, "{:?}", begun.elapsed());
    world.nodes.iter().for_each(|node| node.up());
    client.sync_fs().await.expect("nothing was lost");
}

/// Bytes that make no long runs leave the buffer when there is no room for more, also if what was being saved meanwhile began before
/// them: the timer, which is far away here, is not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_fills_the_buffer_is_not_left_to_the_timer() {
    const PART: u64 = 64 << 10;
    let world = World::new(Storage::Memory, SMALL).await;
    let config = ClientConfig {
        write_buffer_bytes: 8 << 20,
        file_buffer_bytes: 1 << 20,
        write_back_after: Duration::from_secs(3600),
        ..ClientConfig::default()
    };
    let client = world.client_with(config).await;
    world.nodes.iter().for_each(|node| node.slow(Duration::from_millis(5)));
    let (_, handle) = create(&client, "file").await;
    let data = pattern(5, 256 * PART as usize);
    let parts: Vec<&[u8]> = data.chunks(PART as usize).collect();
    // Every other part, and then those in between.
    for i in (0..256).step_by(2).chain((1..256).step_by(2)) {
        let begun = std::time::Instant::now();
        client.write(handle, i as u64 * PART, Bytes::copy_from_slice(parts[i])).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "part {i} waited {:?}", begun.elapsed());
    }
    client.fsync(handle, false).await.unwrap();
    assert_same(&read(&client, handle, 0, data.len() as u32).await, &data, "read back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_are_close_to_open() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let (id, handle) = create(&a, "file").await;
    for round in 0..6 {
        let (writer, reader) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let data = pattern(round, [100, 3000, 2_000_000, 5000, 1_048_576, 10][round as usize]);
        let handle = open(writer, id, READ_WRITE).await;
        writer.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
        close(writer, handle).await.unwrap();
        let handle = open(reader, id, READ).await;
        let got = read(reader, handle, 0, data.len() as u32).await;
        assert_same(&got, &data, format_args!("round {round}"));
        close(reader, handle).await.unwrap();
    }
    close(&a, handle).await.unwrap();
}

/// Both take a spare for the same place; one chunk stays, with what both wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_that_fill_one_chunk_end_with_one() {
    for seed in 0..10 {
        let world = World::new(Storage::Memory, SMALL).await;
        let (a, b) = (world.client().await, world.client().await);
        let (id, at_a) = create(&a, "file").await;
        let at_b = open(&b, id, READ_WRITE).await;
        let (low, high) = (pattern(seed, 100_000), pattern(seed + 50, 100_000));
        a.write(at_a, 0, Bytes::from(low.clone())).await.unwrap();
        b.write(at_b, 200_000, Bytes::from(high.clone())).await.unwrap();
        let (first, second) = tokio::join!(close(&a, at_a), close(&b, at_b));
        first.unwrap();
        second.unwrap();
        let expected = [low, vec![0; 100_000], high].concat();
        for client in [&a, &b, &world.client().await] {
            let handle = open(client, id, READ).await;
            assert_same(&read(client, handle, 0, 1 << 20).await, &expected, format_args!("seed {seed}"));
            close(client, handle).await.unwrap();
        }
    }
}
