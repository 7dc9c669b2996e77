//! The thread of a query.

use super::cursor::{Cursor, ROW_BYTES_MAX, bytes_of};
use braid_api::admin::SqlValue;
use braid_api::meta::ServerInfo;
use braid_meta_engine::{AnyEngine, Engine, EngineError, Snapshot, Table};
use braid_meta_query::{Asker, QueryError, TABLES};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Between two looks at whether to end, while the answer is not fetched.
const LOOK: Duration = Duration::from_millis(100);
/// Rows that are read from a snapshot at once.
const PAGE_ROWS: usize = 512;

pub struct Feed {
    cursor: Arc<Cursor>,
    engine: AnyEngine,
    runtime: Handle,
}

/// Says how it ended also when the thread panics: somebody waits for that.
struct Ends(Arc<Cursor>, Option<braid_api::Result<()>>);

impl Drop for Ends {
    fn drop(&mut self) {
        let panicked = || Err(braid_api::Error::new(braid_api::Code::Internal, "the query", "its thread panicked"));
        self.0.finish(self.1.take().unwrap_or_else(panicked));
    }
}

impl Feed {
    pub fn new(cursor: Arc<Cursor>, engine: AnyEngine, runtime: Handle) -> Feed {
        Feed { cursor, engine, runtime }
    }

    pub fn run(mut self, query: &str, servers: Vec<ServerInfo>) {
        let begun = Instant::now();
        let mut ends = Ends(self.cursor.clone(), None);
        let looks = self.cursor.clone();
        let done = braid_meta_query::run(query, servers, Arc::new(move || looks.why_stop()), &mut self);
        let ms = begun.elapsed().as_millis() as u64;
        match &done {
            Ok(done) => tracing::info!(ms, answered = done.answered, read = done.read, "a query in SQL was answered"),
            Err(error) => tracing::info!(ms, %error, "a query in SQL was not answered"),
        }
        ends.1 = Some(done.map(drop).map_err(braid_api::Error::from));
    }

    /// All rows, as they are stored.
    pub fn run_rows(mut self) {
        let begun = Instant::now();
        let mut ends = Ends(self.cursor.clone(), None);
        let done = self.all_rows();
        let ms = begun.elapsed().as_millis() as u64;
        match &done {
            Ok(rows) => tracing::info!(ms, rows, "all rows were read"),
            Err(error) => tracing::info!(ms, %error, "not all rows were read"),
        }
        ends.1 = Some(done.map(drop).map_err(braid_api::Error::from));
    }

    fn all_rows(&mut self) -> Result<u64, QueryError> {
        let columns = ["table", "key", "row"].map(str::to_owned).into();
        let mut snapshot = self.snapshot(&Table::ALL, columns)?;
        let mut rows = 0;
        for table in Table::ALL {
            let mut after = None;
            loop {
                if let Some(why) = self.cursor.why_stop() {
                    return Err(QueryError::Stopped(why));
                }
                let page = snapshot.scan_table(table, after.as_ref(), PAGE_ROWS)?;
                after = page.rows.last().filter(|_| page.more).map(|(key, _)| key.clone());
                for (key, row) in page.rows {
                    let values =
                        [SqlValue::Integer(table as i64), SqlValue::Blob(key.bytes().to_vec()), SqlValue::Blob(row)];
                    self.row(values.into(), &mut || snapshot.tick())?;
                    rows += 1;
                }
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(rows)
    }

    fn snapshot(&self, tables: &[Table], columns: Vec<String>) -> Result<Box<dyn Snapshot>, EngineError> {
        let (cursor, engine) = (&self.cursor, &self.engine);
        let taken = self.runtime.block_on(async {
            let mut taken = std::pin::pin!(engine.snapshot(tables));
            loop {
                match tokio::time::timeout(LOOK, &mut taken).await {
                    Ok(taken) => return Some(taken),
                    Err(_) if cursor.why_stop().is_some() => return None,
                    Err(_) => {}
                }
            }
        });
        let late = || Err(EngineError::Storage("what was answered did not become durable in time".into()));
        let snapshot = taken.unwrap_or_else(late)?;
        // Not before: what is changed after whoever asked has heard that it begins is not in it.
        cursor.put_columns(columns);
        Ok(snapshot)
    }
}

impl Asker for Feed {
    fn begin(&mut self, columns: Vec<String>) -> Result<Box<dyn Snapshot>, EngineError> {
        self.snapshot(TABLES, columns)
    }

    fn row(&mut self, row: Vec<SqlValue>, tick: &mut dyn FnMut() -> Result<(), EngineError>) -> Result<(), QueryError> {
        if bytes_of(&row) > ROW_BYTES_MAX {
            let most = ROW_BYTES_MAX >> 10;
            return Err(QueryError::TooLarge(format!("a row of the answer has more than {most} KiB")));
        }
        let mut row = row;
        while let Err(back) = self.cursor.put(row) {
            row = back;
            if let Some(why) = self.cursor.why_stop() {
                return Err(QueryError::Stopped(why));
            }
            tick()?;
            self.cursor.wait_for_room(LOOK);
        }
        Ok(())
    }
}
