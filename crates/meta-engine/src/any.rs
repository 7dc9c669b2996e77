use crate::between::Passed;
use crate::{Early, Engine, EngineError, EngineStats, Operation, Order, Snapshot, Table, Tx};
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any engine, as one type: what is above it is compiled once, and not once for each engine in each program. It costs four
/// allocations a transaction, of which one has all of the operation's own state.
#[derive(Clone)]
pub struct AnyEngine(pub(crate) Arc<dyn Erased>);

impl AnyEngine {
    pub fn new(engine: Arc<impl Engine>) -> AnyEngine {
        AnyEngine(engine)
    }

    async fn typed<O: Operation>(&self, way: Way, partition: u64, op: O) -> Result<(O::Output, Order), O::Error> {
        match self.0.run(way, partition, Whole(Box::new(op))).await {
            Ok((output, order)) => Ok((known(output), order)),
            Err(Failure::Engine(error)) => Err(error.into()),
            Err(Failure::Operation(error)) => Err(known(error)),
        }
    }
}

/// What came out of an operation is of that operation's type.
fn known<T: 'static>(erased: Box<dyn Any + Send>) -> T {
    match erased.downcast() {
        Ok(known) => *known,
        Err(_) => unreachable!("an engine gives what the operation gave"),
    }
}

/// How an operation is to be run: the four calls of [`Engine`].
#[derive(Clone, Copy)]
pub enum Way {
    Transact,
    Read,
    TransactEarly(Early),
    ReadEarly(Early),
}

pub type Ran = Result<(Box<dyn Any + Send>, Order), Failure>;

pub enum Failure {
    Engine(EngineError),
    Operation(Box<dyn Any + Send>),
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Failure::Engine(error)
    }
}

/// An operation of any type.
pub struct Whole(pub(crate) Box<dyn AnyOperation>);

pub(crate) trait AnyOperation: Send + Sync {
    fn run<'a>(&'a self, tx: &'a mut dyn Tx) -> BoxFuture<'a, Result<Box<dyn Any + Send>, Failure>>;
    fn may_be_early(&self, output: &(dyn Any + Send)) -> bool;
    fn may_use_reserve(&self) -> bool;
    fn outlives_its_epoch(&self) -> bool;
}

impl<O: Operation> AnyOperation for O {
    fn run<'a>(&'a self, tx: &'a mut dyn Tx) -> BoxFuture<'a, Result<Box<dyn Any + Send>, Failure>> {
        Box::pin(async move {
            match Operation::run(self, tx).await {
                Ok(output) => Ok(Box::new(output) as Box<dyn Any + Send>),
                Err(error) => Err(Failure::Operation(Box::new(error))),
            }
        })
    }

    fn may_be_early(&self, output: &(dyn Any + Send)) -> bool {
        output.downcast_ref().is_some_and(|output| Operation::may_be_early(self, output))
    }

    fn may_use_reserve(&self) -> bool {
        Operation::may_use_reserve(self)
    }

    fn outlives_its_epoch(&self) -> bool {
        Operation::outlives_its_epoch(self)
    }
}

impl Whole {
    pub(crate) fn passed(passed: Passed) -> Whole {
        Whole(Box::new(passed))
    }
}

/// What comes out of it is erased already.
impl AnyOperation for Passed {
    fn run<'a>(&'a self, tx: &'a mut dyn Tx) -> BoxFuture<'a, Result<Box<dyn Any + Send>, Failure>> {
        Box::pin(Passed::run(self, tx))
    }

    fn may_be_early(&self, output: &(dyn Any + Send)) -> bool {
        self.op().0.may_be_early(output)
    }

    fn may_use_reserve(&self) -> bool {
        self.op().0.may_use_reserve()
    }

    fn outlives_its_epoch(&self) -> bool {
        self.op().0.outlives_its_epoch()
    }
}

impl Operation for Whole {
    type Output = Box<dyn Any + Send>;
    type Error = Failure;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, Failure> {
        self.0.run(tx).await
    }

    fn may_be_early(&self, output: &Self::Output) -> bool {
        self.0.may_be_early(&**output)
    }

    fn may_use_reserve(&self) -> bool {
        self.0.may_use_reserve()
    }

    fn outlives_its_epoch(&self) -> bool {
        self.0.outlives_its_epoch()
    }
}

/// [`Engine`] without types.
pub trait Erased: Send + Sync + 'static {
    fn run(&self, way: Way, partition: u64, op: Whole) -> BoxFuture<'_, Ran>;
    fn durable(&self) -> u64;
    fn settle(&self) -> BoxFuture<'_, Result<(), EngineError>>;
    fn snapshot<'a>(&'a self, tables: &'a [Table]) -> BoxFuture<'a, Result<Box<dyn Snapshot>, EngineError>>;
    fn join(&self) -> BoxFuture<'_, Result<(), EngineError>>;
    fn fence_others(&self) -> BoxFuture<'_, Result<(), EngineError>>;
    fn epoch(&self) -> u64;
    fn join_at(&self, epoch: u64) -> BoxFuture<'_, Result<(), EngineError>>;
    fn stats(&self) -> &EngineStats;
    fn rows(&self, table: Table) -> Option<u64>;
    fn bytes(&self) -> Option<u64>;
    fn name(&self) -> &'static str;
}

