//! A transaction that may write: row locks at READ COMMITTED, writes kept back until the commit.
//!
//! It begins in the database with the first read that locks, in the same message; one that locks nothing begins with
//! its commit.

use crate::failure::{Cause, Failed, Verdict};
use crate::pool::Lease;
use crate::select;
use crate::session::{Done, Message};
use braid_meta_engine::{
    Awaited, Counts, EngineError, EngineStats, Key, Lock, Overlay, Page, Row, ScanRange, Table, Tx,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering::Relaxed;

/// Rows over which numbers are spread to which everybody adds: each is locked from the message with the COMMIT until that is done.
pub(crate) const SPREAD: u8 = 16;

pub(crate) struct SqlTx<'a> {
    lease: &'a mut Lease,
    stats: &'a EngineStats,
    pub overlay: Overlay,
    /// Every read takes this lock at least.
    least: Lock,
    /// And none takes more than this, which is a planted fault.
    most: Lock,
    pub begun: bool,
    /// Rows that were not there when they were asked for with a lock (`write.rs`).
    pub absent: BTreeSet<Key>,
    /// Partitions with rows that were asked for with a lock.
    pub locked: BTreeSet<u64>,
    /// It only looks, on a database without snapshots: a row that was not there, and so is not locked, is looked at again with
    /// each further call, in the same message. If none has come, all that was read holds at the end.
    pub looks_again: bool,
    /// Why it cannot go on, whatever the operation makes of the error.
    pub failed: Option<Verdict>,
}

impl<'a> SqlTx<'a> {
    pub fn new(lease: &'a mut Lease, stats: &'a EngineStats, least: Lock, most: Lock) -> Self {
        SqlTx {
            lease,
            stats,
            overlay: Overlay::default(),
            least,
            most,
            begun: false,
            absent: BTreeSet::new(),
            locked: BTreeSet::new(),
            looks_again: false,
            failed: None,
        }
    }

    fn strength(&self, lock: Lock) -> Lock {
        lock.max(self.least).min(self.most)
    }

    /// Sends statements that read; one round trip.
    async fn ask(&mut self, statements: Vec<String>, lock: Lock) -> Result<Vec<Done>, EngineError> {
        if self.failed.is_some() {
            return Err(over());
        }
        self.stats.round_trips.fetch_add(1, Relaxed);
        let begins = lock != Lock::None && !self.begun;
        let mut message = Message::of(begins.then_some("START TRANSACTION"));
        statements.iter().for_each(|statement| message.push(statement));
        if self.looks_again && lock != Lock::None {
            let absent: Vec<Key> = self.absent.iter().cloned().collect();
            select::locked(&absent, |_| lock).iter().for_each(|statement| message.push(statement));
        }
        let ran = match lock {
            Lock::None => self.lease.run(&message).await,
            _ => self.lease.run_open(&message).await,
        };
        self.begun |= begins;
        match ran {
            Ok(mut done) => {
                let mut done = done.split_off(usize::from(begins));
                if done.drain(statements.len()..).any(|again| !again.rows.is_empty()) {
                    self.failed = Some(Cause::Duplicate.verdict());
                    return Err(over());
                }
                Ok(done)
            }
            Err(Failed { cause, .. }) => {
                self.failed = Some(cause.verdict());
                Err(over())
            }
        }
    }

    /// What was said of these rows with a lock: it holds until the transaction ends, or the transaction begins again.
    fn note(&mut self, asked: &[Key], found: &HashMap<Key, Row>) -> Result<(), EngineError> {
        for key in asked {
            self.locked.insert(key.partition());
            if !found.contains_key(key) {
                self.absent.insert(key.clone());
            } else if self.absent.contains(key) {
                self.failed = Some(Cause::Duplicate.verdict());
                return Err(over());
            }
        }
        Ok(())
    }

