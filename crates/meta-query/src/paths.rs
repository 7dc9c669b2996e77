//! Paths, which no row has: of a directory from its ancestors, with those remembered that were met last; and back.

use crate::QueryError;
use crate::source::Source;
use braid_meta_namespace::rows::Entry;
use braid_types::{FileKind, InodeId};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of paths that are remembered, at most twice: what was not used while as much came in is forgotten.
const BYTES_MAX: usize = 8 << 20;
/// What an entry costs beside its path.
const ENTRY_BYTES: usize = 64;
/// Deeper than any path can be said: a directory that lies below itself.
const DEPTH_MAX: usize = 1 << 16;
/// A longer path is not said: it would be in the way of the answer, and no call takes one of more than 4 KiB.
const PATH_BYTES_MAX: usize = 64 << 10;

/// The path of a directory; that of the root is empty, so that all that is below begins with a slash.
pub type DirPath = Arc<[u8]>;

#[derive(Default)]
pub struct Paths {
    /// None: it cannot be said.
    young: HashMap<InodeId, Option<DirPath>>,
    old: HashMap<InodeId, Option<DirPath>>,
    young_bytes: usize,
}

impl Paths {
    fn get(&mut self, id: InodeId) -> Option<Option<DirPath>> {
        if let Some(path) = self.young.get(&id) {
            return Some(path.clone());
        }
        let path = self.old.remove(&id)?;
        self.put(id, path.clone());
        Some(path)
    }

    fn put(&mut self, id: InodeId, path: Option<DirPath>) {
        if self.young_bytes >= BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += path.as_ref().map_or(0, |path| path.len()) + ENTRY_BYTES;
        self.young.insert(id, path);
    }
}

pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, b"/", name].concat()
}

impl Source {
    /// `None` if it cannot be reached from the root, as what was removed and is not freed yet, and after damage; or has too long a path.
    pub fn dir_path(&mut self, id: InodeId) -> Result<Option<DirPath>, QueryError> {
        let (mut at, mut below) = (id, Vec::new());
        let mut path = loop {
            if at == InodeId::ROOT {
                break Some(DirPath::from(&b""[..]));
            }
            if let Some(path) = self.paths.get(at) {
                break path;
            }
            match self.place(at)? {
                Some((parent, name)) if below.len() < DEPTH_MAX => {
                    below.push((at, name));
                    at = parent;
                }
                _ => {
                    self.paths.put(at, None);
                    break None;
                }
            }
        };
        while let Some((dir, name)) = below.pop() {
            path = path.filter(|path| path.len() + name.len() < PATH_BYTES_MAX).map(|path| join(&path, &name).into());
            self.paths.put(dir, path.clone());
        }
        Ok(path)
    }

    /// What lies at a path as this crate writes them.
    pub fn at_path(&mut self, path: &[u8]) -> Result<Option<(InodeId, Vec<u8>, Entry)>, QueryError> {
        let (mut parent, mut name) = (InodeId(0), Vec::new());
        let Some(mut entry) = self.entry(parent, &name)? else { return Ok(None) };
        let Some(rest) = path.strip_prefix(b"/") else { return Ok(None) };
        if rest.is_empty() {
            return Ok(Some((parent, name, entry)));
        }
        for part in rest.split(|byte| *byte == b'/') {
            if entry.kind() != FileKind::Directory {
                return Ok(None);
            }
            (parent, name) = (entry.id(), part.to_vec());
            match self.entry(parent, &name)? {
                Some(found) => entry = found,
                None => return Ok(None),
            }
        }
        Ok(Some((parent, name, entry)))
    }

    pub fn dir_at(&mut self, path: &[u8]) -> Result<Option<InodeId>, QueryError> {
        let found = self.at_path(if path.is_empty() { b"/" } else { path })?;
        Ok(found.map(|(_, _, entry)| entry).filter(|entry| entry.kind() == FileKind::Directory).map(|entry| entry.id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_used_is_forgotten_and_no_more_is_kept_than_twice_the_bound() {
        let mut paths = Paths::default();
        let path = DirPath::from(vec![b'x'; 1 << 20]);
        for id in 0..100 {
            assert!(id == 0 || paths.get(InodeId(0)).is_some(), "in use, {id}");
            paths.put(InodeId(id), Some(path.clone()));
            let kept: usize = paths.young.values().chain(paths.old.values()).flatten().map(|path| path.len()).sum();
            assert!(kept <= 2 * (BYTES_MAX + path.len()), "{kept}");
        }
        assert!(paths.get(InodeId(99)).is_some() && paths.get(InodeId(50)).is_none());
    }
}
