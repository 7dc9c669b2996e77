use crate::error::disk_error;
use braid_meta_engine::EngineError;
use std::fs::{File, TryLockError};
use std::path::Path;

/// The right to have a directory open. The kernel takes it back when the process ends, in whatever way.
pub struct DirLock {
    _file: File,
}

impl DirLock {
    pub fn take(dir: &Path) -> Result<Self, EngineError> {
        let path = dir.join("open.lock");
        let failed = |error| disk_error(&format!("locking {}", path.display()), error);
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(DirLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(EngineError::Storage(format!(
                "the metadata directory {} is open already, in another process or in this one",
                dir.display()
            ))),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}
