//! Chunks that a host goes on writing, and of which it has no copy, are brought to it.

use super::*;
use braid_api::admin::AdminQuery;
use braid_api::{FallocateMode, HandleId, SetAttr};

fn on(host: u64, bring_after_percent: u64) -> ClientConfig {
    ClientConfig { host: format!("host{host}"), bring_after_percent, ..ClientConfig::default() }
}

/// A file of two chunks that the first host has made, and a host that has a copy of neither.
async fn made(world: &World, bytes: &[u8]) -> (InodeId, u64) {
    let first = world.client_of(0, on(1, 100)).await;
    let (id, handle) = create(&first, "f").await;
    first.write(handle, 0, Bytes::copy_from_slice(bytes)).await.unwrap();
    first.fsync(handle, false).await.unwrap();
    first.release(handle).await;
    first.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let members = places(world);
    let far = (1..=4).find(|id| !members.values().flatten().any(|server| server.0 == *id));
    (id, far.expect("two copies of two chunks are on no more than three hosts"))
}

/// Who has each chunk.
fn places(world: &World) -> BTreeMap<ChunkId, BTreeSet<ServerId>> {
    let mut places: BTreeMap<ChunkId, BTreeSet<ServerId>> = BTreeMap::new();
    for (id, server) in &*world.net.servers.lock() {
        for copy in server.copies(ChunkId(0), 100).into_iter().filter(|copy| copy.told > Version::default()) {
            places.entry(copy.chunk).or_default().insert(*id);
        }
    }
    places
}

async fn rewrite(client: &Client, handle: HandleId, model: &mut [u8], at: usize, seed: u64, len: usize) {
    model[at..at + len].copy_from_slice(&pattern(seed, len));
    client.write(handle, at as u64, Bytes::from(model[at..at + len].to_vec())).await.unwrap();
}

