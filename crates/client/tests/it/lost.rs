//! A session that ends although its client lives: what was not safe by then is lost, is said to be lost, and is never sent over what
//! others have written since (docs/design/0011-what-a-lost-session-takes.md).

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{Code, FileSystem, HandleId, Result, SetAttr};
use braid_client::{Client, ClientConfig};
use braid_types::*;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

const NEVER: Duration = Duration::from_secs(600);

/// Nothing is sent, and nothing becomes stable, unless it is asked for.
fn lazy() -> ClientConfig {
    ClientConfig { write_back_after: NEVER, stabilise_after: NEVER, ..ClientConfig::default() }
}

async fn put(client: &Client, handle: HandleId, offset: u64, bytes: &[u8]) {
    client.write(handle, offset, Bytes::from(bytes.to_vec())).await.unwrap();
}

fn code<T>(result: Result<T>) -> Code {
    result.err().expect("it fails").code
}

/// Two mounts, and a file of so many synced bytes that the first has open. Its session is the first.
async fn two(storage: Storage, len: usize) -> (World, Arc<Client>, Arc<Client>, InodeId, HandleId) {
    let world = World::new(storage, SMALL).await;
    let (a, b) = (world.client_with(lazy()).await, world.client().await);
    let (id, handle) = create(&a, "file").await;
    put(&a, handle, 0, &pattern(1, len)).await;
    a.fsync(handle, false).await.unwrap();
    (world, a, b, id, handle)
}

async fn end_first(world: &World) {
    let first = world.sessions().await.into_iter().min().unwrap();
    world.end_session(first).await;
}

/// A session of a client that is not silent does not end: here it hears of it at its next message, where another would know by its
/// clock that its lease is over.
async fn notices(client: &Client) {
    let mode = SetAttr { mode: Some(Mode(0o755)), ..SetAttr::default() };
    client.set_attr(&cx(), InodeId::ROOT, None, mode).await.unwrap();
    assert_eq!(client.stats().sessions_lost, 1);
}

