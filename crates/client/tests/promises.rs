//! Promises that were broken once.

mod common;

use braid_api::{FileSystem, OpenFlags, RenameMode, SetAttr};
use braid_client::ClientConfig;
use braid_types::{InodeId, Mode};
use bytes::Bytes;
use common::*;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_writes_stay_visible_over_a_restart_whoever_opens_again() {
    let world = World::new(Storage::Disk, SMALL).await;
    // Nothing becomes stable by itself while the test looks.
    let config = ClientConfig { stabilise_after: Duration::from_secs(600), ..ClientConfig::default() };
    let client = world.client_with(config).await;
    let (id, handle) = create(&client, "file").await;
    let data = pattern(1, 2 << 20);
    client.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
    client.flush(handle).await.unwrap();
    // This client changes the mode, and opens the file once more: nobody else touched it.
    let change = SetAttr { mode: Some(Mode(0o600)), ..SetAttr::default() };
    client.set_attr(&cx(), id, None, change).await.unwrap();
    let second = open(&client, id, READ).await;
    world.nodes.iter().for_each(|node| node.lose_power(3));
    assert_same(&read(&client, second, 0, 4 << 20).await, &data, "the client's own write");
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
