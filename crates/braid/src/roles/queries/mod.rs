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
use braid_meta_engine::AnyEngine;
use braid_meta_server::Queries;
use cursor::Cursor;
use feed::Feed;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Queries that run at once: a core each, and a snapshot.
const RUNNING_MAX: usize = 4;
/// And with those that have ended and are not fetched to their end.
const CURSORS_MAX: usize = 16;
/// Whatever is asked for.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// For the threads to end, at a stop.
const STOP_MAX: Duration = Duration::from_secs(3);
const STACK_BYTES: usize = 64 << 20;

pub struct QueryRunner {
    env: Env,
    engine: AnyEngine,
    runtime: Handle,
    cursors: Mutex<BTreeMap<u64, Arc<Cursor>>>,
    /// A permit for each thread, until it has ended.
    threads: Arc<Semaphore>,
}

impl QueryRunner {
    /// Inside the runtime that the engine lives in.
    pub fn new(env: &Env, engine: &AnyEngine) -> QueryRunner {
        let (env, engine) = (env.clone(), engine.clone());
        let threads = Arc::new(Semaphore::new(RUNNING_MAX));
        QueryRunner { env, engine, runtime: Handle::current(), cursors: Mutex::default(), threads }
    }

    /// Begins none any more and ends all of them: their threads must not outlive the runtime that they wait in.
    pub async fn stop(&self) {
        let (threads, running) = (self.threads.clone(), u32::try_from(RUNNING_MAX).unwrap_or(u32::MAX));
        let cursors = std::mem::take(&mut *self.cursors.lock());
        cursors.values().for_each(|cursor| cursor.stop("the metadata server stops"));
        if self.env.timeout(STOP_MAX, threads.acquire_many(running)).await.is_err() {
            tracing::warn!("a query in SQL has not ended");
        }
        threads.close();
    }

    /// A place among the others. Numbers are drawn, so that one of before a restart is not taken for another's.
    fn place(&self, timeout: Duration) -> Result<(u64, Arc<Cursor>, OwnedSemaphorePermit)> {
        let mut cursors = self.cursors.lock();
        cursors.retain(|_, cursor| cursor.is_wanted());
        let busy = |why: String| Error::new(Code::Busy, "the query", why);
        if cursors.len() >= CURSORS_MAX {
            return Err(busy(format!("{CURSORS_MAX} answers are not fetched to their end: ask again later")));
        }
        let permit = self.threads.clone().try_acquire_owned();
        let permit = permit.map_err(|_| busy(format!("{RUNNING_MAX} others run: ask again later")))?;
        let number = self.env.random.u64();
        let cursor = Arc::new(Cursor::new(timeout.min(TIMEOUT_MAX)));
        cursors.insert(number, cursor.clone());
        Ok((number, cursor, permit))
    }

    fn find(&self, number: u64) -> Result<Arc<Cursor>> {
        let gone = "nobody had asked for more of it for a minute, or the metadata server has started anew";
        let found = self.cursors.lock().get(&number).cloned();
        found.ok_or_else(|| Error::new(Code::Interrupted, "the query", gone))
    }

    fn start(
        &self,
        number: u64,
        cursor: &Arc<Cursor>,
        permit: OwnedSemaphorePermit,
        run: impl FnOnce(Feed) + Send + 'static,
    ) -> Result<()> {
        let feed = Feed::new(cursor.clone(), self.engine.clone(), self.runtime.clone());
        let work = move || {
            run(feed);
            drop(permit);
        };
        // SQLite goes a level deeper for each table expression that is made from another, of which a text may have thousands. Pages
        // of a stack that nobody touches cost nothing.
        let started = std::thread::Builder::new().name("sql".into()).stack_size(STACK_BYTES).spawn(work);
        started.map(drop).map_err(|error| {
            self.cursors.lock().remove(&number);
            Error::new(Code::Internal, "the query", format_args!("starting its thread: {error}"))
        })
    }
}

impl QueryRunner {
    async fn begun(&self, timeout: Duration, run: impl FnOnce(Feed) + Send + 'static) -> Result<SqlBegun> {
        let (number, cursor, permit) = self.place(timeout)?;
        self.start(number, &cursor, permit, run)?;
        match cursor.columns().await {
            Ok(columns) => Ok(SqlBegun { cursor: number, columns }),
            Err(error) => {
                self.cursors.lock().remove(&number);
                Err(error)
            }
        }
    }
}

impl Queries for QueryRunner {
    fn begin(&self, query: String, timeout: Duration, servers: Vec<ServerInfo>) -> BoxFuture<'_, Result<SqlBegun>> {
        Box::pin(self.begun(timeout, move |feed| feed.run(&query, servers)))
    }

    fn begin_rows(&self, timeout: Duration) -> BoxFuture<'_, Result<SqlBegun>> {
        Box::pin(self.begun(timeout, Feed::run_rows))
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
