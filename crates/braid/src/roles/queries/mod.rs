//! Queries in SQL: each on a thread of its own beside the metadata server, and its answer in pages for who asks for them.
//!
//! Promises: so many run at once and no more; a query ends at its deadline, when it is told to, and when nobody has asked for more of it
//! for a minute; of an answer that is not fetched so many pages are kept and no more.

mod cursor;
mod feed;

use braid_api::admin::{SqlBegun, SqlPage};
use braid_api::meta::ServerInfo;
use braid_api::{Code, Error, Result};
use braid_env::{BoxFuture, Env};
use braid_meta_engine::Engine;
use braid_meta_server::Queries;
use cursor::Cursor;
use feed::Feed;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Queries that run at once: a core each, and a snapshot.
const RUNNING_MAX: usize = 4;
/// And with those that have ended and are not fetched to their end.
const CURSORS_MAX: usize = 16;
/// Whatever is asked for.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

pub struct QueryRunner<E> {
    env: Env,
    engine: Arc<E>,
    runtime: Handle,
    cursors: Mutex<BTreeMap<u64, Arc<Cursor>>>,
}

impl<E: Engine> QueryRunner<E> {
    /// Inside the runtime that the engine lives in.
    pub fn new(env: &Env, engine: &Arc<E>) -> QueryRunner<E> {
        let (env, engine) = (env.clone(), engine.clone());
        QueryRunner { env, engine, runtime: Handle::current(), cursors: Mutex::default() }
    }

    /// Ends all of them, soon.
    pub fn stop(&self) {
        let cursors = std::mem::take(&mut *self.cursors.lock());
        cursors.values().for_each(|cursor| cursor.stop("the metadata server stops"));
    }

    /// A place among the others. Numbers are drawn, so that one of before a restart is not taken for another's.
    fn place(&self, timeout: Duration) -> Result<(u64, Arc<Cursor>)> {
        let mut cursors = self.cursors.lock();
        cursors.retain(|_, cursor| cursor.is_wanted());
        let running = cursors.values().filter(|cursor| cursor.is_running()).count();
        if running >= RUNNING_MAX || cursors.len() >= CURSORS_MAX {
            return Err(Error::new(Code::Busy, "the query", format_args!("{running} others run: ask again later")));
        }
        let number = self.env.random.u64();
        let cursor = Arc::new(Cursor::new(timeout.min(TIMEOUT_MAX)));
        cursors.insert(number, cursor.clone());
        Ok((number, cursor))
    }

    fn find(&self, number: u64) -> Result<Arc<Cursor>> {
        let gone = "nobody had asked for more of it for a minute, or the metadata server has started anew";
        let found = self.cursors.lock().get(&number).cloned();
        found.ok_or_else(|| Error::new(Code::Interrupted, "the query", gone))
    }

    fn start(&self, number: u64, cursor: &Arc<Cursor>, query: String, servers: Vec<ServerInfo>) -> Result<()> {
        let feed = Feed::new(cursor.clone(), self.engine.clone(), self.runtime.clone());
        let work = move || feed.run(&query, servers);
        // Its deepest recursion is SQLite's parser's, which is bounded.
        let started = std::thread::Builder::new().name("sql".into()).spawn(work);
        started.map(drop).map_err(|error| {
            self.cursors.lock().remove(&number);
            Error::new(Code::Internal, "the query", format_args!("starting its thread: {error}"))
        })
    }
}

impl<E: Engine> Queries for QueryRunner<E> {
    fn begin(&self, query: String, timeout: Duration, servers: Vec<ServerInfo>) -> BoxFuture<'_, Result<SqlBegun>> {
        Box::pin(async move {
            let (number, cursor) = self.place(timeout)?;
            self.start(number, &cursor, query, servers)?;
            match cursor.columns().await {
                Ok(columns) => Ok(SqlBegun { cursor: number, columns }),
                Err(error) => {
                    self.cursors.lock().remove(&number);
                    Err(error)
                }
            }
        })
    }

    fn next(&self, number: u64, page: u64) -> BoxFuture<'_, Result<SqlPage>> {
        Box::pin(async move { self.find(number)?.page(page).await })
    }

    fn end(&self, number: u64) {
        if let Some(cursor) = self.cursors.lock().remove(&number) {
            cursor.stop("nobody wants it any more");
        }
    }
}
