//! Who may open a directory, and what a copy of one is.

use braid_meta_engine::conformance::{Script, Step};
use braid_meta_engine::{Engine, EngineError, Key, Row, Table};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions, FORMAT};
use std::path::Path;
use tempfile::TempDir;

fn open(dir: &Path) -> Result<EmbeddedEngine, EngineError> {
    EmbeddedEngine::open(dir, EmbeddedOptions::default())
}

fn key() -> Key {
    Key::new(Table::Globals, 0, b"key")
}

async fn put(engine: &EmbeddedEngine, row: &str) {
    let put = Script(vec![Step::Put(key(), row.as_bytes().to_vec())]);
    engine.transact(0, put).await.expect("it commits");
}

async fn get(engine: &EmbeddedEngine) -> Option<Row> {
    let get = Step::Get(vec![key()], braid_meta_engine::Lock::None);
    engine.read(0, Script(vec![get])).await.expect("it reads").remove(0).rows().remove(0)
}

/// The error of an opening that must fail.
fn refusal(dir: &Path) -> EngineError {
    match open(dir) {
        Ok(_) => panic!("{} was opened", dir.display()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_directory_is_open_once() {
    let dir = TempDir::new().expect("a directory");
    let first = open(dir.path()).expect("it opens");
    let second = refusal(dir.path()).to_string();
    assert!(second.contains(&dir.path().display().to_string()), "the error names the directory: {second}");
    put(&first, "unharmed").await;
    drop(first);
    assert_eq!(get(&open(dir.path()).expect("it is free again")).await, Some(b"unharmed".to_vec()));
}

#[test]
fn a_newer_format_is_refused_and_not_touched() {
    let dir = TempDir::new().expect("a directory");
    drop(open(dir.path()).expect("it opens"));
    {
        // SAFETY: the engine is closed, nobody else has the directory.
        let env = unsafe { heed::EnvOpenOptions::new().map_size(1 << 20).max_dbs(30).open(dir.path()) };
        let env = env.expect("LMDB opens");
        let txn = env.write_txn().expect("a transaction");
        let opened = env.create_databases_and_commit(txn, |opener, txn| {
            let format = opener.create_database::<heed::types::Bytes, heed::types::Bytes>(txn, Some("format"))?;
            format.put(txn, b"version", &(FORMAT + 1).to_be_bytes())?;
            Ok::<_, heed::Error>(heed::CommitOrAbort::<_, ()>::Commit(()))
        });
        opened.expect("it commits");
    }
    for _ in 0..2 {
        let refused = refusal(dir.path());
        assert!(matches!(refused, EngineError::Newer(_)), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_of_one_moment_and_opens() {
    let (dir, copy) = (TempDir::new().expect("a directory"), TempDir::new().expect("a directory"));
    let engine = open(dir.path()).expect("it opens");
    put(&engine, "then").await;
    engine.snapshot_copy(copy.path()).expect("it copies");
    put(&engine, "now").await;
    let again = engine.snapshot_copy(copy.path());
    assert!(matches!(again, Err(EngineError::Storage(_))), "a store is never overwritten: {again:?}");
    let copied = open(copy.path()).expect("the copy opens");
    assert_eq!(get(&copied).await, Some(b"then".to_vec()));
    assert_eq!(get(&engine).await, Some(b"now".to_vec()));
    let (held, disk) = (engine.bytes().expect("it measures"), engine.disk_bytes().expect("it measures"));
    assert!(held >= 4096 && held <= disk, "{held} of {disk}");
}

#[tokio::test]
async fn flush_returns() {
    let dir = TempDir::new().expect("a directory");
    let engine = open(dir.path()).expect("it opens");
    put(&engine, "x").await;
    engine.flush().await.expect("everything is durable");
}
