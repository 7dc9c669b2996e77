//! What nobody has any more is freed, however much it is and whoever is away.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::Code;
use braid_api::admin::Pending;
use braid_api::meta::*;
use braid_meta_engine::Engine;
use braid_types::*;

const ROOT: InodeId = InodeId::ROOT;

#[tokio::test]
async fn freeing_a_large_file_frees_every_chunk() {
    let w = World::new().await;
    w.add_data_server().await;
    let file = w.create(ROOT, "f").await.attr;
    let mut all = Vec::new();
    for round in 0..5u64 {
        let spares = w.spares(64).await.spares;
        let chunks: Vec<ChunkRef> = (0..)
            .zip(&spares)
            .map(|(i, s)| ChunkRef {
                index: ChunkIndex(round * 64 + i),
                chunk: s.0,
                container: s.1,
                stable: false,
                frozen: false,
            })
            .collect();
        all.extend(spares.iter().map(|s| s.0));
        let size = (round + 1) * 64 * CHUNK_BYTES_DEFAULT;
        w.commit(&file, size, CommitContent::Chunks(chunks)).await.unwrap();
    }
    let first = w.call(GetMap { inode: file.id.into(), first: ChunkIndex(0) }).await.unwrap().map;
    let Content::Chunked(page) = first.content else { panic!("inline") };
    assert_eq!((page.chunks.len(), page.more), (256, true));
    let rest = w.call(GetMap { inode: file.id.into(), first: ChunkIndex(256) }).await.unwrap().map;
    let Content::Chunked(page) = rest.content else { panic!("inline") };
    assert_eq!((page.chunks.len(), page.more), (64, false));
    w.unlink(ROOT, "f", false).await.unwrap();
    eventually("freeing", async || all.iter().all(|c| w.peers.0.deleted.lock().contains(c))).await;
    assert_eq!(w.pending(100).await, [], "nothing is left to be freed");
}

/// Makes a file of `count` chunks, all at one server.
async fn file_at(w: &World, server: ServerId, name: &str, count: usize) -> Vec<ChunkId> {
    let file = w.create(ROOT, name).await.attr;
    let mut all = Vec::new();
    while all.len() < count {
        let taken = w.spares(64).await;
        let is_here = |id: ContainerId| taken.containers.iter().any(|c| c.id == id && c.chain == [server]);
        let here = taken.spares.iter().filter(|(_, container)| is_here(*container)).take(count - all.len());
        let chunks: Vec<ChunkRef> = (all.len() as u64..)
            .zip(here)
            .map(|(i, s)| ChunkRef { index: ChunkIndex(i), chunk: s.0, container: s.1, stable: false, frozen: false })
            .collect();
        all.extend(chunks.iter().map(|c| c.chunk));
        let size = all.len() as u64 * CHUNK_BYTES_DEFAULT;
        w.commit(&file, size, CommitContent::Chunks(chunks)).await.unwrap();
    }
    all
}

#[tokio::test]
async fn chunks_of_a_server_that_is_away_do_not_keep_others_from_being_freed() {
    let w = World::new().await;
    let (away, here) = (w.add_data_server().await, w.add_data_server().await);
    // More than are looked at together, and before the others in the table.
    let stuck = file_at(&w, away, "stuck", 1100).await;
    let others = file_at(&w, here, "others", 3).await;
    assert!(stuck.iter().max() < others.iter().min());
    w.peers.0.keeps.lock().extend(&stuck);
    w.unlink(ROOT, "stuck", false).await.unwrap();
    w.unlink(ROOT, "others", false).await.unwrap();
    eventually("freeing", async || others.iter().all(|c| w.peers.0.deleted.lock().contains(c))).await;
    assert!(w.peers.0.deleted.lock().is_disjoint(&stuck.iter().copied().collect()));
    w.peers.0.keeps.lock().clear();
    let is_left = |p: &Pending| !matches!(p, Pending::Spare(..));
    eventually("the rest", async || !w.pending(1000).await.iter().any(is_left)).await;
    assert!(stuck.iter().all(|c| w.peers.0.deleted.lock().contains(c)));
}

#[tokio::test]
async fn many_unlinked_files_are_freed_together_and_listed_in_pages() {
    let w = World::new().await;
    let mut files = Vec::new();
    for i in 0..600 {
        let name = format!("f{i}");
        files.push(w.create(ROOT, &name).await.attr.id);
        w.unlink(ROOT, &name, true).await.unwrap();
    }
    files.sort();
    let listed: Vec<Pending> = files.iter().map(|id| Pending::Orphan(*id)).collect();
    for page in [7, 200, 600, 5000] {
        assert_eq!(w.pending(page).await, listed, "in pages of {page}");
    }
    let renew = |seen| RenewSession { low_water: RequestId(0), orphans_seen: seen, orphans_held: vec![] };
    let told = w.call(renew(0)).await.unwrap();
    let before = w.engine.stats().snapshot().transactions;
    w.call(renew(told.orphans_seen)).await.unwrap();
    eventually("freeing", async || w.pending(1000).await.is_empty()).await;
    let transactions = w.engine.stats().snapshot().transactions - before;
    assert!(transactions <= 6, "600 files in {transactions} transactions, of which the renewal may have some");
    for id in files {
        assert_eq!(code(w.attr(id).await), Code::Stale);
    }
}

#[tokio::test]
async fn what_waits_is_listed_across_tables() {
    let w = World::new().await;
    w.add_data_server().await;
    let file = w.create(ROOT, "f").await.attr;
    let spares = w.spares(8).await.spares;
    let chunk =
        ChunkRef { index: ChunkIndex(0), chunk: spares[3].0, container: spares[3].1, stable: false, frozen: false };
    w.commit(&file, 10, CommitContent::Chunks(vec![chunk])).await.unwrap();
    let open = w.create(ROOT, "open").await.attr.id;
    w.peers.0.keeps.lock().insert(chunk.chunk);
    w.unlink(ROOT, "open", true).await.unwrap();
    w.unlink(ROOT, "f", false).await.unwrap();
    let mut expected = vec![Pending::Orphan(open)];
    let left = spares.iter().filter(|s| s.0 != chunk.chunk);
    expected.extend(left.map(|s| Pending::Spare(w.session.session, s.0, s.1)));
    expected.push(Pending::Chunk(chunk.chunk, chunk.container));
    eventually("the file's row", async || w.pending(1000).await == expected).await;
    for page in 1..10 {
        assert_eq!(w.pending(page).await, expected, "in pages of {page}");
    }
}
