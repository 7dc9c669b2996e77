//! Faults of chunk rows, containers and data servers.

use super::world::{ROOT, World};
use crate::admin::fsck::report::Verdict;
use braid_api::admin::{AdminAnswer, AdminQuery, ChunkRow as Shown};
use braid_api::data::DamagedChunk;
use braid_api::meta::{DropChunks, TakeSpares};
use braid_meta_namespace::rows::{ChunkRow, ContainerRow, ReclaimRow, SpareRow, flags, keys};
use braid_types::*;

const NOBODY: InodeId = InodeId(99 << 12);

async fn rows(w: &World) -> Vec<Shown> {
    match w.call(AdminQuery::ChunkRows { after: None, limit: 100 }).await.unwrap() {
        AdminAnswer::ChunkRows(rows) => rows,
        other => panic!("{other:?}"),
    }
}

async fn owner(w: &World, container: ContainerId) -> ServerId {
    w.get::<ContainerRow>(&keys::container(container)).await.unwrap().chain[0]
}

/// A spare chunk, written at its server.
async fn written_spare(w: &World) -> (ChunkId, ContainerId) {
    let spares = w.call(TakeSpares { policy: Policy::PLAIN, count: 1, beside: None, for_moves: false }).await.unwrap();
    let (chunk, container) = spares.spares[0];
    w.peers.get(owner(w, container).await).write(chunk, 50, TruncGen(0));
    (chunk, container)
}

#[tokio::test]
async fn a_written_spare_and_a_hole_are_legal() {
    let w = World::new().await;
    written_spare(&w).await;
    let row = rows(&w).await.remove(1);
    let until = ChunkIndex(row.index.0 + 1);
    w.call(DropChunks { inode: row.inode.into(), from: row.index, until }).await.unwrap();
    let data = w.create(ROOT, "sparse").await;
    w.commit(&data, 1 << 40, braid_api::meta::CommitContent::Unchanged).await.unwrap();
    w.finds(&[]).await;
}

#[tokio::test]
async fn a_chunk_row_without_a_file() {
    let w = World::new().await;
    let (chunk, container) = written_spare(&w).await;
    w.delete(keys::spare(w.session.session, chunk)).await;
    w.put(keys::chunk(NOBODY, ChunkIndex(4)), &ChunkRow { chunk, container, stable: false, born: None }).await;
    w.mends(&["F301"]).await;
    assert_eq!(rows(&w).await.len(), 3);
}

#[tokio::test]
async fn chunk_rows_of_a_file_that_is_being_freed_are_legal() {
    let w = World::new().await;
    let (chunk, container) = written_spare(&w).await;
    w.delete(keys::spare(w.session.session, chunk)).await;
    w.put(keys::chunk(NOBODY, ChunkIndex(4)), &ChunkRow { chunk, container, stable: false, born: None }).await;
    w.put(keys::reclaim_inode(NOBODY), &ReclaimRow { container: ContainerId(0) }).await;
    w.finds(&[]).await;
}

#[tokio::test]
async fn two_rows_of_one_chunk() {
    let w = World::new().await;
    let row = rows(&w).await.remove(0);
    let other = w.create(ROOT, "other").await.id;
    w.put(
        keys::chunk(other, ChunkIndex(0)),
        &ChunkRow { chunk: row.chunk, container: row.container, stable: false, born: None },
    )
    .await;
    w.damage(other, |inode| {
        inode.flags |= flags::CHUNKED;
        inode.size = 100;
    })
    .await;
    w.finds(&["F302"]).await;
    // Nothing is dropped: both are files.
    assert_eq!(w.check(true).await.verdict(), Verdict::FaultsLeft);
    assert_eq!(rows(&w).await.len(), 4);
}

#[tokio::test]
async fn the_row_without_a_file_gives_way_and_the_chunk_stays() {
    let w = World::new().await;
    let row = rows(&w).await.remove(0);
    w.put(
        keys::chunk(NOBODY, ChunkIndex(0)),
        &ChunkRow { chunk: row.chunk, container: row.container, stable: false, born: None },
    )
    .await;
    w.mends(&["F302"]).await;
    let node = w.peers.get(owner(&w, row.container).await);
    assert!(node.chunks.lock().contains_key(&row.chunk));
    assert!(w.get::<ReclaimRow>(&keys::reclaim_chunk(row.chunk)).await.is_none());
}

