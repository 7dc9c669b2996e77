//! Directories of which every name is known, under their lease: what is not among them is absent, and nobody needs to be asked.

use braid_types::{InodeId, Name};
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// Of all together: 262,144 names of some 60 bytes are 15 MiB.
const NAMES_MAX: usize = 256 << 10;
const DIRS_MAX: usize = 64 << 10;

#[derive(Default)]
pub struct Whole {
    /// Names that are there, or may be.
    dirs: HashMap<InodeId, BTreeSet<Name>>,
    names: usize,
}

impl Whole {
    pub fn lacks(&self, dir: InodeId, name: &Name) -> bool {
        self.dirs.get(&dir).is_some_and(|names| !names.contains(name))
    }

    /// In the order of a listing, those behind `after`.
    pub fn names_after<'a>(&'a self, dir: InodeId, after: Option<&'a Name>) -> Option<impl Iterator<Item = &'a Name>> {
        let from = after.map_or(Unbounded, Excluded);
        self.dirs.get(&dir).map(|names| names.range::<Name, _>((from, Unbounded)))
    }

    /// These are all there are.
    pub fn insert(&mut self, dir: InodeId, names: impl IntoIterator<Item = Name>) {
        self.forget(dir);
        let names: BTreeSet<Name> = names.into_iter().collect();
        if self.dirs.len() >= DIRS_MAX || self.names + names.len() > NAMES_MAX {
            self.clear();
        }
        if names.len() <= NAMES_MAX {
            self.names += names.len();
            self.dirs.insert(dir, names);
        }
    }

    /// From now on there may be this name.
    pub fn may_have(&mut self, dir: InodeId, name: &Name) {
        let Some(names) = self.dirs.get_mut(&dir) else { return };
        if !names.contains(name) {
            names.insert(name.clone());
            self.names += 1;
        }
        if self.names > NAMES_MAX {
            self.clear();
        }
    }

    pub fn has_lost(&mut self, dir: InodeId, name: &Name) {
        if self.dirs.get_mut(&dir).is_some_and(|names| names.remove(name)) {
            self.names -= 1;
        }
    }

    pub fn forget(&mut self, dir: InodeId) {
        self.names -= self.dirs.remove(&dir).map_or(0, |names| names.len());
    }

    pub fn retain(&mut self, stays: impl Fn(&InodeId) -> bool) {
        self.dirs.retain(|dir, _| stays(dir));
        self.names = self.dirs.values().map(BTreeSet::len).sum();
    }

    pub fn clear(&mut self) {
        *self = Whole::default();
    }
}
