//! Files that several mounts write at once (docs/design/0005-leases.md *Sync*).

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{FallocateMode, FileSystem, HandleId, NewNode, NodeKind, OpenFlags, SetAttr};
use braid_client::Client;
use braid_types::*;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const DIRECT: OpenFlags = OpenFlags { direct: true, ..READ_WRITE };
const ONE: Policy = Policy { chunk_bytes: 1 << 20, ..SMALL };

async fn put(client: &Client, handle: HandleId, offset: u64, bytes: &[u8]) {
    client.write(handle, offset, Bytes::copy_from_slice(bytes)).await.unwrap();
}

/// A file with a first chunk, open with O_DIRECT on both mounts, which have found out about each other.
async fn both(world: &World) -> (Arc<Client>, HandleId, Arc<Client>, HandleId, InodeId) {
    let (a, b) = (world.client().await, world.client().await);
    let (entry, opened) = a.create(&cx(), InodeId::ROOT, &name("f"), Mode(0o644), DIRECT).await.unwrap();
    let (id, at_a) = (entry.attr.id, opened.handle);
    assert!(opened.direct_io, "the kernel caches nothing of it");
    put(&a, at_a, 0, &pattern(1, 100_000)).await;
    let at_b = open(&b, id, DIRECT).await;
    for round in 0..2 {
        put(&b, at_b, 4096, &[round; 10]).await;
        put(&a, at_a, 8192, &[round; 10]).await;
    }
    (a, at_a, b, at_b, id)
}

