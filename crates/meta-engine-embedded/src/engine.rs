use crate::job::{Answer, Transaction, waited};
use crate::options::EmbeddedOptions;
use crate::ordered::Looker;
use crate::queue::Queue;
use crate::read::ReadTx;
use crate::store::Store;
use crate::writer::Writer;
use braid_meta_engine::{
    Early, Engine, EngineError, EngineStats, Operation, Order, Outlet, Snapshot, Table, Touched, Tx, run_ready,
};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// An open metadata directory. Dropping it closes it: transactions under way are finished, queued ones are
/// answered with [`EngineError::Closed`].
pub struct EmbeddedEngine {
    store: Arc<Store>,
    queue: Arc<Queue>,
    /// Where copies are kept elsewhere.
    outlet: OnceLock<Arc<Outlet>>,
    /// That which writes, and that which makes checkpoints.
    threads: Mutex<Option<(JoinHandle<()>, JoinHandle<()>)>>,
}

impl EmbeddedEngine {
    /// Opens `dir`, and makes it if there is none.
    pub fn open(dir: &Path, options: EmbeddedOptions) -> Result<Self, EngineError> {
        let store = Arc::new(Store::open(dir, options)?);
        let queue = Arc::new(Queue::default());
        let writer = Writer::new(store.clone(), queue.clone())?;
        let thread = std::thread::Builder::new().name("meta-writer".into()).spawn(|| writer.run());
        let thread = thread.map_err(|error| EngineError::Storage(format!("starting the write thread: {error}")))?;
        let checkpoints = {
            let (store, queue) = (store.clone(), queue.clone());
            move || keep_checkpoints(&store, &queue)
        };
        let checkpoints = std::thread::Builder::new().name("meta-checkpoint".into()).spawn(checkpoints);
        let checkpoints = checkpoints.map_err(|error| EngineError::Storage(format!("starting a thread: {error}")))?;
        Ok(EmbeddedEngine { store, queue, outlet: OnceLock::new(), threads: Mutex::new(Some((thread, checkpoints))) })
    }

    /// Writes a copy of one moment, without its unused pages, into an empty directory `dir`, which can be
    /// opened as an engine. Blocks; may run beside everything else, but pages freed meanwhile are not used
    /// again before it ends.
    pub fn snapshot_copy(&self, dir: &Path) -> Result<(), EngineError> {
        self.store.snapshot_copy(dir)
    }

    /// What the store takes on the disk, the reserve included.
    pub fn disk_bytes(&self) -> Result<u64, EngineError> {
        self.store.disk_bytes()
    }

    /// Returns when every transaction begun before is durable or has failed.
    pub async fn flush(&self) -> Result<(), EngineError> {
        self.submit(Barrier, None, false).await.map(drop)
    }

    /// Ends writing: what is queued and what comes later is answered with [`EngineError::Closed`]. Reads go on.
    pub fn close(&self) {
        self.queue.close();
        if let Some(outlet) = self.outlet.get() {
            outlet.close("the engine was closed");
        }
    }

