//! Chunks that begin as others are: with one copy, and with several.
#![allow(clippy::unwrap_used)]

use crate::support::*;
use braid_api::data::*;
use braid_api::{Code, Context, DataNode, Result};
use braid_data_server::DataServer;
use braid_data_store::MemoryStore;
use braid_env::Disk;
use braid_types::*;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;

const LARGE: u64 = 8 << 20;
const FROM: u64 = 7;

fn clone_of(from: u64, chunk: u64) -> CloneChunk {
    CloneChunk {
        chunk: ChunkId(chunk),
        from: ChunkId(from),
        container: ContainerId(9),
        chunk_bytes: LARGE,
        inode: InodeId(77),
        index: ChunkIndex(3),
        cuts: Vec::new(),
    }
}

fn of_snapshot(trunc_gen: u32) -> Context {
    let cx = cx_of(1, 1, trunc_gen);
    Context { token: Token { snapshot: 5, ..cx.token }, ..cx }
}

async fn fill(server: &DataServer, chunk: u64, from: u64, until: u64) {
    for at in (from..until).step_by(1 << 20) {
        let bytes = Bytes::from(vec![(at >> 20) as u8 + 1; 1 << 20]);
        server.call(cx(), WriteChunk { chunk_bytes: LARGE, ..write_of(chunk, at) }, bytes).await.unwrap();
    }
}

async fn whole(server: &DataServer, chunk: u64) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for at in (0..LARGE).step_by(1 << 20) {
        all.extend_from_slice(&read(server, chunk, at, 1 << 20).await?);
    }
    Ok(all)
}

async fn change(server: &DataServer, chunk: u64, offset: u64, bytes: &'static [u8]) -> WriteAnswer {
    let write = WriteChunk { chunk_bytes: LARGE, ..write_of(chunk, offset) };
    server.call(cx(), write, Bytes::from_static(bytes)).await.unwrap().0
}

