//! A server that is killed in the middle of its commits, and comes back.
//!
//! It finds commits that were answered and are not there, and halves of them; a missing sync it cannot find, as what the
//! operating system has outlives the process.

use crate::ops::{Count, key, number, row};
use crate::server::{Server, database, open};
use braid_meta_engine::conformance::{Ledger, Script, Step};
use braid_meta_engine::{Engine, EngineError, Lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const TASKS: u64 = 4;

/// What each task was answered for last.
type Answered = Arc<[AtomicU64; TASKS as usize]>;

/// Each counts a row of its own up, and writes another with it, until it is to stop.
async fn load(engine: Arc<braid_meta_engine_sql::SqlEngine>, task: u64, answered: Answered, stop: Arc<AtomicBool>) {
    while !stop.load(SeqCst) {
        let count = engine.transact(task, Count(key(task, "n"))).await.expect("it waits for the server");
        let before = answered[task as usize].swap(count, SeqCst);
        assert_eq!(count, before + 1, "each takes effect once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_keeps_its_word_and_the_load_goes_on() {
    let mut server = Server::start(&[]);
    let engine = Arc::new(open(server.options(&database())).await);
    let (answered, stop) = (Answered::default(), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> =
        (0..TASKS).map(|task| tokio::spawn(load(engine.clone(), task, answered.clone(), stop.clone()))).collect();
    for round in 1..=3 {
        while answered.iter().any(|count| count.load(SeqCst) < round * 50) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        server.kill();
        server.run();
    }
    while answered.iter().any(|count| count.load(SeqCst) < 200) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    stop.store(true, SeqCst);
    for task in tasks {
        task.await.expect("no task was told an error");
    }
    for task in 0..TASKS {
        let stored = number(&row(&*engine, &key(task, "n")).await);
        assert_eq!(stored, answered[task as usize].load(SeqCst), "task {task}");
    }
}

/// Entries of several rows, one after the other: what is left is a beginning of them, each whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_leaves_no_half_of_a_transaction() {
    let mut server = Server::start(&[]);
    let options = braid_meta_engine_sql::SqlOptions {
        give_up_after: std::time::Duration::from_millis(1),
        ..server.options(&database())
    };
    let acknowledged = Arc::new(AtomicU64::new(0));
    let writer = {
        let (acknowledged, engine) = (acknowledged.clone(), open(options.clone()).await);
        tokio::spawn(async move {
            for number in 0.. {
                match engine.transact(0, Ledger::entry(number)).await {
                    Ok(_) => acknowledged.store(number + 1, SeqCst),
                    Err(error) => return error.to_string(),
                }
            }
            String::new()
        })
    };
    while acknowledged.load(SeqCst) < 200 {
        tokio::task::yield_now().await;
    }
    server.kill();
    writer.await.expect("it ends");
    server.run();
    let engine = open(options).await;
    Ledger::check(&engine, acknowledged.load(SeqCst)).await.expect("the promise is kept");
}

/// With a binary log that is synced, a commit is shown when it is durable: what a read told, a crash does not take back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_read_has_told_survives_where_the_log_is_synced() {
    let mut server = Server::start(&["--log-bin=log", "--sync-binlog=1", "--server-id=1"]);
    let engine = Arc::new(open(server.options(&database())).await);
    assert!(engine.capabilities().shows_only_durable, "{}", engine.capabilities());
    for _ in 0..3 {
        let (answered, stop) = (Answered::default(), Arc::new(AtomicBool::new(false)));
        let writer = {
            let (engine, stop) = (engine.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(SeqCst) {
                    engine.transact(0, Count(key(0, "n"))).await.expect("it waits for the server");
                }
            })
        };
        let reader = {
            let (engine, answered, stop) = (engine.clone(), answered.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(SeqCst) {
                    let get = Script(vec![Step::Get(vec![key(0, "n")], Lock::None)]);
                    let seen = engine.read(0, get).await.map(|mut seen| number(&seen.remove(0).rows()[0]));
                    answered[0]
                        .fetch_max(seen.map_err(|e| EngineError::Storage(e.to_string())).expect("it reads"), SeqCst);
                }
            })
        };
        let begin = number(&row(&*engine, &key(0, "n")).await);
        while answered[0].load(SeqCst) < begin + 100 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        // Nobody writes or reads between the crash and the question, so what is stored is what survived.
        server.kill();
        let told = answered[0].load(SeqCst);
        stop.store(true, SeqCst);
        server.run();
        writer.await.expect("it ends");
        reader.await.expect("it ends");
        let stored = number(&row(&*engine, &key(0, "n")).await);
        assert!(stored >= told, "{told} was told, {stored} survived");
    }
}
