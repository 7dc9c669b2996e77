//! LMDB's errors, translated at one door.

use braid_meta_engine::EngineError;
use heed::MdbError;
use rustix::io::Errno;
use std::io;

/// `what` was being done when `error` came.
pub fn store_error(what: &str, error: heed::Error) -> EngineError {
    match error {
        heed::Error::Mdb(MdbError::MapFull) => EngineError::Full(format!("{what}: the map is used up")),
        heed::Error::Io(error) => disk_error(what, error),
        other => EngineError::Storage(format!("{what}: {other}")),
    }
}

pub fn disk_error(what: &str, error: io::Error) -> EngineError {
    if error.raw_os_error().is_some_and(|code| is_full(Errno::from_raw_os_error(code))) {
        EngineError::Full(format!("{what}: {error}"))
    } else {
        EngineError::Storage(format!("{what}: {error}"))
    }
}

pub fn is_full(errno: Errno) -> bool {
    [Errno::NOSPC, Errno::DQUOT].contains(&errno)
}
