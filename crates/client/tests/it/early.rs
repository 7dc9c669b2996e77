//! Changes that were answered before they were durable: what a client does with them when the metadata server crashes.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{Code, FileSystem, NewNode, NodeKind, OpenFlags, RenameMode, SetAttr, XattrMode};
use braid_client::{Client, ClientConfig};
use braid_types::{InodeId, Mode};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const ROOT: InodeId = InodeId::ROOT;

/// The first change after a while is answered when it is durable.
async fn busy_client(world: &World) -> Arc<Client> {
    let client = world.client().await;
    mkdir(&client, ROOT, "busy").await;
    assert_eq!(client.stats().changes_kept, 0);
    client
}

async fn mkdir(client: &Client, parent: InodeId, text: &str) -> InodeId {
    let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
    client.make_node(&cx(), parent, &name(text), node).await.unwrap().attr.id
}

async fn put(client: &Client, parent: InodeId, text: &str, bytes: &[u8]) -> InodeId {
    let opened = client.create(&cx(), parent, &name(text), Mode(0o644), READ_WRITE).await.unwrap();
    let (entry, opened) = opened;
    client.write(opened.handle, 0, Bytes::copy_from_slice(bytes)).await.unwrap();
    close(client, opened.handle).await.unwrap();
    entry.attr.id
}

