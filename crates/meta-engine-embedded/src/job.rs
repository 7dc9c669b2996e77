use crate::write::WriteTx;
use braid_meta_engine::{EngineError, Operation, run_ready};
use tokio::sync::oneshot;

/// A transaction on its way through the write thread. It may be run more than once; the last run counts.
pub trait Job: Send {
    /// Nobody waits for the answer any more.
    fn is_abandoned(&self) -> bool;

    /// Runs the operation; whether its writes are to be applied.
    fn run(&mut self, tx: &mut WriteTx<'_, '_>) -> bool;

    /// The answer becomes this error.
    fn refuse(&mut self, error: EngineError);

    fn answer(self: Box<Self>);
}

/// A [`Job`] that runs an operation.
pub struct Transaction<O: Operation> {
    op: O,
    result: Option<Result<O::Output, O::Error>>,
    reply: oneshot::Sender<Result<O::Output, O::Error>>,
}

impl<O: Operation> Transaction<O> {
    pub fn new(op: O, reply: oneshot::Sender<Result<O::Output, O::Error>>) -> Self {
        Transaction { op, result: None, reply }
    }
}

impl<O: Operation> Job for Transaction<O> {
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(&mut self, tx: &mut WriteTx<'_, '_>) -> bool {
        let result = run_ready(self.op.run(tx)).unwrap_or_else(|| Err(waited().into()));
        self.result.insert(result).is_ok()
    }

    fn refuse(&mut self, error: EngineError) {
        self.result = Some(Err(error.into()));
    }

    fn answer(self: Box<Self>) {
        // The caller may have gone meanwhile; the transaction is whole all the same.
        let _ = self.reply.send(self.result.unwrap_or_else(|| Err(EngineError::Closed.into())));
    }
}

/// This engine's transactions are always ready, so whoever waits in one waits for something else.
pub fn waited() -> EngineError {
    EngineError::Storage("the operation waited for something else than its transaction".into())
}
