//! A copy of some tables as a read transaction sees them, made in pieces, whose files have no names: whatever becomes of the
//! process, nothing of it stays.
//!
//! Row by row and not LMDB's own copy of pages, because that cannot be given a transaction, takes all tables along, and goes on for
//! minutes without asking whether anybody still wants it.

use crate::error::{disk_error, store_error};
use crate::rows::Tables;
use crate::store::Store;
use braid_meta_engine::{EngineError, Table};
use heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, WithoutTls};
use rustix::fs::fstatvfs;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Below the metadata directory: what is found there at a start was left by a process that was killed just then.
pub const DIR: &str = "frozen";

/// Between two looks of whoever waits at whether it still wants it.
const STEP: Duration = Duration::from_millis(200);
/// Pages of one step that LMDB holds in memory.
const STEP_BYTES: usize = 16 << 20;
/// Rows between two looks at the clock.
const LOOK_ROWS: usize = 512;

/// Rows of one moment: tables and the transaction that sees them.
pub struct View {
    pub txn: RoTxn<'static, WithoutTls>,
    pub tables: Tables,
}

/// A copy that is being made.
pub struct Copier {
    env: Env<WithoutTls>,
    tables: Tables,
    /// Still to be copied, the last first.
    left: Vec<Table>,
    /// Of the table that is copied now, the last key that was.
    after: Option<Vec<u8>>,
}

impl Copier {
    /// Refuses where the disk has no room for it beside what is kept for removals.
    pub fn begin(store: &Store, view: &View, wanted: &[Table]) -> Result<Copier, EngineError> {
        let failed = |error| store_error("beginning a copy of the metadata", error);
        let page = u64::from(store.env.unnamed_database_stat().page_size);
        let bytes = store.tables.pages_of(&view.txn, wanted)? * page;
        let stat = fstatvfs(store.file()?).map_err(|error| disk_error("asking for room", error.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < bytes + store.options.reserve_bytes {
            return Err(EngineError::Full(format!(
                "whoever reads the metadata for longer than {} s needs a copy of {} MiB, and {} MiB are free on their disk, of \
                 which {} MiB are kept for removing files",
                store.options.read_age_max.as_secs(),
                bytes >> 20,
                free >> 20,
                store.options.reserve_bytes >> 20
            )));
        }
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let dir = store.dir.join(DIR).join(NUMBER.fetch_add(1, Relaxed).to_string());
        std::fs::create_dir_all(&dir).map_err(|error| disk_error("making a place for a copy", error))?;
        // What is appended fills its pages; the rest is for those that its own commits free.
        let opened = open(&dir, 2 * bytes + (64 << 20)).map_err(failed);
        // The files stay until they are closed, without a name.
        let removed = std::fs::remove_dir_all(&dir);
        let (env, tables) = opened?;
        removed.map_err(|error| disk_error("removing the names of a copy", error))?;
        let left = Table::ALL.into_iter().rev().filter(|table| wanted.contains(table)).collect();
        Ok(Copier { env, tables, left, after: None })
    }

    /// Goes on for a moment; `true` when all is there.
    pub fn step(&mut self, from: &View) -> Result<bool, EngineError> {
        let failed = |error| store_error("copying the metadata for who reads it for long", error);
        let begun = Instant::now();
        let mut txn = self.env.write_txn().map_err(failed)?;
        let (mut bytes, mut rows) = (0, 0);
        while let Some(table) = self.left.last().copied() {
            let after = self.after.take();
            let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let bounds = (start, Bound::Unbounded);
            for row in from.tables.of(table).range(&from.txn, &bounds).map_err(failed)? {
                let (key, row) = row.map_err(failed)?;
                self.tables.of(table).put_with_flags(&mut txn, PutFlags::APPEND, key, row).map_err(failed)?;
                bytes += key.len() + row.len();
                rows += 1;
                if bytes >= STEP_BYTES || (rows % LOOK_ROWS == 0 && begun.elapsed() >= STEP) {
                    self.after = Some(key.to_vec());
                    txn.commit().map_err(failed)?;
                    return Ok(false);
                }
            }
            self.left.pop();
        }
        txn.commit().map_err(failed)?;
        Ok(true)
    }

    pub fn finish(self) -> Result<View, EngineError> {
        let txn = self.env.static_read_txn().map_err(|error| store_error("reading a copy of the metadata", error))?;
        Ok(View { txn, tables: self.tables })
    }
}

fn open(dir: &Path, map_bytes: u64) -> heed::Result<(Env<WithoutTls>, Tables)> {
    let page = rustix::param::page_size() as u64;
    let map_bytes = usize::try_from(map_bytes.next_multiple_of(page)).unwrap_or(usize::MAX - page as usize + 1);
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    open.map_size(map_bytes).max_dbs(Table::ALL.len() as u32);
    // SAFETY: what a crash leaves of it is nothing, as it has no name.
    unsafe { open.flags(EnvFlags::NO_SYNC) };
    // SAFETY: the directory is new, and its names are gone before anybody else could open its files.
    let env = unsafe { open.open(dir) }?;
    let txn = env.write_txn()?;
    let made = env.create_databases_and_commit(txn, |opener, txn| {
        let mut tables = Vec::with_capacity(Table::ALL.len());
        for table in Table::ALL {
            tables.push(opener.create_database(txn, Some(&Tables::name(table)))?);
        }
        Ok::<_, heed::Error>(match <[_; Table::ALL.len()]>::try_from(tables) {
            Ok(tables) => CommitOrAbort::Commit(tables),
            Err(_) => CommitOrAbort::Abort(()),
        })
    })?;
    match made {
        CommitOrAbort::Commit(tables) => Ok((env, Tables(tables))),
        CommitOrAbort::Abort(()) => Err(heed::Error::Io(std::io::Error::other("a table is missing"))),
    }
}