#[tokio::test]
async fn chunks_of_files_that_would_be_freed() {
    let w = World::new().await;
    let all = rows(&w).await;
    let session = w.session.session;
    w.put(keys::reclaim_chunk(all[0].chunk), &ReclaimRow { container: all[0].container }).await;
    w.put(keys::spare(session, all[1].chunk), &SpareRow { container: all[1].container, for_moves: false }).await;
    w.mends(&["F303", "F303"]).await;
    assert!(w.get::<SpareRow>(&keys::spare(session, all[1].chunk)).await.is_none());
}

#[tokio::test]
async fn a_container_without_a_row() {
    let w = World::new().await;
    let row = rows(&w).await.remove(0);
    w.delete(keys::container(row.container)).await;
    let report = w.finds(&["F304"]).await;
    assert!(report.text().contains("/a/b/data chunk"), "{}", report.text());
    assert_eq!(w.check(true).await.verdict(), Verdict::FaultsLeft);
}

#[tokio::test]
async fn a_chain_with_an_unknown_server() {
    let w = World::new().await;
    let row = rows(&w).await.remove(0);
    let key = keys::container(row.container);
    let mut container: ContainerRow = w.get(&key).await.unwrap();
    container.chain.push(ServerId(77));
    w.put(key, &container).await;
    w.finds(&["F305"]).await;
}

#[tokio::test]
async fn a_lost_chunk_is_told_and_never_dropped() {
    let w = World::new().await;
    let row = rows(&w).await.remove(2);
    w.peers.get(owner(&w, row.container).await).chunks.lock().remove(&row.chunk);
    let report = w.finds(&["F401"]).await;
    assert!(report.text().contains("/a/b/data chunk 2"), "{}", report.text());
    assert_eq!(w.check(true).await.verdict(), Verdict::FaultsLeft);
    assert_eq!(rows(&w).await.len(), 3);
}

#[tokio::test]
async fn garbage_is_deleted() {
    let w = World::new().await;
    let node = w.peers.get(ServerId(1));
    node.write(ChunkId(9_000), 10, TruncGen(0));
    w.mends(&["F402"]).await;
    assert!(!node.chunks.lock().contains_key(&ChunkId(9_000)));
}

#[tokio::test]
async fn bytes_beyond_the_size_come_back() {
    let w = World::new().await;
    let row = rows(&w).await.remove(2);
    w.peers.get(owner(&w, row.container).await).write(row.chunk, 500, TruncGen(0));
    w.mends(&["F403"]).await;
    assert_eq!(w.attr(row.inode).await.unwrap().size, 2 * CHUNK_BYTES_DEFAULT + 500);
}

#[tokio::test]
async fn bytes_that_a_truncation_will_take_are_legal() {
    let w = World::new().await;
    let row = rows(&w).await.remove(0);
    w.call(super::workload::truncate(row.inode, 10)).await.unwrap();
    w.finds(&[]).await;
}

#[tokio::test]
async fn space_reserved_beyond_the_size_is_legal() {
    let w = World::new().await;
    let row = rows(&w).await.remove(0);
    let (chunk, container) = written_spare(&w).await;
    w.peers.get(owner(&w, container).await).chunks.lock().get_mut(&chunk).unwrap().len = 0;
    let chunks =
        vec![braid_api::meta::ChunkRef { index: ChunkIndex(9), chunk, container, stable: false, frozen: false }];
    let attr = w.attr(row.inode).await.unwrap();
    w.commit(&attr, attr.size, braid_api::meta::CommitContent::Chunks(chunks)).await.unwrap();
    w.finds(&[]).await;
}

#[tokio::test]
async fn a_copy_on_the_wrong_server() {
    let w = World::new().await;
    let row = rows(&w).await.remove(0);
    let right = owner(&w, row.container).await;
    let wrong = w.peers.get(ServerId(3 - right.0));
    wrong.write(row.chunk, 100, TruncGen(0));
    w.mends(&["F404"]).await;
    assert!(!wrong.chunks.lock().contains_key(&row.chunk));
    assert!(w.peers.get(right).chunks.lock().contains_key(&row.chunk));
}

