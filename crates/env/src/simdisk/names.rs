use super::NodeId;
use crate::DiskDirEntry;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(NodeId),
    Dir,
}

/// A change of names that no sync of its directory has covered. A rename is one change: kept or lost whole.
enum Change {
    Link(PathBuf, Entry),
    Unlink(PathBuf, Entry),
    Rename(PathBuf, PathBuf, Entry),
}

/// The tree of names, as it is and as a crash would at least leave it. The root `/` always exists.
#[derive(Default)]
pub(super) struct Names {
    now: BTreeMap<PathBuf, Entry>,
    stable: BTreeMap<PathBuf, Entry>,
    pending: Vec<Change>,
}

impl Change {
    fn apply(&self, to: &mut BTreeMap<PathBuf, Entry>) {
        let drop_name = |path: &Path, entry: Entry, to: &mut BTreeMap<PathBuf, Entry>| {
            if to.get(path) == Some(&entry) {
                to.remove(path);
            }
        };
        match self {
            Change::Link(path, entry) => {
                to.insert(path.clone(), *entry);
            }
            Change::Unlink(path, entry) => drop_name(path, *entry, to),
            Change::Rename(from, target, entry) => {
                drop_name(from, *entry, to);
                to.insert(target.clone(), *entry);
            }
        }
    }

    fn is_in(&self, dir: &Path) -> bool {
        match self {
            Change::Link(path, _) | Change::Unlink(path, _) => path.parent() == Some(dir),
            Change::Rename(from, to, _) => from.parent() == Some(dir) || to.parent() == Some(dir),
        }
    }
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none()
}

impl Names {
    pub fn get(&self, path: &Path) -> Option<Entry> {
        if is_root(path) { Some(Entry::Dir) } else { self.now.get(path).copied() }
    }

    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.now
            .values()
            .filter_map(|entry| match entry {
                Entry::File(node) => Some(*node),
                Entry::Dir => None,
            })
            .collect()
    }

    fn parent_exists(&self, path: &Path) -> io::Result<()> {
        match path.parent().and_then(|parent| self.get(parent)) {
            Some(Entry::Dir) => Ok(()),
            Some(Entry::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn record(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    pub fn link(&mut self, path: &Path, node: NodeId) -> io::Result<()> {
        self.parent_exists(path)?;
        self.record(Change::Link(path.to_owned(), Entry::File(node)));
        Ok(())
    }

    pub fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let entry = self.get(path).ok_or(io::ErrorKind::NotFound)?;
        if entry == Entry::Dir && !self.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.record(Change::Unlink(path.to_owned(), entry));
        Ok(())
    }

    /// Of files only: nothing here moves directories.
    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let entry = self.get(from).ok_or(io::ErrorKind::NotFound)?;
        self.parent_exists(to)?;
        if entry == Entry::Dir || self.get(to) == Some(Entry::Dir) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.record(Change::Rename(from.to_owned(), to.to_owned(), entry));
        Ok(())
    }

    pub fn make_dirs(&mut self, path: &Path) -> io::Result<()> {
        match self.get(path) {
            Some(Entry::Dir) => Ok(()),
            Some(Entry::File(_)) => Err(io::ErrorKind::AlreadyExists.into()),
            None => {
                if let Some(parent) = path.parent() {
                    self.make_dirs(parent)?;
                }
                self.record(Change::Link(path.to_owned(), Entry::Dir));
                Ok(())
            }
        }
    }

    pub fn list(&self, dir: &Path) -> io::Result<Vec<DiskDirEntry>> {
        match self.get(dir) {
            Some(Entry::Dir) => {}
            Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        // Paths order by component, so all that is below `dir` follows it at once.
        let below = self.now.range(dir.to_owned()..).take_while(|(path, _)| path.starts_with(dir));
        Ok(below
            .filter(|(path, _)| path.parent() == Some(dir))
            .filter_map(|(path, entry)| {
                Some(DiskDirEntry { name: path.file_name()?.to_owned(), is_dir: *entry == Entry::Dir })
            })
            .collect())
    }

    pub fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        if self.get(dir) != Some(Entry::Dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let stable = &mut self.stable;
        self.pending.retain(|change| {
            let synced = change.is_in(dir);
            if synced {
                change.apply(stable);
            }
            !synced
        });
        Ok(())
    }

    /// Any subset of the pending changes survives; what has lost its directory is gone.
    pub fn crash(&mut self, rng: &mut Xoshiro256PlusPlus) {
        let share = [0.0, 0.5, 1.0][rng.random_range(0..3usize)];
        for change in std::mem::take(&mut self.pending) {
            if rng.random_bool(share) {
                change.apply(&mut self.stable);
            }
        }
        let mut kept = BTreeMap::new();
        for (path, entry) in &self.stable {
            // Parents order before what is in them.
            let parent = path.parent();
            if parent.is_some_and(|p| is_root(p) || kept.get(p) == Some(&Entry::Dir)) {
                kept.insert(path.clone(), *entry);
            }
        }
        self.now = kept.clone();
        self.stable = kept;
    }
}
