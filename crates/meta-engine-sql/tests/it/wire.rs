//! What really goes over the connection: messages counted where they pass, and the plans that the server makes of their
//! statements.

use crate::ops::{Count, key};
use crate::proxy::Proxy;
use crate::server::{Sql, database, open, shared};
use braid_meta_engine::conformance::{Script, Step};
use braid_meta_engine::{Engine, Key, Lock, Table};
use braid_meta_engine_sql::{Address, Fencing, SqlEngine, SqlOptions};
use std::sync::atomic::Ordering::Relaxed;

async fn proxied(fencing: Fencing) -> (SqlEngine, Proxy, String) {
    let (proxy, database) = (Proxy::start(&shared().socket()), database());
    let addresses = vec![Address::Tcp { host: "127.0.0.1".into(), port: proxy.port }];
    let options = SqlOptions { addresses, fencing, connections_max: 1, ..shared().options(&database) };
    let engine = open(options).await;
    // The one connection is made and set up.
    engine.transact(1, Count(key(9, "warm"))).await.expect("it commits");
    proxy.take_messages();
    (engine, proxy, database)
}

fn insert(partition: u64, name: &str) -> Step {
    Step::Insert(key(partition, name), vec![1; 100])
}

/// The messages of one transaction or read, without a ROLLBACK that nobody waits for.
async fn messages(engine: &SqlEngine, proxy: &Proxy, reads: bool, steps: Vec<Step>) -> Vec<String> {
    let before = engine.stats().round_trips.load(Relaxed);
    let answer = match reads {
        true => engine.read(1, Script(steps)).await,
        false => engine.transact(1, Script(steps)).await,
    };
    answer.expect("it succeeds");
    let mut messages = proxy.take_messages();
    messages.retain(|message| message != "ROLLBACK");
    let counted = engine.stats().round_trips.load(Relaxed) - before;
    assert_eq!(messages.len() as u64, counted, "the engine counts what goes out: {messages:#?}");
    messages
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_one_message_and_so_is_a_commit() {
    for fencing in [Fencing::WhereNeeded, Fencing::Always] {
        let (engine, proxy, _) = proxied(fencing).await;
        let many: Vec<_> = Table::ALL.iter().flat_map(|table| (0..5).map(|n| Key::new(*table, n, b"k"))).collect();
        let get = |lock| Step::Get(many.clone(), lock);
        let page = Step::Scan { prefix: key(1, ""), after: None, limit: 10 };
        let cases = [
            ("a hundred keys of twenty tables, one moment", true, vec![get(Lock::None)], 1),
            ("the same and a page, one moment", true, vec![get(Lock::None), page.clone()], 2),
            ("and another", true, vec![get(Lock::None), page.clone(), page.clone()], 3),
            ("a hundred keys, locked, and nothing to write", false, vec![get(Lock::Exclusive)], 1),
            (
                "a create: locked reads, two inserts, an update",
                false,
                vec![get(Lock::Exclusive), insert(1, "a"), insert(2, "a"), Step::Put(key(0, "d"), vec![7])],
                2,
            ),
            ("a write without a read", false, vec![insert(1, "b")], 1),
            ("reads without a lock, and a write", false, vec![get(Lock::None), page.clone(), insert(1, "c")], 3),
            ("reads without a lock alone", false, vec![get(Lock::None), page], 2),
        ];
        for (what, reads, steps, expected) in cases {
            let messages = messages(&engine, &proxy, reads, steps).await;
            assert_eq!(messages.len(), expected, "{what}: {messages:#?}");
        }
    }
}

/// A read of one call opens no transaction, and one of several says so in no message of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_of_one_call_is_one_statement() {
    let (engine, proxy, _) = proxied(Fencing::WhereNeeded).await;
    let keys = vec![key(1, "a"), Key::new(Table::Chunks, 1, b"")];
    let sent = messages(&engine, &proxy, true, vec![Step::Get(keys, Lock::None)]).await;
    assert!(!sent[0].contains(';') && sent[0].contains("UNION ALL"), "{sent:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_touch_the_partitions_they_need() {
    let (engine, proxy, database) = proxied(Fencing::WhereNeeded).await;
    for part in 0..40 {
        let fill = (0..50).map(|n| Step::Put(key(part, &format!("{n:04}")), vec![7; 50])).collect();
        engine.transact(part, Script(fill)).await.expect("it commits");
    }
    let mut sql = Sql::connect(&shared().options(&database)).await;
    sql.rows("ANALYZE TABLE inodes").await;
    proxy.take_messages();

    let scan = |after, limit| Step::Scan { prefix: key(7, "00"), after, limit };
    for step in [scan(None, 1000), scan(Some(key(7, "0031")), 10)] {
        let sent = messages(&engine, &proxy, true, vec![step]).await;
        for plan in sql.plans(&sent[0]).await {
            assert_eq!(plan.partitions, 1, "a scan of one parent: {plan:?}");
            assert!(plan.key == "PRIMARY" && plan.kind == "range", "{plan:?}");
            assert!(!plan.extra.contains("filesort"), "rows come in order: {plan:?}");
        }
    }
    let few = vec![key(1, "0001"), key(1, "0002"), key(2, "0001")];
    for lock in [Lock::None, Lock::Shared, Lock::Exclusive] {
        let sent = messages(&engine, &proxy, false, vec![Step::Get(few.clone(), lock)]).await;
        let plans = sql.plans(&sent[0]).await;
        for plan in &plans {
            let most = if lock == Lock::None { 2 } else { 1 };
            assert!(plan.partitions <= most, "{lock:?}: {plan:?}");
            assert!(plan.key == "PRIMARY" && plan.rows <= 6, "{lock:?} reads by key: {plan:?}");
        }
        assert_eq!(plans.len(), if lock == Lock::None { 1 } else { 2 }, "{lock:?}: a statement a partition");
    }
    let gone = vec![Step::Delete(key(3, "0001")), Step::Delete(key(3, "0002")), Step::Put(key(4, "0001"), vec![8])];
    let sent = messages(&engine, &proxy, false, gone).await;
    let plans = sql.plans(&sent[0]).await;
    assert!(plans.iter().any(|plan| plan.partitions == 1 && plan.kind == "range"), "a removal: {plans:?}");

    let whole = Step::ScanTable { table: Table::Inodes, after: Some(key(7, "0001")), limit: 100 };
    let sent = messages(&engine, &proxy, true, vec![whole]).await;
    for plan in sql.plans(&sent[0]).await {
        assert!(plan.key == "PRIMARY" && !plan.extra.contains("filesort"), "a table in order: {plan:?}");
    }
}