#[tokio::test]
async fn the_only_copy_stays_wherever_it_is() {
    let w = World::new().await;
    let row = rows(&w).await.remove(0);
    let right = owner(&w, row.container).await;
    let wrong = w.peers.get(ServerId(3 - right.0));
    w.peers.get(right).chunks.lock().remove(&row.chunk);
    wrong.write(row.chunk, 100, TruncGen(0));
    w.finds(&["F401", "F404"]).await;
    assert_eq!(w.check(true).await.verdict(), Verdict::FaultsLeft);
    assert!(wrong.chunks.lock().contains_key(&row.chunk));
}

#[tokio::test]
async fn what_cannot_be_asked_is_said() {
    let w = World::new().await;
    let row = rows(&w).await.remove(0);
    let owner = owner(&w, row.container).await;
    *w.peers.get(owner).broken.lock() = true;
    let report = w.finds(&[]).await;
    assert_eq!((report.verdict(), report.verdict().exit_code()), (Verdict::NotAllChecked, 2));
    assert!(report.text().contains("unplugged"), "{}", report.text());
    w.put(keys::orphan(NOBODY), &braid_meta_namespace::rows::OrphanRow { session: SessionId(1), since: Timestamp(0) })
        .await;
    assert_eq!(w.check(false).await.verdict().exit_code(), 1, "a fault weighs more");
}

fn damaged(chunk: ChunkId, header: bool) -> DamagedChunk {
    DamagedChunk {
        chunk,
        header,
        cause: format!("/dir/{:016x}.{}: broken", chunk.0, if header { "meta" } else { "data" }),
    }
}

#[tokio::test]
async fn damaged_chunks_are_told_with_their_file_and_hide_no_others() {
    let w = World::new().await;
    let all = rows(&w).await;
    let node = w.peers.get(owner(&w, all[0].container).await);
    node.damaged.lock().insert(all[0].chunk, damaged(all[0].chunk, false));
    // More than a page, all of it unreadable.
    let strays: Vec<ChunkId> = (9_000..9_020).map(ChunkId).collect();
    for chunk in &strays {
        node.write(*chunk, 10, TruncGen(0));
        node.damaged.lock().insert(*chunk, damaged(*chunk, true));
    }
    node.write(ChunkId(9_100), 10, TruncGen(0));
    let report = w.check(false).await;
    let codes: Vec<&str> = report.findings.iter().map(|f| f.fault.code()).collect();
    let expected: Vec<&str> = ["F402", "F405"].into_iter().chain(strays.iter().map(|_| "F406")).collect();
    assert_eq!(codes, expected, "{}", report.text());
    let text = report.text();
    assert!(text.contains("F405 /a/b/data chunk 0") && text.contains(".data: broken"), "{text}");
    // What belongs to nobody goes; a file that lacks bytes is for a person to judge, and keeps its row.
    let repaired = w.check(true).await;
    assert_eq!(repaired.verdict(), Verdict::FaultsLeft, "{}", repaired.text());
    let left = w.finds(&["F405"]).await;
    assert!(left.text().contains("restore the file, or remove it"), "{}", left.text());
    assert_eq!((rows(&w).await.len(), node.chunks.lock().contains_key(&all[0].chunk)), (3, true));
}

#[tokio::test]
async fn a_chunk_that_cannot_be_read_at_all_is_damaged_and_not_lost() {
    let w = World::new().await;
    let row = rows(&w).await.remove(1);
    let node = w.peers.get(owner(&w, row.container).await);
    node.damaged.lock().insert(row.chunk, damaged(row.chunk, true));
    w.finds(&["F406"]).await;
    assert_eq!(w.check(true).await.verdict(), Verdict::FaultsLeft);
}

#[tokio::test]
async fn without_the_data_servers_nothing_is_called_clean() {
    let w = World::new().await;
    let row = rows(&w).await.remove(0);
    w.peers.get(owner(&w, row.container).await).chunks.lock().clear();
    let report = w.check_rows().await;
    assert_eq!((report.verdict(), report.verdict().exit_code()), (Verdict::RowsSound, 0));
    assert!(!report.text().contains("clean"), "{}", report.text());
    assert_eq!(serde_json::to_value(report.json()).unwrap()["clean"], false);
}
