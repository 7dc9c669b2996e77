//! Snapshots that are kept for long: they move to a copy, which leaves nothing behind, and hold up nobody.
#![allow(clippy::unwrap_used)]

use braid_meta_engine::conformance::{Script, Step};
use braid_meta_engine::{Engine, EngineError, Key, Row, Snapshot, Table};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

fn open(dir: &Path, read_age_max: Duration) -> EmbeddedEngine {
    let options = EmbeddedOptions { read_age_max, checkpoint_growth_bytes: 1 << 20, ..EmbeddedOptions::default() };
    EmbeddedEngine::open(dir, options).unwrap()
}

async fn fill(engine: &EmbeddedEngine, text: &str, rows: u64) {
    let put = |n: u64| Step::Put(Key::new(Table::Inodes, n % 7, &n.to_be_bytes()), text.repeat(50).into_bytes());
    engine.transact(0, Script((0..rows).map(put).collect())).await.unwrap();
}

fn whole(snapshot: &mut dyn Snapshot) -> Vec<(Key, Row)> {
    let mut all: Vec<(Key, Row)> = Vec::new();
    loop {
        let after = all.last().map(|(key, _)| key.clone());
        let page = snapshot.scan_table(Table::Inodes, after.as_ref(), 100).unwrap();
        all.extend(page.rows);
        if !page.more {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_grows_old_goes_on_with_a_copy_of_the_same_moment() {
    let dir = TempDir::new().unwrap();
    let engine = open(dir.path(), Duration::ZERO);
    fill(&engine, "then", 5000).await;
    let mut snapshot = engine.snapshot(&[Table::Inodes]).await.unwrap();
    fill(&engine, "later", 6000).await;
    let rows = whole(&mut *snapshot);
    assert_eq!(rows.len(), 5000);
    assert!(rows.iter().all(|(_, row)| row.starts_with(b"thenthen")));
    let others = std::fs::read_dir(dir.path().join("frozen")).unwrap().count();
    assert_eq!(others, 0, "its files have no names, so nothing of them can stay");
    drop(engine);
    assert_eq!(whole(&mut *snapshot), rows);
}

/// Pages that are freed while a snapshot is young cannot be used again; when it has a copy they can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_has_its_copy_holds_no_pages() {
    let mut grown = [0; 2];
    for (grown, age) in grown.iter_mut().zip([Duration::from_secs(3600), Duration::ZERO]) {
        let dir = TempDir::new().unwrap();
        let engine = open(dir.path(), age);
        fill(&engine, "x", 100).await;
        let mut snapshot = engine.snapshot(&[Table::Inodes]).await.unwrap();
        snapshot.tick().unwrap();
        let bytes = || std::fs::metadata(dir.path().join("data.mdb")).unwrap().len();
        let before = bytes();
        for n in 0..250_u8 {
            let put = Step::Put(Key::new(Table::Requests, 1, b"same"), vec![n; 200_000]);
            engine.transact(0, Script(vec![put])).await.unwrap();
        }
        *grown = bytes() - before;
        assert_eq!(whole(&mut *snapshot).len(), 100);
    }
    // The next checkpoint frees what the last one held.
    assert!(grown[0] > 50_000_000 && grown[1] < 15_000_000, "{grown:?}");
}

#[tokio::test]
async fn a_copy_that_has_no_room_is_refused_and_what_a_killed_process_left_goes() {
    let dir = TempDir::new().unwrap();
    let left = dir.path().join("frozen/7/data.mdb");
    std::fs::create_dir_all(left.parent().unwrap()).unwrap();
    std::fs::write(&left, "half a copy").unwrap();
    let engine = open(dir.path(), Duration::ZERO);
    assert!(!left.exists());
    fill(&engine, "x", 10).await;
    drop(engine);
    let options =
        EmbeddedOptions { reserve_bytes: 1 << 60, read_age_max: Duration::ZERO, ..EmbeddedOptions::default() };
    let engine = EmbeddedEngine::open(dir.path(), options).unwrap();
    let mut snapshot = engine.snapshot(&[Table::Inodes]).await.unwrap();
    let refused = snapshot.scan_table(Table::Inodes, None, 10);
    assert!(matches!(refused, Err(EngineError::Full(_))), "{refused:?}");
}