    /// How many rows to ask for, so that a page can be filled whatever this transaction did to them, and one more.
    fn rows_for(&self, range: &ScanRange<'_>, limit: usize) -> u64 {
        let mine = self.overlay.writes().filter(|(key, _)| range.holds(key)).count();
        limit.saturating_add(mine).saturating_add(1) as u64
    }
}

/// What the operation is told when the transaction cannot go on. The engine looks at [`SqlTx::failed`].
fn over() -> EngineError {
    EngineError::Conflict { attempts: 0 }
}

impl SqlTx<'_> {
    async fn rows_of(
        &mut self,
        keys: &[Key],
        lock: Lock,
        shares: fn(&Key) -> bool,
    ) -> Result<Vec<Option<Row>>, EngineError> {
        let lock = self.strength(lock);
        let mut asked = keys.to_vec();
        asked.sort();
        asked.dedup();
        if lock == Lock::None {
            asked.retain(|key| self.overlay.get(key).is_none());
        }
        let mut found = HashMap::new();
        if !asked.is_empty() {
            let statements = match lock {
                Lock::None => vec![select::plain(&asked)],
                lock => select::locked(&asked, |key| if shares(key) { lock.min(Lock::Shared) } else { lock }),
            };
            for cells in self.ask(statements, lock).await?.into_iter().flat_map(|done| done.rows) {
                let (key, row) = select::decode(cells)?;
                found.insert(key, row);
            }
        }
        if lock != Lock::None {
            self.note(&asked, &found)?;
        }
        let row = |key| self.overlay.get(key).unwrap_or_else(|| found.get(key)).cloned();
        Ok(keys.iter().map(row).collect())
    }

    async fn page_of(
        &mut self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
        lock: Lock,
    ) -> Result<Page, EngineError> {
        let lock = self.strength(lock);
        let range = ScanRange::prefix(prefix, after);
        let text = select::scan(prefix, after, self.rows_for(&range, limit), lock);
        let done = self.ask(vec![text], lock).await?;
        if lock != Lock::None {
            self.locked.insert(prefix.partition());
        }
        let rows = done.into_iter().flat_map(|done| done.rows);
        self.overlay.merge(&range, limit, rows.map(|cells| select::decode_in(prefix, cells)))
    }

    async fn page_of_table(&mut self, table: Table, after: Option<&Key>, limit: usize) -> Result<Page, EngineError> {
        let range = ScanRange::table(table, after);
        let text = select::whole(table, after, self.rows_for(&range, limit));
        let done = self.ask(vec![text], Lock::None).await?;
        self.overlay.merge(&range, limit, done.into_iter().flat_map(|done| done.rows).map(select::decode))
    }
}

impl Tx for SqlTx<'_> {
    fn get<'a>(&'a mut self, keys: &'a [Key], lock: Lock) -> Awaited<'a, Vec<Option<Row>>> {
        Awaited::waits(self.rows_of(keys, lock, |_| false))
    }

    fn get_sharing<'a>(
        &'a mut self,
        keys: &'a [Key],
        lock: Lock,
        shares: fn(&Key) -> bool,
    ) -> Awaited<'a, Vec<Option<Row>>> {
        Awaited::waits(self.rows_of(keys, lock, shares))
    }

    fn scan<'a>(&'a mut self, prefix: &'a Key, after: Option<&'a Key>, limit: usize, lock: Lock) -> Awaited<'a, Page> {
        Awaited::waits(self.page_of(prefix, after, limit, lock))
    }

    fn scan_table<'a>(&'a mut self, table: Table, after: Option<&'a Key>, limit: usize) -> Awaited<'a, Page> {
        Awaited::waits(self.page_of_table(table, after, limit))
    }

    fn put(&mut self, key: Key, row: Row) {
        self.overlay.put(key, row);
    }

    fn insert(&mut self, key: Key, row: Row) {
        self.overlay.insert(key, row);
    }

    fn delete(&mut self, key: Key) {
        self.overlay.delete(key);
    }

    fn add(&mut self, key: Key, by: Counts) {
        self.overlay.add(key, by);
    }

    fn spread(&self) -> u8 {
        SPREAD
    }
}
