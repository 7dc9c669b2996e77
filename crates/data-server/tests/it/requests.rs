//! Every request over both stores, and what goes wrong with it.
#![allow(clippy::unwrap_used)]

use crate::support::*;
use braid_api::data::*;
use braid_api::{Code, Context, DataNode};
use braid_data_server::{DataServer, DataServerConfig};
use braid_data_store::{DiskStore, MemoryStore};
use braid_types::*;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

async fn tour(server: &DataServer) {
    let first = write(server, 7, 10, b"hello").await.unwrap();
    let second = write(server, 7, 12, b"LL").await.unwrap();
    assert!(first.version < second.version && first.sequence < second.sequence);
    assert_eq!(first.incarnation, server.incarnation());
    assert_eq!(read(server, 7, 8, 10).await.unwrap(), b"\0\0heLLo\0\0\0"[..], "zeros around what was written");
    assert_eq!(read(server, 7, 0, 0).await.unwrap().len(), 0);
    assert_eq!(code(read(server, 8, 0, 4).await), Code::ChunkUnknown);

    let synced = ask(server, SyncChunks::of(vec![ChunkId(7)])).await.unwrap();
    assert!(synced.stable >= second.sequence && synced.incarnation == first.incarnation);
    assert_eq!(code(ask(server, SyncChunks::of(vec![ChunkId(8)])).await), Code::ChunkUnknown);
    let stable = server.call(cx(), WriteChunk { sync: true, ..write_of(7, 0) }, Bytes::from_static(b"x"));
    let stable = stable.await.unwrap().0;
    assert!(stable.stable >= stable.sequence);

    write(server, 7, 3 * 4096, &[1; 4096]).await.unwrap();
    let stat =
        StatChunk { chunk: ChunkId(7), container: ContainerId(9), extents_in: ByteRange::new(0, CHUNK), cuts: vec![] };
    let found = ask(server, stat.clone()).await.unwrap();
    assert_eq!((found.chunk, found.container, found.len), (ChunkId(7), ContainerId(9), 4 * 4096));
    assert_eq!(found.extents, [ByteRange::new(0, 4096), ByteRange::new(3 * 4096, 4 * 4096)]);

    let range = ByteRange::new(0, 4096);
    let punched = ask(server, PunchChunk { chunk: ChunkId(7), container: ContainerId(9), range, cuts: vec![] }).await;
    assert!(punched.unwrap().version > stable.version);
    assert_eq!(read(server, 7, 10, 5).await.unwrap(), [0; 5][..]);
    assert_eq!(ask(server, stat).await.unwrap().extents, [ByteRange::new(3 * 4096, 4 * 4096)]);
    assert_eq!(ask(server, ScrubChunk { chunk: ChunkId(7) }).await.unwrap().blocks, 4);

    // A cut comes with whatever request is the first to know of it; what is older is refused.
    write(server, 11, 0, b"0123456789").await.unwrap();
    let cuts = vec![(TruncGen(1), 4)];
    let cut_read = server.call(cx_of(1, 1, 1), ReadChunk { cuts: cuts.clone(), ..read_of(11, 0, 6) }, Bytes::new());
    assert_eq!(cut_read.await.unwrap().1, b"0123\0\0"[..]);
    assert_eq!(code(write(server, 11, 0, b"late").await), Code::StaleTruncGen);
    assert_eq!(code(read(server, 11, 0, 4).await), Code::StaleTruncGen);
    let cut = CutChunk { chunk: ChunkId(11), container: ContainerId(9), cuts: vec![(TruncGen(2), 2)] };
    server.call(cx_of(1, 1, 2), cut, Bytes::new()).await.unwrap();
    let written = server.call(cx_of(1, 1, 2), WriteChunk { cuts, ..write_of(11, 5) }, Bytes::from_static(b"!"));
    written.await.unwrap();
    let after = server.call(cx_of(1, 1, 2), read_of(11, 0, 6), Bytes::new()).await.unwrap().1;
    assert_eq!(after, b"01\0\0\0!"[..]);
    // A metadata server knows no generations.
    let stat =
        StatChunk { chunk: ChunkId(11), container: ContainerId(9), extents_in: ByteRange::default(), cuts: vec![] };
    assert_eq!(server.call(Context::default(), stat, Bytes::new()).await.unwrap().0.trunc_gen, TruncGen(2));

    let page = ask(server, ListChunks { after: ChunkId(0), limit: 1 }).await.unwrap();
    assert_eq!((page.chunks[0].chunk, page.more), (ChunkId(7), true));
    let page = ask(server, ListChunks { after: ChunkId(7), limit: 9 }).await.unwrap();
    assert_eq!((page.chunks.len(), page.more), (1, false));
    ask(server, DeleteChunks { chunks: vec![ChunkId(99), ChunkId(7), ChunkId(7)] }).await.unwrap();
    assert_eq!(code(read(server, 7, 0, 4).await), Code::ChunkUnknown);

    let counted = server.counters();
    let status = ask(server, GetDataStatus {}).await.unwrap();
    assert_eq!((status.id, status.chunks), (ServerId(3), 1));
    assert_eq!((status.writes, status.bytes_written), (6, 5 + 2 + 1 + 4096 + 10 + 1));
    assert_eq!((status.reads, status.bytes_read), (counted.reads, 10 + 5 + 6 + 6));
    assert!(server.metrics_text().contains("\nbraid_data_writes_total 6\n"));
}

