//! Transactions that share a commit, and do not share their failures.

use braid_meta_engine::conformance::{Script, ScriptError, Step};
use braid_meta_engine::{Early, Engine, EngineError, Key, Lock, Operation, Order, Table, Tx};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::Poll;
use tempfile::TempDir;

fn open() -> (TempDir, Arc<EmbeddedEngine>) {
    let dir = TempDir::new().expect("a directory");
    let engine = EmbeddedEngine::open(dir.path(), EmbeddedOptions::default()).expect("it opens");
    (dir, Arc::new(engine))
}

fn key(partition: u64, rest: &str) -> Key {
    Key::new(Table::Inodes, partition, rest.as_bytes())
}

fn insert(partition: u64, rest: &str) -> Script {
    Script(vec![Step::Insert(key(partition, rest), b"x".to_vec())])
}

async fn count(engine: &EmbeddedEngine) -> usize {
    let all = Step::ScanTable { table: Table::Inodes, after: None, limit: 100_000 };
    engine.read(0, Script(vec![all])).await.expect("it reads").remove(0).page().rows.len()
}

/// Keeps the write thread busy until the gate opens, so that what is submitted meanwhile becomes one group.
struct Gate(parking_lot::Mutex<mpsc::Receiver<()>>);

impl Operation for Gate {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, _tx: &mut dyn Tx) -> Result<(), EngineError> {
        let _ = self.0.lock().recv();
        Ok(())
    }
}

struct Closed(mpsc::Sender<()>);

async fn close_gate(engine: &Arc<EmbeddedEngine>) -> Closed {
    let (open, gate) = mpsc::channel();
    let engine = engine.clone();
    tokio::spawn(async move { engine.transact(0, Gate(parking_lot::Mutex::new(gate))).await });
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    Closed(open)
}

/// Lets the tasks reach the queue, then opens the gate.
async fn open_gate(gate: Closed) {
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    drop(gate.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_share_syncs() {
    let (_dir, engine) = open();
    let writer = |writer: u64| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for n in 0..50 {
                engine.transact(writer, insert(writer, &n.to_string())).await.expect("it commits");
            }
        })
    };
    let writers: Vec<_> = (0..32).map(writer).collect();
    for writer in writers {
        writer.await.expect("the writer ends");
    }
    let stats = engine.stats().snapshot();
    assert_eq!((stats.transactions, count(&engine).await), (1600, 1600));
    assert!(stats.syncs * 2 < stats.transactions, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_do_not_touch_the_others_of_their_group() {
    let (_dir, engine) = open();
    engine.transact(0, insert(1, "taken")).await.expect("it commits");
    let syncs = engine.stats().snapshot().syncs;
    let gate = close_gate(&engine).await;

    let submit = |script: Script| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.transact(0, script).await })
    };
    let put = |rest: &str| Step::Put(key(2, rest), b"x".to_vec());
    let exists = submit(Script(vec![put("a"), Step::Insert(key(1, "taken"), vec![])]));
    let aborted = submit(Script(vec![put("b"), Step::Fail]));
    let too_long = submit(Script(vec![put("c"), Step::Put(Key::new(Table::Inodes, 1, &[b'x'; 600]), vec![])]));
    let panicking = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.transact(0, Panics).await })
    };
    let waiting = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.transact(0, Waits).await })
    };
    let well: Vec<_> = (0..10).map(|n| submit(insert(3, &n.to_string()))).collect();
    open_gate(gate).await;

    for job in well {
        job.await.expect("the task ends").expect("the others of the group commit");
    }
    let exists = exists.await.expect("the task ends");
    assert!(matches!(exists, Err(ScriptError::Engine(EngineError::Exists(_)))), "{exists:?}");
    assert!(matches!(aborted.await.expect("the task ends"), Err(ScriptError::Own)));
    let too_long = too_long.await.expect("the task ends");
    assert!(matches!(too_long, Err(ScriptError::Engine(EngineError::Storage(_)))), "{too_long:?}");
    assert!(matches!(panicking.await.expect("the task ends"), Err(EngineError::Storage(_))));
    assert!(matches!(waiting.await.expect("the task ends"), Err(EngineError::Storage(_))));
    assert_eq!(count(&engine).await, 11, "the failed ones left no trace");
    let stats = engine.stats().snapshot();
    assert!(stats.syncs - syncs <= 2, "they were one group: {stats:?}");
    assert_eq!(stats.retries, 0, "an operation's failure is not the group's");
}

/// Says that it is reached, and waits to be opened.
struct SecondGate(parking_lot::Mutex<Option<mpsc::Sender<()>>>, parking_lot::Mutex<mpsc::Receiver<()>>);

impl Operation for SecondGate {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, _tx: &mut dyn Tx) -> Result<(), EngineError> {
        drop(self.0.lock().take());
        let _ = self.1.lock().recv();
        Ok(())
    }
}

/// Polls it once: it is in the queue then, behind what was there.
async fn submitted<F: Future>(asked: F) -> Pin<Box<F>> {
    let mut asked = Box::pin(asked);
    let polled = std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await;
    assert!(polled.is_pending());
    asked
}

