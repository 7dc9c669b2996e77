//! What the database or the way to it answers instead of a result, and what is to be done about it.

use braid_meta_engine::EngineError;
use mysql_async::Error;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Two transactions waited for each other, or changed the same on two servers: this one was rolled back.
    Deadlock,
    /// Another transaction held a row too long. Only the statement was rolled back.
    LockWait,
    /// A row that was to be new is there.
    Duplicate,
    /// A column that is never empty was to be emptied: how statements of ours say no (`fence.rs`, `settle.rs`).
    SaidNo,
    /// The connection, or the server, is gone or does not answer. What was under way may have been done.
    Lost(String),
    /// The server is there and does not serve now: nothing of the statement was done.
    NotNow(String),
    Full(String),
    Other {
        code: u16,
        message: String,
    },
}

/// A message of statements that did not succeed: `done` of them did before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub done: usize,
    pub cause: Cause,
}

/// Whether to begin again.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// Nothing was done; another attempt may succeed at once.
    Conflict,
    /// Nothing was done; there is no server to do it.
    Away(String),
    /// Nothing was done and another attempt will not do it.
    Final(EngineError),
}

impl Cause {
    pub fn of(error: Error) -> Cause {
        let Error::Server(error) = error else { return Cause::Lost(error.to_string()) };
        match error.code {
            // Also what Galera says of a transaction that another server's has overtaken.
            1213 => Cause::Deadlock,
            // 3572: the same where it was asked not to wait.
            1205 | 3572 => Cause::LockWait,
            1062 => Cause::Duplicate,
            1048 => Cause::SaidNo,
            // The statement or the connection was ended from outside.
            1317 | 1927 | 3024 | 1969 => Cause::Lost(error.message),
            // Too many connections; a Galera node that is not part of its cluster; shutting down; read only (another
            // server is the writer now); NDB's temporary errors; TiDB's: the schema changed, no leader of a region yet.
            1040 | 1047 | 1053 | 1203 | 1290 | 1297 | 1836 | 8028 | 9001 | 9002 | 9005 | 9007 => {
                Cause::NotNow(error.message)
            }
            1021 | 1114 => Cause::Full(error.message),
            code => Cause::Other { code, message: error.message },
        }
    }

    pub fn no_answer(deadline: Duration) -> Cause {
        Cause::Lost(format!("no answer in {} ms", deadline.as_millis()))
    }

    pub fn is_lost(&self) -> bool {
        matches!(self, Cause::Lost(_))
    }

    /// For a transaction that is known not to have committed.
    pub fn verdict(self) -> Verdict {
        match self {
            Cause::Deadlock | Cause::LockWait | Cause::Duplicate | Cause::SaidNo => Verdict::Conflict,
            Cause::Lost(why) | Cause::NotNow(why) => Verdict::Away(why),
            Cause::Full(why) => Verdict::Final(EngineError::Full(why)),
            Cause::Other { code, message } => {
                Verdict::Final(EngineError::Storage(format!("the database says {code}: {message}")))
            }
        }
    }

    /// The same to whoever cannot begin again.
    pub fn into_error(self) -> EngineError {
        match self.verdict() {
            Verdict::Conflict => EngineError::Conflict { attempts: 1 },
            Verdict::Away(why) => EngineError::Storage(format!("the database does not answer: {why}")),
            Verdict::Final(error) => error,
        }
    }
}
