use crate::any::{BoxFuture, Erased, Ran, Way, Whole};
use crate::{EngineError, EngineStats, Snapshot, Table};

/// Does something with the changes that go to an engine, and nothing with all else.
pub(crate) trait Changes: Send + Sync + 'static {
    fn engine(&self) -> &dyn Erased;

    /// One of the two ways that change something.
    fn change(&self, way: Way, partition: u64, op: Whole) -> BoxFuture<'_, Ran>;
}

/// The engine below, but for its changes.
pub(crate) struct Over<C>(pub C);

impl<C: Changes> Erased for Over<C> {
    fn run(&self, way: Way, partition: u64, op: Whole) -> BoxFuture<'_, Ran> {
        match way {
            Way::Read | Way::ReadEarly(_) => self.0.engine().run(way, partition, op),
            Way::Transact | Way::TransactEarly(_) => self.0.change(way, partition, op),
        }
    }

    fn durable(&self) -> u64 {
        self.0.engine().durable()
    }

    fn settle(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.0.engine().settle()
    }

    fn snapshot<'a>(&'a self, tables: &'a [Table]) -> BoxFuture<'a, Result<Box<dyn Snapshot>, EngineError>> {
        self.0.engine().snapshot(tables)
    }

    fn join(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.0.engine().join()
    }

    fn fence_others(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.0.engine().fence_others()
    }

    fn epoch(&self) -> u64 {
        self.0.engine().epoch()
    }

    fn join_at(&self, epoch: u64) -> BoxFuture<'_, Result<(), EngineError>> {
        self.0.engine().join_at(epoch)
    }

    fn stats(&self) -> &EngineStats {
        self.0.engine().stats()
    }

    fn rows(&self, table: Table) -> Option<u64> {
        self.0.engine().rows(table)
    }

    fn bytes(&self) -> Option<u64> {
        self.0.engine().bytes()
    }

    fn name(&self) -> &'static str {
        self.0.engine().name()
    }
}