/// Of one group: what waits for the commit holds up what touches it, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_the_commit_holds_up_only_what_touches_it() {
    let (_dir, engine) = open();
    let gate = close_gate(&engine).await;
    let waits = submitted(engine.transact(1, insert(1, "nobody's"))).await;
    let submit = |step: Step| submitted(engine.transact_early(1, Early::of(7), Script(vec![step])));
    let get = |rest: &str| Step::Get(vec![key(1, rest)], Lock::None);
    let put = |rest: &str| Step::Put(key(1, rest), b"y".to_vec());
    let scan = |partition: u64| Step::Scan { prefix: key(partition, ""), after: None, limit: 9 };
    let table = Step::ScanTable { table: Table::Inodes, after: None, limit: 9 };
    // The second change of the group, a look at it, and a look at nothing that is not durable.
    let (mut apart, mut touching) = (Vec::new(), Vec::new());
    for (step, order) in [(put("mine"), Order::Early(2)), (get("mine"), Order::Early(2)), (scan(2), Order::Durable)] {
        apart.push((submit(step).await, order));
    }
    // The last is on what one of them has made of what is nobody's.
    for step in [get("nobody's"), scan(1), table, put("nobody's"), Step::Delete(key(1, "nobody's"))] {
        touching.push(submit(step).await);
    }
    let (entered, reached) = mpsc::channel();
    let (open, end) = mpsc::channel();
    let end = submitted(engine.transact(0, SecondGate(parking_lot::Mutex::new(Some(entered)), end.into()))).await;
    open_gate(gate).await;

    for (answer, order) in apart {
        let limit = std::time::Duration::from_secs(30);
        let answer = tokio::time::timeout(limit, answer).await.expect("it is answered before the group's end");
        assert_eq!(answer.expect("it runs").1, order);
    }
    assert!(reached.recv().is_err(), "what says it is dropped when it is reached");
    assert_eq!(engine.durable(), 0, "it is one group, and open");
    let mut late = Vec::new();
    for job in touching {
        late.push(submitted(job).await);
    }
    let waits = submitted(waits).await;
    drop(open);
    end.await.expect("it ends");
    waits.await.expect("it commits");
    for job in late {
        assert_eq!(job.await.expect("it runs").1, Order::Durable);
    }
    assert_eq!(count(&engine).await, 1, "what was put on mine is there");
}

/// A change of a row of its own, which takes a millisecond.
struct Slow(u64);

impl Operation for Slow {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        std::thread::sleep(std::time::Duration::from_millis(1));
        tx.put(key(self.0, "slow"), b"x".to_vec());
        Ok(())
    }
}

/// Those who are answered early come again while others of them are under way: the queue is never empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_the_commit_is_not_held_up_by_early_answers() {
    let (_dir, engine) = open();
    let gate = close_gate(&engine).await;
    let waits = submitted(engine.transact(1, insert(1, "waits"))).await;
    let (answered, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let client = |owner: u64| {
        let (engine, answered, over) = (engine.clone(), answered.clone(), over.clone());
        tokio::spawn(async move {
            while !over.load(SeqCst) {
                engine.transact_early(owner, Early::of(owner), Slow(owner)).await.expect("it runs");
                answered.fetch_add(1, SeqCst);
            }
        })
    };
    let clients: Vec<_> = (10..14).map(client).collect();
    open_gate(gate).await;
    waits.await.expect("it commits");
    let before = answered.load(SeqCst);
    over.store(true, SeqCst);
    for client in clients {
        client.await.expect("the task ends");
    }
    // Each of the four once, and again while the first was carried out, and what they did until this was looked at; not a group of 512.
    assert!(before <= 200, "{before} were carried out before its group ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_waits_for_is_not_begun() {
    let (_dir, engine) = open();
    let gate = close_gate(&engine).await;
    let cancelled = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.transact(0, insert(1, "cancelled")).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    cancelled.abort();
    let _ = cancelled.await;
    open_gate(gate).await;
    engine.flush().await.expect("the engine runs");
    assert_eq!(count(&engine).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_answers_what_is_queued() {
    let (_dir, engine) = open();
    engine.transact(0, insert(1, "before")).await.expect("it commits");
    let gate = close_gate(&engine).await;
    let queued = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.transact(0, insert(1, "queued")).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    engine.close();
    for answer in [queued.await.expect("the task ends"), engine.transact(0, insert(1, "late")).await] {
        assert!(matches!(answer, Err(ScriptError::Engine(EngineError::Closed))), "{answer:?}");
    }
    open_gate(gate).await;
    assert_eq!(count(&engine).await, 1);
}

struct Panics;

impl Operation for Panics {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        tx.put(key(4, "trace"), vec![]);
        panic!("this panic is part of the test");
    }
}

struct Waits;

impl Operation for Waits {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        tx.put(key(4, "trace"), vec![]);
        std::future::pending().await
    }
}
