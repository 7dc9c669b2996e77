use crate::any::{BoxFuture, Erased, Ran, Way, Whole};
use crate::over::{Changes, Over};
use crate::{AnyEngine, EngineError};
use std::sync::Arc;
use tokio::sync::{RwLock, RwLockWriteGuard};

/// An engine whose changes can be held, so that the rows are moved elsewhere: reads go on, changes are [`EngineError::Held`].
///
/// Who has the engine itself changes it all the same: signs of life of a leader, and the row that says where the rows have gone.
pub struct HeldEngine {
    engine: Arc<dyn Erased>,
    /// Held for reading by each change until its outcome is known to whoever asked for it.
    held: RwLock<bool>,
}

impl HeldEngine {
    pub fn over(engine: AnyEngine) -> Arc<HeldEngine> {
        Arc::new(HeldEngine { engine: engine.0, held: RwLock::new(false) })
    }

    /// The engine whose changes are held.
    pub fn engine(self: &Arc<Self>) -> AnyEngine {
        AnyEngine(Arc::new(Over(self.clone())))
    }

    /// When this returns, what was answered before is durable, and nothing changes as long as the answer is kept: also not what nobody waits for
    /// any more and was given to an engine of this process.
    pub async fn quiet(&self) -> Result<Quiet<'_>, EngineError> {
        // While this is had, changes wait.
        let held = self.held.write().await;
        self.engine.settle().await?;
        Ok(Quiet { engine: &*self.engine, held })
    }

    pub async fn release(&self) {
        *self.held.write().await = false;
    }
}

/// A moment in which nothing changes.
pub struct Quiet<'h> {
    engine: &'h dyn Erased,
    held: RwLockWriteGuard<'h, bool>,
}

impl Quiet<'_> {
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

impl Changes for Arc<HeldEngine> {
    fn engine(&self) -> &dyn Erased {
        &*self.engine
    }

    fn change(&self, way: Way, partition: u64, op: Whole) -> BoxFuture<'_, Ran> {
        Box::pin(async move {
            let held = self.held.read().await;
            match *held {
                true => Err(EngineError::Held.into()),
                false => self.engine.run(way, partition, op).await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::conformance;
    use crate::{Early, Engine, Key, Lock, MemEngine, MemStore, Operation, Table, Tx};
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::Duration;

    struct Put(u64);

    fn key(partition: u64) -> Key {
        Key::new(Table::Inodes, partition, b"name")
    }

    impl Operation for Put {
        type Output = ();
        type Error = EngineError;

        async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
            tx.put(key(self.0), vec![1]);
            Ok(())
        }
    }

    struct Has(u64);

    impl Operation for Has {
        type Output = bool;
        type Error = EngineError;

        async fn run(&self, tx: &mut dyn Tx) -> Result<bool, EngineError> {
            Ok(tx.get(&[key(self.0)], Lock::None).await?[0].is_some())
        }
    }

    fn held() -> Arc<HeldEngine> {
        HeldEngine::over(AnyEngine::new(Arc::new(MemEngine::new(MemStore::new()))))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn while_nothing_is_held_it_is_as_the_engine_below() {
        conformance::test_all(async || held().engine()).await;
    }

    #[tokio::test]
    async fn what_is_held_is_read_and_not_changed() {
        let held = held();
        let engine = held.engine();
        engine.transact(1, Put(1)).await.unwrap();
        held.quiet().await.unwrap().hold().await.unwrap();
        assert!(matches!(engine.transact(2, Put(2)).await, Err(EngineError::Held)));
        assert!(matches!(engine.transact_early(2, Early::of(1), Put(2)).await, Err(EngineError::Held)));
        assert!(engine.read(1, Has(1)).await.unwrap() && !engine.read(2, Has(2)).await.unwrap());
        held.release().await;
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
        let held = HeldEngine::over(AnyEngine::new(Arc::new(MemEngine::new(store))));
        let engine = held.engine();
        let own = engine.clone();
        let under_way = tokio::spawn(async move { own.transact(1, Put(1)).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        let own = held.clone();
        let mut hold = tokio::spawn(async move { own.quiet().await?.hold().await });
        tokio::time::timeout(Duration::from_millis(50), &mut hold).await.expect_err("a change is on its way");
        goes.store(true, SeqCst);
        hold.await.unwrap().unwrap();
        under_way.await.unwrap().unwrap();
        assert!(engine.read(1, Has(1)).await.unwrap(), "it is there before anything is held");
    }
}
