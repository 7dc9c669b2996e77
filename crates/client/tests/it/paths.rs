//! What is asked by path: in one message, or none, and never an answer of before.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{Code, FileSystem, NewNode, NodeKind, RenameMode, SetAttr};
use braid_client::Client;
use braid_types::*;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

const ROOT: InodeId = InodeId::ROOT;

async fn mkdir(client: &Client, parent: InodeId, text: &str) -> InodeId {
    let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
    client.make_node(&cx(), parent, &name(text), node).await.unwrap().attr.id
}

async fn put(client: &Client, dir: InodeId, text: &str, bytes: &[u8]) -> InodeId {
    let (entry, opened) = client.create(&cx(), dir, &name(text), Mode(0o644), READ_WRITE).await.unwrap();
    client.write(opened.handle, 0, Bytes::copy_from_slice(bytes)).await.unwrap();
    close(client, opened.handle).await.unwrap();
    entry.attr.id
}

fn path(text: &str) -> Vec<Name> {
    text.split('/').map(name).collect()
}

async fn walk(client: &Client, text: &str) -> InodeId {
    client.walk(ROOT, &path(text)).await.unwrap()
}

async fn content(client: &Client, text: &str) -> Vec<u8> {
    let (attr, opened) = client.open_at(&cx(), ROOT, &path(text), READ).await.unwrap();
    let bytes = read(client, opened.handle, 0, 1 << 20).await;
    assert_eq!(bytes.len() as u64, attr.size, "{text}");
    close(client, opened.handle).await.unwrap();
    bytes
}

/// Messages to the metadata server of what is done, but for those that are nobody's in particular.
async fn asked<T>(world: &World, what: impl Future<Output = T>) -> (T, BTreeMap<&'static str, u64>) {
    world.take_messages();
    let done = what.await;
    let mut messages = world.take_messages().0;
    messages.retain(|name, _| !["Listen", "RenewSession", "Acknowledge", "YieldFiles"].contains(name));
    (done, messages)
}

fn walks(count: u64) -> BTreeMap<&'static str, u64> {
    if count == 0 { BTreeMap::new() } else { BTreeMap::from([("Walk", count)]) }
}

async fn rename(client: &Client, from: (InodeId, &str), to: (InodeId, &str)) {
    let (from, to) = ((from.0, name(from.1)), (to.0, name(to.1)));
    client.rename(&cx(), (from.0, &from.1), (to.0, &to.1), RenameMode::Replace).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_known_of_a_path_is_one_message_and_what_is_known_none() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let mut dir = ROOT;
    for text in ["one", "two", "three", "four"] {
        dir = mkdir(&a, dir, text).await;
    }
    let bytes = [pattern(1, 900), pattern(2, 300_000)];
    let small = put(&a, dir, "small", &bytes[0]).await;
    put(&a, dir, "large", &bytes[1]).await;
    // Whoever made it says what it wrote before others are told.
    a.sync_fs().await.unwrap();
    assert_eq!(asked(&world, b.stat(ROOT, &path("one/two/three/four/small"))).await.1, walks(1));
    let (attr, messages) = asked(&world, b.stat(ROOT, &path("one/two/three/four/small"))).await;
    assert_eq!((attr.unwrap().id, messages), (small, walks(0)));
    assert_eq!(asked(&world, walk(&b, "one/two/three")).await.1, walks(0));
    // From the directory that is known.
    let (read, messages) = asked(&world, content(&b, "one/two/three/four/large")).await;
    assert_same(&read, &bytes[1], "opened by path");
    assert_eq!(messages, BTreeMap::from([("LookToOpen", 1)]), "its name, and what an open is told");
    for _ in 0..3 {
        let (read, messages) = asked(&world, content(&b, "one/two/three/four/large")).await;
        assert_same(&read, &bytes[1], "opened again");
        assert_eq!(messages, walks(0));
    }
    // An open of what is known by name alone.
    let (read, messages) = asked(&world, content(&b, "one/two/three/four/small")).await;
    assert_same(&read, &bytes[0], "known by name");
    assert_eq!(messages, BTreeMap::from([("OpenFile", 1)]));
    assert_eq!(asked(&world, walk(&b, "one")).await.0, walk(&a, "one").await);
}

