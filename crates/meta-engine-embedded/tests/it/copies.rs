//! Groups that are kept elsewhere too: what is answered when, what others are shown, and what a copy is made from.
#![allow(clippy::unwrap_used)]

use braid_meta_engine::conformance::{self, Script, Step};
use braid_meta_engine::{Copied, Early, Engine, EngineError, Kept, Key, Lock, Order, Outgoing, Outlet, Table};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use braid_types::{MetaPosition, MetaTerm};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const TERM: MetaTerm = MetaTerm { counter: 3, nonce: 9 };

fn open(dir: &Path) -> (EmbeddedEngine, Arc<Outlet>) {
    let options = EmbeddedOptions { group_hold: Duration::ZERO, ..EmbeddedOptions::default() };
    let engine = EmbeddedEngine::open(dir, options).unwrap();
    let outlet = Arc::new(Outlet::new(TERM, engine.position().unwrap().number));
    engine.copy_to(outlet.clone());
    (engine, outlet)
}

fn key(rest: &str) -> Key {
    Key::new(Table::Inodes, 1, rest.as_bytes())
}

fn put(rest: &str) -> Script {
    Script(vec![Step::Put(key(rest), b"x".to_vec())])
}

fn look(rest: &str) -> Script {
    Script(vec![Step::Get(vec![key(rest)], Lock::None)])
}

const MINE: Early = Early { owner: 1, admitted: false };

/// A copy that has everything a little later, like one at the other end of a network.
fn keeps(outlet: Arc<Outlet>) {
    std::thread::spawn(move || {
        let mut last = 0;
        while !outlet.is_closed() {
            std::thread::sleep(Duration::from_millis(1));
            let (groups, synced) = outlet.take();
            outlet.keep(Kept { received: last, synced });
            last = groups.iter().fold(last, |last, out| match out {
                Outgoing::Group { number, .. } => last.max(*number),
                Outgoing::Retract { .. } => last,
            });
            outlet.keep(Kept { received: last, synced });
        }
    });
}

async fn is_waiting(task: &mut (impl Future + Unpin)) -> bool {
    tokio::time::timeout(Duration::from_millis(100), task).await.is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms_with_copies_elsewhere() {
    let root = TempDir::new().unwrap();
    let number = std::sync::atomic::AtomicU32::new(0);
    conformance::test_all(|| {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (engine, outlet) = open(&root.path().join(number.to_string()));
        keeps(outlet);
        std::future::ready(engine)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_answered_or_shown_before_the_copies_have_it() {
    let dir = TempDir::new().unwrap();
    let (engine, outlet) = open(dir.path());
    let engine = Arc::new(engine);
    let begin = |op: Script| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.transact(1, op).await.map(|seen| seen.len()).map_err(|_| ()) })
    };
    let see = |rest: &'static str| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.read(1, look(rest)).await.map(|seen| format!("{seen:?}")).map_err(|_| ()) })
    };
    let mut first = begin(put("a"));
    assert!(is_waiting(&mut first).await, "nobody has it");
    assert_eq!(engine.position().unwrap(), MetaPosition { term: TERM, number: 1 }, "it is on this disk");
    let mut reader = see("a");
    assert!(is_waiting(&mut reader).await, "it would see what may be lost");
    let mut second = begin(put("b"));
    assert!(is_waiting(&mut second).await);
    assert_eq!(engine.position().unwrap().number, 2, "the second is on the disk while the first is on its way");
    assert!(see("c").await.is_ok(), "what is apart waits for nothing");
    outlet.keep(Kept { received: 1, synced: 0 });
    assert!(is_waiting(&mut first).await, "who waits, waits for stable storage there");
    outlet.keep(Kept { received: 1, synced: 1 });
    assert!(first.await.unwrap().is_ok());
    assert!(is_waiting(&mut second).await, "the second is not kept");
    outlet.keep(Kept { received: 2, synced: 2 });
    assert!(second.await.unwrap().is_ok() && reader.await.unwrap().is_ok());
    let (groups, synced) = outlet.take();
    let numbers: Vec<_> = groups.iter().map(|out| matches!(out, Outgoing::Group { .. })).collect();
    assert_eq!((numbers, synced), (vec![true, true], 2), "one group each, in order, and both wanted stable storage");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_early_answer_comes_at_once_and_needs_no_sync_elsewhere() {
    let dir = TempDir::new().unwrap();
    let (engine, outlet) = open(dir.path());
    let (_, order) = engine.transact_early(1, MINE, put("a")).await.unwrap();
    let Order::Early(number) = order else { panic!("{order:?}") };
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(engine.durable() < number, "the copies do not have it");
    assert_eq!(outlet.take().1, 0, "nobody asked for stable storage");
    outlet.keep(Kept { received: 1, synced: 0 });
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if engine.durable() >= number {
            break;
        }
    }
    assert!(engine.durable() >= number);
    let settled = tokio::time::timeout(Duration::from_millis(100), engine.settle());
    assert!(settled.await.is_err(), "an fsync waits for stable storage there");
    assert_eq!(outlet.take().1, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_left_behind_answers_nobody() {
    let dir = TempDir::new().unwrap();
    let (engine, outlet) = open(dir.path());
    let engine = Arc::new(engine);
    let other = engine.clone();
    let mut pending = tokio::spawn(async move { other.transact(1, put("a")).await.map(drop) });
    assert!(is_waiting(&mut pending).await);
    outlet.close("another server leads");
    let told = pending.await.unwrap();
    assert!(told.is_err(), "{told:?}");
    engine.ended().await;
    assert!(engine.read(1, look("a")).await.is_err(), "it may be lost, so it is not shown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_base_and_its_groups_make_the_same_rows() {
    let root = TempDir::new().unwrap();
    let (engine, outlet) = open(&root.path().join("a"));
    keeps(outlet.clone());
    for number in 0..50 {
        engine.transact(1, put(&format!("{number:02}"))).await.unwrap();
    }
    let copy = EmbeddedEngine::open(&root.path().join("b"), EmbeddedOptions::default()).unwrap();
    let (mut from, mut pages) = (None, 0);
    loop {
        let page = engine.base_page(from, 200).unwrap();
        copy.load(&page.rows, page.at).unwrap();
        pages += 1;
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    assert!(pages > 3, "{pages}");
    assert_eq!(copy.position().unwrap(), engine.position().unwrap());
    let all = Script(vec![Step::ScanTable { table: Table::Inodes, after: None, limit: 1000 }]);
    let rows = |engine: &EmbeddedEngine| engine.rows(Table::Inodes);
    assert_eq!(rows(&copy), Some(50));
    let (a, b) = (engine.read(1, all.clone()).await, copy.read(1, all).await);
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
    copy.store_set(b"who").unwrap();
    assert_eq!(copy.stored_set().unwrap().as_deref(), Some(&b"who"[..]));
    assert!(matches!(copy.load(b"xyz", MetaPosition::default()), Err(EngineError::Storage(_))));
    assert_eq!(copy.position().unwrap(), engine.position().unwrap(), "what is no change leaves no trace");
}
