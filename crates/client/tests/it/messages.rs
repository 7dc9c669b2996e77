//! What a user's calls cost, in messages.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{Code, FileSystem, SetAttr, TimeOrNow, XattrMode};
use braid_client::{Client, ClientConfig};
use braid_types::{InodeId, Mode, Policy, Timestamp};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

const POLICY: Policy = Policy { inline_bytes: 16 << 10, ..SMALL };

/// Those that are taken ahead have come before anything is counted.
async fn take_spares(world: &World, client: &Client) {
    let (_, handle) = create(client, "first").await;
    client.write(handle, 0, Bytes::from(pattern(1, 20_000))).await.unwrap();
    close(client, handle).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.take_messages();
}

fn none() -> BTreeMap<&'static str, u64> {
    BTreeMap::new()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_costs_two_messages_to_make_and_one_to_read() {
    let world = World::new(Storage::Memory, POLICY).await;
    let client = world.client().await;
    let data = pattern(1, 4096);
    world.take_messages();
    let (id, handle) = create(&client, "small").await;
    client.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
    close(&client, handle).await.unwrap();
    assert_eq!(world.take_messages(), (BTreeMap::from([("CommitFile", 1), ("CreateFile", 1)]), none()));
    // Who made it holds it.
    let handle = open(&client, id, READ).await;
    assert_eq!(read(&client, handle, 0, 10_000).await, data);
    close(&client, handle).await.unwrap();
    assert_eq!(world.take_messages(), (none(), none()));
    let other = world.client().await;
    world.take_messages();
    let handle = open(&other, id, READ).await;
    assert_eq!(read(&other, handle, 0, 10_000).await, data);
    close(&other, handle).await.unwrap();
    let (mut meta, data) = world.take_messages();
    // What goes on beside operations.
    meta.retain(|name, _| !["RenewSession", "Listen"].contains(name));
    assert_eq!((meta, data), (BTreeMap::from([("OpenFile", 1)]), none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_that_is_put_as_a_whole_costs_one_message() {
    let world = World::new(Storage::Memory, POLICY).await;
    let client = world.client().await;
    for (n, text) in ["new", "new", "other"].into_iter().enumerate() {
        let data = Bytes::from(pattern(n as u64, 4096));
        world.take_messages();
        let put = client.put_file(InodeId::ROOT, &name(text), file_spec(), data.clone(), true).await.unwrap();
        assert_eq!(world.take_messages(), (BTreeMap::from([("PutFile", 1)]), none()), "{n}: {text}");
        assert_same(&cat(&client, put.id).await, &data, text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_costs_two_messages_and_its_writes() {
    let world = World::new(Storage::Memory, POLICY).await;
    let client = world.client().await;
    take_spares(&world, &client).await;
    let (id, handle) = create(&client, "large").await;
    let data = pattern(2, 1 << 20);
    for (i, part) in data.chunks(64 << 10).enumerate() {
        client.write(handle, i as u64 * (64 << 10), Bytes::copy_from_slice(part)).await.unwrap();
    }
    close(&client, handle).await.unwrap();
    let (meta, data_messages) = world.take_messages();
    assert_eq!(meta, BTreeMap::from([("CommitFile", 1), ("CreateFile", 1)]));
    assert_eq!(data_messages, BTreeMap::from([("WriteChunk", 1)]));
    let handle = open(&client, id, READ).await;
    assert_same(&read(&client, handle, 0, 2 << 20).await, &data, "read back");
    close(&client, handle).await.unwrap();
    assert_eq!(world.take_messages().0, none());
}

/// A chunk comes with room for a mebibyte; then as much is asked for as is there, up to 16 MiB at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_room_of_a_chunk_of_64_mebibytes_costs_seven_messages() {
    let world = World::new(Storage::Memory, Policy { chunk_bytes: 64 << 20, ..POLICY }).await;
    let client = world.client().await;
    take_spares(&world, &client).await;
    let (_, handle) = create(&client, "large").await;
    let piece = Bytes::from(pattern(2, 1 << 20));
    for n in 0..64 {
        client.write(handle, n << 20, piece.clone()).await.unwrap();
    }
    close(&client, handle).await.unwrap();
    let (meta, data) = world.take_messages();
    assert_eq!(meta, BTreeMap::from([("CommitFile", 1), ("CreateFile", 1)]));
    assert_eq!(data.get("ReserveRoom"), Some(&7), "{data:?}");
}

/// What `tar -x` does for each file, with the kernel's questions for capabilities.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_an_archive_costs_five_messages() {
    let world = World::new(Storage::Memory, POLICY).await;
    let client = world.client().await;
    let no_capabilities = async |id| {
        let found = client.get_xattr(&cx(), id, b"security.capability").await;
        assert_eq!(found.unwrap_err().code, Code::NoXattr);
    };
    world.take_messages();
    let (id, handle) = create(&client, "member").await;
    no_capabilities(id).await;
    client.write(handle, 0, Bytes::from_static(b"bytes")).await.unwrap();
    let change = async |change| assert_eq!(client.set_attr(&cx(), id, None, change).await.unwrap().attr.id, id);
    change(SetAttr { atime: Some(TimeOrNow::Now), mtime: Some(TimeOrNow::At(Timestamp(7))), ..SetAttr::default() })
        .await;
    no_capabilities(id).await;
    change(SetAttr { uid: Some(5), gid: Some(6), ..SetAttr::default() }).await;
    change(SetAttr { mode: Some(Mode(0o640)), ..SetAttr::default() }).await;
    no_capabilities(id).await;
    close(&client, handle).await.unwrap();
    let (meta, data) = world.take_messages();
    assert_eq!(meta, BTreeMap::from([("ChangeAttr", 3), ("CommitFile", 1), ("CreateFile", 1)]));
    assert_eq!(data, none());
    // One that has some is asked for, and so is one that may have got some meanwhile.
    client.set_xattr(&cx(), id, b"user.colour", Bytes::from_static(b"red"), XattrMode::Any).await.unwrap();
    assert_eq!(client.get_xattr(&cx(), id, b"user.colour").await.unwrap(), "red");
    assert_eq!(client.list_xattr(&cx(), id).await.unwrap(), ["user.colour"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_granted_costs_nothing() {
    let world = World::new(Storage::Memory, POLICY).await;
    let client = world.client().await;
    let (id, handle) = create(&client, "there").await;
    client.write(handle, 0, Bytes::from_static(b"bytes")).await.unwrap();
    close(&client, handle).await.unwrap();
    let absent = client.lookup(&cx(), InodeId::ROOT, &name("absent")).await.unwrap();
    assert!(absent.attr.is_none() && !absent.valid.is_zero());
    let stat = client.get_attr(&cx(), id, None).await.unwrap();
    assert!(stat.attr.size == 5 && !stat.valid.is_zero());
    world.take_messages();
    for _ in 0..10 {
        assert_eq!(client.get_attr(&cx(), id, None).await.unwrap().attr, stat.attr);
        assert_eq!(client.lookup(&cx(), InodeId::ROOT, &name("there")).await.unwrap().attr, Some(stat.attr));
        assert!(client.lookup(&cx(), InodeId::ROOT, &name("absent")).await.unwrap().attr.is_none());
    }
    assert_eq!(world.take_messages(), (none(), none()));
    // What this client makes itself is there at once.
    let (made, handle) = create(&client, "absent").await;
    close(&client, handle).await.unwrap();
    assert_eq!(client.lookup(&cx(), InodeId::ROOT, &name("absent")).await.unwrap().attr.map(|a| a.id), Some(made));
}

/// The kernel of a mount keeps what it reads and writes: a server on the same machine need not, others must for all who ask
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_server_on_this_machine_is_told_that_a_mount_keeps_the_bytes() {
    let world = World::new(Storage::Memory, POLICY).await;
    let data = pattern(3, 6 << 20);
    let cases = [("one", true, true), ("one", false, false), ("", true, false), ("four", true, false)];
    for (i, (host, pages_above, kept)) in cases.into_iter().enumerate() {
        let config = ClientConfig { host: host.into(), pages_above, ..ClientConfig::default() };
        let client = world.client_with(config).await;
        world.take_messages();
        let (id, handle) = create(&client, &format!("file {i}")).await;
        client.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
        close(&client, handle).await.unwrap();
        let handle = open(&client, id, READ).await;
        assert_same(&read(&client, handle, 0, 6 << 20).await, &data, "read back");
        close(&client, handle).await.unwrap();
        let (_, messages) = world.take_messages();
        for name in ["ReadChunk", "WriteChunk"] {
            let counted = |place: &str| messages.contains_key(format!("{name}{place}").as_str());
            assert_eq!(counted(", kept on host one"), kept, "{name} {host} {pages_above}: {messages:?}");
            assert!(!counted(", kept elsewhere") && counted(""), "{name} {host} {pages_above}: {messages:?}");
        }
    }
}
