//! Locks of regions (docs/design/0018-region-locks.md), as requests meet them: queues, deadlines, ends, and a chunk that moves.
#![allow(clippy::unwrap_used)]

use crate::support::cluster::{self, C, Client, Cluster, shared_write_of};
use crate::support::{World, cx_of, quiet, read_of, settle, write_of};
use braid_api::data::*;
use braid_api::{Code, Context, DataNode, Result};
use braid_data_server::DataServer;
use braid_data_store::MemoryStore;
use braid_types::*;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

type Server = Arc<DataServer>;

const CHUNK: u64 = 5;

fn server() -> Server {
    World::new(1).serve(Arc::new(MemoryStore::new(1 << 30)), quiet())
}

fn once(number: u64) -> Option<Once> {
    Some(Once { number, done: 1, repeated: false, again: false })
}

fn within(session: u64, ms: u64) -> Context {
    Context { deadline: Duration::from_millis(ms), ..cx_of(session, 1, 0) }
}

fn write(server: &Server, session: u64, once: Option<Once>, range: (u64, usize)) -> JoinHandle<Result<WriteAnswer>> {
    let (server, message) = (server.clone(), WriteChunk { once, ..write_of(CHUNK, range.0) });
    let bytes = Bytes::from(vec![session as u8; range.1]);
    tokio::spawn(async move { Ok(server.call(within(session, 5000), message, bytes).await?.0) })
}

fn read(server: &Server, session: u64, hold: Option<Once>, range: (u64, u32)) -> JoinHandle<Result<Bytes>> {
    let (server, message) = (server.clone(), ReadChunk { ordered: true, hold, ..read_of(CHUNK, range.0, range.1) });
    tokio::spawn(async move { Ok(server.call(within(session, 5000), message, Bytes::new()).await?.1) })
}

async fn unlock(server: &Server, session: u64, number: u64) {
    let message = UnlockRegion { chunk: ChunkId(CHUNK), number };
    server.call(within(session, 1000), message, Bytes::new()).await.unwrap();
    settle().await;
}

