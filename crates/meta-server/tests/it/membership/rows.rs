//! The rows of several processes, each with an epoch of its own, as a database with fences has them.

use braid_meta_engine::{
    Engine, EngineError, EngineStats, Key, Lock, MemEngine, MemStore, Operation, Row, Snapshot, Table, Tx,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn at() -> Key {
    Key::new(Table::Globals, 0, b"epoch of a test")
}

fn number(row: &Option<Row>) -> u64 {
    row.as_ref().and_then(|row| row.as_slice().try_into().ok()).map_or(1, u64::from_be_bytes)
}

/// What one process sees.
pub struct Rows {
    rows: MemEngine,
    epoch: Arc<AtomicU64>,
    /// An epoch is being begun; or somebody changes something who need not know whether one is.
    begins: tokio::sync::Mutex<()>,
}

impl Rows {
    pub async fn open(store: &MemStore) -> Rows {
        let rows = MemEngine::new(store.clone());
        let epoch = rows.read(0, Present).await.expect("they are read");
        Rows { rows, epoch: Arc::new(AtomicU64::new(epoch)), begins: tokio::sync::Mutex::default() }
    }
}

struct Present;

impl Operation for Present {
    type Output = u64;
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<u64, EngineError> {
        Ok(number(&tx.get(&[at()], Lock::None).await?[0]))
    }
}

struct Raise(u64);

impl Operation for Raise {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        let found = number(&tx.get(&[at()], Lock::Exclusive).await?[0]);
        if found != self.0 {
            return Err(EngineError::Fenced(format!("its epoch {} is over", self.0)));
        }
        tx.put(at(), (found + 1).to_be_bytes().to_vec());
        Ok(())
    }
}

struct Checked<O>(O, u64);

impl<O: Operation> Operation for Checked<O> {
    type Output = O::Output;
    type Error = O::Error;

    async fn run(&self, tx: &mut dyn Tx) -> Result<O::Output, O::Error> {
        let found = number(&tx.get(&[at()], Lock::Shared).await?[0]);
        if found != self.1 {
            return Err(EngineError::Fenced(format!("its epoch {} is over", self.1)).into());
        }
        self.0.run(tx).await
    }
}

impl Engine for Rows {
    async fn transact<O: Operation>(&self, partition: u64, op: O) -> Result<O::Output, O::Error> {
        let _begins = if op.outlives_its_epoch() { Some(self.begins.lock().await) } else { None };
        self.rows.transact(partition, Checked(op, self.epoch())).await
    }

    async fn read<O: Operation>(&self, partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.rows.read(partition, op).await
    }

    async fn snapshot(&self, tables: &[Table]) -> Result<Box<dyn Snapshot>, EngineError> {
        self.rows.snapshot(tables).await
    }

    async fn join(&self) -> Result<(), EngineError> {
        self.epoch.store(self.rows.read(0, Present).await?, SeqCst);
        Ok(())
    }

    async fn fence_others(&self) -> Result<(), EngineError> {
        let _begins = self.begins.lock().await;
        self.rows.transact(0, Raise(self.epoch())).await?;
        self.epoch.fetch_add(1, SeqCst);
        Ok(())
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    async fn join_at(&self, epoch: u64) -> Result<(), EngineError> {
        if self.rows.read(0, Present).await? != epoch {
            return Err(EngineError::Fenced(format!("{epoch} is over")));
        }
        self.epoch.store(epoch, SeqCst);
        Ok(())
    }

    fn stats(&self) -> &EngineStats {
        self.rows.stats()
    }

    fn name(&self) -> &'static str {
        "rows with an epoch"
    }
}