async fn tour(server: &DataServer) {
    fill(server, FROM, 2 << 20, 5 << 20).await;
    let before = whole(server, FROM).await.unwrap();
    assert_eq!(code(ask(server, clone_of(99, 8)).await), Code::ChunkUnknown);
    assert_eq!(code(read(server, 8, 0, 1).await), Code::ChunkUnknown, "nothing was made");
    assert_eq!(code(ask(server, clone_of(8, 8)).await), Code::Invalid);
    let cloned = ask(server, clone_of(FROM, 8)).await.unwrap();
    assert!(cloned.stable >= cloned.sequence, "on stable storage");
    assert!(whole(server, 8).await.unwrap() == before);
    let stat = StatChunk {
        chunk: ChunkId(8),
        container: ContainerId(9),
        extents_in: ByteRange::new(0, LARGE),
        cuts: Vec::new(),
    };
    let stat = ask(server, stat).await.unwrap();
    assert_eq!((stat.len, stat.inode, stat.index), (5 << 20, InodeId(77), ChunkIndex(3)));
    assert_eq!(stat.extents, [ByteRange::new(2 << 20, 5 << 20)]);

    let written = change(server, 8, (3 << 20) + 100, b"changed").await;
    assert!(written.version > cloned.version);
    let mut after = before.clone();
    after[(3 << 20) + 100..(3 << 20) + 107].copy_from_slice(b"changed");
    assert!(whole(server, 8).await.unwrap() == after && whole(server, FROM).await.unwrap() == before);
    ask(server, clone_of(FROM, 8)).await.unwrap();
    assert!(whole(server, 8).await.unwrap() == after, "what comes again does nothing");
    ask(server, DeleteChunks { chunks: vec![ChunkId(FROM)] }).await.unwrap();
    assert_eq!(code(read(server, FROM, 0, 1).await), Code::ChunkUnknown);
    assert!(whole(server, 8).await.unwrap() == after);
    // Cut since: what it takes away is not taken over.
    let cut = CloneChunk { cuts: vec![(TruncGen(2), 3 << 20)], ..clone_of(8, 9) };
    server.call(cx_of(1, 1, 2), cut, Bytes::new()).await.unwrap();
    let read = server.call(cx_of(1, 1, 2), read_of(9, (3 << 20) - 2, 4), Bytes::new()).await.unwrap().1;
    assert_eq!(read, [3, 3, 0, 0][..]);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_is_made_from_another_in_memory_and_on_a_disk() {
    tour(&World::new(1).serve(Arc::new(MemoryStore::new(64 << 20)), quiet())).await;
    let world = World::new(2);
    tour(&world.serve(world.open(), quiet())).await;
    let world = World::new(3);
    world.disk.share_ranges(true);
    tour(&world.serve(world.open(), quiet())).await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_survives_the_power_and_writes_no_byte_of_the_other() {
    let world = World::new(4);
    let server = world.serve(world.open(), quiet());
    fill(&server, FROM, 0, LARGE).await;
    ask(&*server, SyncChunks::of(vec![ChunkId(FROM)])).await.unwrap();
    let before = whole(&server, FROM).await.unwrap();
    let written = world.disk.counters().bytes_written;
    ask(&*server, clone_of(FROM, 8)).await.unwrap();
    let written = world.disk.counters().bytes_written - written;
    assert!(written < 64 << 10, "{written} bytes");
    drop(server);
    world.disk.crash(1);
    let server = world.serve(world.open(), quiet());
    assert!(whole(&server, 8).await.unwrap() == before);
    let written = world.disk.counters().bytes_written;
    change(&server, 8, 5_000, b"x").await;
    let written = world.disk.counters().bytes_written - written;
    assert!((1 << 20..3 << 19).contains(&written), "one extent: {written} bytes");
    assert_eq!(read(&*server, 8, 4_999, 3).await.unwrap(), [1, b'x', 1][..]);
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_could_not_be_written_to_is_refused_at_once() {
    let world = World::new(5);
    let server = world.serve(world.open(), quiet());
    fill(&server, FROM, 0, 4 << 20).await;
    world.disk.set_capacity(Some(1 << 40));
    let space = world.disk.space(Path::new(DIR)).unwrap();
    // All of the disk is what is used: a 64th is kept back.
    world.disk.set_capacity(Some(space.total - space.free + (2 << 20)));
    // It looks at the disk again.
    ask(&*server, GetDataStatus {}).await.unwrap();
    assert_eq!(code(ask(&*server, clone_of(FROM, 8)).await), Code::DiskFull);
    assert_eq!(code(read(&*server, 8, 0, 1).await), Code::ChunkUnknown);
    world.disk.set_capacity(Some(space.total - space.free + (6 << 20)));
    ask(&*server, GetDataStatus {}).await.unwrap();
    ask(&*server, clone_of(FROM, 8)).await.unwrap();
    let status = ask(&*server, GetDataStatus {}).await.unwrap();
    assert_eq!(status.bytes_reserved, 4 << 20, "for what is shared");
    assert_eq!(code(ask(&*server, clone_of(FROM, 9)).await), Code::DiskFull, "it is promised already");
    for at in 0..4 {
        change(&server, 8, at << 20, b"y").await;
    }
    assert_eq!(ask(&*server, GetDataStatus {}).await.unwrap().bytes_reserved, 0);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_reads_what_was_cut_since_for_others_and_changes_nothing() {
    let world = World::new(6);
    let server = world.serve(world.open(), quiet());
    change(&server, FROM, 0, b"0123456789").await;
    // Some reader knew of a cut, as when it came before the snapshot.
    let cut = CutChunk { chunk: ChunkId(FROM), container: ContainerId(9), cuts: vec![(TruncGen(4), 8)] };
    server.call(cx_of(1, 1, 4), cut, Bytes::new()).await.unwrap();
    assert_eq!(code(read(&*server, FROM, 0, 10).await), Code::StaleTruncGen);
    for _ in 0..2 {
        let read = server.call(of_snapshot(3), read_of(FROM, 0, 10), Bytes::new()).await.unwrap().1;
        assert_eq!(read, b"01234567\0\0"[..]);
    }
    let stat =
        StatChunk { chunk: ChunkId(FROM), container: ContainerId(9), extents_in: ByteRange::default(), cuts: vec![] };
    assert_eq!(server.call(of_snapshot(3), stat, Bytes::new()).await.unwrap().0.trunc_gen, TruncGen(4));
    let newer = ReadChunk { cuts: vec![(TruncGen(5), 2)], ..read_of(FROM, 0, 4) };
    assert_eq!(server.call(of_snapshot(5), newer, Bytes::new()).await.unwrap().1, b"01\0\0"[..]);
    let refused = server.call(of_snapshot(5), write_of(FROM, 0), Bytes::from_static(b"x")).await;
    assert_eq!(code(refused), Code::ReadOnly);
    assert_eq!(code(server.call(of_snapshot(5), clone_of(FROM, 8), Bytes::new()).await), Code::ReadOnly);
    let punch =
        PunchChunk { chunk: ChunkId(FROM), container: ContainerId(9), range: ByteRange::new(0, 1), cuts: vec![] };
    assert_eq!(code(server.call(of_snapshot(5), punch, Bytes::new()).await), Code::ReadOnly);
}
