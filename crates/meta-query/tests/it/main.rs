//! Queries over a made-up tree, on every engine.
#![allow(clippy::unwrap_used)]

mod bounds;
mod engines;
mod examples;
mod pushdown;
#[allow(dead_code, reason = "a database server for tests, shared with those of the engine")]
#[path = "../../../meta-engine-sql/tests/it/server.rs"]
mod server;
mod tree;

use braid_api::admin::SqlValue;
use braid_meta_engine::{Engine, EngineError, MemEngine, MemStore, Snapshot};
use braid_meta_query::{Asker, Done, QueryError, Stop, TABLES, run};
use std::sync::{Arc, OnceLock};

/// Keeps the answer.
#[derive(Default)]
struct Answer {
    snapshot: Option<Box<dyn Snapshot>>,
    columns: Vec<String>,
    rows: Vec<Vec<SqlValue>>,
    done: Done,
}

impl Asker for Answer {
    fn begin(&mut self, columns: Vec<String>) -> Result<Box<dyn Snapshot>, EngineError> {
        self.columns = columns;
        Ok(self.snapshot.take().unwrap())
    }

    fn row(&mut self, row: Vec<SqlValue>, tick: &mut dyn FnMut() -> Result<(), EngineError>) -> Result<(), QueryError> {
        tick()?;
        self.rows.push(row);
        Ok(())
    }
}

fn on(mut asker: Answer, query: &str, stop: Stop) -> Result<Answer, QueryError> {
    asker.done = run(query, tree::servers(), stop, &mut asker)?;
    Ok(asker)
}

/// On a thread of its own, as it must be.
fn ask<E: Engine>(runtime: &tokio::runtime::Runtime, engine: &E, query: &str) -> Result<Answer, QueryError> {
    let snapshot = Some(runtime.block_on(engine.snapshot(TABLES)).unwrap());
    on(Answer { snapshot, ..Answer::default() }, query, Arc::new(|| None))
}

fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap())
}

/// The tree in memory.
fn memory() -> &'static MemEngine {
    static ENGINE: OnceLock<MemEngine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let engine = MemEngine::new(MemStore::new());
        runtime().block_on(tree::fill(&engine));
        engine
    })
}

fn asked(query: &str) -> Answer {
    ask(runtime(), memory(), query).unwrap_or_else(|error| panic!("{query}: {error}"))
}

fn refused(query: &str) -> QueryError {
    match ask(runtime(), memory(), query) {
        Ok(answer) => panic!("{query} was answered: {:?}", answer.rows),
        Err(error) => error,
    }
}

/// Rows as lines, columns with bars between.
fn lines(answer: &Answer) -> Vec<String> {
    let cell = |value: &SqlValue| match value {
        SqlValue::Null => "-".to_owned(),
        SqlValue::Integer(n) => n.to_string(),
        SqlValue::Real(n) => n.to_string(),
        SqlValue::Text(text) => text.clone(),
        SqlValue::Blob(bytes) => format!("X'{}'", bytes.escape_ascii()),
    };
    answer.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect()
}
