//! Chunks with one copy are moved off a data server that is drained, while their files are in use.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::admin::{AdminQuery, Drain, Rebalance, RebalanceChange, RebalanceState};
use braid_api::meta::{Duty, FileWant, LeaseState, Namespace, OpenFile, OpenSession};
use braid_api::{Context, FallocateMode, FileSystem, SeekWhence, SetAttr};
use braid_client::Client;
use braid_meta_server::MetaConfig;
use braid_types::*;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

async fn write(client: &Client, handle: braid_api::HandleId, offset: u64, data: &[u8]) {
    let written = client.write(handle, offset, Bytes::copy_from_slice(data)).await.unwrap();
    assert_eq!(written as usize, data.len());
}

async fn attr(client: &Client, id: InodeId) -> Attr {
    client.get_attr(&cx(), id, None).await.unwrap().attr
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_in_use_is_the_same_when_its_chunks_have_moved() {
    let world = World::new(Storage::Disk, SMALL).await;
    let (writer, reader) = (world.client().await, world.client().await);
    let (id, file) = create(&writer, "f").await;
    let mut expected = pattern(1, 5 << 20);
    write(&writer, file, 0, &expected).await;
    writer.flush(file).await.unwrap();
    // A hole within a chunk, one that is cut off, and one that nobody has written.
    let hole = ByteRange::new(300_000, 700_000);
    writer.fallocate(file, FallocateMode::PunchHole, hole).await.unwrap();
    expected[hole.start as usize..hole.end as usize].fill(0);
    let cut = SetAttr { size: Some((4 << 20) + 5000), ..SetAttr::default() };
    writer.set_attr(&cx(), id, Some(file), cut).await.unwrap();
    expected.truncate((4 << 20) + 5000);
    write(&writer, file, 6 << 20, b"end").await;
    expected.resize(6 << 20, 0);
    expected.extend_from_slice(b"end");
    writer.fsync(file, false).await.unwrap();
    let read_by = open(&reader, id, READ).await;
    assert_same(&read(&reader, read_by, 0, 8 << 20).await, &expected, "before");
    let before = attr(&reader, id).await;

    let _mover = world.mover();
    for node in &world.nodes {
        world.set_duty(node.id, Duty::Drains).await;
        world.until_drained(node.id).await;
        assert_same(&read(&reader, read_by, 0, 8 << 20).await, &expected, "at the reader's handle of before");
        let seen = attr(&reader, id).await;
        assert_eq!((seen.size, seen.mtime, seen.ctime), (before.size, before.mtime, before.ctime));
        let hole_at = reader.seek(read_by, 0, SeekWhence::Hole).await.unwrap();
        assert_eq!(hole_at, hole.start.next_multiple_of(BLOCK_BYTES), "a hole takes no room at its new place");
        world.set_duty(node.id, Duty::Serves).await;
    }
    write(&writer, file, (4 << 20) + 4000, &pattern(2, 3000)).await;
    expected[(4 << 20) + 4000..(4 << 20) + 7000].copy_from_slice(&pattern(2, 3000));
    writer.fsync(file, false).await.unwrap();
    assert_same(&read(&reader, read_by, 0, 8 << 20).await, &expected, "written since");
    // Nothing is anywhere twice: the old ones are freed, and so is what was not used.
    close(&writer, file).await.unwrap();
    reader.release(read_by).await;
    let (writer, reader) = (Arc::into_inner(writer).unwrap(), Arc::into_inner(reader).unwrap());
    let (one, two) = tokio::join!(writer.shutdown(), reader.shutdown());
    one.and(two).unwrap();
    let begun = std::time::Instant::now();
    // Six, for one is a hole from the beginning.
    while world.chunks().await.len() > 6 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", world.chunks().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Each byte is of one write, and all were answered: whichever was under way while its chunk was copied is there afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_while_chunks_are_moved_is_not_lost() {
    let world = World::new(Storage::Disk, SMALL).await;
    let client = world.client().await;
    let (id, file) = create(&client, "f").await;
    let mut expected = pattern(1, 4 << 20);
    write(&client, file, 0, &expected).await;
    client.fsync(file, false).await.unwrap();
    let _mover = world.mover();
    let mut round = 0u64;
    for node in &world.nodes {
        // So that a copy takes longer than the pause between two writes.
        node.slow(Duration::from_millis(3));
        world.set_duty(node.id, Duty::Drains).await;
        let begun = std::time::Instant::now();
        while world.drain_of(node.id).await.duty != Duty::Drained {
            assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", world.drain_of(node.id).await);
            for _ in 0..20 {
                round += 1;
                let at = (round.wrapping_mul(0x9e37_79b9) % ((4 << 20) - 5000)) as usize;
                let data = pattern(round, 1 + (round % 5000) as usize);
                write(&client, file, at as u64, &data).await;
                expected[at..at + data.len()].copy_from_slice(&data);
                if round.is_multiple_of(7) {
                    client.fsync(file, false).await.unwrap();
                }
            }
        }
        node.slow(Duration::ZERO);
        world.set_duty(node.id, Duty::Serves).await;
    }
    client.fsync(file, false).await.unwrap();
    let other = world.client().await;
    let read_by = open(&other, id, READ).await;
    assert_same(&read(&other, read_by, 0, 4 << 20).await, &expected, format!("after {round} writes"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_file_moves_and_stays_sealed() {
    let world = World::new(Storage::Disk, SMALL).await;
    let (client, other) = (world.client().await, world.client().await);
    let (id, file) = create(&client, "f").await;
    write(&client, file, 0, &pattern(1, 500_000)).await;
    close(&client, file).await.unwrap();
    client.set_sealed(&cx(), id, true, Duration::from_secs(5)).await.unwrap();
    let handle = open(&other, id, READ).await;
    assert_same(&read(&other, handle, 0, 1 << 20).await, &pattern(1, 500_000), "before");
    let _mover = world.mover();
    let server = world.server_of(0).await;
    world.set_duty(server, Duty::Drains).await;
    world.until_drained(server).await;
    assert_ne!(world.server_of(0).await, server);
    assert_same(&read(&other, handle, 0, 1 << 20).await, &pattern(1, 500_000), "after");
    let refused = client.open(&cx(), id, READ_WRITE).await.unwrap_err();
    assert_eq!(refused.code, braid_api::Code::Sealed);
}

/// What it had under way is in no file, whatever the file has become meanwhile, and goes with the next one's start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mover_that_dies_leaves_nothing_behind() {
    let world = World::new(Storage::Disk, SMALL).await;
    let client = world.client().await;
    let (id, file) = create(&client, "f").await;
    write(&client, file, 0, &pattern(1, 900_000)).await;
    client.fsync(file, false).await.unwrap();
    let server = world.server_of(0).await;
    // It gets as far as the last message.
    world.late.lock().insert("MoveChunk", Duration::from_secs(3600));
    let mover = world.mover();
    world.set_duty(server, Duty::Drains).await;
    let begun = std::time::Instant::now();
    let copies = async || world.chunks().await.len();
    while copies().await < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing was copied");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    mover.abort();
    world.late.lock().clear();
    // The file is inline now: there is nothing at the index of which the dead one has a copy.
    let _mover = world.mover();
    let cut = SetAttr { size: Some(10), ..SetAttr::default() };
    client.set_attr(&cx(), id, Some(file), cut).await.unwrap();
    client.fsync(file, false).await.unwrap();
    world.until_drained(server).await;
    assert_same(&read(&client, file, 0, 1 << 20).await, &pattern(1, 10), "after");
    while copies().await > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", world.chunks().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let other = world.client().await;
    let read_by = open(&other, id, READ).await;
    assert_same(&read(&other, read_by, 0, 1 << 20).await, &pattern(1, 10), "for another");
}

/// The drain when it says why a chunk of this file stays, and what it says.
async fn named(world: &World, server: ServerId, id: InodeId) -> (Drain, String) {
    let begun = std::time::Instant::now();
    loop {
        let drain = world.drain_of(server).await;
        let of_file = format!("of inode {id}");
        if let Some(reason) = drain.reasons.iter().find(|reason| reason.contains(&of_file)).cloned() {
            return (drain, reason);
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{drain:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A chunk that cannot be read is named with the reason, and stays; the others go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_moved_is_named_and_stays() {
    let world = World::new(Storage::Disk, SMALL).await;
    let client = world.client().await;
    let (id, file) = create(&client, "f").await;
    write(&client, file, 0, &pattern(1, 900_000)).await;
    client.fsync(file, false).await.unwrap();
    let server = world.server_of(0).await;
    let others: Vec<ServerId> = world.nodes.iter().map(|node| node.id).filter(|id| *id != server).collect();
    let _mover = world.mover();
    // Nobody takes anything.
    for other in &others {
        world.set_duty(*other, Duty::Drains).await;
    }
    world.set_duty(server, Duty::Drains).await;
    // First that there is no place for any of them; then who has tried says it of the chunk.
    let (drain, reason) = named(&world, server, id).await;
    assert!(drain.stuck.containers == 1 && reason.contains("data servers that are up"), "{drain:?}");
    world.set_duty(others[0], Duty::Serves).await;
    world.until_drained(server).await;
    assert_same(&read(&client, file, 0, 1 << 20).await, &pattern(1, 900_000), "after");
}

/// Chunks with one copy go from servers that have too many to one that is empty, and no more of them than it lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_with_one_copy_are_evened_out_while_their_files_are_in_use() {
    const MIB: u64 = 1 << 20;
    let config = MetaConfig { rebalance_least_bytes: MIB / 2, ..MetaConfig::default() };
    let mut world = World::with(Storage::Disk, SMALL, config).await;
    let client = world.client().await;
    let (id, file) = create(&client, "f").await;
    let (last, others) = (world.nodes.last().unwrap().id, world.nodes.len() as u64 - 1);
    // Nothing comes there yet.
    world.set_duty(last, Duty::Drains).await;
    world.until_drained(last).await;
    let mut expected = pattern(1, (12 * others * MIB) as usize);
    for (n, part) in expected.chunks(MIB as usize).enumerate() {
        write(&client, file, n as u64 * MIB, part).await;
    }
    client.fsync(file, false).await.unwrap();
    world.set_duty(last, Duty::Serves).await;

    let mut mover = world.mover();
    let plan = world.rebalance(AdminQuery::Rebalance { within_permille: None }).await;
    let to_last = |seen: &Rebalance| seen.shifts.iter().filter(|it| it.to == last).map(|it| it.bytes).sum::<u64>();
    assert!(plan.left.copies == 0 && to_last(&plan) > 4 * MIB, "{plan:?}");
    let run =
        AdminQuery::SetRebalance { change: RebalanceChange::Run, within_permille: None, move_rate: Some(8 * MIB) };
    world.rebalance(run).await;
    let (begun, mut round) = (std::time::Instant::now(), 0u64);
    let done = loop {
        let seen = world.rebalance(AdminQuery::Rebalance { within_permille: None }).await;
        if seen.state == RebalanceState::Done {
            break seen;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{seen:?}");
        round += 1;
        let (at, data) = ((round * 7919 * 4096) % (expected.len() as u64 - 5000), pattern(round, 5000));
        write(&client, file, at, &data).await;
        expected[at as usize..][..5000].copy_from_slice(&data);
        if round == 20 {
            // What is to be done follows from what is where.
            mover.abort();
            world.restart_meta(0).await;
            mover = world.mover();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    mover.abort();
    // A chunk is the grain: each giver keeps less than one too many.
    for fill in &done.fills {
        assert!(fill.bytes_now.abs_diff(fill.bytes_fair) <= others * MIB, "{:?}", done.fills);
    }
    let lacked: u64 = plan.fills.iter().map(|fill| fill.bytes_now.saturating_sub(fill.bytes_fair)).sum();
    // The mover that was ended had moved some that it had not said: these are where they are to be, and in no sum.
    assert!(done.moved.bytes > 0 && done.moved.bytes <= lacked, "{done:?} of {lacked}");
    let of_last = done.fills.iter().find(|fill| fill.server == last).map(|fill| fill.bytes_now);
    assert_eq!(of_last, Some(3 * others * MIB), "all that fits, and nothing twice");
    client.fsync(file, false).await.unwrap();
    let other = world.client().await;
    let read_by = open(&other, id, READ).await;
    for (n, part) in expected.chunks(MIB as usize).enumerate() {
        assert_same(&read(&other, read_by, n as u64 * MIB, MIB as u32).await, part, format!("chunk {n}"));
    }
}

/// A drain has time. A mount that is silent for its lease keeps its session as long as without one, and its file stays; the others go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_no_session_of_a_silent_mount_and_goes_on_with_others() {
    let config = MetaConfig {
        session_lease: Duration::from_secs(1),
        session_renew: Duration::from_millis(300),
        server_lease: Duration::from_secs(1),
        heartbeat: Duration::from_millis(300),
        acknowledge: Duration::from_millis(700),
        ..MetaConfig::default()
    };
    let world = World::with(Storage::Disk, SMALL, config).await;
    let client = world.client().await;
    let (id, file) = create(&client, "f").await;
    write(&client, file, 0, &pattern(1, 900_000)).await;
    client.fsync(file, false).await.unwrap();
    let server = world.server_of(0).await;
    for n in 0..8 {
        let (_, other) = create(&client, &format!("g{n}")).await;
        write(&client, other, 0, &pattern(n, 900_000)).await;
        close(&client, other).await.unwrap();
    }
    close(&client, file).await.unwrap();
    // Has the file to itself, and is not heard of any more.
    let open = OpenSession {
        client: 99,
        former: None,
        description: "silent".into(),
        host: "h".into(),
        caches: true,
        since: Default::default(),
    };
    let silent = world.meta.call(Context::default(), open).await.unwrap();
    let token = Token { session: silent.session, session_epoch: silent.epoch, ..Token::default() };
    let opens = OpenFile { inode: id.into(), want: FileWant::Alone, truncate: false };
    let opened = world.meta.call(Context { token, ..Context::default() }, opens).await.unwrap();
    assert_eq!(opened.lease.state, LeaseState::Exclusive);
    tokio::time::sleep(Duration::from_millis(1500)).await;

    let _mover = world.mover();
    world.set_duty(server, Duty::Drains).await;
    let (_, reason) = named(&world, server, id).await;
    let says = format!("session {} (silent, host h) has it and has been silent for", silent.session);
    assert!(reason.contains(&says), "{reason}");
    let begun = std::time::Instant::now();
    while world.drain_of(server).await.left.chunks > 1 || begun.elapsed() < Duration::from_secs(3) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", world.drain_of(server).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(world.sessions().await.contains(&silent.session), "its session has ended for the drain");
    world.end_session(silent.session).await;
    world.until_drained(server).await;
    let read_by = crate::common::open(&client, id, READ).await;
    assert_same(&read(&client, read_by, 0, 1 << 20).await, &pattern(1, 900_000), "after");
}

/// A chunk that was on stable storage and is not there any more: its row alone says where it was. (One that was not reads as a hole, and
/// keeps no server: `plain-grow-fsync`, seed 121, of the simulator.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_that_its_server_has_lost_is_named_until_its_file_is_removed() {
    let world = World::new(Storage::Disk, SMALL).await;
    let client = world.client().await;
    let (id, file) = create(&client, "f").await;
    write(&client, file, 0, &pattern(1, 900_000)).await;
    client.fsync(file, false).await.unwrap();
    let server = world.server_of(0).await;
    let node = world.nodes.iter().find(|node| node.id == server).unwrap();
    node.lose_chunk(world.chunks().await[0]);
    let _mover = world.mover();
    world.set_duty(server, Duty::Drains).await;
    let (_, reason) = named(&world, server, id).await;
    assert!(reason.contains("does not have it any more"), "{reason}");
    close(&client, file).await.unwrap();
    client.unlink(&cx(), InodeId::ROOT, &name("f")).await.unwrap();
    world.until_drained(server).await;
}