/// Every call of the handle says what happened, and who opens the file again finds `now`.
async fn is_told(client: &Client, id: InodeId, handle: HandleId, now: &[u8]) {
    for _ in 0..2 {
        assert_eq!(code(client.fsync(handle, false).await), Code::WriteLost);
        assert_eq!(code(client.read(handle, 0, 10).await), Code::WriteLost);
        assert_eq!(code(client.write(handle, 0, Bytes::from_static(b"more")).await), Code::WriteLost);
        let cut = SetAttr { size: Some(5), ..SetAttr::default() };
        assert_eq!(code(client.set_attr(&cx(), id, Some(handle), cut).await), Code::WriteLost);
    }
    assert_eq!(code(close(client, handle).await), Code::WriteLost);
    assert_eq!(client.get_attr(&cx(), id, None).await.unwrap().attr.size, now.len() as u64);
    let again = open(client, id, READ_WRITE).await;
    assert_same(&read(client, again, 0, 1 << 20).await, now, "opened again");
    put(client, again, 0, b"and on").await;
    client.fsync(again, false).await.unwrap();
    close(client, again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_buffered_under_a_lost_session_is_not_sent_and_its_handles_fail() {
    // Inline, and in chunks.
    for len in [1_000, 50_000] {
        let (world, a, b, id, of_a) = two(Storage::Memory, len).await;
        put(&a, of_a, 10, &pattern(2, len)).await;
        end_first(&world).await;
        let of_b = open(&b, id, READ_WRITE).await;
        assert_same(&read(&b, of_b, 0, 1 << 20).await, &pattern(1, len), "what was synced is there, and no more");
        let theirs = pattern(3, len);
        put(&b, of_b, 0, &theirs).await;
        b.fsync(of_b, false).await.unwrap();
        is_told(&a, id, of_a, &theirs).await;
        assert_eq!(read(&b, of_b, 0, 6).await, b"and on");
        assert_same(&read(&b, of_b, 6, 1 << 20).await, &theirs[6..], "what the other wrote stays");
        let stats = a.stats();
        assert_eq!((stats.sessions_lost, stats.files_lost, stats.bytes_buffered), (1, 1, 0));
        assert!(stats.bytes_lost >= len as u64, "{}", stats.bytes_lost);
    }
}

/// A commit that was on its way, or a write whose answer was lost, is not repeated under the next session either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_on_its_way_when_the_session_is_lost_is_not_repeated_under_the_next() {
    for late in ["CommitFile", "WriteChunk"] {
        for len in [1_000, 50_000] {
            let (world, a, b, id, of_a) = two(Storage::Memory, len).await;
            put(&a, of_a, 10, &pattern(2, len)).await;
            world.nodes.iter().filter(|_| late == "WriteChunk").for_each(|node| node.down());
            world.late.lock().insert("CommitFile", Duration::from_millis(300));
            let saving = tokio::spawn({
                let a = a.clone();
                async move { a.fsync(of_a, false).await }
            });
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.nodes.iter().for_each(|node| node.up());
            end_first(&world).await;
            world.late.lock().clear();
            let of_b = open(&b, id, READ_WRITE).await;
            let theirs = pattern(3, 2 * len);
            put(&b, of_b, 0, &theirs).await;
            b.fsync(of_b, false).await.unwrap();
            // It may have been done before the session ended; else it is told.
            if let Err(error) = saving.await.unwrap() {
                assert_eq!(error.code, Code::WriteLost, "{error}");
                is_told(&a, id, of_a, &theirs).await;
            }
            assert_same(&read(&b, of_b, 6, 1 << 20).await, &theirs[6..], format_args!("{late} late, {len} bytes"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_whose_bytes_are_all_safe_goes_on_after_a_lost_session() {
    for len in [1_000, 50_000] {
        let (world, a, b, id, of_a) = two(Storage::Memory, len).await;
        end_first(&world).await;
        let of_b = open(&b, id, READ_WRITE).await;
        put(&b, of_b, 0, b"theirs").await;
        notices(&a).await;
        assert_eq!(read(&a, of_a, 0, 6).await, b"theirs", "what another has written since is seen");
        put(&a, of_a, 0, b"mine!").await;
        a.fsync(of_a, false).await.unwrap();
        assert_eq!(read(&b, of_b, 0, 6).await, b"mine!s");
        close(&a, of_a).await.unwrap();
        assert_eq!((a.stats().sessions_lost, a.stats().bytes_lost), (1, 0));
    }
}

/// What servers had answered is there if they have not restarted: they are asked, and it is not sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_servers_had_answered_under_a_lost_session_is_asked_for_and_not_repeated() {
    for power in [false, true] {
        let (world, a, b, id, of_a) = two(Storage::Disk, 50_000).await;
        let mine = pattern(2, 50_000);
        put(&a, of_a, 0, &mine).await;
        a.flush(of_a).await.unwrap();
        assert!(a.stats().bytes_retained >= 50_000);
        end_first(&world).await;
        if power {
            world.nodes.iter().for_each(|node| node.lose_power(7));
        }
        let of_b = open(&b, id, READ_WRITE).await;
        put(&b, of_b, 0, b"theirs").await;
        b.fsync(of_b, false).await.unwrap();
        notices(&a).await;
        let now = read(&b, of_b, 0, 1 << 20).await;
        match power {
            true => is_told(&a, id, of_a, &now).await,
            false => {
                assert_same(&now[6..], &mine[6..], "the server has it");
                assert_same(&read(&a, of_a, 0, 1 << 20).await, &now, "and the handle goes on");
                a.fsync(of_a, false).await.unwrap();
            }
        }
        assert_eq!(read(&b, of_b, 6, 100).await, now[6..106]);
        let stats = a.stats();
        assert_eq!((stats.writes_repeated, stats.files_lost, stats.bytes_retained), (0, u64::from(power), 0));
    }
}

/// The bytes of a file that nobody has open are told to who saves it next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_closed_file_loses_with_its_session_is_told_to_who_saves_it_next() {
    let (world, a, _b, id, of_a) = two(Storage::Memory, 1_000).await;
    world.late.lock().insert("CommitFile", Duration::from_millis(500));
    put(&a, of_a, 10, &pattern(2, 1_000)).await;
    a.release(of_a).await;
    end_first(&world).await;
    world.late.lock().clear();
    notices(&a).await;
    assert_eq!((a.stats().files_lost, a.stats().bytes_lost), (1, 1_010));
    let again = open(&a, id, READ_WRITE).await;
    assert_eq!(code(a.fsync(again, false).await), Code::WriteLost);
    a.fsync(again, false).await.unwrap();
    assert_same(&read(&a, again, 0, 1 << 20).await, &pattern(1, 1_000), "what was synced");
}
