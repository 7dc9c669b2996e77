//! Epochs: who is of an old one changes nothing any more.

use crate::ops::{Count, key, number, row};
use crate::server::{database, open, shared};
use braid_meta_engine::{Engine, EngineError};
use braid_meta_engine_sql::{Fencing, SqlOptions};
use std::sync::Arc;

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