    /// What dropping it does, for who is not the only one that has it: then the directory has one file, and the next start no log to go
    /// through. Blocks until what is under way has ended.
    pub fn shut(&self) {
        self.close();
        self.store.journal.end();
        let Some((writer, checkpoints)) = self.threads.lock().take() else { return };
        // An operation may hold the last reference to the engine it runs in: that thread ends by itself, and the next start finds the log.
        if writer.thread().id() == std::thread::current().id() {
            return;
        }
        if writer.join().is_err() || checkpoints.join().is_err() {
            tracing::error!("a thread of the metadata store had panicked");
            return;
        }
        if !self.store.journal.has_failed()
            && let Err(error) = self.store.journal.close(&self.store.env)
        {
            tracing::warn!(%error, "the metadata store was not closed in order: the next start applies its log");
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// For who outlives the engine: the directory stays open with it.
    pub(crate) fn store_of_snapshot(&self) -> Arc<Store> {
        self.store.clone()
    }

    /// Nothing is answered from now on before it is kept there. To be called once, before transactions come.
    pub(crate) fn begin_copying(&self, outlet: Arc<Outlet>) {
        if self.outlet.set(outlet.clone()).is_ok() {
            self.queue.copy_to(outlet);
        }
    }

    /// Returns when nothing is written any more: it was closed, or changes that were answered could not be made durable. What
    /// is left to do then is to open it anew.
    pub async fn ended(&self) {
        self.queue.closed().await;
    }

    async fn submit<O: Operation>(&self, op: O, early: Option<Early>, read_only: bool) -> Answer<O> {
        let (reply, answer) = oneshot::channel();
        self.queue.push(Box::new(Transaction::new(op, early, read_only, reply)));
        answer.await.unwrap_or_else(|_| Err(EngineError::Closed.into()))
    }

    /// Runs a read on a snapshot; `None` if that is not enough, because it touched what was answered early.
    fn read_now<O: Operation>(&self, op: &O, owner: Option<u64>) -> Option<Result<O::Output, O::Error>> {
        let ordered = &self.store.ordered;
        let view = ordered.view();
        if ordered.has_failed() {
            return Some(Err(EngineError::Closed.into()));
        }
        let snapshot = match self.store.snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => return Some(Err(error.into())),
        };
        let mut tx = ReadTx::new(snapshot, &self.store.tables, Looker::new(ordered, view, owner));
        let ran = run_ready(op.run(&mut tx));
        if tx.looker.touched != Touched::default() || !ordered.held(view) {
            return None;
        }
        self.store.stats.round_trips.fetch_add(tx.round_trips, Relaxed);
        match tx.refused.take() {
            Some(key) => Some(Err(EngineError::ReadOnly(key).into())),
            None => Some(ran.unwrap_or_else(|| Err(waited().into()))),
        }
    }
}

/// Comes through the queue after everything that was there, and does nothing.
struct Barrier;

impl Operation for Barrier {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, _tx: &mut dyn Tx) -> Result<(), EngineError> {
        Ok(())
    }
}

impl Engine for EmbeddedEngine {
    async fn transact<O: Operation>(&self, _partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.store.stats.transactions.fetch_add(1, Relaxed);
        Ok(self.submit(op, None, false).await?.0)
    }

    async fn read<O: Operation>(&self, _partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.store.stats.reads.fetch_add(1, Relaxed);
        match self.read_now(&op, None) {
            Some(answer) => answer,
            None => Ok(self.submit(op, None, true).await?.0),
        }
    }

    async fn transact_early<O: Operation>(&self, _partition: u64, early: Early, op: O) -> Answer<O> {
        self.store.stats.transactions.fetch_add(1, Relaxed);
        self.submit(op, Some(early), false).await
    }

    async fn read_early<O: Operation>(&self, _partition: u64, early: Early, op: O) -> Answer<O> {
        self.store.stats.reads.fetch_add(1, Relaxed);
        match self.read_now(&op, Some(early.owner)) {
            Some(answer) => Ok((answer?, Order::Durable)),
            None => self.submit(op, Some(early), true).await,
        }
    }

    fn durable(&self) -> u64 {
        self.store.ordered.durable()
    }

    async fn settle(&self) -> Result<(), EngineError> {
        self.flush().await
    }

    async fn snapshot(&self, tables: &[Table]) -> Result<Box<dyn Snapshot>, EngineError> {
        self.take_snapshot(tables).await
    }

    fn stats(&self) -> &EngineStats {
        &self.store.stats
    }

    fn rows(&self, table: Table) -> Option<u64> {
        let snapshot = self.store.snapshot().ok()?;
        self.store.tables.of(table).len(&snapshot).ok()
    }

    fn bytes(&self) -> Option<u64> {
        self.store.held_bytes().ok()
    }

    fn name(&self) -> &'static str {
        "embedded"
    }
}

fn keep_checkpoints(store: &Store, queue: &Queue) {
    if let Err(error) = store.journal.keep(&store.env) {
        tracing::error!(%error, "the metadata store has to be opened again");
        store.ordered.fail();
        queue.close();
    }
}

impl Drop for EmbeddedEngine {
    fn drop(&mut self) {
        self.shut();
    }
}
