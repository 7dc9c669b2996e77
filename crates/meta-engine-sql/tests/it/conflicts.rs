//! Transactions that meet: begun again within bounds, and nothing of one that was dropped is left in anybody's way.

use crate::ops::{Count, key, number, put, row};
use crate::proxy::Proxy;
use crate::server::{Sql, database, open, shared};
use braid_meta_engine::{Engine, EngineError, Key, Lock, Operation, Tx};
use braid_meta_engine_sql::{Address, SqlEngine, SqlOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Locks two rows one after the other, in the order given, and counts both up.
struct Both(Key, Key);

impl Operation for Both {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        for key in [&self.0, &self.1] {
            let rows = tx.get(std::slice::from_ref(key), Lock::Exclusive).await?;
            tx.put(key.clone(), (number(&rows[0]) + 1).to_be_bytes().to_vec());
        }
        Ok(())
    }
}

/// Two tasks take two rows in opposite order until they have waited for each other. How many rounds of 40 that took.
async fn until_they_meet(engine: SqlEngine) -> (Arc<SqlEngine>, u64) {
    let engine = Arc::new(engine);
    let (a, b) = (key(1, "a"), key(2, "b"));
    put(&*engine, &a, &0_u64.to_be_bytes()).await;
    put(&*engine, &b, &0_u64.to_be_bytes()).await;
    let mut rounds = 0;
    // A handful of rounds do.
    while engine.stats().retries.load(Relaxed) == 0 {
        let task = |from: &Key, to: &Key| {
            let (engine, from, to) = (engine.clone(), from.clone(), to.clone());
            tokio::spawn(async move {
                for _ in 0..20 {
                    engine.transact(1, Both(from.clone(), to.clone())).await.expect("it commits");
                }
            })
        };
        let (one, other) = (task(&a, &b), task(&b, &a));
        one.await.expect("it ends");
        other.await.expect("it ends");
        rounds += 1;
        assert!(rounds < 100, "they never met");
    }
    (engine, rounds)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_each_other_is_begun_again() {
    let (engine, rounds) = until_they_meet(open(shared().options(&database())).await).await;
    let counts = [row(&*engine, &key(1, "a")).await, row(&*engine, &key(2, "b")).await];
    assert_eq!(counts.map(|row| number(&row)), [rounds * 40, rounds * 40]);
}

/// A proxy may have chosen another server for the connection meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_deadlock_a_connection_through_a_proxy_is_not_used_again() {
    for through_proxy in [false, true] {
        let proxy = Proxy::start(&shared().socket());
        let addresses = vec![Address::Tcp { host: "127.0.0.1".into(), port: proxy.port }];
        let options = SqlOptions { addresses, through_proxy, connections_max: 2, ..shared().options(&database()) };
        until_they_meet(open(options).await).await;
        let connections = proxy.take_messages().iter().filter(|text| text.contains("INSERT INTO marks")).count();
        assert_eq!(connections > 2, through_proxy, "{connections} connections");
    }
}

/// Somebody else of the database holds a row.
async fn held(database: &str) -> Sql {
    let mut sql = Sql::connect(&shared().options(database)).await;
    sql.rows("START TRANSACTION").await;
    sql.rows("SELECT part FROM inodes WHERE part=1 AND rest='n' FOR UPDATE").await;
    sql
}

