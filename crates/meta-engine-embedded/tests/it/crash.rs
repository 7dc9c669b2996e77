//! A power cut: of what was written since the last sync of a file any part may be on the disk, page by page. What was answered is there all
//! the same.

use braid_meta_engine::conformance::{Script, Step};
use braid_meta_engine::{Engine, Key, Row, Table};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const PAGE: usize = 4096;
const ROWS: u64 = 400;

/// Checkpoints are made by closing and opening alone.
fn open(dir: &Path) -> Result<EmbeddedEngine, braid_meta_engine::EngineError> {
    let never = Duration::from_secs(24 * 3600);
    let options = EmbeddedOptions {
        checkpoint_every: never,
        checkpoint_growth_bytes: u64::MAX,
        checkpoint_log_bytes: u64::MAX,
        ..EmbeddedOptions::default()
    };
    EmbeddedEngine::open(dir, options)
}

/// Enough of a generator to draw pages and rows (Steele and Vigna's SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

type Model = BTreeMap<Key, Row>;

/// Writes, overwrites and removes rows of all sizes, so that pages become free and are used again.
async fn work(engine: &EmbeddedEngine, model: &mut Model, draw: &mut Draw, transactions: u64) {
    for _ in 0..transactions {
        let mut steps = Vec::new();
        for _ in 0..1 + draw.below(6) {
            let key = Key::new(Table::Inodes, draw.below(7), &draw.below(ROWS).to_be_bytes());
            if draw.below(3) == 0 {
                model.remove(&key);
                steps.push(Step::Delete(key));
            } else {
                let row = vec![draw.next() as u8; draw.below(3000) as usize];
                model.insert(key.clone(), row.clone());
                steps.push(Step::Put(key, row));
            }
        }
        engine.transact(0, Script(steps)).await.expect("it commits");
    }
}

async fn rows(engine: &EmbeddedEngine) -> Model {
    let all = Step::ScanTable { table: Table::Inodes, after: None, limit: 100_000 };
    let page = engine.read(0, Script(vec![all])).await.expect("it reads").remove(0).page();
    page.rows.into_iter().collect()
}

fn read(dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(dir.join(name)).expect("it is there")
}

/// The store's file when it was last synced, with some of the pages that were written since.
fn mixed(synced: &[u8], written: &[u8], draw: &mut Draw) -> Vec<u8> {
    let mut file = written.to_vec();
    for (n, page) in file.chunks_mut(PAGE).enumerate() {
        if draw.below(2) == 0 {
            match synced.get(n * PAGE..n * PAGE + page.len()) {
                Some(old) => page.copy_from_slice(old),
                None => page.fill(0),
            }
        }
    }
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_pages_a_power_cut_leaves_all_that_was_answered_is_there() {
    let mut broken_without = 0;
    for seed in 0..12 {
        let mut draw = Draw(seed);
        let (dir, mut model) = (TempDir::new().expect("a directory"), Model::new());
        {
            let engine = open(dir.path()).expect("it opens");
            work(&engine, &mut model, &mut draw, 150).await;
        }
        let engine = open(dir.path()).expect("it opens");
        let synced = read(dir.path(), "data.mdb");
        work(&engine, &mut model, &mut draw, 150).await;
        assert_eq!(rows(&engine).await, model);
        let written = read(dir.path(), "data.mdb");
        let kept = ["data.checkpoint", "data.log.0", "data.log.1"].map(|name| (name, read(dir.path(), name)));
        drop(engine);

        // Several cuts one after the other, each while the last is being mended.
        let cut = TempDir::new().expect("a directory");
        for round in 0..3 {
            std::fs::write(cut.path().join("data.mdb"), mixed(&synced, &written, &mut draw)).expect("it is written");
            kept.iter().for_each(|(name, bytes)| std::fs::write(cut.path().join(name), bytes).expect("it is written"));
            if round == 0 {
                // The checkpoint and the pages that are held for it are what makes the difference.
                std::fs::remove_file(cut.path().join("data.checkpoint")).expect("it was there");
                broken_without += u64::from(!opens_as(cut.path(), &model));
                continue;
            }
            let mut engine = open(cut.path()).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            assert_eq!(rows(&engine).await, model, "seed {seed}, round {round}");
            // And it goes on, and is closed and opened.
            let mut later = model.clone();
            work(&engine, &mut later, &mut draw, 30).await;
            drop(engine);
            engine = open(cut.path()).expect("it opens again");
            assert_eq!(rows(&engine).await, later, "seed {seed}, round {round}");
            drop(engine);
        }
    }
    assert!(
        broken_without >= 8,
        "only {broken_without} of 12 were broken without the checkpoint: the cuts cut nothing"
    );
}

/// In a process of its own, because LMDB may well die of such a file.
fn opens_as(dir: &Path, model: &Model) -> bool {
    let expected = dir.join("expected");
    let mut text = String::new();
    model.iter().for_each(|(key, row)| text.push_str(&format!("{key:?} {} {:?}\n", row.len(), row.first())));
    std::fs::write(&expected, text).expect("it is written");
    let status = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "crash::opener", "--ignored"])
        .env(DIR, dir)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    status.expect("it starts").success()
}

