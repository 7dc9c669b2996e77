//! How a starting process tells the one that started it that it serves.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A file that exists while the process serves. Holds one line: where.
pub struct ReadyFile(Option<PathBuf>);

impl ReadyFile {
    pub fn new(path: Option<PathBuf>) -> Self {
        ReadyFile(path)
    }

    /// Written whole, by rename, so that a reader never sees half a line.
    pub fn write(&self, line: &str) -> Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let new = path.with_extension("new");
        std::fs::write(&new, format!("{line}\n"))
            .and_then(|()| std::fs::rename(&new, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The line of a ready file, if the process serves.
pub fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|line| line.trim().to_owned())
}
