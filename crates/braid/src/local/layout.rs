//! Where what lies below the directory of a local cluster.

use crate::roles::ready;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub const CONFIG_FILE: &str = "braid.toml";
/// Longest path of a Unix socket (`sun_path`), without its NUL.
const SOCKET_PATH_MAX: usize = 107;

pub struct Layout {
    pub root: PathBuf,
}

impl Layout {
    /// Of an existing or new directory.
    pub fn at(dir: &Path, make: bool) -> Result<Layout> {
        if make {
            for sub in ["run", "log"] {
                let path = dir.join(sub);
                std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
            }
        }
        let root = dir.canonicalize().with_context(|| format!("there is no cluster in {}", dir.display()))?;
        Layout { root }.checked()
    }

    /// Of a directory that may not be there yet: nothing is made.
    pub fn planned(dir: &Path) -> Result<Layout> {
        Layout { root: settled(dir)? }.checked()
    }

    fn checked(self) -> Result<Layout> {
        let longest = self.socket("data-999");
        if longest.as_os_str().len() > SOCKET_PATH_MAX {
            bail!(
                "the path {} is too long for sockets ({SOCKET_PATH_MAX} bytes); choose a shorter one",
                longest.display()
            );
        }
        Ok(self)
    }

    pub fn config(&self) -> PathBuf {
        self.root.join(CONFIG_FILE)
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.root.join("run").join(format!("{name}.sock"))
    }

    pub fn pid(&self, name: &str) -> PathBuf {
        self.root.join("run").join(format!("{name}.pid"))
    }

    pub fn ready(&self, name: &str) -> PathBuf {
        self.root.join("run").join(format!("{name}.ready"))
    }

    /// Holds where the process has its health page and metrics, if it has.
    pub fn pages(&self, name: &str) -> PathBuf {
        self.ready(name).with_extension(ready::PAGES)
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("log").join(format!("{name}.log"))
    }

    /// Names with a pid file, in no particular order.
    pub fn names(&self) -> Result<Vec<String>> {
        let run = self.root.join("run");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&run).with_context(|| format!("cannot read {}", run.display()))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".pid").map(str::to_owned));
        }
        Ok(names)
    }
}

/// A path from the root, by the links there are in the part of it that exists; the last component is not asked, it may be a
/// dead mount.
pub fn settled(path: &Path) -> Result<PathBuf> {
    let whole = std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))?;
    let mut rest: Vec<OsString> = Vec::new();
    let mut there = whole.clone();
    while let (Some(parent), Some(name)) = (there.parent(), there.file_name()) {
        rest.push(name.to_owned());
        if let Ok(parent) = parent.canonicalize() {
            return Ok(rest.iter().rev().fold(parent, |path, name| path.join(name)));
        }
        there = parent.to_owned();
    }
    Ok(whole)
}