async fn holds(server: &Server, session: u64, number: u64) -> bool {
    let message = CheckRegion { chunk: ChunkId(CHUNK), number, copies_of: ContainerId(0) };
    server.call(within(session, 1000), message, Bytes::new()).await.unwrap().0
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_later_has_its_turn_later_and_readers_do_not_pass_a_writer() {
    let server = server();
    write(&server, 1, once(1), (0, 100)).await.unwrap().unwrap();
    assert!(holds(&server, 1, 1).await && !holds(&server, 1, 2).await && !holds(&server, 2, 1).await);
    let beside = read(&server, 2, None, (100, 100)).await.unwrap().unwrap();
    assert_eq!(beside, [0; 100][..], "where nothing is locked");
    let reader = read(&server, 2, once(1), (0, 200));
    settle().await;
    let writer = write(&server, 3, once(1), (50, 100));
    settle().await;
    let late = read(&server, 2, None, (100, 50));
    settle().await;
    assert!(!reader.is_finished() && !writer.is_finished() && !late.is_finished());
    unlock(&server, 1, 1).await;
    assert_eq!(reader.await.unwrap().unwrap()[..100], [1; 100]);
    assert!(!writer.is_finished() && !late.is_finished(), "it is held, and the writer was there before");
    unlock(&server, 2, 1).await;
    writer.await.unwrap().unwrap();
    assert!(!late.is_finished());
    unlock(&server, 3, 1).await;
    assert_eq!(late.await.unwrap().unwrap(), [3; 50][..]);
    let metrics = server.metrics_text();
    for line in
        ["braid_data_region_locks 0", "braid_data_region_locks_waiting 0", "braid_data_region_lock_waits_total 3"]
    {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_deadline_and_names_who_is_in_the_way() {
    let server = server();
    write(&server, 7, once(1), (0, 100)).await.unwrap().unwrap();
    let begun = tokio::time::Instant::now();
    let waits = write(&server, 3, once(1), (0, 100));
    let behind = read(&server, 3, None, (0, 100));
    let error = waits.await.unwrap().unwrap_err();
    assert!(matches!(error.code, Code::Busy | Code::DeadlineExceeded), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert!(behind.await.unwrap().is_err());
    // Whoever waits no more is in nobody's way.
    unlock(&server, 7, 1).await;
    assert_eq!(read(&server, 4, None, (0, 100)).await.unwrap().unwrap(), [7; 100][..]);
    assert!(!holds(&server, 3, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_lock_ends_with_its_session_and_with_what_is_done_and_does_not_come_back_late() {
    let server = server();
    write(&server, 1, once(1), (0, 100)).await.unwrap().unwrap();
    // Of one session, and another operation.
    let second = write(&server, 1, once(2), (0, 100));
    settle().await;
    assert!(!second.is_finished());
    let done = Some(Once { number: 3, done: 2, repeated: false, again: false });
    write(&server, 1, done, (500, 100)).await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    unlock(&server, 1, 2).await;
    let late = write(&server, 1, once(2), (0, 100)).await.unwrap();
    assert_eq!(late.unwrap_err().code, Code::Overtaken);
    let other = write(&server, 2, once(1), (500, 100));
    let also = read(&server, 2, once(2), (500, 100));
    settle().await;
    assert!(!other.is_finished() && !also.is_finished());
    let fence = FenceSession { session: SessionId(1), epoch: SessionEpoch(1), by: MembershipEpoch(0) };
    server.call(Context::default(), fence, Bytes::new()).await.unwrap();
    other.await.unwrap().unwrap();
    assert_eq!(write(&server, 1, once(9), (0, 1)).await.unwrap().unwrap_err().code, Code::SessionFenced);
    unlock(&server, 2, 1).await;
    also.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_lost_its_lock_has_it_again_and_who_had_it_hears_that() {
    let server = server();
    write(&server, 1, once(1), (0, 100)).await.unwrap().unwrap();
    let waits = write(&server, 3, once(1), (0, 100));
    settle().await;
    let again = Some(Once { number: 8, done: 1, repeated: true, again: true });
    write(&server, 2, again, (50, 100)).await.unwrap().unwrap();
    assert!(holds(&server, 2, 8).await && !holds(&server, 1, 1).await);
    unlock(&server, 2, 8).await;
    waits.await.unwrap().unwrap();
}

async fn owner(cluster: &Cluster) -> u64 {
    for id in 1..=3 {
        if cluster.copy(id, CHUNK).await.is_some_and(|copy| copy.is_owner) {
            return id;
        }
    }
    0
}

async fn want(cluster: &Cluster, at: u64) {
    let server = cluster.server(at).unwrap();
    let token = Token { lease_gen: LeaseGen(1), ..within(1, 1000).token };
    let want = WantChunk { chunk: ChunkId(CHUNK), container: C };
    server.call(Context { token, ..within(1, 1000) }, want, Bytes::new()).await.unwrap();
}

type Copy = Arc<DataServer>;

fn write_copies(server: &Copy, session: u64, number: u64) -> JoinHandle<Result<CopiesAnswer>> {
    let (server, message) = (server.clone(), shared_write_of(CHUNK, 0));
    let message = WriteCopies { write: WriteChunk { once: once(number), ..message.write }, ..message };
    tokio::spawn(async move { Ok(server.call(within(session, 5000), message, Bytes::from(vec![1; 100])).await?.0) })
}

async fn free(server: &Copy, session: u64, number: u64) {
    let message = UnlockRegion { chunk: ChunkId(CHUNK), number };
    server.call(within(session, 1000), message, Bytes::new()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_chunk_stays_while_an_operation_has_locked_some_of_it_and_who_waits_goes_along() {
    let cluster = Cluster::new(31, 3, 3, 2);
    let mut client = Client::new(&cluster);
    client.write(CHUNK, 0, Bytes::from(vec![1; 10_000])).await;
    cluster.settled(CHUNK).await;
    assert_eq!(owner(&cluster).await, 1);
    let first = cluster.server(1).unwrap();
    let read = ReadCopy { ordered: true, hold: once(1), ..cluster::read_of(CHUNK, 0, 100) };
    first.call(within(5, 1000), read, Bytes::new()).await.unwrap();
    want(&cluster, 2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(owner(&cluster).await, 1, "a reader has locked some of it");
    let check = CheckRegion { chunk: ChunkId(CHUNK), number: 1, copies_of: C };
    assert!(first.call(within(5, 1000), check, Bytes::new()).await.unwrap().0);
    free(&first, 5, 1).await;
    // It begins to move, and cannot yet: one member does not hear what was written last.
    cluster.cut.lock().insert((1, 3));
    client.write(CHUNK, 0, Bytes::from(vec![2; 10_000])).await;
    want(&cluster, 2).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let waiting = [(6, 9), (7, 3)].map(|(session, number)| write_copies(&first, session, number));
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(waiting.iter().all(|write| !write.is_finished()), "all of it is locked");
    assert_eq!(owner(&cluster).await, 1);
    cluster.cut.lock().clear();
    for write in waiting {
        assert_eq!(write.await.unwrap().unwrap_err().code, Code::NotOwner);
    }
    assert_eq!(owner(&cluster).await, 2);
    // Who comes first at the next owner waits for those who came first at the last.
    let second = cluster.server(2).unwrap();
    let other = write_copies(&second, 8, 1);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!other.is_finished());
    let (b, a) = (write_copies(&second, 7, 3), write_copies(&second, 6, 9));
    a.await.unwrap().unwrap();
    assert!(!b.is_finished() && !other.is_finished());
    free(&second, 6, 9).await;
    b.await.unwrap().unwrap();
    assert!(!other.is_finished());
    free(&second, 7, 3).await;
    other.await.unwrap().unwrap();
}