/// What is made in a directory is no change of where it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_make_on_the_way_costs_a_walk_nothing() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let one = mkdir(&a, ROOT, "one").await;
    let two = mkdir(&a, one, "two").await;
    put(&a, two, "file", b"bytes").await;
    a.sync_fs().await.unwrap();
    content(&b, "one/two/file").await;
    for n in 0..5 {
        put(&a, one, &format!("f{n}"), b"").await;
        put(&a, two, &format!("f{n}"), b"").await;
        put(&a, ROOT, &format!("f{n}"), b"").await;
        assert_eq!(asked(&world, content(&b, "one/two/file")).await, (b"bytes".to_vec(), walks(0)));
    }
    // Nor is anybody told of it who has only walked there.
    world.take_messages();
    put(&a, two, "last", b"").await;
    assert_eq!(world.take_messages().0.get("Acknowledge"), None);
    // What it is now is asked for.
    let then = b.stat(ROOT, &path("one/two")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    put(&a, two, "later", b"").await;
    assert!(b.stat(ROOT, &path("one/two")).await.unwrap().mtime > then.mtime);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_change_is_seen_by_the_next_walk() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    for round in 0..10 {
        let top = format!("top{round}");
        let one = mkdir(&a, ROOT, &top).await;
        let two = mkdir(&a, one, "two").await;
        let first = put(&a, two, "file", b"first").await;
        let at = format!("{top}/two/file");
        assert_eq!(content(&b, &at).await, b"first");
        // Replaced.
        let second = put(&a, two, "new", b"second").await;
        rename(&a, (two, "new"), (two, "file")).await;
        assert_eq!((content(&b, &at).await, walk(&b, &at).await), (b"second".to_vec(), second));
        assert_ne!(first, second);
        // Written to, cut, and of another mode.
        let handle = open(&a, second, READ_WRITE).await;
        a.write(handle, 0, Bytes::from_static(b"third, longer")).await.unwrap();
        assert_eq!(b.stat(ROOT, &path(&at)).await.unwrap().size, 13, "while it is open there");
        close(&a, handle).await.unwrap();
        assert_eq!(content(&b, &at).await, b"third, longer");
        let set = SetAttr { mode: Some(Mode(0o600)), size: Some(5), ..SetAttr::default() };
        a.set_attr(&cx(), second, None, set).await.unwrap();
        assert_eq!(b.stat(ROOT, &path(&at)).await.unwrap().mode.0, 0o600);
        assert_eq!(content(&b, &at).await, b"third");
        // A directory on the way goes elsewhere, and another has its name.
        rename(&a, (one, "two"), (one, "away")).await;
        assert_eq!(b.walk(ROOT, &path(&at)).await.unwrap_err().code, Code::NotFound);
        assert_eq!(content(&b, &format!("{top}/away/file")).await, b"third");
        let other = mkdir(&a, one, "two").await;
        assert_eq!(b.stat(ROOT, &path(&at)).await.unwrap_err().code, Code::NotFound);
        let fourth = put(&a, other, "file", b"fourth").await;
        assert_eq!((content(&b, &at).await, walk(&b, &at).await), (b"fourth".to_vec(), fourth));
        // Removed, by this client and by another.
        let by = if round % 2 == 0 { &a } else { &b };
        by.unlink(&cx(), other, &name("file")).await.unwrap();
        assert_eq!(b.open_at(&cx(), ROOT, &path(&at), READ).await.unwrap_err().code, Code::NotFound);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_leads_nowhere_says_at_which_name() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let one = mkdir(&a, ROOT, "one").await;
    put(&a, one, "file", b"bytes").await;
    let link = NewNode { kind: NodeKind::Symlink(Bytes::from_static(b"one")), mode: Mode(0o777) };
    a.make_node(&cx(), ROOT, &name("link"), link).await.unwrap();
    for _ in 0..2 {
        for (at, code, which) in [
            ("one/none", Code::NotFound, "none"),
            ("one/none/deeper", Code::NotFound, "none"),
            ("one/file/deeper", Code::NotDirectory, "deeper"),
            ("link/file", Code::NotDirectory, "file"),
        ] {
            for client in [&a, &b] {
                let error = client.stat(ROOT, &path(at)).await.unwrap_err();
                assert_eq!(error.code, code, "{at}: {error}");
                assert!(error.to_string().contains(which), "{at}: {error}");
                assert_eq!(client.open_at(&cx(), ROOT, &path(at), READ).await.unwrap_err().code, code, "{at}");
            }
        }
    }
    // That the last name is nobody's is known from then on, and over when somebody has it.
    assert_eq!(asked(&world, b.stat(ROOT, &path("one/none"))).await.1, walks(0));
    let made = put(&a, one, "none", b"").await;
    assert_eq!(walk(&b, "one/none").await, made);
    // The link itself, and the root.
    assert_eq!(b.stat(ROOT, &path("link")).await.unwrap().kind, FileKind::Symlink);
    assert_eq!(b.walk(ROOT, &[]).await.unwrap(), ROOT);
    assert!(b.stat(ROOT, &[]).await.unwrap().is_dir());
    let opened = b.open_at(&cx(), ROOT, &path("one"), READ).await;
    assert_eq!(opened.unwrap_err().code, Code::IsDirectory);
}

/// What is written through a handle by path is what others read by theirs; what is not saved yet is shown to who wrote it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_opened_by_path_for_writing_as_well() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let one = mkdir(&a, ROOT, "one").await;
    put(&a, one, "file", b"before").await;
    assert_eq!(content(&b, "one/file").await, b"before");
    let (attr, opened) = b.open_at(&cx(), ROOT, &path("one/file"), READ_WRITE).await.unwrap();
    assert_eq!(attr.size, 6);
    b.write(opened.handle, 6, Bytes::from(pattern(1, 100_000))).await.unwrap();
    assert_eq!(b.stat(ROOT, &path("one/file")).await.unwrap().size, 100_006);
    assert_eq!(a.stat(ROOT, &path("one/file")).await.unwrap().size, 100_006, "its owner is asked");
    close(&b, opened.handle).await.unwrap();
    assert_same(&content(&a, "one/file").await[6..], &pattern(1, 100_000), "read by another");
    let (attr, opened) =
        a.open_at(&cx(), ROOT, &path("one/file"), braid_api::OpenFlags { truncate: true, ..READ_WRITE }).await.unwrap();
    assert_eq!(attr.size, 0);
    close(&a, opened.handle).await.unwrap();
    assert_eq!(content(&b, "one/file").await, b"");
}

/// Of snapshots nothing is kept: which there are nobody is told when that changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_leads_into_snapshots_and_out_when_they_are_dropped() {
    use braid_api::meta::AdminQuery;
    use braid_api::{Context, Namespace};
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let one = mkdir(&a, ROOT, "one").await;
    let sub = mkdir(&a, one, "sub").await;
    put(&a, sub, "file", b"then").await;
    let create = AdminQuery::CreateSnapshot { dir: one, name: name("s"), wait_ms: 20_000 };
    world.meta.call(Context::default(), create).await.unwrap();
    put(&a, sub, "file", b"now!").await;
    for client in [&a, &b] {
        assert_eq!(content(client, "one/sub/file").await, b"now!");
        for _ in 0..2 {
            assert_eq!(content(client, "one/.braid/snapshots/s/sub/file").await, b"then");
        }
    }
    world.meta.call(Context::default(), AdminQuery::DropSnapshot { dir: one, name: name("s") }).await.unwrap();
    for client in [&a, &b] {
        let gone = client.stat(ROOT, &path("one/.braid/snapshots/s/sub/file")).await;
        assert_eq!(gone.unwrap_err().code, Code::NotFound);
        assert_eq!(content(client, "one/sub/file").await, b"now!");
    }
}