#[tokio::test(start_paused = true)]
async fn memory_answers_every_request() {
    tour(&World::new(1).serve(Arc::new(MemoryStore::new(8 << 20)), quiet())).await;
}

#[tokio::test(start_paused = true)]
async fn the_simulated_disk_answers_every_request() {
    let world = World::new(2);
    tour(&world.serve(world.open(), quiet())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_disk_answers_every_request() {
    let dir = tempfile::tempdir().unwrap();
    let env = braid_env::Env::os();
    let path = dir.path().join("data");
    let store = DiskStore::create(env.disk.clone(), &path, identity(), Default::default()).unwrap();
    tour(&DataServer::start(env, Arc::new(store), identity(), quiet())).await;
}

#[tokio::test(start_paused = true)]
async fn nonsense_is_refused() {
    let world = World::new(3);
    let server = world.serve(world.open(), quiet());
    let backwards = ByteRange { start: 5, end: 1 };
    let (chunk, container, cuts) = (ChunkId(1), ContainerId(9), Vec::new());
    write(&*server, 1, 0, b"x").await.unwrap();
    assert_eq!(code(write(&*server, 0, 0, b"x").await), Code::Invalid);
    assert_eq!(code(write(&*server, 1, CHUNK, b"x").await), Code::Invalid);
    assert_eq!(code(write(&*server, 1, u64::MAX, b"x").await), Code::Invalid);
    assert_eq!(code(read(&*server, 1, u64::MAX, 2).await), Code::Invalid);
    assert_eq!(code(read(&*server, 1, 0, u32::MAX).await), Code::TooBig);
    assert_eq!(
        code(ask(&*server, PunchChunk { chunk, container, range: backwards, cuts: cuts.clone() }).await),
        Code::Invalid
    );
    assert_eq!(code(ask(&*server, StatChunk { chunk, container, extents_in: backwards, cuts }).await), Code::Invalid);
    let with_payload = server.call(cx(), GetDataStatus {}, Bytes::from_static(b"x")).await;
    assert_eq!(code(with_payload), Code::BadMessage);
}

#[tokio::test(start_paused = true)]
async fn a_cached_read_and_a_small_write_need_no_io_thread() {
    let world = World::new(4);
    let server = world.serve(world.open(), quiet());
    write(&*server, 1, 0, &[1; 8192]).await.unwrap();
    world.io.hold();
    for n in 0..100 {
        write(&*server, 1, 100 * n, &[n as u8; 100]).await.unwrap();
    }
    assert_eq!(read(&*server, 1, 250, 100).await.unwrap(), [[2; 50], [3; 50]].concat()[..]);
    assert_eq!(server.counters().writes_inline, 100);
    world.io.release(false);
    // After a sync the store may have to prepare an overwrite durably: not on the caller's thread.
    ask(&*server, SyncChunks::of(vec![ChunkId(1)])).await.unwrap();
    write(&*server, 1, 0, &[2; 100]).await.unwrap();
    assert_eq!(server.counters().writes_inline, 100);
    write(&*server, 1, 0, &[3; 100]).await.unwrap();
    assert_eq!(server.counters().writes_inline, 101);
    // Nor is the disk waited for.
    world.disk.drop_caches();
    write(&*server, 1, 0, &[4; 100]).await.unwrap();
    assert_eq!(server.counters().writes_inline, 101);
}

fn reserve_of() -> ReserveChunk {
    let container = ContainerId(9);
    ReserveChunk { chunk: ChunkId(1), container, chunk_bytes: CHUNK, bytes: CHUNK, make: Make::Yes }
}

/// Only what a row still names is made again, and only by who looked at the row after the last deletion.
#[tokio::test(start_paused = true)]
async fn a_late_request_does_not_bring_a_deleted_chunk_back() {
    let world = World::new(12);
    let server = world.serve(world.open(), quiet());
    let state = async || ask(&*server, SyncChunks::of(vec![])).await.unwrap();
    let repeat = async |chunk, make| {
        let message = WriteChunk { make, ..write_of(chunk, 0) };
        server.call(cx(), message, Bytes::from_static(b"again")).await.map(drop)
    };
    write(&*server, 1, 0, b"first").await.unwrap();
    repeat(1, Make::No).await.unwrap();
    let SyncAnswer { incarnation, deletions, .. } = state().await;
    ask(&*server, DeleteChunks { chunks: vec![ChunkId(1)] }).await.unwrap();
    for make in [Make::No, Make::Lost { incarnation, deletions }, Make::Lost { incarnation: 1, deletions: 1 }] {
        assert_eq!(code(repeat(1, make).await), Code::ChunkUnknown, "{make:?}");
        let reserve = ReserveChunk { make, ..reserve_of() };
        assert_eq!(code(ask(&*server, reserve).await), Code::ChunkUnknown, "{make:?}");
    }
    assert_eq!(code(read(&*server, 1, 0, 5).await), Code::ChunkUnknown);
    let SyncAnswer { incarnation, deletions, .. } = state().await;
    repeat(2, Make::Lost { incarnation, deletions }).await.unwrap();
    assert_eq!(read(&*server, 2, 0, 5).await.unwrap(), "again");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_told_and_reservations_keep_their_promise() {
    let world = World::new(5);
    world.disk.set_capacity(Some(1 << 20));
    let server = world.serve(world.open(), quiet());
    let reserve = |chunk, bytes| ReserveChunk { chunk: ChunkId(chunk), bytes, ..reserve_of() };
    ask(&*server, reserve(1, 256 << 10)).await.unwrap();
    ask(&*server, reserve(1, 256 << 10)).await.unwrap();
    assert_eq!(ask(&*server, GetDataStatus {}).await.unwrap().bytes_reserved, 256 << 10);
    assert_eq!(code(ask(&*server, reserve(2, CHUNK)).await), Code::DiskFull);
    let mut failed = None;
    for n in 0..64 {
        if let Err(error) = write(&*server, 3, n << 14, &[1; 16 << 10]).await {
            failed = Some(error);
            break;
        }
    }
    let failed = failed.unwrap();
    assert_eq!(failed.code, Code::DiskFull);
    assert!(failed.to_string().contains("data server 3, chunk 3"), "{failed}");
    for n in 0..16 {
        write(&*server, 1, n << 14, &[2; 16 << 10]).await.unwrap();
    }
    assert_eq!(code(write(&*server, 1, 512 << 10, &[2; 64 << 10]).await), Code::DiskFull);
}

/// Counted, for chunks that need not exist; given back by a sync that says so, by a removal, and with the session.
#[tokio::test(start_paused = true)]
async fn room_is_kept_for_chunks_and_given_back() {
    let world = World::new(5);
    world.disk.set_capacity(Some(2 << 20));
    let server = world.serve(world.open(), quiet());
    let reserved = async || ask(&*server, GetDataStatus {}).await.unwrap().bytes_reserved;
    let room = |chunks: &[u64], bytes| {
        let chunks = chunks.iter().map(|chunk| (ChunkId(*chunk), ContainerId(1))).collect();
        ReserveRoom { chunks, bytes }
    };
    let stat =
        StatChunk { chunk: ChunkId(1), container: ContainerId(9), extents_in: ByteRange::default(), cuts: vec![] };
    let one = |chunks: &[u64], bytes| server.call(cx_of(1, 1, 0), room(chunks, bytes), Bytes::new());
    assert_eq!(one(&[1, 2], 256 << 10).await.unwrap().0, [ChunkId(1), ChunkId(2)]);
    one(&[1], 256 << 10).await.unwrap();
    assert_eq!(reserved().await, 512 << 10, "asked for again it is the same");
    assert_eq!(code(ask(&*server, stat.clone()).await), Code::ChunkUnknown, "nothing is made");
    let free = ask(&*server, GetDataStatus {}).await.unwrap().bytes_free;
    let refused = one(&[3], free + 1).await.map(drop).unwrap_err();
    assert!(refused.code == Code::DiskFull && refused.to_string().contains("data server 3, chunk 3"), "{refused}");
    let some = one(&[4, 5], free / 2 + (4 << 10)).await.unwrap().0;
    assert_eq!(some, [ChunkId(4)], "as many as fit");
    // Whoever comes next finds the disk full, and those that have room do not.
    assert_eq!(code(write(&*server, 9, 0, &vec![1; free as usize / 2]).await), Code::DiskFull);
    write(&*server, 1, 0, &vec![1; 256 << 10]).await.unwrap();
    let sync = SyncChunks { chunks: vec![ChunkId(1)], release: vec![ChunkId(1), ChunkId(2)] };
    server.call(cx_of(1, 1, 0), sync, Bytes::new()).await.unwrap();
    assert_eq!(reserved().await, free / 2 + (4 << 10), "what chunk 4 has");
    server.call(Context::default(), DeleteChunks { chunks: vec![ChunkId(4)] }, Bytes::new()).await.unwrap();
    assert_eq!(reserved().await, 0, "it was never written");
    one(&[6], 64 << 10).await.unwrap();
    server.call(cx_of(2, 1, 0), room(&[6], 32 << 10), Bytes::new()).await.unwrap();
    let fence = |session| FenceSession { session: SessionId(session), epoch: SessionEpoch(1), by: MembershipEpoch(0) };
    server.call(Context::default(), fence(1), Bytes::new()).await.unwrap();
    assert_eq!(reserved().await, 64 << 10, "session 2 counts on it as well");
    server.call(Context::default(), fence(2), Bytes::new()).await.unwrap();
    assert_eq!(reserved().await, 0);
    assert_eq!(code(one(&[6], 64 << 10).await), Code::SessionFenced);
}

#[tokio::test(start_paused = true)]
async fn reservations_return_with_the_session() {
    let world = World::new(6);
    let server = world.serve(world.open(), quiet());
    let reserve = |chunk| ReserveChunk { chunk: ChunkId(chunk), ..reserve_of() };
    let reserved = async || ask(&*server, GetDataStatus {}).await.unwrap().bytes_reserved;
    for chunk in 1..=3 {
        server.call(cx_of(chunk, 1, 0), reserve(chunk), Bytes::new()).await.unwrap();
    }
    server.call(cx_of(3, 1, 0), reserve(1), Bytes::new()).await.unwrap();
    assert_eq!(reserved().await, 3 * CHUNK);
    server.call(cx_of(2, 1, 0), UnreserveChunks { chunks: vec![ChunkId(2)] }, Bytes::new()).await.unwrap();
    assert_eq!(reserved().await, 2 * CHUNK);
    let fence = |session| FenceSession { session: SessionId(session), epoch: SessionEpoch(1), by: MembershipEpoch(0) };
    server.call(Context::default(), fence(1), Bytes::new()).await.unwrap();
    assert_eq!(reserved().await, 2 * CHUNK, "session 3 counts on it as well");
    server.call(Context::default(), fence(3), Bytes::new()).await.unwrap();
    let status = server.call(Context::default(), GetDataStatus {}, Bytes::new()).await.unwrap().0;
    assert_eq!(status.bytes_reserved, 0);
}

#[tokio::test(start_paused = true)]
async fn a_bad_block_is_named() {
    let world = World::new(7);
    let server = world.serve(world.open(), quiet());
    write(&*server, 1, 0, &[1; 3 * 4096]).await.unwrap();
    ask(&*server, SyncChunks::of(vec![ChunkId(1)])).await.unwrap();
    world.disk.corrupt(&Path::new(DIR).join("chunks/01/0000000000000001.data"), 4096 + 17, 1).unwrap();
    let error = read(&*server, 1, 0, 3 * 4096).await.unwrap_err();
    assert_eq!(error.code, Code::BadBlock);
    let text = error.to_string();
    for part in ["data server 3, chunk 1", "block 1", "0000000000000001.data"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(read(&*server, 1, 2 * 4096, 4096).await.unwrap(), [1; 4096][..], "the others are well");
    assert_eq!(ask(&*server, ScrubChunk { chunk: ChunkId(1) }).await.unwrap().bad, [4096]);
    assert_eq!(ask(&*server, GetDataStatus {}).await.unwrap().bad_blocks, 1);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_wait_and_the_work() {
    let world = World::new(8);
    let server = world.serve(world.open(), quiet());
    write(&*server, 1, 0, b"old").await.unwrap();
    world.io.hold();
    let late = Context { deadline: Duration::from_secs(3), ..cx() };
    let waiting = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        ask(&*server, GetDataStatus {}).await.unwrap().waiting
    };
    let writing = server.call(late, write_of(2, 0), Bytes::from_static(b"new"));
    let (written, waiting) = tokio::join!(writing, waiting);
    assert_eq!(code(written), Code::DeadlineExceeded);
    assert_eq!(
        (waiting[0].who.as_str(), waiting[0].for_what.as_str()),
        ("WriteChunk of session 1", "chunk 2: the disk")
    );
    world.io.release(false);
    assert_eq!(code(read(&*server, 2, 0, 3).await), Code::ChunkUnknown, "nobody wanted it any more");
}

#[tokio::test(start_paused = true)]
async fn memory_for_requests_is_bounded() {
    let world = World::new(9);
    let server = world.serve(world.open(), DataServerConfig { memory_bytes: 1 << 20, ..quiet() });
    world.io.hold();
    let writes: Vec<_> = (1..=9)
        .map(|chunk| {
            let server = server.clone();
            tokio::spawn(async move { write(&*server, chunk, 0, &vec![1; 512 << 10]).await })
        })
        .collect();
    let mut done = 0;
    while done < 9 {
        settle().await;
        assert!((1..=2).contains(&world.io.waiting()), "{} at the disk at once", world.io.waiting());
        done += world.io.waiting();
        world.io.release(true);
    }
    for write in writes {
        write.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn syncs_of_one_chunk_are_shared() {
    let world = World::new(10);
    let server = world.serve(world.open(), quiet());
    write(&*server, 1, 0, b"x").await.unwrap();
    world.io.hold();
    let syncs: Vec<_> = (0..20)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { ask(&*server, SyncChunks::of(vec![ChunkId(1)])).await })
        })
        .collect();
    settle().await;
    world.io.release(false);
    for sync in syncs {
        sync.await.unwrap().unwrap();
    }
    let counted = server.counters();
    assert!(counted.sync_requests == 20 && counted.syncs <= 2, "{counted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_fenced_session_changes_nothing_although_its_write_is_queued() {
    let world = World::new(11);
    let server = world.serve(world.open(), quiet());
    write(&*server, 1, 0, b"old").await.unwrap();
    world.io.hold();
    let large = Bytes::from(vec![1; 256 << 10]);
    let of_server = server.clone();
    let queued = tokio::spawn(async move { of_server.call(cx(), write_of(1, 0), large).await });
    settle().await;
    let fence = FenceSession { session: SessionId(1), epoch: SessionEpoch(1), by: MembershipEpoch(0) };
    server.call(Context::default(), fence, Bytes::new()).await.unwrap();
    world.io.release(false);
    assert_eq!(code(queued.await.unwrap()), Code::SessionFenced);
    assert_eq!(code(write(&*server, 1, 0, b"new").await), Code::SessionFenced);
    let other = server.call(cx_of(2, 1, 0), read_of(1, 0, 3), Bytes::new()).await.unwrap().1;
    assert_eq!(other, b"old"[..]);

    let chain = braid_api::meta::ContainerInfo { id: ContainerId(9), epoch: ChainEpoch(4), chain: vec![ServerId(3)] };
    server.call(Context::default(), SetChains { containers: vec![chain] }, Bytes::new()).await.unwrap();
    let mut stale = cx_of(2, 1, 0);
    stale.token.chain_epoch = ChainEpoch(3);
    assert_eq!(code(server.call(stale, write_of(1, 0), Bytes::from_static(b"x")).await), Code::StaleEpoch);
    stale.token.chain_epoch = ChainEpoch(4);
    let written = server.call(stale, write_of(1, 0), Bytes::from_static(b"x")).await.unwrap().0;
    assert_eq!(written.version.chain_epoch, ChainEpoch(4));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_chunk_hides_no_other_and_is_named_with_its_file() {
    let world = World::new(4);
    let server = world.serve(world.open(), quiet());
    for chunk in 1..6 {
        write(&*server, chunk, 0, b"some bytes").await.unwrap();
    }
    ask(&*server, SyncChunks::of((1..6).map(ChunkId).collect())).await.unwrap();
    drop(server);
    world.disk.kill_process();
    let file =
        |chunk: u64, suffix: &str| std::path::PathBuf::from(format!("{DIR}/chunks/0{chunk}/{chunk:016x}.{suffix}"));
    world.env.disk.remove(&file(2, "data")).unwrap();
    [20, 532, 1044].iter().for_each(|at| world.disk.corrupt(&file(4, "meta"), *at, 1).unwrap());
    let server = world.serve(world.open(), quiet());
    let mut seen = (Vec::new(), Vec::new());
    let mut after = ChunkId(0);
    // Page by page, of which some have nothing that can be read.
    loop {
        let page = ask(&*server, ListChunks { after, limit: 1 }).await.unwrap();
        seen.0.extend(page.chunks.iter().map(|c| c.chunk.0));
        seen.1.extend(page.damaged.iter().map(|d| (d.chunk.0, d.header)));
        after = page.last().unwrap();
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, (vec![1, 3, 5], vec![(2, false), (4, true)]));
    let page = ask(&*server, ListChunks { after: ChunkId(0), limit: 9 }).await.unwrap();
    assert!(page.damaged[0].cause.contains("0000000000000002.data is missing"), "{:?}", page.damaged);
    assert_eq!(code(read(&*server, 2, 0, 4).await), Code::BadBlock);
    ask(&*server, SetAside { chunks: (1..9).map(ChunkId).collect() }).await.unwrap();
    let page = ask(&*server, ListChunks { after: ChunkId(0), limit: 9 }).await.unwrap();
    assert_eq!((page.chunks.len(), page.damaged.len()), (3, 0));
    assert_eq!(code(read(&*server, 2, 0, 4).await), Code::ChunkUnknown);
}
