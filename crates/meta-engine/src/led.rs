use crate::any::{AnyOperation, BoxFuture, Erased, Failure, Ran, Way, Whole};
use crate::{AnyEngine, EngineError, EngineStats, Snapshot, Table, Tx};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// An engine of a process that leads others over the same rows, which has two: one changes what the others change as well, in the epoch that it
/// has joined last; the other one begins epochs, also before the first is to know of that.
struct Led {
    served: Arc<dyn Erased>,
    begins: Arc<dyn Erased>,
    has_joined: AtomicBool,
}

impl AnyEngine {
    /// This engine, whose epochs `begins` begins, of the same rows. Before it joins the first it is in whatever epoch `begins` is in.
    pub fn led_by(self, begins: AnyEngine) -> AnyEngine {
        AnyEngine(Arc::new(Led { served: self.0, begins: begins.0, has_joined: AtomicBool::new(false) }))
    }
}

/// An operation of a process that shares nothing with others yet.
pub(crate) struct OfItsOwn(Whole);

impl AnyOperation for OfItsOwn {
    fn run<'a>(&'a self, tx: &'a mut dyn Tx) -> BoxFuture<'a, Result<Box<dyn Any + Send>, Failure>> {
        self.0.0.run(tx)
    }

    fn may_be_early(&self, output: &(dyn Any + Send)) -> bool {
        self.0.0.may_be_early(output)
    }

    fn may_use_reserve(&self) -> bool {
        self.0.0.may_use_reserve()
    }

    fn outlives_its_epoch(&self) -> bool {
        true
    }
}

impl Led {
    fn engine(&self) -> &dyn Erased {
        if self.has_joined.load(SeqCst) { &*self.served } else { &*self.begins }
    }
}

impl Erased for Led {
    fn run(&self, way: Way, partition: u64, op: Whole) -> BoxFuture<'_, Ran> {
        match self.has_joined.load(SeqCst) {
            true => self.served.run(way, partition, op),
            false => self.begins.run(way, partition, Whole(Box::new(OfItsOwn(op)))),
        }
    }

    fn durable(&self) -> u64 {
        self.engine().durable()
    }

    fn settle(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            self.begins.settle().await?;
            self.served.settle().await
        })
    }

    fn snapshot<'a>(&'a self, tables: &'a [Table]) -> BoxFuture<'a, Result<Box<dyn Snapshot>, EngineError>> {
        self.engine().snapshot(tables)
    }

    fn join(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.join_at(self.begins.epoch())
    }

    fn fence_others(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            self.begins.fence_others().await?;
            self.join().await
        })
    }

    fn epoch(&self) -> u64 {
        self.engine().epoch()
    }

    fn join_at(&self, epoch: u64) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            self.served.join_at(epoch).await?;
            self.has_joined.store(true, SeqCst);
            Ok(())
        })
    }

    fn stats(&self) -> &EngineStats {
        self.engine().stats()
    }

    fn rows(&self, table: Table) -> Option<u64> {
        self.engine().rows(table)
    }

    fn bytes(&self) -> Option<u64> {
        self.engine().bytes()
    }

    fn name(&self) -> &'static str {
        self.served.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, MemEngine, MemStore, conformance};

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn where_nobody_is_fenced_it_is_as_the_engine_below() {
        for joins in [false, true] {
            conformance::test_all(async || {
                let store = MemStore::new();
                let engine = || AnyEngine::new(Arc::new(MemEngine::new(store.clone())));
                let led = engine().led_by(engine());
                if joins {
                    Engine::join_at(&led, 0).await.expect("there is no other epoch");
                }
                led
            })
            .await;
        }
    }
}
