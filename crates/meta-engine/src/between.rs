use crate::any::{BoxFuture, Erased, Failure, Ran, Way, Whole};
use crate::{AnyEngine, Awaited, EngineError, EngineStats, Operation, Snapshot, Table, Tx};
use std::any::Any;
use std::sync::Arc;

/// Stands between operations that change rows and their transactions: sees what is changed and adds to it, in the same transaction.
pub trait Between: Send + Sync + 'static {
    /// There is nothing to be seen at the moment: operations go to the engine as they are.
    fn is_idle(&self) -> bool;

    /// What an operation has for its transaction instead of `tx`.
    fn over<'t>(&'t self, tx: &'t mut dyn Tx) -> Box<dyn Passing + 't>;
}

/// A transaction that somebody looks at.
pub trait Passing: Send {
    fn tx(&mut self) -> &mut dyn Tx;

    /// The operation has done its part: what it wrote goes on, with what is added.
    fn finish<'a>(self: Box<Self>) -> Awaited<'a, ()>
    where
        Self: 'a;
}

/// An engine whose changes pass somebody.
pub(crate) struct Watched {
    engine: Arc<dyn Erased>,
    between: Arc<dyn Between>,
}

impl AnyEngine {
    /// The same engine, whose changes pass `between`.
    pub fn watched(self, between: Arc<dyn Between>) -> AnyEngine {
        AnyEngine(Arc::new(Watched { engine: self.0, between }))
    }
}

/// An operation in a transaction that is looked at.
pub(crate) struct Passed {
    op: Whole,
    between: Arc<dyn Between>,
}

impl Passed {
    pub(crate) async fn run(&self, tx: &mut dyn Tx) -> Result<Box<dyn Any + Send>, Failure> {
        let mut passing = self.between.over(tx);
        let output = Operation::run(&self.op, passing.tx()).await?;
        passing.finish().await?;
        Ok(output)
    }

    pub(crate) fn op(&self) -> &Whole {
        &self.op
    }
}

impl Erased for Watched {
    fn run(&self, way: Way, partition: u64, op: Whole) -> BoxFuture<'_, Ran> {
        if matches!(way, Way::Read | Way::ReadEarly(_)) || self.between.is_idle() {
            return self.engine.run(way, partition, op);
        }
        self.engine.run(way, partition, Whole::passed(Passed { op, between: self.between.clone() }))
    }

    fn durable(&self) -> u64 {
        self.engine.durable()
    }

    fn settle(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.engine.settle()
    }

    fn snapshot<'a>(&'a self, tables: &'a [Table]) -> BoxFuture<'a, Result<Box<dyn Snapshot>, EngineError>> {
        self.engine.snapshot(tables)
    }

    fn join(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.engine.join()
    }

    fn fence_others(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.engine.fence_others()
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
