//! Epochs: who is of an old one changes nothing any more.

use crate::ops::{Count, Sign, key, number, row};
use crate::server::{database, open, shared};
use braid_meta_engine::{AnyEngine, Engine, EngineError};
use braid_meta_engine_sql::{Fencing, SqlOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_epoch_changes_nothing() {
    let options = SqlOptions { fencing: Fencing::Always, ..shared().options(&database()) };
    let (old, new) = (open(options.clone()).await, open(options).await);
    let count = Count(key(1, "n"));
    assert_eq!(old.transact(1, count.clone()).await.expect("both are of one epoch"), 1);
    assert_eq!(new.transact(1, count.clone()).await.expect("both are of one epoch"), 2);
    assert_eq!(new.raise_epoch().await.expect("it is raised"), 2);
    for part in 0..100 {
        let fenced = old.transact(part, Count(key(part, "n"))).await;
        assert!(matches!(fenced, Err(EngineError::Fenced(_))), "partition {part}: {fenced:?}");
    }
    assert_eq!(number(&row(&old, &count.0).await), 2, "it may look");
    assert!(matches!(old.raise_epoch().await, Err(EngineError::Fenced(_))), "nor end the epoch of others");
    assert_eq!(new.transact(1, count.clone()).await.expect("it is of the new one"), 3);
    assert_eq!(old.adopt_epoch().await.expect("it is told"), 2);
    assert_eq!(old.transact(1, count).await.expect("it is of the new one"), 4);
}

/// However many are under way: what was answered before the epoch ended counts, and nothing comes after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_ends_at_one_moment() {
    let options = SqlOptions { fencing: Fencing::Always, ..shared().options(&database()) };
    let (old, new) = (Arc::new(open(options.clone()).await), open(options).await);
    let tasks: Vec<_> = (0..4_u64)
        .map(|part| {
            let old = old.clone();
            tokio::spawn(async move {
                let mut last = 0;
                loop {
                    match old.transact(part, Count(key(part, "n"))).await {
                        Ok(count) => last = count,
                        Err(EngineError::Fenced(_)) => return last,
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    while number(&row(&new, &key(3, "n")).await) < 5 {}
    new.raise_epoch().await.expect("it is raised");
    let mut at_once = Vec::new();
    for part in 0..4 {
        at_once.push(number(&row(&new, &key(part, "n")).await));
    }
    for (part, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.expect("it ends"), at_once[part], "partition {part}");
    }
}

/// A member goes on under the epoch that it was told of, and not under one of which it was told nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_is_joined_by_its_number() {
    let options = SqlOptions { fencing: Fencing::Always, ..shared().options(&database()) };
    let (member, leader) = (open(options.clone()).await, open(options).await);
    let count = Count(key(1, "n"));
    assert_eq!(leader.raise_epoch().await.expect("it is raised"), 2);
    member.join_at(2).await.expect("it is the present one");
    assert_eq!(member.transact(1, count.clone()).await.expect("it has joined"), 1);
    assert_eq!(leader.raise_epoch().await.expect("it is raised"), 3);
    assert_eq!(leader.raise_epoch().await.expect("it is raised"), 4);
    let late = member.join_at(3).await;
    assert!(matches!(late, Err(EngineError::Fenced(_))), "{late:?}");
    assert_eq!(member.epoch(), 2);
    let fenced = member.transact(1, count.clone()).await;
    assert!(matches!(fenced, Err(EngineError::Fenced(_))), "{fenced:?}");
    member.join_at(4).await.expect("it is the present one");
    assert_eq!(member.transact(1, count).await.expect("it has joined"), 2);
}

/// Who leads others changes rows as they do: in an epoch of which it has been told who is in it. Until it is told of the first it is alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_begins_an_epoch_changes_nothing_in_it_before_it_has_joined() {
    let options = SqlOptions { fencing: Fencing::Always, ..shared().options(&database()) };
    let rows = AnyEngine::new(Arc::new(open(options.clone()).await));
    let led = AnyEngine::new(Arc::new(open(options).await)).led_by(rows.clone());
    let count = Count(key(1, "n"));
    rows.fence_others().await.expect("nobody else is there");
    assert_eq!(led.transact(1, count.clone()).await.expect("it has been told of none"), 1);
    led.join_at(2).await.expect("it is the present one");
    assert_eq!(led.transact(1, count.clone()).await.expect("it has joined"), 2);
    rows.fence_others().await.expect("nobody else is there");
    let early = led.transact(1, count.clone()).await;
    assert!(matches!(early, Err(EngineError::Fenced(_))), "{early:?}");
    led.join_at(3).await.expect("it is the present one");
    assert_eq!(led.transact(1, count.clone()).await.expect("it has joined"), 3);
    led.fence_others().await.expect("nobody else is there");
    assert_eq!((led.epoch(), rows.epoch()), (4, 4));
    assert_eq!(led.transact(1, count.clone()).await.expect("it has joined"), 4);
    assert_eq!(rows.transact(1, count).await.expect("it has begun it"), 5);
}

/// Signs of life stand still for nobody: what is still wanted is made again in the new epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_ends_its_own_epoch_goes_on() {
    let options = SqlOptions { fencing: Fencing::Always, ..shared().options(&database()) };
    let engine = Arc::new(open(options).await);
    let done = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..4_u64)
        .map(|part| {
            let (engine, done) = (engine.clone(), done.clone());
            tokio::spawn(async move {
                let mut times = 0;
                while !done.load(SeqCst) {
                    let sign = Sign(Count(key(part, "n")));
                    engine.transact(part, sign).await.expect("nobody else has ended its epoch");
                    times += 1;
                }
                times
            })
        })
        .collect();
    for epoch in 2..8 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(engine.raise_epoch().await.expect("it is raised"), epoch);
    }
    done.store(true, SeqCst);
    for (part, task) in tasks.into_iter().enumerate() {
        let times = task.await.expect("it ends");
        assert_eq!(number(&row(&*engine, &key(part as u64, "n")).await), times, "partition {part}");
    }
}
