//! How a starting process tells the one that started it that it serves.

use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// How the name ends of the file that tells where the health page is.
pub const PAGES: &str = "http";

/// And of the one of a process that serves only when another has ended.
pub const STANDS_BY: &str = "standby";

/// And of the one that tells which mount it is, of one that has it.
pub const IDENTITY: &str = "identity";

/// A file that exists while the process serves. Holds one line: where.
pub struct ReadyFile(Option<PathBuf>);

impl ReadyFile {
    pub fn new(path: Option<PathBuf>) -> Self {
        ReadyFile(path)
    }

    pub fn write(&self, line: &str) -> Result<()> {
        self.0.as_deref().map_or(Ok(()), |path| write(path, line))
    }

    /// Beside it: it has begun, and serves when it may.
    pub fn write_stands_by(&self) -> Result<()> {
        self.0.as_deref().map_or(Ok(()), |path| write(&path.with_extension(STANDS_BY), "stands by"))
    }

    /// Beside it, where the health page and the metrics are.
    pub fn write_pages(&self, at: Option<SocketAddr>) -> Result<()> {
        match (&self.0, at) {
            (Some(path), Some(at)) => write(&path.with_extension(PAGES), &format!("http://{at}")),
            _ => Ok(()),
        }
    }

    /// Beside it, which mount of all that there ever were this process serves.
    pub fn write_identity(&self, identity: Option<&str>) -> Result<()> {
        match (&self.0, identity) {
            (Some(path), Some(identity)) => write(&path.with_extension(IDENTITY), identity),
            _ => Ok(()),
        }
    }

    /// It ends: whoever wants it to run waits until it has, and starts it again.
    pub fn withdraw(&self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
            let _ = std::fs::remove_file(path.with_extension(PAGES));
            let _ = std::fs::remove_file(path.with_extension(STANDS_BY));
            let _ = std::fs::remove_file(path.with_extension(IDENTITY));
        }
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Written whole, by rename, so that a reader never sees half a line.
fn write(path: &Path, line: &str) -> Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, format!("{line}\n"))
        .and_then(|()| std::fs::rename(&new, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// What the process says in its ready file if it serves, or beside it if it stands by.
pub fn said(path: &Path) -> Option<String> {
    read(path).or_else(|| read(&path.with_extension(STANDS_BY)))
}

/// Which mount the process serves, or served when it was killed.
pub fn read_identity(path: &Path) -> Option<String> {
    read(&path.with_extension(IDENTITY))
}

/// The line of a ready file, if the process serves.
pub fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|line| line.trim().to_owned())
}