const DIR: &str = "BRAID_TEST_CRASH_DIR";

#[tokio::test]
#[ignore = "is run by the test above"]
async fn opener() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let engine = open(Path::new(&dir)).expect("it opens");
    let mut text = String::new();
    rows(&engine)
        .await
        .iter()
        .for_each(|(key, row)| text.push_str(&format!("{key:?} {} {:?}\n", row.len(), row.first())));
    assert_eq!(text, std::fs::read_to_string(Path::new(&dir).join("expected")).expect("it reads"));
}

/// As a kill leaves it: the files at a moment at which nobody writes.
fn killed(dir: &Path) -> TempDir {
    let left = TempDir::new().expect("a directory");
    for name in ["data.mdb", "data.checkpoint", "data.log.0", "data.log.1"] {
        std::fs::copy(dir.join(name), left.path().join(name)).expect("it is copied");
    }
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_also_before_anything_was_changed_it_has_all() {
    for seed in 0..6 {
        let mut draw = Draw(1000 + seed);
        let (mut dir, mut model) = (TempDir::new().expect("a directory"), Model::new());
        for life in 0..12 {
            let engine = open(dir.path()).unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
            assert_eq!(rows(&engine).await, model, "seed {seed}, life {life}");
            let transactions = [0, 1, 2, 20][draw.below(4) as usize];
            work(&engine, &mut model, &mut draw, transactions).await;
            if draw.below(4) == 0 {
                // Closed in order now and then.
                drop(engine);
            } else {
                let left = killed(dir.path());
                drop(engine);
                dir = left;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_shuts_it_leaves_one_file_also_where_others_still_have_it() {
    let (dir, mut model, mut draw) = (TempDir::new().expect("a directory"), Model::new(), Draw(1));
    let engine = Arc::new(open(dir.path()).expect("it opens"));
    work(&engine, &mut model, &mut draw, 150).await;
    let other = engine.clone();
    tokio::task::spawn_blocking(move || engine.shut()).await.expect("it ends");
    for name in ["data.checkpoint", "data.log.0", "data.log.1"] {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
    assert_eq!(rows(&other).await, model, "what is there is read");
    let key = model.keys().next().expect("there are rows").clone();
    let refused = other.transact(0, Script(vec![Step::Put(key, vec![1])])).await;
    assert!(refused.is_err(), "nothing is written any more");
    // Only the file is taken along.
    let moved = TempDir::new().expect("a directory");
    std::fs::copy(dir.path().join("data.mdb"), moved.path().join("data.mdb")).expect("it is copied");
    let engine = open(moved.path()).expect("it opens");
    assert_eq!(rows(&engine).await, model);
    other.shut();
}
