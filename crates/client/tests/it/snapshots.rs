//! Snapshots of a directory in which several mounts write (docs/design/0028-snapshots.md).
#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::meta::AdminQuery;
use braid_api::{Code, Context, FallocateMode, FileSystem, HandleId, Namespace, NewNode, NodeKind, OpenFlags, SetAttr};
use braid_client::{Client, ClientConfig};
use braid_types::*;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const ROOT: InodeId = InodeId::ROOT;
const DIRECT: OpenFlags = OpenFlags { direct: true, ..READ_WRITE };
const CREATE: OpenFlags = OpenFlags { exclusive: true, ..READ_WRITE };

async fn mkdir(client: &Client, parent: InodeId, text: &str) -> InodeId {
    let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
    client.make_node(&cx(), parent, &name(text), node).await.unwrap().attr.id
}

async fn make(client: &Client, dir: InodeId, text: &str, flags: OpenFlags) -> (InodeId, HandleId) {
    let (entry, opened) = client.create(&cx(), dir, &name(text), Mode(0o644), flags).await.unwrap();
    (entry.attr.id, opened.handle)
}

async fn put(client: &Client, handle: HandleId, offset: u64, bytes: &[u8]) {
    assert_eq!(client.write(handle, offset, Bytes::copy_from_slice(bytes)).await.unwrap() as usize, bytes.len());
}

async fn snapshot(world: &World, dir: InodeId, text: &str) {
    let create = AdminQuery::CreateSnapshot { dir, name: name(text), wait_ms: 20_000 };
    world.meta.call(Context::default(), create).await.unwrap();
}

async fn let_go(world: &World, dir: InodeId, text: &str) {
    world.meta.call(Context::default(), AdminQuery::DropSnapshot { dir, name: name(text) }).await.unwrap();
}

async fn find(client: &Client, mut at: InodeId, path: &[&str]) -> Option<Attr> {
    let mut found = None;
    for text in path {
        let attr = client.lookup(&cx(), at, &name(text)).await.unwrap().attr?;
        (at, found) = (attr.id, Some(attr));
    }
    found
}

/// All of a file.
async fn content(client: &Client, id: InodeId) -> Vec<u8> {
    let handle = open(client, id, READ).await;
    let size = client.get_attr(&cx(), id, Some(handle)).await.unwrap().attr.size;
    let mut all = Vec::new();
    while (all.len() as u64) < size {
        let piece = read(client, handle, all.len() as u64, 1 << 20).await;
        assert!(!piece.is_empty());
        all.extend(piece);
    }
    client.release(handle).await;
    all
}

async fn in_snapshot(client: &Client, dir: InodeId, text: &str, file: &str) -> Option<Vec<u8>> {
    let found = find(client, dir, &[".braid", "snapshots", text, file]).await?;
    Some(content(client, found.id).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_has_what_mounts_had_written_and_nothing_later() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b, reader) = (world.client().await, world.client().await, world.client().await);
    let dir = mkdir(&a, ROOT, "d").await;
    let (small, large) = (make(&a, dir, "small", CREATE).await, make(&b, dir, "large", CREATE).await);
    // Nothing of it is asked to be stored.
    put(&a, small.1, 0, b"before").await;
    let before = pattern(1, (CHUNK as usize) * 2 + 5000);
    put(&b, large.1, 0, &before).await;
    snapshot(&world, dir, "one").await;
    put(&a, small.1, 0, b"later!").await;
    put(&b, large.1, CHUNK - 10, &pattern(2, 20)).await;
    put(&b, large.1, before.len() as u64, b"longer").await;
    let (_, new) = make(&a, dir, "new", CREATE).await;
    put(&a, new, 0, b"new").await;
    assert_eq!(in_snapshot(&reader, dir, "one", "small").await.unwrap(), b"before");
    assert_same(&in_snapshot(&reader, dir, "one", "large").await.unwrap(), &before, "the snapshot");
    assert!(in_snapshot(&reader, dir, "one", "new").await.is_none());
    let mut now = before.clone();
    now[CHUNK as usize - 10..CHUNK as usize + 10].copy_from_slice(&pattern(2, 20));
    now.extend_from_slice(b"longer");
    assert_same(&content(&reader, large.0).await, &now, "the file");
    assert_same(&in_snapshot(&b, dir, "one", "large").await.unwrap(), &before, "at who writes it");

    // Nothing in it changes.
    let then = find(&reader, dir, &[".braid", "snapshots", "one", "small"]).await.unwrap();
    let refused = reader.open(&cx(), then.id, READ_WRITE).await.unwrap_err();
    assert_eq!(refused.code, Code::ReadOnly);
    let above = find(&reader, dir, &[".braid", "snapshots", "one"]).await.unwrap().id;
    assert_eq!(reader.unlink(&cx(), above, &name("small")).await.unwrap_err().code, Code::ReadOnly);
    let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
    assert_eq!(reader.make_node(&cx(), above, &name("x"), node).await.unwrap_err().code, Code::ReadOnly);
    // And it goes when it is let go of, with what only it had.
    let with = world.chunks().await.len();
    let_go(&world, dir, "one").await;
    assert!(find(&reader, dir, &[".braid", "snapshots", "one"]).await.is_none());
    until(&world, with - 3).await;
    assert_same(&content(&reader, large.0).await, &now, "the file afterwards");
}

