//! A read: one committed moment, no locks.
//!
//! A statement by itself sees one moment and needs no transaction, so a read of one call, which most are, is one statement. If
//! a second call comes, a snapshot is opened in the same message, and the first statement is repeated in it: if it says
//! what it said, all that was read is of the snapshot's moment, and if not, the operation runs again, inside that snapshot.

use crate::failure::{Failed, Verdict};
use crate::pool::Lease;
use crate::select;
use crate::session::{Done, Message};
use braid_meta_engine::{
    Awaited, Counts, EngineError, EngineStats, Key, Lock, Overlay, Page, Row, ScanRange, Table, Tx,
};
use mysql_async::Value;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::Ordering::Relaxed;

/// Begins a transaction that sees one moment.
pub(crate) const SNAPSHOT: [&str; 2] =
    ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"];

enum Seen {
    Nothing,
    /// One statement, and a fingerprint of its answer: a copy of a long list, for the few reads that go on, would cost all.
    One(String, u64),
    Snapshot,
}

pub(crate) struct ReadTx<'a> {
    lease: &'a mut Lease,
    stats: &'a EngineStats,
    hashing: RandomState,
    seen: Seen,
    /// The first statement says something else now: what the operation has seen is not of one moment.
    pub moved: bool,
    /// The row that it tried to write.
    pub wrote: Option<Key>,
    pub failed: Option<Verdict>,
}

impl<'a> ReadTx<'a> {
    pub fn new(lease: &'a mut Lease, stats: &'a EngineStats) -> Self {
        ReadTx {
            lease,
            stats,
            hashing: RandomState::new(),
            seen: Seen::Nothing,
            moved: false,
            wrote: None,
            failed: None,
        }
    }

    /// For the same operation, from its beginning.
    pub fn begin_again(&mut self) {
        self.moved = false;
    }

    async fn ask(&mut self, statement: String) -> Result<Done, EngineError> {
        if self.moved || self.failed.is_some() {
            return Err(over());
        }
        self.stats.round_trips.fetch_add(1, Relaxed);
        let ran = match std::mem::replace(&mut self.seen, Seen::Snapshot) {
            Seen::Nothing => {
                let ran = self.lease.run(&Message::of([&statement])).await;
                let print = self.fingerprint(ran.as_ref().ok().and_then(|done| done.first()));
                self.seen = Seen::One(statement, print);
                ran
            }
            Seen::One(first, before) => {
                let mut message = Message::of(SNAPSHOT);
                message.push(&first);
                message.push(&statement);
                let ran = self.lease.run_open(&message).await;
                let now = ran.as_ref().map(|done| self.fingerprint(done.get(SNAPSHOT.len())));
                self.moved = now.is_ok_and(|now| now != before);
                ran
            }
            Seen::Snapshot => self.lease.run(&Message::of([&statement])).await,
        };
        match ran {
            Ok(_) if self.moved => Err(over()),
            Ok(mut done) => Ok(done.pop().unwrap_or_default()),
            Err(Failed { cause, .. }) => {
                self.failed = Some(cause.verdict());
                Err(over())
            }
        }
    }

    /// Of 64 bits and with a key of this process: that two answers share one is not to be expected, nor to be arranged.
    fn fingerprint(&self, done: Option<&Done>) -> u64 {
        let mut hasher = self.hashing.build_hasher();
        for cells in done.iter().flat_map(|done| &done.rows) {
            for value in cells {
                match value {
                    Value::Bytes(bytes) => bytes.hash(&mut hasher),
                    other => other.as_sql(true).hash(&mut hasher),
                }
            }
        }
        hasher.finish()
    }

    fn write(&mut self, key: Key) {
        self.wrote.get_or_insert(key);
    }
}

/// What the operation is told when the read cannot go on. The engine looks at the fields.
fn over() -> EngineError {
    EngineError::Conflict { attempts: 0 }
}

impl ReadTx<'_> {
    async fn rows_of(&mut self, keys: &[Key]) -> Result<Vec<Option<Row>>, EngineError> {
        let mut asked = keys.to_vec();
        asked.sort();
        asked.dedup();
        let mut found = HashMap::new();
        if !asked.is_empty() {
            for cells in self.ask(select::plain(&asked)).await?.rows {
                let (key, row) = select::decode(cells)?;
                found.insert(key, row);
            }
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    async fn page_of(&mut self, prefix: &Key, after: Option<&Key>, limit: usize) -> Result<Page, EngineError> {
        let text = select::scan(prefix, after, limit.saturating_add(1) as u64, Lock::None);
        let done = self.ask(text).await?;
        let rows = done.rows.into_iter().map(|cells| select::decode_in(prefix, cells));
        Overlay::default().merge(&ScanRange::prefix(prefix, after), limit, rows)
    }

    async fn page_of_table(&mut self, table: Table, after: Option<&Key>, limit: usize) -> Result<Page, EngineError> {
        let done = self.ask(select::whole(table, after, limit.saturating_add(1) as u64)).await?;
        Overlay::default().merge(&ScanRange::table(table, after), limit, done.rows.into_iter().map(select::decode))
    }
}

impl Tx for ReadTx<'_> {
    fn get<'a>(&'a mut self, keys: &'a [Key], _lock: Lock) -> Awaited<'a, Vec<Option<Row>>> {
        Awaited::waits(self.rows_of(keys))
    }

    fn scan<'a>(&'a mut self, prefix: &'a Key, after: Option<&'a Key>, limit: usize, _lock: Lock) -> Awaited<'a, Page> {
        Awaited::waits(self.page_of(prefix, after, limit))
    }

    fn scan_table<'a>(&'a mut self, table: Table, after: Option<&'a Key>, limit: usize) -> Awaited<'a, Page> {
        Awaited::waits(self.page_of_table(table, after, limit))
    }

    fn put(&mut self, key: Key, _row: Row) {
        self.write(key);
    }

    fn insert(&mut self, key: Key, _row: Row) {
        self.write(key);
    }

    fn delete(&mut self, key: Key) {
        self.write(key);
    }

    fn add(&mut self, key: Key, _by: Counts) {
        self.write(key);
    }
}