async fn content(client: &Client, parent: InodeId, text: &str) -> Option<Vec<u8>> {
    let id = client.lookup(&cx(), parent, &name(text)).await.unwrap().attr?.id;
    let handle = open(client, id, READ).await;
    let bytes = read(client, handle, 0, 1 << 20).await;
    client.release(handle).await;
    Some(bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_a_crash_of_the_metadata_server_before_its_commit() {
    for durable in [0, 3, 9] {
        let mut world = World::new(Storage::Memory, SMALL).await;
        let client = busy_client(&world).await;
        let dir = mkdir(&client, ROOT, "dir").await;
        let mut files = BTreeMap::new();
        for n in 0..10 {
            files.insert(format!("{n}"), (put(&client, dir, &format!("{n}"), &pattern(n, 900)).await, pattern(n, 900)));
        }
        let (id, bytes) = files.remove("1").unwrap();
        client.rename(&cx(), (dir, &name("1")), (dir, &name("moved")), RenameMode::Replace).await.unwrap();
        files.insert("moved".into(), (id, bytes));
        client.unlink(&cx(), dir, &name("2")).await.unwrap();
        files.remove("2");
        let third = files["3"].0;
        client.link(&cx(), third, dir, &name("linked")).await.unwrap();
        files.insert("linked".into(), files["3"].clone());
        let mode = SetAttr { mode: Some(Mode(0o600)), ..SetAttr::default() };
        let before = client.set_attr(&cx(), third, None, mode).await.unwrap().attr;
        client.set_xattr(&cx(), third, b"user.a", Bytes::from_static(b"b"), XattrMode::Create).await.unwrap();
        client.remove_dir(&cx(), ROOT, &name("busy")).await.unwrap();
        assert!(client.stats().changes_kept > 20, "{}", client.stats().changes_kept);

        world.restart_meta(durable).await;
        for (text, (id, bytes)) in &files {
            assert_eq!(content(&client, dir, text).await.as_ref(), Some(bytes), "{text} with {durable} durable");
            let attr = client.lookup(&cx(), dir, &name(text)).await.unwrap().attr.unwrap();
            assert_eq!(attr.id, *id, "the same file");
        }
        assert_eq!(client.lookup(&cx(), dir, &name("2")).await.unwrap().attr, None);
        assert_eq!(client.lookup(&cx(), ROOT, &name("busy")).await.unwrap().attr, None);
        let other = world.client().await;
        let after = other.get_attr(&cx(), third, None).await.unwrap().attr;
        assert_eq!((after.mode, after.nlink, after.btime), (Mode(0o600), 2, before.btime), "repeated exactly");
        assert_eq!(&other.get_xattr(&cx(), third, b"user.a").await.unwrap()[..], b"b");
        let stats = client.stats();
        assert!(stats.changes_replayed > 20 && stats.changes_lost == 0, "{stats:?}");
        assert_eq!(world.meta.repeated().1, 0, "none failed");
        client.sync_fs().await.unwrap();
        assert_eq!(client.stats().changes_kept, 0);
    }
}

/// Server and client lost in one moment: what fsync returned for is there, of the rest a beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_synced_survives_the_loss_of_client_and_metadata_server_and_the_rest_is_a_beginning() {
    for (durable, by_dir) in [(0, false), (2, true), (5, false)] {
        let mut world = World::new(Storage::Memory, SMALL).await;
        let client = busy_client(&world).await;
        let dir = mkdir(&client, ROOT, "dir").await;
        for n in 0..5 {
            put(&client, dir, &format!("{n}"), &pattern(n, 500)).await;
        }
        assert!(client.stats().changes_kept > 0);
        if by_dir {
            let handle = client.open_dir(&cx(), dir).await.unwrap().handle;
            client.sync_dir(handle).await.unwrap();
        } else {
            // Of a file that has nothing to save, and of its own no change that is not durable.
            let id = client.lookup(&cx(), dir, &name("0")).await.unwrap().attr.unwrap().id;
            let handle = open(&client, id, READ_WRITE).await;
            client.fsync(handle, false).await.unwrap();
        }
        assert_eq!((client.stats().changes_kept, world.store.pending()), (0, 0), "everything before it is durable");
        for n in 5..10 {
            mkdir(&client, dir, &format!("{n}")).await;
        }
        let session = world.sessions().await[0];
        let pending = world.store.pending();
        assert_eq!(pending, 5);
        drop(client);
        world.restart_meta(durable).await;
        world.end_session(session).await;
        let other = world.client().await;
        for n in 0..5 {
            assert_eq!(content(&other, dir, &format!("{n}")).await, Some(pattern(n, 500)), "synced");
        }
        for n in 5..10 {
            let there = other.lookup(&cx(), dir, &name(&format!("{n}"))).await.unwrap().attr.is_some();
            assert_eq!(there, n - 5 < durable, "{n} with {durable} durable");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fsync_costs_no_message_more_and_none_if_all_is_durable() {
    let world = World::new(Storage::Memory, SMALL).await;
    let client = busy_client(&world).await;
    let (_, handle) = create(&client, "file").await;
    client.write(handle, 0, Bytes::from(pattern(1, 900))).await.unwrap();
    world.take_messages();
    client.fsync(handle, false).await.unwrap();
    assert_eq!(world.take_messages().0, BTreeMap::from([("CommitFile", 1)]), "its commit is durable, so is the name");
    assert_eq!((client.stats().changes_kept, world.store.pending()), (0, 0));
    client.fsync(handle, false).await.unwrap();
    assert_eq!(world.take_messages().0, BTreeMap::new());
    close(&client, handle).await.unwrap();
    mkdir(&client, ROOT, "dir").await;
    let root = client.open_dir(&cx(), ROOT).await.unwrap().handle;
    world.take_messages();
    client.sync_dir(root).await.unwrap();
    assert_eq!(world.take_messages().0, BTreeMap::from([("Settle", 1)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_with_o_sync_makes_the_name_durable_as_well() {
    let world = World::new(Storage::Memory, SMALL).await;
    let client = busy_client(&world).await;
    let flags = OpenFlags { sync: true, ..READ_WRITE };
    let (_, opened) = client.create(&cx(), ROOT, &name("file"), Mode(0o644), flags).await.unwrap();
    assert!(world.store.pending() > 0);
    client.write(opened.handle, 0, Bytes::from_static(b"x")).await.unwrap();
    assert_eq!((client.stats().changes_kept, world.store.pending()), (0, 0));
}

/// What is kept is bounded: beyond it answers wait, and nothing else changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_is_bounded() {
    let world = World::new(Storage::Memory, SMALL).await;
    let client = world.client_with(ClientConfig { kept_bytes: 16 << 10, ..ClientConfig::default() }).await;
    let mut most = 0;
    for n in 0..200 {
        mkdir(&client, ROOT, &format!("{n}")).await;
        most = most.max(client.stats().changes_kept);
    }
    assert!((5..=16 << 10 >> 9).contains(&most), "{most} changes of about 0.75 KiB in 16 KiB");
}

/// Many tasks at once: an answer is given only when nothing that may have come before it is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_lose_nothing_either() {
    let mut replayed = 0;
    for round in 0..8 {
        let mut world = World::new(Storage::Memory, SMALL).await;
        let client = busy_client(&world).await;
        let task = |task: u64| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut made = Vec::new();
                for n in 0..30 {
                    let text = format!("{task}-{n}");
                    let dir = mkdir(&client, ROOT, &text).await;
                    put(&client, dir, "file", text.as_bytes()).await;
                    made.push((dir, text));
                }
                made
            })
        };
        let tasks: Vec<_> = (0..4).map(task).collect();
        tokio::time::sleep(Duration::from_millis(1 + round)).await;
        // In the middle of it all.
        world.restart_meta(round as usize * 3).await;
        for task in tasks {
            for (dir, text) in task.await.unwrap() {
                assert_eq!(content(&client, dir, "file").await, Some(text.into_bytes()));
            }
        }
        assert_eq!((client.stats().changes_lost, world.meta.repeated().1), (0, 0));
        replayed += client.stats().changes_replayed;
    }
    assert!(replayed > 0, "no crash came in between, so this has shown nothing");
}

/// A session that ended while its client kept something: the loss is told once, by the next fsync.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_with_a_session_is_told_by_fsync() {
    let mut world = World::new(Storage::Memory, SMALL).await;
    let client = busy_client(&world).await;
    mkdir(&client, ROOT, "lost").await;
    let session = world.sessions().await[0];
    // The client may notice the restart before the session ends: what it sends then must not arrive before.
    world.late.lock().insert("Replay", Duration::from_millis(500));
    world.restart_meta(0).await;
    world.end_session(session).await;
    world.late.lock().clear();
    let root = client.open_dir(&cx(), ROOT).await.unwrap().handle;
    let told = client.sync_dir(root).await.unwrap_err();
    assert_eq!(told.code, Code::SessionUnknown, "{told}");
    assert_eq!(client.stats().changes_lost, 1);
    client.sync_dir(root).await.unwrap();
    mkdir(&client, ROOT, "goes on").await;
}
