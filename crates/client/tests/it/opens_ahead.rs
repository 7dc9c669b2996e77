//! Files of a directory that are opened one after the other: those that come next are asked for together.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{FileSystem, SetAttr};
use braid_client::Client;
use braid_types::InodeId;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

const ROOT: InodeId = InodeId::ROOT;
const FILES: usize = 100;

/// Small files and files in chunks.
fn content(n: usize) -> Vec<u8> {
    pattern(n as u64, if n % 10 == 7 { 300_000 } else { 900 })
}

fn file(n: usize) -> String {
    format!("f{n:03}")
}

/// A directory of files that nobody holds, and two clients that have not opened any.
async fn of_files(world: &World) -> [Arc<Client>; 2] {
    let maker = world.client().await;
    for n in 0..FILES {
        put(&maker, &file(n), &content(n)).await;
    }
    maker.shutdown().await.unwrap();
    [world.client().await, world.client().await]
}

/// As a kernel that is asked for all of the root: names and attributes.
async fn list(client: &Client) -> Vec<InodeId> {
    let handle = client.open_dir(&cx(), ROOT).await.unwrap().handle;
    let (mut found, mut at) = (BTreeMap::new(), 0);
    loop {
        let page = client.read_dir(&cx(), handle, at, 1000, true).await.unwrap();
        let Some(last) = page.last() else { break };
        at = last.offset;
        found.extend(page.iter().map(|entry| (String::from_utf8_lossy(entry.name.as_bytes()).into_owned(), entry.id)));
    }
    client.release(handle).await;
    (0..FILES).map(|n| found[&file(n)]).collect()
}

/// Messages that open files.
async fn opens(world: &World, what: impl Future<Output = ()>) -> BTreeMap<&'static str, u64> {
    let mut sent = asked(world, what).await;
    sent.retain(|name, _| ["OpenFile", "OpenAhead", "GetMap", "Lookup", "GetAttr"].contains(name));
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_files_that_were_listed_are_opened_by_six_messages() {
    let world = World::new(Storage::Memory, SMALL).await;
    let [reader, _] = of_files(&world).await;
    let ids = list(&reader).await;
    let sent = opens(&world, async {
        for (n, id) in ids.iter().enumerate() {
            assert_same(&cat(&reader, *id).await, &content(n), "read");
        }
    })
    .await;
    // Two by themselves; then one with eight, with 16, with 32, and with the 39 that are left.
    assert_eq!(sent, BTreeMap::from([("OpenAhead", 4), ("OpenFile", 2)]));
}

/// A guess that is wrong is not made again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_few_of_many_is_told_of_few() {
    let world = World::new(Storage::Memory, SMALL).await;
    let [reader, _] = of_files(&world).await;
    let ids = list(&reader).await;
    let sent = opens(&world, async {
        for n in (0..FILES).step_by(10) {
            assert_same(&cat(&reader, ids[n]).await, &content(n), "read");
        }
    })
    .await;
    assert_eq!(sent.get("OpenAhead"), Some(&1), "{sent:?}");
}

