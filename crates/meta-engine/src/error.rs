use crate::Key;

/// What can go wrong in an engine. None of them leaves a trace, except `MaybeCommitted`.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// The transaction met another one; the engine repeats it by itself and gives up only after its bound.
    #[error("the transaction still conflicted after {attempts} attempts")]
    Conflict { attempts: u32 },
    /// The answer to the commit was lost: the `requests` row of the operation tells what happened.
    #[error("the commit was sent and its outcome is unknown: {0}")]
    MaybeCommitted(String),
    /// An `insert` found a row with that key.
    #[error("the row {0:?} exists already")]
    Exists(Key),
    #[error("a read-only transaction tried to write {0:?}")]
    ReadOnly(Key),
    #[error("the metadata store is full: {0}")]
    Full(String),
    #[error("the metadata store failed: {0}")]
    Storage(String),
    #[error("the metadata store was written by a newer version: {0}")]
    Newer(String),
    /// Who serves these metadata has changed, and whoever is told this is no longer among them.
    #[error("this server was fenced from the metadata store: {0}")]
    Fenced(String),
    /// This store cannot do it, whatever is tried.
    #[error("the metadata store cannot do this: {0}")]
    Unsupported(String),
    /// Nothing is changed for a while, or never again: the rows are on their way to another place ([`HeldEngine`](crate::HeldEngine)).
    #[error("the metadata is being moved to another place, and changes wait")]
    Held,
    #[error("the metadata store is shutting down")]
    Closed,
}

/// How a transaction failed: in the engine, or by the operation's own decision, which aborted it.
pub trait TxError: From<EngineError> + Send + 'static {}

impl<E: From<EngineError> + Send + 'static> TxError for E {}