impl<E: Engine> Erased for E {
    fn run(&self, way: Way, partition: u64, op: Whole) -> BoxFuture<'_, Ran> {
        Box::pin(async move {
            match way {
                Way::Transact => Ok((self.transact(partition, op).await?, Order::Durable)),
                Way::Read => Ok((self.read(partition, op).await?, Order::Durable)),
                Way::TransactEarly(early) => self.transact_early(partition, early, op).await,
                Way::ReadEarly(early) => self.read_early(partition, early, op).await,
            }
        })
    }

    fn durable(&self) -> u64 {
        Engine::durable(self)
    }

    fn settle(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(Engine::settle(self))
    }

    fn snapshot<'a>(&'a self, tables: &'a [Table]) -> BoxFuture<'a, Result<Box<dyn Snapshot>, EngineError>> {
        Box::pin(Engine::snapshot(self, tables))
    }

    fn join(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(Engine::join(self))
    }

    fn fence_others(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(Engine::fence_others(self))
    }

    fn epoch(&self) -> u64 {
        Engine::epoch(self)
    }

    fn join_at(&self, epoch: u64) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(Engine::join_at(self, epoch))
    }

    fn stats(&self) -> &EngineStats {
        Engine::stats(self)
    }

    fn rows(&self, table: Table) -> Option<u64> {
        Engine::rows(self, table)
    }

    fn bytes(&self) -> Option<u64> {
        Engine::bytes(self)
    }

    fn name(&self) -> &'static str {
        Engine::name(self)
    }
}

impl Engine for AnyEngine {
    async fn transact<O: Operation>(&self, partition: u64, op: O) -> Result<O::Output, O::Error> {
        Ok(self.typed(Way::Transact, partition, op).await?.0)
    }

    async fn read<O: Operation>(&self, partition: u64, op: O) -> Result<O::Output, O::Error> {
        Ok(self.typed(Way::Read, partition, op).await?.0)
    }

    async fn transact_early<O: Operation>(
        &self,
        partition: u64,
        early: Early,
        op: O,
    ) -> Result<(O::Output, Order), O::Error> {
        self.typed(Way::TransactEarly(early), partition, op).await
    }

    async fn read_early<O: Operation>(
        &self,
        partition: u64,
        early: Early,
        op: O,
    ) -> Result<(O::Output, Order), O::Error> {
        self.typed(Way::ReadEarly(early), partition, op).await
    }

    fn durable(&self) -> u64 {
        self.0.durable()
    }

    async fn settle(&self) -> Result<(), EngineError> {
        self.0.settle().await
    }

    async fn snapshot(&self, tables: &[Table]) -> Result<Box<dyn Snapshot>, EngineError> {
        self.0.snapshot(tables).await
    }

    async fn join(&self) -> Result<(), EngineError> {
        self.0.join().await
    }

    async fn fence_others(&self) -> Result<(), EngineError> {
        self.0.fence_others().await
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    async fn join_at(&self, epoch: u64) -> Result<(), EngineError> {
        self.0.join_at(epoch).await
    }

    fn stats(&self) -> &EngineStats {
        self.0.stats()
    }

    fn rows(&self, table: Table) -> Option<u64> {
        self.0.rows(table)
    }

    fn bytes(&self) -> Option<u64> {
        self.0.bytes()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{MemEngine, MemStore};

    /// Its answer is not to be told early if it is 7.
    struct Seven(bool);

    impl Operation for Seven {
        type Output = u32;
        type Error = Failed;

        async fn run(&self, _tx: &mut dyn Tx) -> Result<u32, Failed> {
            if self.0 { Ok(7) } else { Err(Failed::Own(8)) }
        }

        fn may_be_early(&self, output: &u32) -> bool {
            *output != 7
        }

        fn may_use_reserve(&self) -> bool {
            self.0
        }

        fn outlives_its_epoch(&self) -> bool {
            self.0
        }
    }

    #[derive(Debug, PartialEq)]
    enum Failed {
        Own(u32),
        Engine,
    }

    impl From<EngineError> for Failed {
        fn from(_: EngineError) -> Self {
            Failed::Engine
        }
    }

    #[tokio::test]
    async fn outputs_and_errors_come_back_as_what_they_are() {
        let engine = AnyEngine::new(Arc::new(MemEngine::new(MemStore::new())));
        assert_eq!(engine.transact(0, Seven(true)).await, Ok(7));
        assert_eq!(engine.read(0, Seven(false)).await, Err(Failed::Own(8)));
        // As whoever wraps twice has it.
        let twice = AnyEngine::new(Arc::new(engine));
        assert_eq!(twice.read(0, Seven(true)).await, Ok(7));
        assert_eq!(twice.transact(0, Seven(false)).await, Err(Failed::Own(8)));
    }

    #[test]
    fn what_an_operation_says_of_itself_is_heard() {
        let whole = |yes| Whole(Box::new(Seven(yes)));
        let output = |n: u32| Box::new(n) as Box<dyn Any + Send>;
        assert!(!Operation::may_be_early(&whole(true), &output(7)));
        assert!(Operation::may_be_early(&whole(true), &output(6)));
        assert!(Operation::may_use_reserve(&whole(true)) && !Operation::may_use_reserve(&whole(false)));
        assert!(Operation::outlives_its_epoch(&whole(true)) && !Operation::outlives_its_epoch(&whole(false)));
    }
}
