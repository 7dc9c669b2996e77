//! A store whose map is used up: growth is refused, removal works, and then growth works again.

use braid_meta_engine::conformance::{Script, ScriptError, Step};
use braid_meta_engine::{Engine, EngineError, Key, Operation, Table, Tx};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use std::sync::Arc;
use tempfile::TempDir;

fn small(dir: &TempDir) -> EmbeddedEngine {
    let options = EmbeddedOptions { map_bytes: 8 << 20, reserve_bytes: 1 << 20, ..EmbeddedOptions::default() };
    EmbeddedEngine::open(dir.path(), options).expect("it opens")
}

/// Rows a transaction, so that a test takes seconds.
const EACH: u64 = 10;

fn key(n: u64) -> Key {
    Key::new(Table::Inodes, n % 50, &n.to_be_bytes())
}

fn keys(batch: u64) -> impl Iterator<Item = Key> {
    (batch * EACH..(batch + 1) * EACH).map(key)
}

async fn insert(engine: &EmbeddedEngine, batch: u64, bytes: usize) -> Result<(), EngineError> {
    let rows = keys(batch).map(|key| Step::Insert(key, vec![1; bytes]));
    answer(engine.transact(0, Script(rows.collect())).await)
}

async fn delete(engine: &EmbeddedEngine, batch: u64) -> Result<(), EngineError> {
    answer(engine.transact(0, Script(keys(batch).map(Step::Delete).collect())).await)
}

fn answer<T>(result: Result<T, ScriptError>) -> Result<(), EngineError> {
    match result {
        Ok(_) => Ok(()),
        Err(ScriptError::Engine(error)) => Err(error),
        Err(ScriptError::Own) => panic!("no step fails"),
    }
}

/// Inserts until it is full; how many batches fitted.
async fn fill(engine: &EmbeddedEngine, from: u64, bytes: usize) -> u64 {
    for n in from.. {
        match insert(engine, n, bytes).await {
            Ok(()) => {}
            Err(EngineError::Full(_)) => return n - from,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("a map of 8 MiB holds no infinity of rows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_map_still_removes_and_then_takes_again() {
    for bytes in [200, 2_000, 20_000] {
        let dir = TempDir::new().expect("a directory");
        let engine = small(&dir);
        let fitted = fill(&engine, 0, bytes).await;
        assert!((fitted * EACH) as usize * bytes > 2 << 20, "{fitted} batches of rows of {bytes} bytes fitted");
        assert!(matches!(insert(&engine, fitted, bytes).await, Err(EngineError::Full(_))));

        let heartbeat = Script(vec![Step::Put(key(0), vec![2; bytes])]);
        answer(engine.transact(0, heartbeat).await).expect("what keeps its size goes through");
        for n in 0..fitted {
            delete(&engine, n).await.expect("removal goes through");
        }
        let again = fill(&engine, fitted, bytes).await;
        assert!(again * 10 >= fitted * 9, "{fitted} batches fitted, and {again} after all were removed");
    }
}

/// What has to be done before anything can be removed.
struct First(Script);

impl Operation for First {
    type Output = <Script as Operation>::Output;
    type Error = ScriptError;

    fn may_use_reserve(&self) -> bool {
        true
    }

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, ScriptError> {
        self.0.run(tx).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_removals_begin_with_may_grow_in_a_full_map() {
    let dir = TempDir::new().expect("a directory");
    let engine = small(&dir);
    let fitted = fill(&engine, 0, 2_000).await;
    let row = |n| Script(vec![Step::Insert(key(fitted * EACH + 1_000 + n), vec![3; 200])]);
    assert!(matches!(answer(engine.transact(0, row(0)).await), Err(EngineError::Full(_))));
    for n in 0..1_000 {
        answer(engine.transact(0, First(row(n))).await).expect("it has the reserve");
    }
    for n in 0..fitted {
        delete(&engine, n).await.expect("removal goes through");
    }
    insert(&engine, 0, 2_000).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_removals_at_once_fit_the_reserve() {
    let dir = TempDir::new().expect("a directory");
    let engine = Arc::new(small(&dir));
    let fitted = fill(&engine, 0, 1_000).await;
    let remover = |part: u64| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for n in (part..fitted).step_by(64) {
                delete(&engine, n).await.expect("removal goes through");
            }
        })
    };
    let removers: Vec<_> = (0..64).map(remover).collect();
    for remover in removers {
        remover.await.expect("the task ends");
    }
    insert(&engine, 0, 1_000).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_too_large_hurts_no_other() {
    let dir = TempDir::new().expect("a directory");
    let engine = Arc::new(small(&dir));
    let mut tasks = Vec::new();
    for n in 0..40 {
        let engine = engine.clone();
        // Every tenth is larger than the whole map, and fails in the middle of its group.
        let bytes = if n % 10 == 5 { 1 << 20 } else { 100 };
        tasks.push(tokio::spawn(async move { (bytes, insert(&engine, n, bytes).await) }));
    }
    for task in tasks {
        let (bytes, result) = task.await.expect("the task ends");
        let full = matches!(result, Err(EngineError::Full(_)));
        assert!(if bytes == 100 { result.is_ok() } else { full }, "{bytes} bytes: {result:?}");
    }
}
