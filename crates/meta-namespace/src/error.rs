use braid_api::{Code, Error};
use braid_meta_engine::EngineError;

/// How an operation fails; a wrapper that lets the engine's errors become the protocol's.
#[derive(Clone, Debug)]
pub struct OpError(pub Error);

impl From<Error> for OpError {
    fn from(error: Error) -> Self {
        OpError(error)
    }
}

impl From<Code> for OpError {
    fn from(code: Code) -> Self {
        OpError(Error::bare(code))
    }
}

impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        error.0
    }
}

impl From<EngineError> for OpError {
    fn from(error: EngineError) -> Self {
        let code = match &error {
            EngineError::Conflict { .. } => Code::Busy,
            EngineError::MaybeCommitted(_) => Code::MaybeCommitted,
            EngineError::Exists(_) => Code::Exists,
            EngineError::Full(_) => Code::NoSpace,
            EngineError::Newer(_) => Code::Newer,
            EngineError::Unsupported(_) => Code::NotSupported,
            EngineError::Closed | EngineError::Fenced(_) | EngineError::Held => Code::NotServing,
            EngineError::Storage(_) | EngineError::ReadOnly(_) => Code::Internal,
        };
        OpError(Error::new(code, "metadata engine", error))
    }
}
