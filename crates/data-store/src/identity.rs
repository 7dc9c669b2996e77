use crate::{Result, StoreError};
use braid_env::{Disk, OpenMode};
use braid_types::{ClusterId, ServerId};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Format of a data directory; a newer one is refused.
pub const FORMAT_VERSION: u32 = 1;

/// Whose directory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreIdentity {
    pub cluster: ClusterId,
    pub server: ServerId,
}

const FILE: &str = "store.toml";
const NEW_FILE: &str = "store.toml.new";
/// An identity is three short lines.
const FILE_BYTES_MAX: u64 = 4096;

#[derive(Serialize, Deserialize)]
struct Text {
    format: u32,
    cluster: String,
    server: u64,
}

impl StoreIdentity {
    /// The identity written in `dir`; `None` if there is none yet.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<StoreIdentity>> {
        let path = dir.join(FILE);
        let file = match disk.open(&path, OpenMode::Existing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(|e| StoreError::io("open", &path, e))?,
        };
        let len = file.len().map_err(|e| StoreError::io("read", &path, e))?.min(FILE_BYTES_MAX);
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0).map_err(|e| StoreError::io("read", &path, e))?;
        let bad = |cause: String| StoreError::NotAStore { dir: dir.to_owned(), cause: format!("{FILE}: {cause}") };
        let text = String::from_utf8(bytes).map_err(|_| bad("not a text".to_owned()))?;
        let text: Text = toml::from_str(&text).map_err(|e| bad(e.message().to_owned()))?;
        if text.format > FORMAT_VERSION {
            return Err(StoreError::NewerFormat { file: path, found: text.format, known: FORMAT_VERSION });
        }
        let cluster = text.cluster.parse().map_err(bad)?;
        Ok(Some(StoreIdentity { cluster, server: ServerId(text.server) }))
    }

    /// Written last when a directory is made, and whole: a directory without it is no store.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<()> {
        let text = Text { format: FORMAT_VERSION, cluster: self.cluster.to_string(), server: self.server.0 };
        let text =
            toml::to_string(&text).map_err(|e| StoreError::NotAStore { dir: dir.to_owned(), cause: e.to_string() })?;
        let (path, new) = (dir.join(FILE), dir.join(NEW_FILE));
        let write = || {
            let file = disk.open(&new, OpenMode::OrCreate)?;
            file.set_len(0)?;
            file.write_at(text.as_bytes(), 0)?;
            file.sync_data()?;
            disk.rename(&new, &path)?;
            disk.sync_dir(dir)
        };
        write().map_err(|e| StoreError::io("write", &path, e))
    }

    /// Refuses the directory of another cluster or server.
    pub(crate) fn check(&self, expected: &StoreIdentity, dir: &Path) -> Result<()> {
        if self.cluster != expected.cluster {
            let (found, expected) = (self.cluster, expected.cluster);
            return Err(StoreError::OtherCluster { dir: dir.to_owned(), found, expected });
        }
        if self.server != expected.server {
            let (found, expected) = (self.server.0, expected.server.0);
            return Err(StoreError::OtherServer { dir: dir.to_owned(), found, expected });
        }
        Ok(())
    }
}