/// Who writes a file is asked for nothing because of those that are read before it, and what changes before it is opened is seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_for_ahead_holds_until_another_changes_it() {
    let world = World::new(Storage::Memory, SMALL).await;
    let [reader, writer] = of_files(&world).await;
    let ids = list(&reader).await;
    let writing = open(&writer, ids[6], READ_WRITE).await;
    writer.write(writing, 0, Bytes::from_static(b"held")).await.unwrap();
    writer.flush(writing).await.unwrap();
    let sent = opens(&world, async {
        for (n, id) in ids.iter().enumerate().take(5) {
            assert_same(&cat(&reader, *id).await, &content(n), "read");
        }
    })
    .await;
    assert_eq!(sent, BTreeMap::from([("OpenAhead", 1), ("OpenFile", 2)]));
    let sent = opens(&world, async {
        writer.write(writing, 4, Bytes::from_static(b" on")).await.unwrap();
        assert_eq!(&read(&writer, writing, 0, 7).await[..], b"held on");
    })
    .await;
    assert_eq!(sent, BTreeMap::new(), "it has it as it had it");
    close(&writer, writing).await.unwrap();

    // Asked for with the third: 3 to 10.
    let mut expected: BTreeMap<usize, Vec<u8>> = (5..11).map(|n| (n, content(n))).collect();
    expected.get_mut(&6).unwrap()[..7].copy_from_slice(b"held on");
    let handle = open(&writer, ids[7], READ_WRITE).await;
    writer.write(handle, 100, Bytes::from_static(b"written since")).await.unwrap();
    close(&writer, handle).await.unwrap();
    expected.get_mut(&7).unwrap()[100..113].copy_from_slice(b"written since");
    let cut = SetAttr { size: Some(50), ..SetAttr::default() };
    writer.set_attr(&cx(), ids[8], None, cut).await.unwrap();
    expected.get_mut(&8).unwrap().truncate(50);
    writer.unlink(&cx(), ROOT, &name(&file(9))).await.unwrap();
    expected.remove(&9);
    for (n, bytes) in expected {
        assert_same(&cat(&reader, ids[n]).await, &bytes, file(n));
    }
    assert!(reader.open(&cx(), ids[9], READ).await.is_err(), "it is gone");
}

/// Of a file that stays open here after another has written it, what is known is of before. It comes with those before it, or with a lookup: the handle
/// shows what is in it now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_shows_what_another_wrote_whatever_came_of_the_file_meanwhile() {
    for by_lookup in [false, true] {
        let world = World::new(Storage::Memory, SMALL).await;
        let [reader, writer] = of_files(&world).await;
        let ids = list(if by_lookup { &writer } else { &reader }).await;
        for n in [5, 7] {
            reader.lookup(&cx(), ROOT, &name(&file(n))).await.unwrap();
            let handle = open(&reader, ids[n], READ).await;
            assert_same(&read(&reader, handle, 0, 1 << 20).await, &content(n), "before");
            let writing = open(&writer, ids[n], READ_WRITE).await;
            writer.write(writing, 0, Bytes::from(vec![7; 350_000])).await.unwrap();
            close(&writer, writing).await.unwrap();
            // Who only looks has the writer keep it as one that reads.
            let third = world.client().await;
            assert_eq!(third.get_attr(&cx(), ids[n], None).await.unwrap().attr.size, 350_000);
            assert_same(&cat(&third, ids[n]).await, &[7; 350_000], "a third");
            match by_lookup {
                true => {
                    for (at, id) in ids.iter().enumerate().skip(10 + n).take(3) {
                        reader.lookup(&cx(), ROOT, &name(&file(at))).await.unwrap();
                        cat(&reader, *id).await;
                    }
                    world.take_messages();
                    reader.lookup(&cx(), ROOT, &name(&file(n))).await.unwrap();
                    assert_eq!(world.take_messages().0.get("LookToOpen"), Some(&1));
                }
                false => {
                    for id in &ids[..5] {
                        cat(&reader, *id).await;
                    }
                }
            }
            assert_same(&read(&reader, handle, 0, 1 << 20).await, &[7; 350_000], format_args!("{by_lookup} {n}"));
            close(&reader, handle).await.unwrap();
        }
    }
}

/// Whoever made the files still has them for itself: each is taken from it by its open, and it is not guessed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_another_holds_cost_a_message_each_and_few_guesses() {
    let world = World::new(Storage::Memory, SMALL).await;
    let maker = world.client().await;
    for n in 0..FILES {
        put(&maker, &file(n), &content(n)).await;
    }
    let reader = world.client().await;
    let ids = list(&reader).await;
    let sent = opens(&world, async {
        for (n, id) in ids.iter().enumerate() {
            assert_same(&cat(&reader, *id).await, &content(n), "read");
        }
    })
    .await;
    assert_eq!(sent.get("OpenFile"), Some(&(FILES as u64)));
    assert!(sent.get("OpenAhead").is_none_or(|guesses| *guesses <= 3), "{sent:?}");
}
