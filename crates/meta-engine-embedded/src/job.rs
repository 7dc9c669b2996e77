use crate::write::WriteTx;
use braid_meta_engine::{Early, EngineError, Operation, Order, run_ready};
use tokio::sync::oneshot;

/// A transaction on its way through the write thread. It may be run more than once; the last run counts.
pub trait Job: Send {
    /// Nobody waits for the answer any more. What was answered early is not abandoned: it must become durable.
    fn is_abandoned(&self) -> bool;

    /// For whom it may be answered before it is durable.
    fn early(&self) -> Option<Early>;

    /// Whoever asked wants it to outlive everything but all disks: an early answer does not, nor does a look.
    fn wants_sync(&self) -> bool;

    /// See [`Operation::may_use_reserve`].
    fn may_use_reserve(&self) -> bool;

    /// Runs the operation; whether its writes are to be applied.
    fn run(&mut self, tx: &mut WriteTx<'_, '_>) -> bool;

    /// What the last run says of an early answer: that it failed, or whether the operation agrees.
    fn outcome(&self) -> Result<bool, ()>;

    /// The answer becomes this error.
    fn refuse(&mut self, error: EngineError);

    /// Answers, now or after the commit. Later calls do nothing.
    fn answer(&mut self, order: Order);

    fn is_answered(&self) -> bool;
}

/// What a caller gets.
pub type Answer<O> = Result<(<O as Operation>::Output, Order), <O as Operation>::Error>;

/// A [`Job`] that runs an operation.
pub struct Transaction<O: Operation> {
    op: O,
    early: Option<Early>,
    /// It was to be a read, and came here because it touched what is not durable.
    read_only: bool,
    result: Option<Result<O::Output, O::Error>>,
    reply: Option<oneshot::Sender<Answer<O>>>,
}

impl<O: Operation> Transaction<O> {
    pub fn new(op: O, early: Option<Early>, read_only: bool, reply: oneshot::Sender<Answer<O>>) -> Self {
        Transaction { op, early, read_only, result: None, reply: Some(reply) }
    }
}

impl<O: Operation> Job for Transaction<O> {
    fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    fn early(&self) -> Option<Early> {
        self.early
    }

    fn wants_sync(&self) -> bool {
        self.early.is_none() && !self.read_only
    }

    fn may_use_reserve(&self) -> bool {
        self.early.is_some_and(|early| early.admitted) || self.op.may_use_reserve()
    }

    fn run(&mut self, tx: &mut WriteTx<'_, '_>) -> bool {
        let mut result = run_ready(self.op.run(tx)).unwrap_or_else(|| Err(waited().into()));
        if let (true, Some(key)) = (self.read_only, tx.written()) {
            result = Err(EngineError::ReadOnly(key).into());
        }
        self.result.insert(result).is_ok()
    }

    fn outcome(&self) -> Result<bool, ()> {
        match &self.result {
            Some(Ok(output)) => Ok(self.op.may_be_early(output)),
            _ => Err(()),
        }
    }

    fn refuse(&mut self, error: EngineError) {
        self.result = Some(Err(error.into()));
    }

    fn answer(&mut self, order: Order) {
        let Some(reply) = self.reply.take() else { return };
        let result = self.result.take().unwrap_or_else(|| Err(EngineError::Closed.into()));
        // The caller may have gone meanwhile; the transaction is whole all the same.
        let _ = reply.send(result.map(|output| (output, order)));
    }

    fn is_answered(&self) -> bool {
        self.reply.is_none()
    }
}

/// This engine's transactions are always ready, so whoever waits in one waits for something else.
pub fn waited() -> EngineError {
    EngineError::Storage("the operation waited for something else than its transaction".into())
}
