//! Answers before the commit: what holds a group open, what ends it, and what a crash leaves.
#![allow(clippy::unwrap_used)]

use braid_meta_engine::conformance::{self, Ledger, Script, ScriptError, Step};
use braid_meta_engine::{Early, Engine, EngineError, Key, Lock, Order, Table};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Nobody in these tests waits so long: what waits for the hold never ends.
const FOR_EVER: Duration = Duration::from_secs(600);

fn open(dir: &Path, group_hold: Duration) -> EmbeddedEngine {
    EmbeddedEngine::open(dir, EmbeddedOptions { group_hold, ..EmbeddedOptions::default() }).unwrap()
}

fn key(partition: u64, rest: &str) -> Key {
    Key::new(Table::Inodes, partition, rest.as_bytes())
}

fn put(partition: u64, rest: &str) -> Script {
    Script(vec![Step::Put(key(partition, rest), b"x".to_vec())])
}

fn look(partition: u64, rest: &str) -> Script {
    Script(vec![Step::Get(vec![key(partition, rest)], Lock::None)])
}

const MINE: Early = Early { owner: 1, admitted: false };
const OTHER: Early = Early { owner: 2, admitted: false };

async fn early(engine: &EmbeddedEngine, rest: &str) -> u64 {
    match engine.transact_early(1, MINE, put(1, rest)).await.unwrap().1 {
        Order::Early(number) => number,
        Order::Durable => panic!("{rest} was answered when it was durable"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms_whatever_the_hold() {
    for hold in [Duration::ZERO, FOR_EVER] {
        let root = TempDir::new().unwrap();
        let number = std::sync::atomic::AtomicU32::new(0);
        conformance::test_all(|| {
            let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::future::ready(open(&root.path().join(number.to_string()), hold))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_changes_of_one_owner_share_a_commit() {
    let dir = TempDir::new().unwrap();
    let engine = open(dir.path(), FOR_EVER);
    let before = engine.stats().snapshot().syncs;
    let mut last = 0;
    for n in 0..100 {
        last = early(&engine, &n.to_string()).await;
        let (seen, order) = engine.read_early(1, MINE, look(1, &n.to_string())).await.unwrap();
        assert_eq!((seen.len(), order), (1, Order::Early(last)));
    }
    assert_eq!((engine.stats().snapshot().syncs, engine.durable()), (before, 0), "the group is open");
    engine.settle().await.unwrap();
    assert_eq!(engine.stats().snapshot().syncs, before + 1);
    assert!(engine.durable() >= last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_group_ends_by_itself() {
    let dir = TempDir::new().unwrap();
    let engine = open(dir.path(), Duration::from_millis(20));
    let number = early(&engine, "a").await;
    let begun = Instant::now();
    while engine.durable() < number {
        assert!(begun.elapsed() < Duration::from_secs(5), "it is still open");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Each of these would wait for ten minutes if it waited for the hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_delays_nobody_who_waits() {
    let dir = TempDir::new().unwrap();
    let engine = open(dir.path(), FOR_EVER);
    let begun = Instant::now();
    let number = early(&engine, "a").await;
    engine.settle().await.unwrap();
    assert!(engine.durable() >= number);
    let number = early(&engine, "b").await;
    engine.transact(9, put(9, "durable")).await.unwrap();
    assert!(engine.durable() >= number, "one commit for both");
    let number = early(&engine, "c").await;
    engine.read(1, look(1, "c")).await.unwrap();
    assert!(engine.durable() >= number);
    let number = early(&engine, "d").await;
    let (_, order) = engine.transact_early(1, OTHER, look(1, "d")).await.unwrap();
    assert_eq!((order, engine.durable() >= number), (Order::Durable, true));
    let number = early(&engine, "e").await;
    let (_, order) = engine.read_early(2, OTHER, look(2, "e")).await.unwrap();
    assert_eq!((order, engine.durable() >= number), (Order::Durable, false), "what is apart does not end it");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_keeps_what_was_answered() {
    let dir = TempDir::new().unwrap();
    let engine = open(dir.path(), FOR_EVER);
    early(&engine, "a").await;
    drop(engine);
    let engine = open(dir.path(), FOR_EVER);
    let seen = engine.read(1, look(1, "a")).await.unwrap().remove(0).rows();
    assert_eq!(seen, [Some(b"x".to_vec())]);
}

/// So that the server's process can end and be started again, instead of refusing everything for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_writes_no_more_says_so() {
    let dir = TempDir::new().unwrap();
    let engine = Arc::new(open(dir.path(), FOR_EVER));
    let waits = tokio::spawn({
        let engine = engine.clone();
        async move { engine.ended().await }
    });
    early(&engine, "a").await;
    assert!(!waits.is_finished());
    // As the write thread does when it cannot go on.
    engine.close();
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, waits).await.expect("it says so to who waited").unwrap();
    tokio::time::timeout(limit, engine.ended()).await.expect("and to who asks later");
    let refused = engine.transact(1, put(1, "b")).await;
    assert!(matches!(refused, Err(ScriptError::Engine(EngineError::Closed))), "{refused:?}");
}

/// A group whose commit fails for one that is too large: what was answered before is repeated and kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_outlives_the_failure_of_its_group() {
    let dir = TempDir::new().unwrap();
    let options = EmbeddedOptions {
        map_bytes: 40 << 20,
        reserve_bytes: 1 << 20,
        group_hold: FOR_EVER,
        group_bytes_max: 1 << 20,
        ..EmbeddedOptions::default()
    };
    let engine = EmbeddedEngine::open(dir.path(), options).unwrap();
    let mut last = 0;
    for n in 0..10 {
        last = early(&engine, &n.to_string()).await;
    }
    let large = (0..750).map(|n| Step::Put(key(2, &n.to_string()), vec![0; 60_000])).collect();
    let refused = engine.transact_early(2, OTHER, Script(large)).await;
    assert!(refused.is_err(), "45 MB do not fit a map of 40 MiB");
    assert!(engine.stats().snapshot().retries > 0, "the group failed as a whole: {:?}", engine.stats().snapshot());
    assert!(engine.durable() >= last);
    let all = Script(vec![Step::ScanTable { table: Table::Inodes, after: None, limit: 100 }]);
    assert_eq!(engine.read(0, all).await.unwrap().remove(0).page().rows.len(), 10);
    early(&engine, "goes on").await;
}

const DIR: &str = "BRAID_TEST_EARLY_DIR";

/// The process to be killed: changes that are answered early, and after each the number of those that are durable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run, and killed, by the test below"]
async fn victim() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let engine = open(dir.as_ref(), Duration::from_millis(10));
    for number in 0..1_000_000 {
        let (_, order) = engine.transact_early(number, MINE, Ledger::entry(number)).await.unwrap();
        // Each is one change, so the numbers count them.
        assert!(matches!(order, Order::Durable) || order == Order::Early(number + 1), "{order:?}");
        let mut out = std::io::stdout();
        writeln!(out, "answered {} durable {}", number + 1, engine.durable()).unwrap();
        out.flush().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_only_the_end_of_what_was_not_durable() {
    let mut lost = 0;
    for round in 0..6 {
        let dir = TempDir::new().unwrap();
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "early::victim", "--ignored", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut answered, mut durable) = (0, 0);
        for line in BufReader::new(victim.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some((_, rest)) = line.split_once("answered ") else { continue };
            let Some((a, d)) = rest.split_once(" durable ") else { continue };
            (answered, durable) = (a.parse().unwrap(), d.parse().unwrap());
            if durable >= 100 + round * 37 {
                victim.kill().unwrap();
            }
        }
        victim.wait().unwrap();
        let engine = open(dir.path(), Duration::ZERO);
        // No gap, nothing torn, nothing lost that was said to be durable.
        let survived = Ledger::check(&engine, durable).await.unwrap();
        assert!(survived <= answered + 1, "{survived} of {answered}");
        lost += answered.saturating_sub(survived);
    }
    assert!(lost > 0, "no group was open in any round, so this has shown nothing");
}
