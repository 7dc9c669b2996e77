//! What a query cannot do: change anything, reach outside, take all memory, go on for ever.

use super::{Answer, memory, on, refused, runtime};
use braid_meta_engine::Engine;
use braid_meta_query::{QueryError, TABLES};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[test]
fn only_looking_is_possible() {
    for query in [
        "INSERT INTO files(path) VALUES ('/x')",
        "DELETE FROM files",
        "UPDATE inodes SET size = 0",
        "CREATE TABLE t(a)",
        "CREATE TEMP TABLE t AS SELECT * FROM files",
        "DROP TABLE files",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "ATTACH '/tmp/x' AS x",
        "PRAGMA journal_mode=WAL",
        "PRAGMA query_only=OFF",
        "PRAGMA hard_heap_limit=0",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT fts3_tokenizer('simple')",
        "BEGIN",
        "SAVEPOINT s",
        "INSERT INTO files(path) VALUES ('/x') RETURNING path",
        "WITH t AS (SELECT 1) DELETE FROM files",
        "EXPLAIN DELETE FROM files",
        "REINDEX",
        "ANALYZE",
    ] {
        let error = refused(query);
        let is_refusal = matches!(error, QueryError::NotAllowed(_) | QueryError::Wrong { .. });
        assert!(is_refusal, "{query}: {error:?}");
        if query.starts_with("CREATE TABLE") {
            assert_eq!(error.to_string(), "it would change the tables: only SELECT, WITH and EXPLAIN are possible");
        }
    }
    for query in ["VACUUM", "VACUUM INTO '/tmp/x'", "", "-- nothing", "SELECT 1; SELECT 2", "SELECT 'a\0b'"] {
        let error = refused(query);
        assert!(matches!(error, QueryError::Wrong { .. }), "{query}: {error:?}");
    }
    for function in ["readfile('/etc/passwd')", "writefile('/tmp/x', 'y')", "edit('x')"] {
        assert!(matches!(refused(&format!("SELECT {function}")), QueryError::Wrong { .. }), "{function}");
    }
}

#[test]
fn a_mistake_is_told_with_its_place() {
    let told = |query: &str| refused(query).to_string();
    assert_eq!(told("SELECT sizee FROM files"), "at character 8: no such column: sizee");
    assert_eq!(told("SELECT 'é', sizee FROM files"), "at character 13: no such column: sizee");
    assert_eq!(told("SELEKT 1"), "at character 1: near \"SELEKT\": syntax error");
    assert_eq!(told("SELECT * FROM file"), "no such table: file");
    assert_eq!(told("SELECT max(), 1 FROM files"), "at character 8: wrong number of arguments to function max()");
    assert_eq!(told("SELECT 1; SELEKT 2"), "at character 11: near \"SELEKT\": syntax error");
}

#[test]
fn memory_is_bounded() {
    for query in ["SELECT zeroblob(300000)", "SELECT group_concat(hex(zeroblob(100000))) FROM files"] {
        assert!(matches!(refused(query), QueryError::TooLarge(_)), "{query}");
    }
    // 600 MB: what is sorted goes to files.
    let sorted = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000) \
                  SELECT count(*) FROM (SELECT i FROM n ORDER BY hex(zeroblob(50000)) || i LIMIT 3000)";
    assert_eq!(super::lines(&super::asked(sorted)), ["3000"]);
}

fn stops_after(query: &str, looks: u64) -> QueryError {
    let seen = AtomicU64::new(0);
    let stop = move || (seen.fetch_add(1, Relaxed) >= looks).then(|| "its asker has gone".to_owned());
    let snapshot = Some(runtime().block_on(memory().snapshot(TABLES)).unwrap());
    match on(Answer { snapshot, ..Answer::default() }, query, Arc::new(stop)) {
        Ok(answer) => panic!("{query} was answered: {:?}", answer.rows),
        Err(error) => error,
    }
}

#[test]
fn a_query_ends_when_it_is_told_to() {
    for (query, looks) in [
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", 10),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0", 10),
        ("SELECT * FROM files", 0),
        ("SELECT count(*) FROM files a, files b, files c, files d", 100),
    ] {
        let error = stops_after(query, looks);
        assert!(matches!(&error, QueryError::Stopped(why) if why == "its asker has gone"), "{query}: {error:?}");
    }
}