fn impatient(database: &str) -> SqlOptions {
    SqlOptions { lock_wait: Duration::from_secs(1), ..shared().options(database) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_too_long_for_a_row_is_begun_again() {
    let database = database();
    let engine = Arc::new(open(impatient(&database)).await);
    let count = Count(key(1, "n"));
    engine.transact(1, count.clone()).await.expect("it commits");
    let mut holder = held(&database).await;
    let waits = tokio::spawn({
        let (engine, count) = (engine.clone(), count.clone());
        async move { engine.transact(1, count).await }
    });
    while engine.stats().retries.load(Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    holder.rows("ROLLBACK").await;
    assert_eq!(waits.await.expect("it ends").expect("it commits"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_gets_a_row_is_told_so() {
    let database = database();
    let engine = open(SqlOptions { attempts_max: 2, ..impatient(&database) }).await;
    let count = Count(key(1, "n"));
    engine.transact(1, count.clone()).await.expect("it commits");
    let mut holder = held(&database).await;
    let refused = engine.transact(1, count.clone()).await;
    assert!(matches!(refused, Err(EngineError::Conflict { attempts: 2 })), "{refused:?}");
    assert_eq!(number(&row(&engine, &count.0).await), 1, "who only looks waits for nobody");
    holder.rows("ROLLBACK").await;
    assert_eq!(engine.transact(1, count).await.expect("it commits"), 2);
}

/// Reads a row with a lock, says so, and never goes on.
struct Stuck(Key, Arc<tokio::sync::Notify>);

impl Operation for Stuck {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        tx.put(self.0.clone(), vec![0]);
        tx.get(std::slice::from_ref(&self.0), Lock::Exclusive).await?;
        self.1.notify_one();
        std::future::pending().await
    }
}

/// With one connection: whoever is next gets the one that was left in the middle.
async fn one_connection() -> Arc<SqlEngine> {
    Arc::new(open(SqlOptions { connections_max: 1, ..shared().options(&database()) }).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_transaction_that_was_dropped() {
    let engine = one_connection().await;
    let count = Count(key(1, "n"));
    for n in 1..=20 {
        let locked = Arc::new(tokio::sync::Notify::new());
        let stuck = Stuck(count.0.clone(), locked.clone());
        let task = tokio::spawn({
            let engine = engine.clone();
            async move { engine.transact(1, stuck).await }
        });
        locked.notified().await;
        task.abort();
        let _ = task.await;
        assert_eq!(engine.transact(1, count.clone()).await.expect("the row is free"), n);
    }
    assert_eq!(engine.stats().retries.load(Relaxed), 0, "nobody waited for a lock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_dropped_at_any_moment_leaves_whole_transactions() {
    let engine = one_connection().await;
    let count = Count(key(1, "n"));
    let mut least = 0;
    for round in 0..150 {
        let task = tokio::spawn({
            let (engine, count) = (engine.clone(), count.clone());
            async move { engine.transact(1, count).await }
        });
        // From before its first message to after its last.
        tokio::time::sleep(Duration::from_micros(round * 10)).await;
        task.abort();
        if let Ok(Ok(told)) = task.await {
            assert!(told > least, "{told} after {least}");
            least = told;
        }
        let now = engine.transact(1, count.clone()).await.expect("it commits");
        assert!(now > least, "{now} after {least}");
        least = now;
    }
    assert_eq!(number(&row(&*engine, &count.0).await), least);
}

/// Reads a row to write another one beside it, and stays until it is told to go on.
struct Beside {
    shared: Key,
    own: Key,
    reads: fn(&Key) -> bool,
    here: Arc<tokio::sync::Barrier>,
}

impl Operation for Beside {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        let keys = [self.shared.clone(), self.own.clone()];
        let rows = tx.get_sharing(&keys, Lock::Exclusive, self.reads).await?;
        assert_eq!(rows, [Some(vec![7]), None], "in the order of the question");
        self.here.wait().await;
        tx.put(self.own.clone(), vec![1]);
        Ok(())
    }
}

/// Both at the same time have read the row with `reads`, or have not within a second.
async fn two_read_at_once(reads: fn(&Key) -> bool) -> bool {
    let engine = Arc::new(open(shared().options(&database())).await);
    let row = key(1, "read by all");
    put(&*engine, &row, &[7]).await;
    let here = Arc::new(tokio::sync::Barrier::new(2));
    let task = |own: u64| {
        let beside = Beside { shared: row.clone(), own: key(own, "own"), reads, here: here.clone() };
        let engine = engine.clone();
        tokio::spawn(async move { engine.transact(own, beside).await })
    };
    let tasks = [task(2), task(3)];
    for mut task in tasks {
        if tokio::time::timeout(Duration::from_secs(1), &mut task).await.is_err() {
            task.abort();
            return false;
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_many_read_and_few_change_keeps_nobody_waiting() {
    assert!(two_read_at_once(|key| key.partition() == 1).await);
    assert!(!two_read_at_once(|_| false).await, "the test sees whether they wait for each other");
}

/// Until whoever shares it has committed nobody changes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_shared_stays_as_it_is() {
    let engine = Arc::new(open(shared().options(&database())).await);
    let row_key = key(1, "n");
    put(&*engine, &row_key, &[7]).await;
    let here = Arc::new(tokio::sync::Barrier::new(2));
    let shares = Beside { shared: row_key.clone(), own: key(2, "own"), reads: |_| true, here: here.clone() };
    let first = tokio::spawn({
        let engine = engine.clone();
        async move { engine.transact(2, shares).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut change = tokio::spawn({
        let (engine, row_key) = (engine.clone(), row_key.clone());
        async move { put(&*engine, &row_key, &[8]).await }
    });
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut change).await.is_err(), "it was changed under it");
    here.wait().await;
    first.await.expect("it ends").expect("it commits");
    change.await.expect("it ends");
    assert_eq!(row(&*engine, &row_key).await, Some(vec![8]));
}