async fn size_of(client: &Client, id: InodeId) -> u64 {
    client.get_attr(&cx(), id, None).await.unwrap().attr.size
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_mounts_write_one_file_at_once_without_asking_each_other() {
    let world = World::new(Storage::Memory, ONE).await;
    let (a, at_a, b, at_b, id) = both(&world).await;
    // Times are reported once a second.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    world.take_messages();
    for n in 1..=50u8 {
        put(&a, at_a, 0, &[n; 4096]).await;
        assert_eq!(read(&b, at_b, 0, 4096).await, [n; 4096], "write {n} of the other");
        put(&b, at_b, 50_000, &[n; 4096]).await;
        assert_eq!(read(&a, at_a, 50_000, 4096).await, [n; 4096]);
    }
    let (meta, data) = world.take_messages();
    let asked: u64 = meta.values().sum();
    assert!(!meta.contains_key("OpenFile") && !meta.contains_key("YieldFiles"), "no lease travels: {meta:?}");
    assert!(asked < 10, "{asked} messages for 100 writes: {meta:?}");
    // The end of a write is told behind it.
    assert_eq!(data, BTreeMap::from([("ReadChunk", 100), ("UnlockRegion", 100), ("WriteChunk", 100)]));
    // It grows, and the other sees that without being told.
    put(&a, at_a, 150_000, &[7; 100]).await;
    assert_eq!(size_of(&b, id).await, 150_100);
    assert_eq!(read(&b, at_b, 150_000, 4096).await, [7; 100]);
    put(&b, at_b, 200_000, &[8; 100]).await;
    assert_eq!((size_of(&a, id).await, size_of(&b, id).await), (200_100, 200_100));
    assert_eq!(read(&a, at_a, 150_000, 100_000).await[50_000..], [8; 100]);
    // Beyond the chunk that there is.
    put(&b, at_b, (1 << 20) + 5, &[9; 100]).await;
    put(&a, at_a, (1 << 20) + 105, &[10; 100]).await;
    let last = read(&b, at_b, (1 << 20) + 5, 1000).await;
    assert_eq!((&last[..100], &last[100..]), (&[9; 100][..], &[10; 100][..]));
    for (client, handle) in [(&a, at_a), (&b, at_b)] {
        close(client, handle).await.unwrap();
    }
    let handle = open(&a, id, READ).await;
    let whole = read(&a, handle, 0, 1 << 20).await;
    assert_eq!((&whole[..4096], &whole[50_000..54_096]), (&[50; 4096][..], &[50; 4096][..]));
    close(&a, handle).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_caches_takes_turns_with_who_writes_directly() {
    let world = World::new(Storage::Memory, ONE).await;
    let (a, at_a, b, at_b, id) = both(&world).await;
    let c = world.client().await;
    let reads = open(&c, id, READ).await;
    for n in 1..=10u8 {
        put(&a, at_a, 0, &[n; 5000]).await;
        assert_eq!(read(&c, reads, 0, 5000).await, [n; 5000], "its pages are taken from it by every write");
        put(&b, at_b, 5000, &[n; 5000]).await;
        assert_eq!(read(&c, reads, 5000, 5000).await, [n; 5000]);
    }
    close(&c, reads).await.unwrap();
    let writes = open(&c, id, READ_WRITE).await;
    for n in 1..=10u8 {
        put(&c, writes, 100, &[n; 100]).await;
        assert_eq!(read(&a, at_a, 100, 100).await, [n; 100], "what is buffered elsewhere comes first");
        put(&a, at_a, 200, &[n; 100]).await;
        assert_eq!(read(&c, writes, 200, 100).await, [n; 100]);
        // One that caches on a mount that also writes directly.
        let own = open(&b, id, READ).await;
        put(&b, at_b, 300, &[n; 100]).await;
        assert_eq!(read(&b, own, 100, 300).await, [[n; 100], [n; 100], [n; 100]].concat());
        put(&a, at_a, 300, &[n + 100; 100]).await;
        assert_eq!(read(&b, own, 300, 100).await, [n + 100; 100]);
        close(&b, own).await.unwrap();
    }
    close(&c, writes).await.unwrap();
    // When it is closed, they write at the same time again.
    put(&a, at_a, 0, b"once").await;
    put(&b, at_b, 0, b"once").await;
    put(&a, at_a, 0, b"once").await;
    world.take_messages();
    for _ in 0..10 {
        put(&a, at_a, 0, b"again").await;
        put(&b, at_b, 0, b"again").await;
    }
    let meta = world.take_messages().0;
    assert!(!meta.contains_key("OpenFile") && !meta.contains_key("YieldFiles"), "{meta:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_the_file_as_a_whole_is_seen_by_all_who_write_it() {
    let world = World::new(Storage::Memory, ONE).await;
    let (a, at_a, b, at_b, id) = both(&world).await;
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    // With the handle, and by its name alone, from a mount that has it open and one that has not.
    let c = world.client().await;
    for (n, (who, handle)) in [(&a, Some(at_a)), (&b, None), (&c, None)].into_iter().enumerate() {
        put(&a, at_a, 60_000, &[9; 100]).await;
        assert_eq!(size_of(&b, id).await.max(60_100), size_of(&a, id).await);
        let to = 50_000 - n as u64;
        who.set_attr(&cx(), id, handle, size(to)).await.unwrap();
        for (client, handle) in [(&a, at_a), (&b, at_b)] {
            assert_eq!(size_of(client, id).await, to);
            assert!(read(client, handle, to, 4096).await.is_empty(), "it ends there");
        }
        put(&b, at_b, 60_000, &[8; 100]).await;
        let tail = read(&a, at_a, to, 100_000).await;
        assert!(tail[..60_000 - to as usize].iter().all(|byte| *byte == 0), "nothing of before comes back");
        assert_eq!(tail[60_000 - to as usize..], [8; 100]);
    }
    a.fallocate(at_a, FallocateMode::PunchHole, ByteRange::new(0, 8192)).await.unwrap();
    assert_eq!(read(&b, at_b, 0, 8192).await, [0; 8192]);
    put(&b, at_b, 100, &[5; 10]).await;
    assert_eq!(read(&a, at_a, 100, 10).await, [5; 10]);
    // An append is one operation, wherever the end is by then.
    let appends = open(&a, id, OpenFlags { append: true, ..DIRECT }).await;
    let end = size_of(&a, id).await;
    put(&b, at_b, end, b"direct").await;
    put(&a, appends, 0, b"appended").await;
    assert_eq!(read(&b, at_b, end, 100).await, b"directappended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_marked_are_cached_by_no_handle_and_written_by_all() {
    let world = World::new(Storage::Memory, ONE).await;
    let (a, b) = (world.client().await, world.client().await);
    let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
    let dir = a.make_node(&cx(), InodeId::ROOT, &name("d"), node.clone()).await.unwrap().attr.id;
    let wrong = a.set_xattr(&cx(), dir, b"user.braid.shared", Bytes::from_static(b"yes"), Default::default()).await;
    assert!(wrong.unwrap_err().to_string().contains("several mounts"));
    a.set_xattr(&cx(), dir, b"user.braid.shared", Bytes::from_static(b"1"), Default::default()).await.unwrap();
    let sub = a.make_node(&cx(), dir, &name("sub"), node).await.unwrap().attr.id;
    let (entry, opened) = a.create(&cx(), sub, &name("f"), Mode(0o644), READ_WRITE).await.unwrap();
    let (id, at_a) = (entry.attr.id, opened.handle);
    assert!(opened.direct_io);
    let inherited = b.get_xattr(&cx(), id, b"user.braid.shared").await.unwrap();
    assert_eq!(inherited, b"1"[..], "what is made below is marked too");
    put(&a, at_a, 0, &pattern(1, 50_000)).await;
    let opened = b.open(&cx(), id, READ_WRITE).await.unwrap();
    assert!(opened.direct_io && !opened.keep_cache);
    let at_b = opened.handle;
    for round in 0..2 {
        put(&b, at_b, 0, &[round; 10]).await;
        put(&a, at_a, 0, &[round; 10]).await;
    }
    world.take_messages();
    for n in 0..20u8 {
        put(&a, at_a, 100, &[n; 10]).await;
        assert_eq!(read(&b, at_b, 100, 10).await, [n; 10]);
        put(&b, at_b, 100, &[n + 50; 10]).await;
        assert_eq!(read(&a, at_a, 100, 10).await, [n + 50; 10]);
    }
    let meta = world.take_messages().0;
    assert!(!meta.contains_key("OpenFile") && !meta.contains_key("YieldFiles"), "no lease travels: {meta:?}");
    // Opened once more it takes nothing from anybody: what is marked is remembered.
    let again = open(&b, id, READ).await;
    put(&a, at_a, 100, &[99; 10]).await;
    assert_eq!(read(&b, again, 100, 10).await, [99; 10]);
    assert_eq!(world.take_messages().0.get("YieldFiles"), None);
    for (client, handle) in [(&a, at_a), (&b, at_b), (&b, again)] {
        close(client, handle).await.unwrap();
    }
    // Without the mark it is a file like all others.
    a.remove_xattr(&cx(), id, b"user.braid.shared").await.unwrap();
    a.release(open(&a, id, READ_WRITE).await).await;
    assert!(!a.open(&cx(), id, READ_WRITE).await.unwrap().direct_io);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_it_is_buffered_like_any_other_file() {
    let world = World::new(Storage::Memory, ONE).await;
    let a = world.client().await;
    let (_, opened) = a.create(&cx(), InodeId::ROOT, &name("f"), Mode(0o644), DIRECT).await.unwrap();
    put(&a, opened.handle, 0, &pattern(1, 50_000)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.take_messages();
    for n in 0..20u8 {
        put(&a, opened.handle, 100, &[n; 10]).await;
    }
    assert_eq!(world.take_messages(), (BTreeMap::new(), BTreeMap::new()));
    close(&a, opened.handle).await.unwrap();
}
