//! The same tree answers the same on every engine.

use super::examples::examples;
use super::server::{database, open, shared};
use super::{Answer, ask, lines, memory, runtime, tree};
use braid_meta_engine::Engine;
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use braid_meta_query::schema;
use std::time::{Duration, Instant};

fn queries() -> Vec<String> {
    let mut queries: Vec<String> = schema().iter().map(|table| format!("SELECT * FROM {}", table.name)).collect();
    for query in [
        "SELECT path FROM files('/home')",
        "SELECT path FROM files WHERE path LIKE '/DATA/p%'",
        "SELECT path, size FROM files WHERE path = '/home/ben/Copy/notes.txt'",
        "SELECT f.path, c.number, c.bytes, r.server FROM files f JOIN chunks c ON c.inode = f.id \
         JOIN replicas r ON r.container = c.container WHERE f.path GLOB '/data/*'",
        "SELECT uid, sum(size) FROM inodes GROUP BY uid",
    ] {
        queries.push(query.to_owned());
    }
    queries.extend(examples().into_iter().map(|(_, query)| query.to_owned()));
    queries
}

fn answers<E: Engine>(engine: &E) -> Vec<(Vec<String>, Vec<String>)> {
    let answer = |query: &String| -> Answer { ask(runtime(), engine, query).unwrap() };
    queries().iter().map(answer).map(|answer| (answer.columns.clone(), lines(&answer))).collect()
}

#[test]
fn every_engine_answers_the_same() {
    let expected = answers(memory());
    assert!(expected.iter().all(|(_, rows)| !rows.is_empty()));
    let dir = tempfile::tempdir().unwrap();
    // Once from the store itself, once from the copy that a query which takes long goes on with.
    for (name, read_age_max) in [("young", Duration::from_secs(3600)), ("old", Duration::ZERO)] {
        let options = EmbeddedOptions { read_age_max, ..EmbeddedOptions::default() };
        let engine = EmbeddedEngine::open(&dir.path().join(name), options).unwrap();
        runtime().block_on(tree::fill(&engine));
        for (query, (found, expected)) in queries().iter().zip(answers(&engine).iter().zip(&expected)) {
            assert_eq!(found, expected, "embedded, {name}: {query}");
        }
    }
    let engine = runtime().block_on(async {
        let engine = open(shared().options(&database())).await;
        tree::fill(&engine).await;
        engine
    });
    for (query, (found, expected)) in queries().iter().zip(answers(&engine).iter().zip(&expected)) {
        assert_eq!(found, expected, "in a database: {query}");
    }
}

/// Not a test of right or wrong: `cargo test -p braid-meta-query --release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn how_long_a_scan_takes() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = EmbeddedEngine::open(dir.path(), EmbeddedOptions::default()).unwrap();
    runtime().block_on(fill(&embedded));
    measure("embedded", &embedded);
    drop(embedded);
    let options = EmbeddedOptions { read_age_max: Duration::ZERO, ..EmbeddedOptions::default() };
    measure("embedded, with a copy", &EmbeddedEngine::open(dir.path(), options).unwrap());
    let database = runtime().block_on(async {
        let engine = open(shared().options(&database())).await;
        fill(&engine).await;
        engine
    });
    measure("in a database", &database);
}

async fn fill<E: Engine>(engine: &E) {
    tree::fill(engine).await;
    tree::fill_many(engine, 1000, 100).await;
}

fn measure<E: Engine>(name: &str, engine: &E) {
    for query in [
        "SELECT size FROM files WHERE path = '/many/dir-500/file-50'",
        "SELECT uid, count(*), sum(size) FROM inodes GROUP BY uid",
        "SELECT count(path) FROM files",
        "SELECT path FROM files ORDER BY size DESC, path LIMIT 10",
        "SELECT count(*) FROM files('/many')",
    ] {
        let begun = Instant::now();
        let done = ask(runtime(), engine, query).unwrap().done;
        println!("{name}: {query}: {} ms, {} rows read", begun.elapsed().as_millis(), done.read);
    }
}
