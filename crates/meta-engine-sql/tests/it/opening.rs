//! Which databases are opened, and what is said of those that are not.

use crate::ops::{Count, key};
use crate::server::{Server, Sql, database, open, shared};
use braid_meta_engine::conformance::{Script, ScriptError, Seen, Step};
use braid_meta_engine::{Engine, EngineError, Key, Table};
use braid_meta_engine_sql::{FORMAT, Kind, SqlEngine, SqlOptions};

async fn refusal(options: SqlOptions) -> EngineError {
    match SqlEngine::open(options).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_can_do_is_found_out() {
    let engine = open(shared().options(&database())).await;
    let found = engine.capabilities();
    assert_eq!(found.kind, Kind::MariaDb);
    assert!(found.shared_locks && found.cluster_wide_locks && found.snapshots && !found.galera, "{found}");
    assert!(found.to_string().starts_with("MariaDB 10."), "{found}");
    assert_eq!(found.partitions, 4, "{found}");
    assert!(found.to_string().contains("WARNING: without log_bin"), "{found}");
}

/// It does with tables that are in one piece what it does with others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_partitions_is_found_out_and_used() {
    let server = Server::start(&["--partition=OFF"]);
    for n in 1..3 {
        let engine = open(server.options("x")).await;
        let found = engine.capabilities();
        assert_eq!(found.partitions, 0);
        assert!(found.to_string().contains("partitions no"), "{found}");
        assert_eq!(engine.transact(1, Count(key(1, "n"))).await.expect("it commits"), n);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_format_is_refused_and_not_touched() {
    let options = shared().options(&database());
    drop(open(options.clone()).await);
    let mut sql = Sql::connect(&options).await;
    sql.rows(&format!("UPDATE about SET num={} WHERE name='format'", FORMAT + 1)).await;
    sql.rows("DROP TABLE inodes").await;
    for _ in 0..2 {
        let refused = refusal(options.clone()).await;
        assert!(matches!(refused, EngineError::Newer(_)), "{refused:?}");
    }
    assert!(sql.rows("SHOW TABLES LIKE 'inodes'").await.is_empty(), "nothing was made");
}

/// One that was broken off while tables were made goes on; several at once do not hinder each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_made_once() {
    let options = shared().options(&database());
    let (one, two, three) = tokio::join!(open(options.clone()), open(options.clone()), open(options.clone()));
    for (number, engine) in (1..).zip([one, two, three]) {
        assert_eq!(engine.transact(1, Count(key(1, "n"))).await.expect("it commits"), number);
    }
    let mut sql = Sql::connect(&options).await;
    sql.rows("DELETE FROM about WHERE name='format'").await;
    sql.rows("DROP TABLE reclaim").await;
    let engine = open(options).await;
    assert_eq!(engine.transact(1, Count(key(1, "n"))).await.expect("it commits"), 4, "what was there is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_lose_commits_are_refused() {
    let options = shared().options(&database());
    let wrong = SqlOptions { user: "nobody".into(), password: Some("secret".into()), ..options.clone() };
    let error = refusal(wrong).await.to_string();
    assert!(error.contains("nobody") && !error.contains("secret"), "{error}");

    let lazy = Server::start(&["--innodb-flush-log-at-trx-commit=2", "--max-allowed-packet=16M"]);
    let error = refusal(lazy.options("x")).await.to_string();
    assert!(error.contains("innodb_flush_log_at_trx_commit is 2"), "{error}");
    let mut sql = Sql::connect(&SqlOptions { database: "mysql".into(), ..lazy.options("x") }).await;
    sql.rows("SET GLOBAL innodb_flush_log_at_trx_commit=1").await;
    sql.rows("SET GLOBAL max_allowed_packet=1048576").await;
    let error = refusal(lazy.options("x")).await.to_string();
    assert!(error.contains("max_allowed_packet is 1048576"), "{error}");
    assert!(sql.rows("SHOW DATABASES LIKE 'x'").await.len() <= 1);
    sql.rows("SET GLOBAL max_allowed_packet=4194304").await;
    let engine = open(lazy.options("x")).await;
    // 24 MB of text in messages of 4 MiB, all or nothing.
    let large = |n: u64| Step::Insert(Key::new(Table::OldRows, n, b"large"), vec![n as u8; 60_000]);
    let mut steps: Vec<_> = (0..200).map(large).collect();
    engine.transact(0, Script(steps.clone())).await.expect("it commits");
    let whole = || Script(vec![Step::ScanTable { table: Table::OldRows, after: None, limit: 1000 }]);
    let rows = |seen: Vec<Seen>| seen.into_iter().map(|seen| seen.page().rows.len()).sum::<usize>();
    assert_eq!(rows(engine.read(0, whole()).await.expect("it reads")), 200);
    // The last of them is there already: those of the messages before it are taken back.
    steps.iter_mut().for_each(|step| {
        if let Step::Insert(key, _) = step
            && key.partition() < 199
        {
            *key = Key::new(Table::OldRows, key.partition(), b"another");
        }
    });
    let refused = engine.transact(0, Script(steps)).await;
    assert!(matches!(refused, Err(ScriptError::Engine(EngineError::Exists(_)))), "{refused:?}");
    assert_eq!(rows(engine.read(0, whole()).await.expect("it reads")), 200);
}
