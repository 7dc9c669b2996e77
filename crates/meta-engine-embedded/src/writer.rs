//! The write thread: groups of transactions, one LMDB commit and one wait for the disk each.

use crate::error::store_error;
use crate::job::Job;
use crate::queue::Queue;
use crate::room::Room;
use crate::store::Store;
use crate::write::WriteTx;
use braid_meta_engine::EngineError;
use heed::RwTxn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub struct Writer {
    store: Arc<Store>,
    queue: Arc<Queue>,
    room: Room,
    low: bool,
}

type Group = Vec<Box<dyn Job>>;

/// Why a group was not committed.
enum Failure {
    /// Nothing of it was.
    Undone(EngineError),
    /// Nobody knows, and LMDB takes no further writes until it is opened again.
    Unknown(EngineError),
}

/// While room is low a group takes no more than this, so that the pages it copies fit the reserve.
const LOW_GROUP_OPS_MAX: usize = 32;

impl Writer {
    pub fn new(store: Arc<Store>, queue: Arc<Queue>) -> Result<Self, EngineError> {
        let map_bytes = store.env.info().map_size as u64;
        let room = Room::new(store.file()?, store.options.reserve_bytes.min(map_bytes / 8), map_bytes);
        Ok(Writer { store, queue, room, low: false })
    }

    /// Works until the queue is closed.
    pub fn run(mut self) {
        // If this thread should ever panic, callers get an answer and do not hang.
        let _closer = Closer(self.queue.clone());
        while let Some(first) = self.queue.wait() {
            let mut group = vec![first];
            match self.attempt(&mut group, true) {
                Err(Failure::Undone(error)) if group.len() > 1 => {
                    tracing::warn!(%error, transactions = group.len(), "a group failed, each is tried alone");
                    self.store.stats.retries.fetch_add(group.len() as u64, Relaxed);
                    group.into_iter().for_each(|job| self.alone(job));
                }
                result => answer(group, result),
            }
        }
    }

    fn alone(&mut self, job: Box<dyn Job>) {
        let mut group = vec![job];
        let result = self.attempt(&mut group, false);
        answer(group, result);
    }

    /// Runs the group, and with `grow` what comes to the queue meanwhile, in one LMDB transaction.
    ///
    /// All answers wait for the commit, also of operations that failed or only read: they may have seen what
    /// operations before them wrote.
    fn attempt(&mut self, group: &mut Group, grow: bool) -> Result<(), Failure> {
        let store = self.store.clone();
        let begun = store.env.write_txn().map_err(|error| store_error("beginning a group", error));
        let mut txn = begun.map_err(Failure::Undone)?;
        self.look_at_room(&txn).map_err(Failure::Undone)?;
        let ops_max = if self.low { LOW_GROUP_OPS_MAX } else { store.options.group_ops_max };
        let mut written = Written::default();
        let mut next = 0;
        loop {
            if next == group.len() {
                let full = next >= ops_max || written.bytes >= store.options.group_bytes_max;
                let more = if full || !grow { None } else { self.queue.try_take() };
                let Some(job) = more else { break };
                group.push(job);
            }
            self.execute(&mut txn, &mut *group[next], &mut written).map_err(Failure::Undone)?;
            next += 1;
        }
        if !written.any {
            txn.abort();
            return Ok(());
        }
        self.commit(txn)
    }

    /// Runs one operation and applies its writes. An error is the store's; the operation's own is its answer.
    fn execute(&self, txn: &mut RwTxn<'_>, job: &mut dyn Job, written: &mut Written) -> Result<(), EngineError> {
        if job.is_abandoned() {
            return Ok(());
        }
        let mut tx = WriteTx::new(txn, &self.store.tables);
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut tx)));
        let writes = *ran.as_ref().unwrap_or(&false) && tx.wrote();
        self.store.stats.round_trips.fetch_add(tx.round_trips + u64::from(writes), Relaxed);
        if ran.is_err() {
            job.refuse(EngineError::Storage("the operation panicked".into()));
        }
        if !writes {
            return Ok(());
        }
        match self.admit(&tx) {
            Ok(()) => {
                written.bytes += tx.apply()?;
                written.any = true;
            }
            Err(refused) => job.refuse(refused),
        }
        Ok(())
    }

    fn admit(&self, tx: &WriteTx<'_, '_>) -> Result<(), EngineError> {
        tx.check()?;
        if self.low && !tx.weight()?.may_use_reserve() {
            return Err(EngineError::Full("what is left is kept for removing files".into()));
        }
        Ok(())
    }

    fn look_at_room(&mut self, txn: &RwTxn<'_>) -> Result<(), EngineError> {
        let page = u64::from(self.store.env.unnamed_database_stat().page_size);
        let end_bytes = (self.store.env.info().last_page_number as u64 + 1) * page;
        let low = self.room.is_low(end_bytes, || Ok(self.store.tables.pages(txn)? * page))?;
        if low != self.low {
            tracing::warn!(low, dir = %self.store.dir.display(), "room of the metadata store");
            self.low = low;
        }
        Ok(())
    }

    fn commit(&self, txn: RwTxn<'_>) -> Result<(), Failure> {
        let committed = txn.commit();
        self.store.stats.syncs.fetch_add(1, Relaxed);
        let Err(error) = committed else { return Ok(()) };
        // When LMDB failed while it wrote the page that makes the commit valid, it refuses every later write
        // transaction; in any other case that page is as it was.
        match self.store.env.write_txn() {
            Ok(txn) => {
                txn.abort();
                Err(Failure::Undone(store_error("committing a group", error)))
            }
            Err(later) => {
                tracing::error!(%error, %later, "the metadata store must be opened again");
                Err(Failure::Unknown(EngineError::MaybeCommitted(format!("committing a group: {error}"))))
            }
        }
    }
}

/// What a group has written so far.
#[derive(Default)]
struct Written {
    any: bool,
    bytes: usize,
}

fn answer(mut group: Group, result: Result<(), Failure>) {
    if let Err(Failure::Undone(error) | Failure::Unknown(error)) = result {
        group.iter_mut().for_each(|job| job.refuse(error.clone()));
    }
    group.into_iter().for_each(|job| job.answer());
}

struct Closer(Arc<Queue>);

impl Drop for Closer {
    fn drop(&mut self) {
        self.0.close();
    }
}
