use braid_api::{Code, Error};
use braid_meta_engine::EngineError;
use braid_meta_namespace::OpError;

/// How a query ends without an answer. Nothing was changed by it in any case.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueryError {
    /// SQLite's own words, and where in the query it stopped reading, in characters from 1.
    #[error("{}{message}", at.map(|at| format!("at character {at}: ")).unwrap_or_default())]
    Wrong { message: String, at: Option<usize> },
    /// It would do something else than look.
    #[error("it would {0}: only SELECT, WITH and EXPLAIN are possible")]
    NotAllowed(String),
    /// Its asker has gone, or its time is over.
    #[error("{0}")]
    Stopped(String),
    /// Memory, or room for what does not fit there.
    #[error("{0}")]
    TooLarge(String),
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A row that cannot be read.
    #[error(transparent)]
    Row(Error),
    #[error("SQLite: {0}")]
    Sqlite(String),
}

impl From<OpError> for QueryError {
    fn from(OpError(error): OpError) -> Self {
        QueryError::Row(error)
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Error {
        let code = match &error {
            QueryError::Wrong { .. } => Code::Invalid,
            QueryError::NotAllowed(_) => Code::NotPermitted,
            QueryError::Stopped(_) => Code::Interrupted,
            QueryError::TooLarge(_) => Code::TooBig,
            QueryError::Sqlite(_) => Code::Internal,
            QueryError::Row(error) => return error.clone(),
            QueryError::Engine(error) => return OpError::from(error.clone()).into(),
        };
        Error::new(code, "the query", error)
    }
}