/// Until there are no more chunks than these.
async fn until(world: &World, chunks: usize) {
    let begun = Instant::now();
    while world.chunks().await.len() > chunks {
        assert!(begun.elapsed() < Duration::from_secs(30), "{chunks}: {:?}", world.chunks().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A file and what is in it.
struct File {
    id: InodeId,
    data: Vec<u8>,
}

async fn at_random(storage: Storage, seed: u64, steps: usize) {
    let world = World::new(storage, SMALL).await;
    let mut rng = StdRng::seed_from_u64(seed);
    let clients = [world.client().await, world.client().await];
    let dir = mkdir(&clients[0], ROOT, "d").await;
    let mut files: BTreeMap<String, File> = BTreeMap::new();
    let mut shown: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
    for step in 0..steps {
        let client = &clients[rng.random_range(0..2)];
        let text = format!("f{}", rng.random_range(0..4));
        let what = rng.random_range(0..20);
        let Some(file) = files.get_mut(&text) else {
            let (id, handle) = make(client, dir, &text, CREATE).await;
            close(client, handle).await.unwrap();
            files.insert(text, File { id, data: Vec::new() });
            continue;
        };
        match what {
            0..=9 => {
                let handle = open(client, file.id, READ_WRITE).await;
                let at = rng.random_range(0..=file.data.len().min(3 << 20));
                let len = [1, 100, 5000, 300_000, 1_200_000][rng.random_range(0..5)];
                let data = pattern(rng.random::<u32>().into(), len);
                put(client, handle, at as u64, &data).await;
                file.data.resize(file.data.len().max(at + len), 0);
                file.data[at..at + len].copy_from_slice(&data);
                if rng.random_bool(0.3) {
                    client.fsync(handle, false).await.unwrap();
                }
                close(client, handle).await.unwrap();
            }
            10 | 11 => {
                let size = rng.random_range(0..=file.data.len() + 1000);
                let change = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                client.set_attr(&cx(), file.id, None, change).await.unwrap();
                file.data.resize(size, 0);
            }
            12 if !file.data.is_empty() => {
                let handle = open(client, file.id, READ_WRITE).await;
                let from = rng.random_range(0..file.data.len());
                let to = (from + rng.random_range(1..400_000)).min(file.data.len());
                let range = ByteRange::new(from as u64, to as u64);
                client.fallocate(handle, FallocateMode::PunchHole, range).await.unwrap();
                file.data[from..to].fill(0);
                close(client, handle).await.unwrap();
            }
            13 => {
                client.unlink(&cx(), dir, &name(&text)).await.unwrap();
                files.remove(&text);
            }
            14 | 15 if shown.len() < 5 => {
                let text = format!("s{step}");
                snapshot(&world, dir, &text).await;
                let had = files.iter().map(|(text, file)| (text.clone(), file.data.clone()));
                shown.insert(text, had.collect());
            }
            16 if shown.len() > 2 => {
                let text = shown.keys().nth(rng.random_range(0..shown.len())).unwrap().clone();
                let_go(&world, dir, &text).await;
                shown.remove(&text);
            }
            17 => {
                let Some((text, had)) = shown.iter().nth(rng.random_range(0..shown.len().max(1))) else { continue };
                for (file, data) in had {
                    let got = in_snapshot(client, dir, text, file).await.unwrap_or_default();
                    assert_same(&got, data, format!("seed {seed} step {step}: {file} in {text}"));
                }
            }
            _ => assert_same(&content(client, file.id).await, &file.data, format!("seed {seed} step {step}: {text}")),
        }
    }
    let reader = world.client().await;
    for (text, had) in &shown {
        for (file, data) in had {
            let got = in_snapshot(&reader, dir, text, file).await.unwrap();
            assert_same(&got, data, format!("seed {seed}: {file} in {text} at last"));
        }
    }
    for (text, file) in &files {
        assert_same(&content(&reader, file.id).await, &file.data, format!("seed {seed}: {text} at last"));
        reader.unlink(&cx(), dir, &name(text)).await.unwrap();
    }
    for text in shown.keys() {
        let_go(&world, dir, text).await;
    }
    let [a, b] = clients;
    for client in [a, b, reader] {
        Arc::into_inner(client).unwrap().shutdown().await.unwrap();
    }
    until(&world, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_written_snapshots_stay_as_they_are() {
    let seeds = std::env::var("SNAPSHOT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    for seed in 0..seeds {
        at_random(Storage::Memory, seed, 250).await;
        at_random(Storage::Disk, seed + 1000, 250).await;
    }
}

/// In a file that goes on, and in one that has gone.
/// As without a snapshot: a chunk that nobody had synced, and that went with its writer and its server, reads as a hole and is written anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_that_was_lost_before_the_snapshot_can_be_written() {
    for seed in 0..4 {
        let world = World::new(Storage::Disk, SMALL).await;
        let soon = ClientConfig { lost_after: Duration::from_millis(200), ..ClientConfig::default() };
        let other = world.client_with(soon).await;
        let dir = mkdir(&other, ROOT, "dir").await;
        let never = ClientConfig { stabilise_after: Duration::from_secs(600), ..ClientConfig::default() };
        let writer = world.client_with(never).await;
        let (id, handle) = make(&writer, dir, "file", READ_WRITE).await;
        put(&writer, handle, 0, &pattern(seed, 100_000)).await;
        close(&writer, handle).await.unwrap();
        drop(writer);
        world.nodes.iter().for_each(|node| node.lose_power(seed));
        let before = content(&other, id).await;
        let is_lost = world.chunks().await.is_empty();
        snapshot(&world, dir, "one").await;
        assert_same(&content(&other, id).await, &before, "the file");
        assert_same(&in_snapshot(&other, dir, "one", "file").await.unwrap(), &before, "the snapshot");
        let handle = open(&other, id, READ_WRITE).await;
        put(&other, handle, 5000, &pattern(9, 6000)).await;
        other.fsync(handle, false).await.unwrap();
        let mut now = before.clone();
        now[5000..11_000].copy_from_slice(&pattern(9, 6000));
        let third = world.client().await;
        assert_same(&content(&third, id).await, &now, "the file, written again");
        assert_same(&in_snapshot(&other, dir, "one", "file").await.unwrap(), &before, "the snapshot, later");
        if is_lost {
            assert!(before.iter().all(|byte| *byte == 0), "never written reads as zero");
            return;
        }
    }
    panic!("the power cuts lost nothing, so this has shown nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_that_only_snapshots_have_are_moved_off_a_drained_server() {
    let world = World::new(Storage::Disk, SMALL).await;
    let client = world.client().await;
    let dir = mkdir(&client, ROOT, "d").await;
    let (id, file) = make(&client, dir, "f", CREATE).await;
    let (_, other) = make(&client, dir, "gone", CREATE).await;
    let before = pattern(1, 3 * CHUNK as usize + 5000);
    put(&client, file, 0, &before).await;
    put(&client, other, 0, &before).await;
    // What is cut off and grows again is not there twice.
    let cut = SetAttr { size: Some(3 * CHUNK + 100), ..SetAttr::default() };
    client.set_attr(&cx(), id, Some(file), cut).await.unwrap();
    put(&client, file, 3 * CHUNK + 4999, b"x").await;
    let mut had = before.clone();
    had[3 * CHUNK as usize + 100..].fill(0);
    had[3 * CHUNK as usize + 4999] = b'x';
    close(&client, other).await.unwrap();
    snapshot(&world, dir, "one").await;
    put(&client, file, 10, &pattern(2, 20)).await;
    put(&client, file, 3 * CHUNK + 10, &pattern(2, 20)).await;
    snapshot(&world, dir, "two").await;
    put(&client, file, CHUNK, &pattern(3, 20)).await;
    client.fsync(file, false).await.unwrap();
    client.unlink(&cx(), dir, &name("gone")).await.unwrap();
    let mut now = had.clone();
    now[10..30].copy_from_slice(&pattern(2, 20));
    now[3 * CHUNK as usize + 10..3 * CHUNK as usize + 30].copy_from_slice(&pattern(2, 20));
    let two = now.clone();
    now[CHUNK as usize..CHUNK as usize + 20].copy_from_slice(&pattern(3, 20));
    let _mover = world.mover();
    for node in &world.nodes {
        world.set_duty(node.id, braid_api::meta::Duty::Drains).await;
        world.until_drained(node.id).await;
        world.set_duty(node.id, braid_api::meta::Duty::Serves).await;
        assert_same(&in_snapshot(&client, dir, "one", "f").await.unwrap(), &had, "the first");
        assert_same(&in_snapshot(&client, dir, "two", "f").await.unwrap(), &two, "the second");
        for text in ["one", "two"] {
            assert_same(&in_snapshot(&client, dir, text, "gone").await.unwrap(), &before, "what has gone");
        }
        assert_same(&content(&client, id).await, &now, "the file");
    }
    close(&client, file).await.unwrap();
    client.unlink(&cx(), dir, &name("f")).await.unwrap();
    let_go(&world, dir, "one").await;
    let_go(&world, dir, "two").await;
    Arc::into_inner(client).unwrap().shutdown().await.unwrap();
    until(&world, 0).await;
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// One mount writes a number into one file, and then, it or another mount, into another: the second is never ahead of the first.
async fn in_order(flags: OpenFlags, at: u64) {
    let world = Arc::new(World::new(Storage::Memory, SMALL).await);
    let (a, b) = (world.client().await, world.client().await);
    let dir = mkdir(&a, ROOT, "d").await;
    let (first, at_first) = make(&a, dir, "first", OpenFlags { exclusive: true, ..flags }).await;
    let (second, at_second) = make(&b, dir, "second", OpenFlags { exclusive: true, ..flags }).await;
    if at > 0 {
        put(&a, at_first, 0, &pattern(1, at as usize + 8)).await;
        put(&b, at_second, 0, &pattern(1, at as usize + 8)).await;
    }
    // Both are open at both.
    let others = (open(&b, first, flags).await, open(&a, second, flags).await);
    put(&a, at_first, at, &0u64.to_le_bytes()).await;
    put(&b, at_second, at, &0u64.to_le_bytes()).await;
    let (stop, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = tokio::spawn({
        let (a, b, stop, last) = (a.clone(), b.clone(), stop.clone(), last.clone());
        async move {
            let mut n = 0u64;
            while !stop.load(SeqCst) {
                n += 1;
                let bytes = n.to_le_bytes();
                // By turns, so that what is in order is so between mounts too.
                let (by, one, two) =
                    if n.is_multiple_of(5) { (&b, others.0, at_second) } else { (&a, at_first, others.1) };
                put(by, one, at, &bytes).await;
                let (by, two) = if n.is_multiple_of(3) { (&b, at_second) } else { (by, two) };
                put(by, two, at, &bytes).await;
                last.store(n, SeqCst);
            }
        }
    });
    let reader = world.client().await;
    let mut seen = Vec::new();
    for i in 0..12 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        let done = last.load(SeqCst);
        let text = format!("s{i}");
        snapshot(&world, dir, &text).await;
        seen.push((text, done, last.load(SeqCst)));
    }
    stop.store(true, SeqCst);
    writer.await.unwrap();
    for (text, before, after) in seen {
        let one = number(&in_snapshot(&reader, dir, &text, "first").await.unwrap()[at as usize..]);
        let two = number(&in_snapshot(&reader, dir, &text, "second").await.unwrap()[at as usize..]);
        assert!(one == two || one == two + 1, "{text}: {one} and then {two}");
        assert!(before <= two && two <= after + 1, "{text}: {two}, between {before} and {after}");
    }
    assert!(last.load(SeqCst) > 20, "{last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_of_one_moment_of_small_files() {
    in_order(READ_WRITE, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_of_one_moment_of_files_in_chunks() {
    in_order(READ_WRITE, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_of_one_moment_of_files_that_several_write_at_once() {
    in_order(DIRECT, 8192).await;
}