/// Two copies of a chunk of 1 MiB: as it is brought when 2 MiB have been written to it, not before and not without `local_write`.
#[tokio::test(start_paused = true)]
async fn a_chunk_that_is_written_far_away_comes_to_who_writes_it() {
    for local_write in [true, false] {
        let world = World::new(4, "replica:2").await;
        let mut model = pattern(1, 2 * CHUNK as usize);
        let (id, far) = made(&world, &model).await;
        let before = places(&world);
        assert_eq!(before.len(), 2);
        let client = world.client_of(0, ClientConfig { local_write, ..on(far, 100) }).await;
        let handle = client.open(&cx(), id, READ_WRITE).await.unwrap().handle;
        for round in 0..4 {
            assert_eq!((client.stats().chunks_brought, places(&world)), (0, before.clone()), "round {round}");
            rewrite(&client, handle, &mut model, 0, 10 + round, CHUNK as usize / 2).await;
            client.fsync(handle, false).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(client.stats().chunks_brought, u64::from(local_write));
        let after = places(&world);
        let here: Vec<ChunkId> =
            after.iter().filter(|(_, at)| at.contains(&ServerId(far))).map(|(chunk, _)| *chunk).collect();
        assert_eq!(here.len(), usize::from(local_write), "{before:?} {after:?}");
        if local_write {
            assert!(here.iter().all(|chunk| !before.contains_key(chunk)));
            // What is written from now on goes nowhere else before it is answered.
            world.net.calls.lock().clear();
            rewrite(&client, handle, &mut model, 4096, 20, 4096).await;
            client.flush(handle).await.unwrap();
            let calls = std::mem::take(&mut *world.net.calls.lock());
            assert_eq!(calls, [(ServerId(0), ServerId(far), "WriteCopies")]);
        }
        client.fsync(handle, false).await.unwrap();
        assert!(seen(&world, id, 3 << 20).await == model, "by another mount");
        // The place of before is free again, and no more are used than before.
        let begun = tokio::time::Instant::now();
        while places(&world).len() > 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", places(&world));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        client.release(handle).await;
        client.shutdown().await.unwrap();
    }
}

/// Chunks that come to several containers, with many changes of each in between: what is asked of one has no place among those of another.
#[tokio::test(start_paused = true)]
async fn every_chunk_that_is_written_far_away_comes() {
    let world = World::new(5, "replica:2").await;
    let (chunk, chunks) = (CHUNK as usize, 8);
    let mut model = pattern(1, chunks * chunk);
    let first = world.client_of(0, on(1, 100)).await;
    let (id, handle) = create(&first, "f").await;
    first.write(handle, 0, Bytes::from(model.clone())).await.unwrap();
    first.fsync(handle, false).await.unwrap();
    first.release(handle).await;
    let before = places(&world);
    let there = |server: u64| before.values().filter(|at| at.contains(&ServerId(server))).count();
    let (far, has) = (2..=5).map(|server| (server, there(server))).min_by_key(|(_, has)| *has).unwrap();
    let client = world.client_of(0, on(far, 100)).await;
    let handle = client.open(&cx(), id, READ_WRITE).await.unwrap().handle;
    for index in 0..chunks {
        // Enough, and then more than are written to any later one.
        for round in 0..(56 + 10 * (chunks - index)) {
            let seed = (index * 1000 + round) as u64;
            rewrite(&client, handle, &mut model, index * chunk + (round % 9) * 100_000, seed, 50_000).await;
            client.flush(handle).await.unwrap();
        }
    }
    assert_eq!(client.stats().chunks_brought as usize, chunks - has, "{before:?}");
    client.fsync(handle, false).await.unwrap();
    assert!(seen(&world, id, 9 << 20).await == model);
}

/// Two hosts far from it write it in turn: it moves no more often than as much has been written as it costs.
#[tokio::test(start_paused = true)]
async fn writers_on_two_hosts_do_not_send_a_chunk_to_and_fro() {
    let world = World::new(6, "replica:2").await;
    let mut model = pattern(1, CHUNK as usize);
    let (id, _) = made(&world, &model).await;
    let clients = [world.client_of(0, on(5, 100)).await, world.client_of(0, on(6, 100)).await];
    let mut written = 0;
    for round in 0..40u64 {
        let client = &clients[round as usize % 2];
        let handle = client.open(&cx(), id, READ_WRITE).await.unwrap().handle;
        rewrite(client, handle, &mut model, 0, 10 + round, CHUNK as usize / 4).await;
        client.fsync(handle, false).await.unwrap();
        client.release(handle).await;
        written += CHUNK / 4;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let brought: u64 = clients.iter().map(|client| client.stats().chunks_brought).sum();
    assert!((1..=written / (2 * CHUNK)).contains(&brought), "{brought} times for {} MiB", written >> 20);
    assert!(seen(&world, id, 2 << 20).await == model);
}

/// Whole chunks are sent at once, also while the last part of one is made durable at its new place.
#[tokio::test(start_paused = true)]
async fn what_is_written_when_a_chunk_is_about_to_go_is_not_left_behind() {
    let mut brought = 0;
    for writes in (2..36).step_by(6).chain(36..50) {
        let world = World::new(4, "replica:2").await;
        let mut model = pattern(1, 2 * CHUNK as usize);
        let (id, far) = made(&world, &model).await;
        let client = world.client_of(0, on(far, 100)).await;
        let handle = client.open(&cx(), id, READ_WRITE).await.unwrap().handle;
        let slow = ["WaitCopies", "MoveChunk"].map(|name| (name, Duration::from_millis(100)));
        world.net.slow.lock().extend(slow);
        // The last of them may be on its way to either place, or between.
        for round in 0..writes {
            rewrite(&client, handle, &mut model, 0, 10 + round, CHUNK as usize).await;
            tokio::time::sleep(Duration::from_millis(11)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        brought += client.stats().chunks_brought;
        let found = client.read(handle, 0, 3 << 20).await.unwrap().concat();
        assert!(found == model, "{writes} writes, by who wrote it");
        client.fsync(handle, false).await.unwrap();
        assert!(seen(&world, id, 3 << 20).await == model, "{writes} writes, by another mount");
    }
    assert!(brought >= 18, "{brought}");
}

/// The row was changed, and nobody heard of it: what is written next goes to where the chunk is.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_not_send_writes_to_the_place_of_before() {
    for lost in [&["MoveChunk"][..], &["MoveChunk", "ReturnSpares"], &["TakeSpares"], &["ReturnSpares"]] {
        let world = World::new(4, "replica:2").await;
        let mut model = pattern(1, 2 * CHUNK as usize);
        let (id, far) = made(&world, &model).await;
        let client = world.client_of(0, on(far, 100)).await;
        let handle = client.open(&cx(), id, READ_WRITE).await.unwrap().handle;
        world.net.lost.lock().extend(lost.iter().flat_map(|name| [*name; 3]));
        world.net.slow.lock().insert("MoveChunk", Duration::from_millis(500));
        // Whoever opens or reads it meanwhile may hear of the new place first.
        let (other, done) = (client.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let ends = done.clone();
        let looks = tokio::spawn(async move {
            while !ends.load(std::sync::atomic::Ordering::SeqCst) {
                let handle = other.open(&cx(), id, READ_WRITE).await.unwrap().handle;
                other.read(handle, 0, 3 << 20).await.unwrap();
                other.release(handle).await;
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        });
        for round in 0..24 {
            rewrite(&client, handle, &mut model, 1000, 10 + round, CHUNK as usize / 2).await;
            match round % 3 {
                0 => client.fsync(handle, false).await.unwrap(),
                _ => client.flush(handle).await.unwrap(),
            }
            rewrite(&client, handle, &mut model, 7000, 500 + round, 100_000).await;
            tokio::time::sleep(Duration::from_millis(20 * (round % 5))).await;
            let found = client.read(handle, 0, 3 << 20).await.unwrap().concat();
            assert!(found == model, "{lost:?}, round {round}");
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        looks.await.unwrap();
        client.fsync(handle, false).await.unwrap();
        assert!(client.stats().chunks_brought >= 1, "{lost:?}");
        assert!(seen(&world, id, 3 << 20).await == model, "{lost:?}");
        client.shutdown().await.unwrap();
    }
}

/// A file is removed while a chunk of it is on its way: nothing of it stays, and the next one is brought as ever.
#[tokio::test(start_paused = true)]
async fn a_file_that_is_removed_meanwhile_is_gone_and_others_go_on() {
    for (ms, slow) in [(1, "ReadCopy"), (1, "ScrubChunk"), (3000, "ScrubChunk"), (5, "MoveChunk")] {
        let world = World::new(4, "replica:2").await;
        let mut model = pattern(1, 2 * CHUNK as usize);
        let (id, far) = made(&world, &model).await;
        let client = world.client_of(0, on(far, 100)).await;
        let handle = client.open(&cx(), id, READ_WRITE).await.unwrap().handle;
        world.net.slow.lock().insert(slow, Duration::from_secs(8));
        for round in 0..4 {
            rewrite(&client, handle, &mut model, 0, 10 + round, CHUNK as usize / 2).await;
            client.flush(handle).await.unwrap();
        }
        client.release(handle).await;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        client.unlink(&cx(), InodeId::ROOT, &"f".parse().unwrap()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.net.slow.lock().clear();
        let brought = client.stats().chunks_brought;
        assert_eq!(brought, u64::from(slow == "MoveChunk"), "it had gone before");
        // Another one of which that host has nothing.
        let id = loop {
            match made(&world, &model).await {
                (id, other) if other == far => break id,
                _ => client.unlink(&cx(), InodeId::ROOT, &"f".parse().unwrap()).await.unwrap(),
            }
        };
        let handle = client.open(&cx(), id, READ_WRITE).await.unwrap().handle;
        for round in 0..5 {
            rewrite(&client, handle, &mut model, 0, 20 + round, CHUNK as usize / 2).await;
            client.fsync(handle, false).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(client.stats().chunks_brought, brought + 1, "removed after {ms} ms, {slow} slow");
        assert!(seen(&world, id, 3 << 20).await == model);
    }
}

/// Everything that changes a file, on two hosts, while its chunks are brought to and fro and servers come and go; and no snapshot changes.
#[tokio::test(start_paused = true)]
async fn a_file_is_the_same_while_its_chunks_are_brought_to_its_writers() {
    let mut brought = 0;
    for seed in 0..12u64 {
        let world = World::new(5, "replica:2").await;
        let clients = [world.client_of(0, on(1, 4)).await, world.client_of(0, on(4, 4)).await];
        let (id, first) = create(&clients[0], "f").await;
        clients[0].release(first).await;
        let mut state = seed;
        let mut below = move |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let mut model: Vec<u8> = Vec::new();
        let mut snapshots: Vec<(Name, Vec<u8>)> = Vec::new();
        let mut down = None;
        for step in 0..12u64 {
            let client = &clients[step as usize % 2];
            let handle = client.open(&cx(), id, READ_WRITE).await.unwrap().handle;
            for part in 0..24u64 {
                match below(24) {
                    0..14 => {
                        let (at, len) = (below(2_200_000) as usize, 1 + below(400_000) as usize);
                        model.resize(model.len().max(at + len), 0);
                        rewrite(client, handle, &mut model, at, step * 100 + part, len).await;
                    }
                    14..18 => client.flush(handle).await.unwrap(),
                    18 => client.fsync(handle, false).await.unwrap(),
                    19 => {
                        let size = below(2_600_000);
                        model.resize(size as usize, 0);
                        let set = SetAttr { size: Some(size), ..Default::default() };
                        client.set_attr(&cx(), id, Some(handle), set).await.unwrap();
                    }
                    20 => {
                        let range = ByteRange::at(below(2_000_000), 1 + below(600_000));
                        client.fallocate(handle, FallocateMode::PunchHole, range).await.unwrap();
                        let end = (range.end as usize).min(model.len());
                        model[(range.start as usize).min(end)..end].fill(0);
                    }
                    21 => tokio::time::sleep(Duration::from_millis(below(1_500))).await,
                    22 if snapshots.len() < 3 => {
                        let name: Name = format!("s{}", snapshots.len()).parse().unwrap();
                        let make =
                            AdminQuery::CreateSnapshot { dir: InodeId::ROOT, name: name.clone(), wait_ms: 20_000 };
                        let meta = world.net.meta.lock().clone().unwrap();
                        meta.call(Context::default(), make).await.unwrap();
                        snapshots.push((name, model.clone()));
                    }
                    22 => {}
                    _ => match down.take() {
                        None if below(2) == 0 => {
                            tokio::time::sleep(Duration::from_secs(15)).await;
                            let id = 1 + below(5);
                            world.power_cut(id, seed * 1000 + step);
                            down = Some(id);
                        }
                        None => {}
                        Some(id) => world.start(id, false).await,
                    },
                }
            }
            let found = client.read(handle, 0, 3 << 20).await.unwrap().concat();
            let differs = found.iter().zip(&model).position(|(a, b)| a != b);
            assert_eq!((differs, found.len()), (None, model.len()), "seed {seed}, step {step}");
            client.release(handle).await;
        }
        if let Some(id) = down {
            world.start(id, false).await;
        }
        let found = seen(&world, id, 3 << 20).await;
        let differs = found.iter().zip(&model).position(|(a, b)| a != b);
        assert_eq!((differs, found.len()), (None, model.len()), "seed {seed}, by another mount");
        for (name, then) in &snapshots {
            let mut at = InodeId::ROOT;
            for part in [".braid", "snapshots", &name.to_string(), "f"] {
                let entry = clients[1].lookup(&cx(), at, &part.parse().unwrap()).await.unwrap();
                at = entry.attr.unwrap().id;
            }
            let found = seen(&world, at, 3 << 20).await;
            let differs = found.iter().zip(then).position(|(a, b)| a != b);
            assert_eq!((differs, found.len()), (None, then.len()), "seed {seed}, snapshot {name}");
        }
        brought += clients.iter().map(|client| client.stats().chunks_brought).sum::<u64>();
        for client in clients {
            client.shutdown().await.unwrap();
        }
    }
    assert!(brought > 40, "{brought} only: this shows little");
}
