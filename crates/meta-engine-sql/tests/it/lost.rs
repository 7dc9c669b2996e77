//! Connections that are cut where it hurts: what was asked takes effect once, whatever the engine heard of it.

use crate::ops::{Count, key, number, put, row};
use crate::proxy::{Cut, Proxy};
use crate::server::{database, open, shared};
use braid_meta_engine::{Engine, EngineError};
use braid_meta_engine_sql::{Address, PlantedBug, SqlEngine, SqlOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

fn through(proxy: &Proxy) -> SqlOptions {
    let addresses = vec![Address::Tcp { host: "127.0.0.1".into(), port: proxy.port }];
    SqlOptions { addresses, ..shared().options(&database()) }
}

async fn proxied() -> (SqlEngine, Proxy) {
    let proxy = Proxy::start(&shared().socket());
    (open(through(&proxy)).await, proxy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_was_not_sent_is_made_again() {
    let (engine, proxy) = proxied().await;
    let count = Count(key(1, "n"));
    assert_eq!(engine.transact(1, count.clone()).await.expect("it commits"), 1);
    proxy.cut(Cut::BeforeSent);
    assert_eq!(engine.transact(1, count.clone()).await.expect("it commits"), 2);
    assert_eq!((proxy.cuts(), engine.stats().retries.load(Relaxed)), (1, 1));
    assert_eq!(number(&row(&engine, &count.0).await), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_not_made_again() {
    let (engine, proxy) = proxied().await;
    let count = Count(key(1, "n"));
    for n in 1..=10 {
        proxy.cut(Cut::AnswerLost);
        assert_eq!(engine.transact(1, count.clone()).await.expect("it is found out"), n);
    }
    assert_eq!((proxy.cuts(), engine.stats().retries.load(Relaxed)), (10, 0));
    assert_eq!(number(&row(&engine, &count.0).await), 10);
}

/// The engine has asked what became of it, was told nothing, and did it again: then what was on its way must not arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_comes_late_is_refused() {
    let (engine, proxy) = proxied().await;
    let name = key(1, "n");
    put(&engine, &name, b"before").await;
    proxy.cut(Cut::HeldBack);
    put(&engine, &name, b"held back, and made again").await;
    put(&engine, &name, b"after").await;
    assert_eq!(proxy.deliver(), 1);
    assert_eq!(row(&engine, &name).await, Some(b"after".to_vec()));
}

/// Whoever released what a change makes old before its commit, which was on its way, would have it come afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_caller_has_gone_has_ended_when_the_engine_has_settled() {
    let (engine, proxy) = proxied().await;
    let engine = Arc::new(engine);
    let name = key(1, "n");
    put(&*engine, &name, b"before").await;
    proxy.cut(Cut::Gone);
    let gone = tokio::spawn({
        let (engine, name) = (engine.clone(), name.clone());
        async move { put(&*engine, &name, b"of one that has gone").await }
    });
    while proxy.cuts() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    gone.abort();
    let _ = gone.await;
    proxy.open();
    engine.settle().await.expect("the database answers");
    let then = row(&*engine, &name).await;
    assert_eq!(proxy.deliver(), 1);
    assert_eq!(row(&*engine, &name).await, then, "it came after the engine had settled");
}

/// The tests above see what they are there for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_that_is_taken_for_a_no_is_seen() {
    let proxy = Proxy::start(&shared().socket());
    let engine = open(SqlOptions { planted: Some(PlantedBug::LostMeansUndone), ..through(&proxy) }).await;
    proxy.cut(Cut::AnswerLost);
    assert_eq!(engine.transact(1, Count(key(1, "n"))).await.expect("it commits"), 2, "it was done twice");
    let name = key(1, "late");
    proxy.cut(Cut::HeldBack);
    put(&engine, &name, b"held back").await;
    put(&engine, &name, b"after").await;
    proxy.deliver();
    assert_eq!(row(&engine, &name).await, Some(b"held back".to_vec()), "what was late has won");
}

/// Cut at random among many at once, nothing is lost and nothing is done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_cuts_under_load_leave_the_right_sum() {
    const TASKS: u64 = 6;
    const EACH: u64 = 40;
    let (engine, proxy) = proxied().await;
    let (engine, proxy) = (Arc::new(engine), Arc::new(proxy));
    let tasks = (0..TASKS).map(|task| {
        let (engine, proxy) = (engine.clone(), proxy.clone());
        tokio::spawn(async move {
            for n in 0..EACH {
                match (n + task) % 7 {
                    0 => proxy.cut(Cut::AnswerLost),
                    3 => proxy.cut(Cut::BeforeSent),
                    _ => {}
                }
                // Half on one row, half each on its own.
                let name = if n % 2 == 0 { key(1, "all") } else { key(2, &task.to_string()) };
                engine.transact(1, Count(name)).await.expect("it commits");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it ends");
    }
    assert!(proxy.cuts() > 20, "{} cuts", proxy.cuts());
    assert_eq!(number(&row(&*engine, &key(1, "all")).await), TASKS * EACH / 2);
    for task in 0..TASKS {
        assert_eq!(number(&row(&*engine, &key(2, &task.to_string())).await), EACH / 2, "{task}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_named_in_time() {
    let nobody = vec![Address::Tcp { host: "127.0.0.1".into(), port: 1 }];
    let Err(error) = SqlEngine::open(SqlOptions { addresses: nobody, ..shared().options("x") }).await else {
        panic!("nobody was there")
    };
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

/// When nobody can be asked, it is said that nothing is known; and what was on its way is done once or never.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_found_out_is_said() {
    let proxy = Proxy::start(&shared().socket());
    let engine = open(SqlOptions { give_up_after: Duration::from_millis(300), ..through(&proxy) }).await;
    let count = Count(key(1, "n"));
    assert_eq!(engine.transact(1, count.clone()).await.expect("it commits"), 1);
    proxy.cut(Cut::Gone);
    let answer = engine.transact(1, count.clone()).await;
    assert!(matches!(answer, Err(EngineError::MaybeCommitted(_))), "{answer:?}");
    let nobody = engine.transact(1, count.clone()).await;
    assert!(matches!(nobody, Err(EngineError::Storage(_))), "nothing was sent: {nobody:?}");
    proxy.open();
    assert_eq!(proxy.deliver(), 1);
    assert_eq!(engine.transact(1, count).await.expect("it commits"), 3, "it came in the end");
}
