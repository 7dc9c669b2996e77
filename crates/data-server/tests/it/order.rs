//! Writes to one chunk are applied in the order in which they came, however they are carried out.
#![allow(clippy::unwrap_used)]

use crate::support::*;
use braid_api::data::*;
use braid_api::{Code, Context, DataNode};
use braid_data_server::{DataServer, DataServerConfig};
use braid_data_store::{DiskStore, MemoryStore};
use braid_env::{Env, Random};
use braid_types::*;
use bytes::Bytes;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const CHUNKS: u64 = 3;

/// What a connection does: polls each request once in the order of arrival, then lets it go on by itself. Far more
/// requests than tokio lets one task poll at a time.
async fn pipeline(server: &Arc<DataServer>, random: &dyn Random, writes: usize) {
    let mut model = vec![vec![0u8; CHUNK as usize]; CHUNKS as usize];
    let mut tasks = Vec::new();
    for _ in 0..writes {
        let chunk = random.below(CHUNKS);
        // Mostly small ones on top of each other, some that go to the I/O threads.
        let longest = if random.below(4) == 0 { 200 << 10 } else { 8 << 10 };
        let (offset, len) = (random.below(64 << 10), 1 + random.below(longest));
        let bytes = vec![random.u64() as u8; len as usize];
        model[chunk as usize][offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
        let server = server.clone();
        let mut request: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(async move { server.call(cx(), write_of(1 + chunk, offset), Bytes::from(bytes)).await });
        match poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx))).await {
            Poll::Ready(result) => drop(result.unwrap()),
            Poll::Pending => tasks.push(tokio::spawn(request)),
        }
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    for (chunk, expected) in model.iter().enumerate() {
        let found = read(&**server, 1 + chunk as u64, 0, CHUNK as u32).await.unwrap();
        let differs = found.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "chunk {}", 1 + chunk);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_disk_with_io_threads() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..4 {
        let env = Env::os();
        let path = dir.path().join(seed.to_string());
        let store = DiskStore::create(env.disk.clone(), &path, identity(), Default::default()).unwrap();
        // Syncs in between change who carries out a write; little memory makes the large ones wait for it.
        let config = DataServerConfig { sync_every: Duration::from_millis(1), memory_bytes: 512 << 10, ..quiet() };
        let server = DataServer::start(env, Arc::new(store), identity(), config);
        pipeline(&server, &*World::new(seed).env.random, 800).await;
        let counted = server.counters();
        assert!(counted.writes == 800 && counted.writes_inline > 0, "{counted:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory_with_io_threads() {
    for seed in 10..14 {
        let server = DataServer::start(Env::os(), Arc::new(MemoryStore::new(64 << 20)), identity(), quiet());
        pipeline(&server, &*World::new(seed).env.random, 800).await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_one_thread() {
    for seed in 20..24 {
        let world = World::new(seed);
        let server = world.serve(world.open(), DataServerConfig::default());
        pipeline(&server, &*world.env.random, 400).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_caller_has_gone_keeps_its_place() {
    let world = World::new(30);
    let server = world.serve(world.open(), quiet());
    world.io.hold();
    let first = tokio::spawn({
        let server = server.clone();
        async move { write(&*server, 1, 0, b"first").await }
    });
    settle().await;
    first.abort();
    let second = tokio::spawn({
        let server = server.clone();
        async move { write(&*server, 1, 0, b"second").await }
    });
    settle().await;
    assert_eq!(world.io.waiting(), 1, "the second waits for its turn");
    world.io.release(false);
    second.await.unwrap().unwrap();
    assert_eq!(read(&*server, 1, 0, 6).await.unwrap(), b"second"[..]);
}

/// wire drops a request as soon as nobody waits for its answer. Whatever it was waiting for then, it has either not
/// begun or is carried out whole, and gives back its turn, its memory and its pass.
#[tokio::test(start_paused = true)]
async fn requests_given_up_at_any_await_leave_nothing_half_done() {
    // Room for one large write at a time, so that some wait for memory.
    let world = World::new(31);
    let server = world.serve(world.open(), DataServerConfig { memory_bytes: 256 << 10, ..quiet() });
    let (chunk, container, cuts) = (ChunkId(1), ContainerId(9), Vec::new());
    for polls in 1..5 {
        write(&*server, 1, 0, &[1; 8192]).await.unwrap();
        world.io.hold();
        let large = || Bytes::from(vec![2; 200 << 10]);
        let mut given_up: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = vec![
            Box::pin(async { drop(server.call(cx(), write_of(1, 0), large()).await) }),
            Box::pin(async { drop(server.call(cx(), WriteChunk { sync: true, ..write_of(2, 0) }, large()).await) }),
            Box::pin(async { drop(server.call(cx(), read_of(1, 0, 4096), Bytes::new()).await) }),
            Box::pin(async { drop(ask(&*server, CutChunk { chunk, container, cuts: cuts.clone() }).await) }),
            Box::pin(async {
                let range = ByteRange::new(0, 4096);
                drop(ask(&*server, PunchChunk { chunk, container, range, cuts: cuts.clone() }).await);
            }),
            Box::pin(async {
                let (chunk, make) = (ChunkId(3), Make::Yes);
                let reserve = ReserveChunk { chunk, container, chunk_bytes: CHUNK, bytes: CHUNK, make };
                drop(ask(&*server, reserve).await);
            }),
            Box::pin(async { drop(ask(&*server, SyncChunks::of(vec![chunk, ChunkId(2)])).await) }),
            Box::pin(async { drop(ask(&*server, DeleteChunks { chunks: vec![ChunkId(2), ChunkId(4)] }).await) }),
            Box::pin(async {
                let fence = FenceSession { session: SessionId(90), epoch: SessionEpoch(1), by: MembershipEpoch(0) };
                drop(ask(&*server, fence).await);
            }),
        ];
        for _ in 0..polls {
            let mut going_on = Vec::new();
            for mut request in given_up {
                if poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx))).await.is_pending() {
                    going_on.push(request);
                }
            }
            given_up = going_on;
            world.io.release(polls % 2 == 0);
            world.io.hold();
            settle().await;
        }
        drop(given_up);
        world.io.release(false);
        settle().await;
        for id in [1, 2, 3, 4] {
            let bytes = Bytes::from(vec![3; 200 << 10]);
            let again = tokio::time::timeout(Duration::from_secs(5), server.call(cx(), write_of(id, 0), bytes)).await;
            again.unwrap_or_else(|_| panic!("chunk {id} is stuck after {polls} polls")).unwrap();
            assert_eq!(read(&*server, id, 100_000, 4).await.unwrap(), [3; 4][..]);
        }
        ask(&*server, FenceSession { session: SessionId(91), epoch: SessionEpoch(1), by: MembershipEpoch(0) })
            .await
            .unwrap();
        let metrics = server.metrics_text();
        for gauge in ["braid_data_requests_in_process 0", "braid_data_request_memory_bytes 0"] {
            assert!(metrics.contains(gauge), "after {polls} polls: {metrics}");
        }
    }
    let stopped = tokio::time::timeout(Duration::from_secs(5), server.stop()).await;
    stopped.expect("nothing passes any more").unwrap();
}

/// The copy of a change that its sender has sent again, or whose file is another's by now, arrives when both have gone on.
#[tokio::test(start_paused = true)]
async fn what_comes_late_changes_nothing() {
    let world = World::new(31);
    let server = world.serve(world.open(), quiet());
    let of = |session, lease, place, behind| Context {
        token: Token { session: SessionId(session), lease_gen: LeaseGen(lease), ..Token::default() },
        request: RequestId(place),
        behind,
        ..cx()
    };
    let put = async |cx: Context, bytes: &'static [u8]| {
        server.call(cx, write_of(1, 0), Bytes::from_static(bytes)).await.map(drop).map_err(|error| error.code)
    };
    let punch = PunchChunk { chunk: ChunkId(1), container: ContainerId(9), range: ByteRange::new(0, 4), cuts: vec![] };
    // Not answered in time and sent again, then written over, under one lease.
    assert_eq!([put(of(1, 5, 2, 0), b"aaaa").await, put(of(1, 5, 3, 0), b"bbbb").await], [Ok(()); 2]);
    assert_eq!(put(of(1, 5, 1, 0), b"aaaa").await, Err(Code::Overtaken));
    let late = server.call(of(1, 5, 2, 1), punch.clone(), Bytes::new()).await;
    assert_eq!(code(late), Code::Overtaken);
    // Given up by the last sync of a flush, although nothing was written instead.
    server.call(of(1, 5, 4, 0), SyncChunks::of(vec![ChunkId(1)]), Bytes::new()).await.unwrap();
    assert_eq!(put(of(1, 5, 3, 2), b"bbbb").await, Err(Code::Overtaken));
    // Another session writes: what the first may still have on its way is older, whatever its place.
    assert_eq!(put(of(2, 7, 1, 0), b"cccc").await, Ok(()));
    assert_eq!(put(of(1, 5, 9, 0), b"late").await, Err(Code::StaleLease));
    assert_eq!(code(server.call(of(1, 5, 10, 0), punch, Bytes::new()).await), Code::StaleLease);
    assert_eq!(read(&*server, 1, 0, 4).await.unwrap(), b"cccc"[..]);
    // The metadata server's repairs are under no lease, and the first may have the file again.
    assert_eq!(put(cx(), b"dddd").await, Ok(()));
    assert_eq!(put(of(1, 8, 11, 0), b"eeee").await, Ok(()));
}
