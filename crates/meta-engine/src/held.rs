use crate::{Early, Engine, EngineError, EngineStats, Operation, Order, Snapshot, Table};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::{RwLock, RwLockWriteGuard};

/// An engine whose changes can be held, so that the rows are moved elsewhere: reads go on, changes are [`EngineError::Held`].
///
/// Who has the engine itself changes it all the same: signs of life of a leader, and the row that says where the rows have gone.
pub struct HeldEngine<E> {
    engine: Arc<E>,
    /// Held for reading by each change until its outcome is known to whoever asked for it.
    held: RwLock<bool>,
}

impl<E: Engine> HeldEngine<E> {
    pub fn over(engine: Arc<E>) -> HeldEngine<E> {
        HeldEngine { engine, held: RwLock::new(false) }
    }

    /// When this returns, what was answered before is durable, and nothing changes as long as the answer is kept: also not what nobody waits for
    /// any more and was given to an engine of this process.
    pub async fn quiet(&self) -> Result<Quiet<'_, E>, EngineError> {
        // While this is had, changes wait.
        let held = self.held.write().await;
        self.engine.settle().await?;
        Ok(Quiet { engine: &self.engine, held })
    }

    pub async fn release(&self) {
        *self.held.write().await = false;
    }

    async fn change<T, X: From<EngineError>>(&self, change: impl Future<Output = Result<T, X>>) -> Result<T, X> {
        let held = self.held.read().await;
        match *held {
            true => Err(EngineError::Held.into()),
            false => change.await,
        }
    }
}

/// A moment in which nothing changes.
pub struct Quiet<'h, E> {
    engine: &'h E,
    held: RwLockWriteGuard<'h, bool>,
}

impl<E: Engine> Quiet<'_, E> {
    /// When this returns well, nothing changes until [`HeldEngine::release`], also not what is still on its way to a database. To be
    /// waited for to its end. If it fails, nothing is held; where the database did not say whether it had ended the epoch, this engine
    /// may find itself fenced then.
    pub async fn hold(mut self) -> Result<(), EngineError> {
        // What a database has not finished, although its asker has gone, is of an epoch that is over.
        self.engine.fence_others().await?;
        *self.held = true;
        Ok(())
    }
}

impl<E: Engine> Engine for HeldEngine<E> {
    async fn transact<O: Operation>(&self, partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.change(self.engine.transact(partition, op)).await
    }

    async fn read<O: Operation>(&self, partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.engine.read(partition, op).await
    }

    async fn transact_early<O: Operation>(
        &self,
        partition: u64,
        early: Early,
        op: O,
    ) -> Result<(O::Output, Order), O::Error> {
        self.change(self.engine.transact_early(partition, early, op)).await
    }

    async fn read_early<O: Operation>(
        &self,
        partition: u64,
        early: Early,
        op: O,
    ) -> Result<(O::Output, Order), O::Error> {
        self.engine.read_early(partition, early, op).await
    }

    fn durable(&self) -> u64 {
        self.engine.durable()
    }

    async fn settle(&self) -> Result<(), EngineError> {
        self.engine.settle().await
    }

    async fn snapshot(&self, tables: &[Table]) -> Result<Box<dyn Snapshot>, EngineError> {
        self.engine.snapshot(tables).await
    }

    async fn join(&self) -> Result<(), EngineError> {
        self.engine.join().await
    }

    async fn fence_others(&self) -> Result<(), EngineError> {
        self.engine.fence_others().await
    }

    fn stats(&self) -> &EngineStats {
        self.engine.stats()
    }

    fn rows(&self, table: Table) -> Option<u64> {
        self.engine.rows(table)
    }

    fn bytes(&self) -> Option<u64> {
        self.engine.bytes()
    }

    fn name(&self) -> &'static str {
        self.engine.name()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::conformance;
    use crate::{Key, Lock, MemEngine, MemStore, Tx};
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::Duration;

    struct Put(u64);

    fn key(partition: u64) -> Key {
        Key::new(Table::Inodes, partition, b"name")
    }

    impl Operation for Put {
        type Output = ();
        type Error = EngineError;

        async fn run<T: Tx>(&self, tx: &mut T) -> Result<(), EngineError> {
            tx.put(key(self.0), vec![1]);
            Ok(())
        }
    }

    struct Has(u64);

    impl Operation for Has {
        type Output = bool;
        type Error = EngineError;

        async fn run<T: Tx>(&self, tx: &mut T) -> Result<bool, EngineError> {
            Ok(tx.get(&[key(self.0)], Lock::None).await?[0].is_some())
        }
    }

    fn engine() -> Arc<HeldEngine<MemEngine>> {
        Arc::new(HeldEngine::over(Arc::new(MemEngine::new(MemStore::new()))))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn while_nothing_is_held_it_is_as_the_engine_below() {
        conformance::test_all(async || HeldEngine::over(Arc::new(MemEngine::new(MemStore::new())))).await;
    }

    #[tokio::test]
    async fn what_is_held_is_read_and_not_changed() {
        let engine = engine();
        engine.transact(1, Put(1)).await.unwrap();
        engine.quiet().await.unwrap().hold().await.unwrap();
        assert!(matches!(engine.transact(2, Put(2)).await, Err(EngineError::Held)));
        assert!(matches!(engine.transact_early(2, Early::of(1), Put(2)).await, Err(EngineError::Held)));
        assert!(engine.read(1, Has(1)).await.unwrap() && !engine.read(2, Has(2)).await.unwrap());
        engine.release().await;
        engine.transact(2, Put(2)).await.unwrap();
        assert!(engine.read(2, Has(2)).await.unwrap());
    }

    #[tokio::test]
    async fn it_holds_when_the_changes_under_way_are_done() {
        let store = MemStore::new();
        let goes = Arc::new(AtomicBool::new(false));
        let waits = goes.clone();
        store.set_commit_delay(move || {
            let waits = waits.clone();
            Box::pin(async move {
                while !waits.load(SeqCst) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        });
        let engine = Arc::new(HeldEngine::over(Arc::new(MemEngine::new(store))));
        let own = engine.clone();
        let under_way = tokio::spawn(async move { own.transact(1, Put(1)).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        let own = engine.clone();
        let mut hold = tokio::spawn(async move { own.quiet().await?.hold().await });
        tokio::time::timeout(Duration::from_millis(50), &mut hold).await.expect_err("a change is on its way");
        goes.store(true, SeqCst);
        hold.await.unwrap().unwrap();
        under_way.await.unwrap().unwrap();
        assert!(engine.read(1, Has(1)).await.unwrap(), "it is there before anything is held");
    }
}
