//! The write thread: groups of transactions, one LMDB commit and one wait for the disk, that of the log, each.
//!
//! A group ends when nobody has anything to add and somebody waits for it, when it is full, or, if all it did was
//! answered early, when it has been held long enough. Where somebody waits for it, those who are answered early and come
//! again are too late for it, or it would be held up by them. What a transaction that waits for the commit has changed is
//! nobody's until then: who touches it is not answered early, and waits as well.

use crate::error::store_error;
use crate::job::Job;
use crate::ordered::Looker;
use crate::queue::Queue;
use crate::room::Room;
use crate::settle::{Settler, Waiting};
use crate::store::Store;
use crate::write::WriteTx;
use braid_meta_engine::{EngineError, Order, may_answer};
use braid_types::RowChanges;
use heed::RwTxn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

pub struct Writer {
    store: Arc<Store>,
    queue: Arc<Queue>,
    room: Room,
    low: bool,
    /// Of the last transaction that changed something.
    number: u64,
    /// Where copies are kept elsewhere.
    settler: Option<Settler>,
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
        let reserve_bytes = store.options.reserve_bytes.min(map_bytes / 8);
        // A group copies about as much again as it writes.
        let margin_bytes = 2 * store.options.group_bytes_max as u64;
        let room = Room::new(store.file()?, reserve_bytes, map_bytes, margin_bytes);
        Ok(Writer { store, queue, room, low: false, number: 0, settler: None })
    }

    /// Works until the queue is closed, or until changes that were answered are lost.
    pub fn run(mut self) {
        // If this thread should ever panic, callers get an answer and do not hang.
        let _closer = Closer(self.queue.clone());
        while let Some(first) = self.queue.wait() {
            if let Err(error) = self.look_at_copies() {
                tracing::error!(%error, "the metadata cannot be copied");
                return;
            }
            let mut group = vec![first];
            let tried = match self.attempt(&mut group, true) {
                // A full log is emptied before it is tried again.
                Err(Failure::Undone(error))
                    if group.len() > 1 || promised(&group) || matches!(error, EngineError::Full(_)) =>
                {
                    tracing::warn!(%error, transactions = group.len(), "a group failed, each is tried alone");
                    self.store.stats.retries.fetch_add(group.len() as u64, Relaxed);
                    self.each_alone(group)
                }
                result => vec![(group, result)],
            };
            let broken = tried.iter().find_map(|(group, result)| match result {
                Err(Failure::Undone(error) | Failure::Unknown(error)) if promised(group) => Some(error.clone()),
                _ => None,
            });
            self.store.ordered.seal(self.number);
            match (&broken, &self.settler) {
                (Some(_), _) => self.store.ordered.fail(),
                (None, None) => self.store.ordered.settled(self.number),
                // When the copies have it: until then nobody sees it, and the next group goes on.
                (None, Some(_)) => {}
            }
            // Of several that were tried alone, what the last waits for is what all wait for.
            let (mut left, number) = (tried.len(), self.number);
            tried.into_iter().for_each(|(jobs, result)| match (&self.settler, &result) {
                (Some(settler), Ok(())) => {
                    left -= 1;
                    let number = if left == 0 { number } else { 0 };
                    let synced = jobs.iter().any(|job| job.wants_sync());
                    let group = settler.outlet.last();
                    if synced {
                        settler.outlet.want_sync(group);
                    }
                    settler.put(Waiting { jobs, group, synced, number });
                }
                _ => {
                    left -= 1;
                    answer(jobs, result);
                }
            });
            if let Some(error) = broken {
                // Whoever asked keeps what it was answered for and asks again, but only of a server that starts.
                tracing::error!(%error, "changes that were answered are not durable: start the metadata server again");
                return;
            }
            if self.store.journal.has_failed() {
                self.store.ordered.fail();
                return;
            }
        }
    }

    /// The settler begins with the first group after the engine was told of copies.
    fn look_at_copies(&mut self) -> Result<(), EngineError> {
        if self.settler.is_none()
            && let Some(outlet) = self.queue.outlet()
        {
            self.settler = Some(Settler::start(self.store.clone(), self.queue.clone(), outlet)?);
        }
        Ok(())
    }

    /// In their order, up to the first that was answered and fails.
    fn each_alone(&mut self, group: Group) -> Vec<(Group, Result<(), Failure>)> {
        let mut tried = Vec::with_capacity(group.len());
        for job in group {
            let mut alone = vec![job];
            let result = self.attempt(&mut alone, false);
            let end = result.is_err() && promised(&alone);
            tried.push((alone, result));
            if end {
                break;
            }
        }
        tried
    }

    /// Runs the group, and with `grow` what comes to the queue meanwhile, in one LMDB transaction.
    ///
    /// Answers that are not early wait for the commit, also of operations that failed or only read: they may have seen
    /// what operations before them wrote.
    fn attempt(&mut self, group: &mut Group, grow: bool) -> Result<(), Failure> {
        let store = self.store.clone();
        let begun = store.env.write_txn().map_err(|error| store_error("beginning a group", error));
        let mut txn = begun.map_err(Failure::Undone)?;
        self.look_at_room(&txn).map_err(Failure::Undone)?;
        // Room is looked at between groups: a large one would go far into the reserve.
        let near = self.room.is_near();
        let ops_max = if self.low { LOW_GROUP_OPS_MAX } else { store.options.group_ops_max };
        // What is tried again is answered when it is durable.
        let mut written = Written { again: !grow, ..Written::default() };
        let mut held = None;
        let mut next = 0;
        loop {
            if next == group.len() {
                let end = written.end_at.map_or(ops_max, |end| end.min(ops_max));
                if !grow || next >= end || written.bytes >= store.options.group_bytes_max {
                    break;
                }
                let more = match self.queue.try_take() {
                    None if written.any && !written.awaited && !near => {
                        self.queue.wait_until(*held.get_or_insert_with(|| Instant::now() + store.options.group_hold))
                    }
                    more => more,
                };
                let Some(job) = more else { break };
                group.push(job);
            }
            let early = self.execute(&mut txn, &mut *group[next], &mut written).map_err(Failure::Undone)?;
            next += 1;
            if early && written.awaited && written.end_at.is_none() {
                written.end_at = Some(group.len() + self.queue.len());
            }
        }
        if !written.any {
            txn.abort();
            return Ok(());
        }
        let sync = group.iter().any(|job| job.wants_sync());
        self.commit(txn, written.changes, sync)
    }

    /// Runs one operation, applies its writes and answers it if it may be answered early: whether it was. An error is the
    /// store's; the operation's own is its answer.
    fn execute(&mut self, txn: &mut RwTxn<'_>, job: &mut dyn Job, written: &mut Written) -> Result<bool, EngineError> {
        if job.is_abandoned() {
            return Ok(false);
        }
        let store = self.store.clone();
        let early = job.early();
        let looker = Looker::of_writer(&store.ordered, early.map(|early| early.owner));
        let mut tx = WriteTx::new(txn, &store.tables, looker);
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut tx)));
        let mut writes = *ran.as_ref().unwrap_or(&false) && tx.wrote();
        self.store.stats.round_trips.fetch_add(tx.round_trips + u64::from(writes), Relaxed);
        if ran.is_err() {
            job.refuse(EngineError::Storage("the operation panicked".into()));
        }
        if writes {
            // What was answered had been admitted.
            match self.admit(&tx, job.may_use_reserve() || job.is_answered()) {
                Ok(()) => {
                    written.bytes += tx.apply()?;
                    tx.record(&mut written.changes);
                    written.any = true;
                    self.number += 1;
                }
                Err(refused) => {
                    job.refuse(refused);
                    writes = false;
                }
            }
        }
        if job.is_answered() {
            // It is tried again, and its answer stands; what it changed is held by its owner since.
            let lost = || EngineError::Storage("a change that was answered cannot be repeated".into());
            return job.outcome().map(|_| false).map_err(|()| lost());
        }
        let touched = tx.looker.touched;
        match early.filter(|_| !written.again && may_answer(touched, job.outcome())) {
            Some(early) => {
                if writes {
                    store.ordered.add(early.owner, tx.keys());
                }
                job.answer(if writes || touched.own { Order::Early(self.number) } else { Order::Durable });
                Ok(true)
            }
            None => {
                match &self.settler {
                    Some(_) if writes => store.ordered.hide(tx.keys()),
                    None if writes => store.ordered.wait(tx.keys()),
                    _ => {}
                }
                written.awaited = true;
                Ok(false)
            }
        }
    }

    fn admit(&self, tx: &WriteTx<'_, '_>, admitted: bool) -> Result<(), EngineError> {
        tx.check()?;
        if self.low && !admitted && !tx.weight()?.may_use_reserve() {
            return Err(EngineError::Full(self.room.told()));
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

    /// Into the log, whose sync makes it durable, and only then where readers see it. With copies the group is on its way to them while
    /// the disk syncs.
    fn commit(&self, mut txn: RwTxn<'_>, changes: RowChanges, sync: bool) -> Result<(), Failure> {
        let (store, outlet) = (&self.store, self.settler.as_ref().map(|settler| &settler.outlet));
        let position = outlet.map(|outlet| outlet.next()).unwrap_or_default();
        let changes = Arc::new(changes.into_bytes());
        let mut sent = None;
        if let Some(outlet) = outlet {
            store.put_position(&mut txn, position).map_err(Failure::Undone)?;
            let number = outlet.push(changes.clone()).number;
            if sync {
                outlet.want_sync(number);
            }
            sent = Some((outlet, number));
        }
        let take_back = || {
            if let Some((outlet, number)) = sent {
                outlet.retract(number);
            }
        };
        let logged = store.journal.append(position, &changes);
        store.stats.syncs.fetch_add(1, Relaxed);
        if let Err(error) = logged {
            txn.abort();
            take_back();
            return Err(match error {
                EngineError::MaybeCommitted(_) => Failure::Unknown(error),
                EngineError::Full(_) => match store.journal.checkpoint(&store.env) {
                    Ok(()) => Failure::Undone(error),
                    Err(later) => Failure::Undone(later),
                },
                _ => Failure::Undone(error),
            });
        }
        let Err(error) = txn.commit() else {
            return self.look_at_log().map_err(Failure::Unknown);
        };
        take_back();
        // When LMDB failed while it wrote the page that makes the commit valid, it refuses every later write
        // transaction; in any other case that page is as it was.
        let undone = match store.env.write_txn() {
            Ok(txn) => {
                let retracted = store.journal.retract();
                txn.abort();
                retracted
            }
            Err(later) => Err(store_error("beginning a group", later)),
        };
        match undone {
            Ok(()) => Err(Failure::Undone(store_error("committing a group", error))),
            Err(later) => {
                tracing::error!(%error, %later, "the metadata store must be opened again");
                Err(Failure::Unknown(EngineError::MaybeCommitted(format!("committing a group: {error}"))))
            }
        }
    }

    /// What a checkpoint holds cannot be written again: where that may be missed, one is made after each group.
    fn look_at_log(&self) -> Result<(), EngineError> {
        match self.room.is_near() {
            true => self.store.journal.checkpoint(&self.store.env),
            false => {
                self.store.journal.committed(&self.store.env);
                Ok(())
            }
        }
    }
}

/// What a group has done so far.
#[derive(Default)]
struct Written {
    any: bool,
    bytes: usize,
    /// It is tried once more, alone: nothing is answered early.
    again: bool,
    /// Somebody waits for the commit.
    awaited: bool,
    /// How many operations it may have: those that were there when, while somebody waited, one was answered early.
    end_at: Option<usize>,
    /// For copies elsewhere.
    changes: RowChanges,
}

/// Something of the group was answered already.
fn promised(group: &Group) -> bool {
    group.iter().any(|job| job.is_answered())
}

/// Tells those who wait.
fn answer(mut group: Group, result: Result<(), Failure>) {
    for job in group.iter_mut().filter(|job| !job.is_answered()) {
        if let Err(Failure::Undone(error) | Failure::Unknown(error)) = &result {
            job.refuse(error.clone());
        }
        job.answer(Order::Durable);
    }
}

struct Closer(Arc<Queue>);

impl Drop for Closer {
    fn drop(&mut self) {
        self.0.close();
    }
}
