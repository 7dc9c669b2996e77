//! Whether a file that is looked up is opened for reading next. A kernel tells the one and then the other, each in a message of its own; that it will is
//! known only from what came of the lookups before. Pure.
//!
//! Promises: a guess that is wrong costs the metadata server a read of the file's row, and whoever changes the file next a message to this client.

use crate::lru::Lru;
use braid_types::InodeId;
use parking_lot::Mutex;

/// Directories of which it is remembered, and files that were looked up and not opened yet.
const DIRS_MAX: usize = 256;
const LOOKED_MAX: usize = 1024;
/// What is older counts for half.
const LOOKS_MAX: u32 = 32;
/// So many say something.
const LOOKS_MIN: u32 = 2;

pub struct Readers(Mutex<State>);

struct State {
    all: Tally,
    dirs: Lru<InodeId, Tally>,
    /// With the directory of each.
    looked: Lru<InodeId, InodeId>,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    looks: u32,
    opens: u32,
}

impl Tally {
    fn looks(&mut self) {
        if self.looks == LOOKS_MAX {
            (self.looks, self.opens) = (self.looks / 2, self.opens / 2);
        }
        self.looks += 1;
    }

    /// At least half of them.
    fn opens(self) -> bool {
        self.looks >= LOOKS_MIN && 2 * self.opens >= self.looks
    }
}

impl Default for Readers {
    fn default() -> Self {
        let (dirs, looked) = (Lru::new(DIRS_MAX), Lru::new(LOOKED_MAX));
        Readers(Mutex::new(State { all: Tally::default(), dirs, looked }))
    }
}

impl Readers {
    /// A file that is looked up in this directory will most likely be opened.
    pub fn will_open(&self, dir: InodeId) -> bool {
        let mut state = self.0.lock();
        let here = state.dirs.get(&dir).copied().filter(|here| here.looks >= LOOKS_MIN);
        here.unwrap_or(state.all).opens()
    }

    /// The metadata server was asked, and this file was found.
    pub fn looked(&self, dir: InodeId, file: InodeId) {
        let mut state = self.0.lock();
        state.all.looks();
        match state.dirs.get(&dir) {
            Some(here) => here.looks(),
            None => state.dirs.insert(dir, Tally { looks: 1, opens: 0 }),
        }
        state.looked.insert(file, dir);
    }

    /// It is opened for reading.
    pub fn opened(&self, file: InodeId) {
        let mut state = self.0.lock();
        let Some(dir) = state.looked.remove(&file) else { return };
        state.all.opens += 1;
        if let Some(here) = state.dirs.get(&dir) {
            here.opens += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_whose_files_are_opened_is_told_from_one_whose_are_not() {
        let readers = Readers::default();
        let (read, listed, new) = (InodeId(1), InodeId(2), InodeId(3));
        let look = |dir: InodeId, files: std::ops::Range<u64>, opens: bool| {
            for file in files {
                readers.looked(dir, InodeId(file));
                if opens {
                    readers.opened(InodeId(file));
                }
            }
        };
        assert!(!readers.will_open(read));
        look(read, 10..12, true);
        assert!(readers.will_open(read) && readers.will_open(new), "nothing else is known");
        look(listed, 100..102, false);
        assert!(readers.will_open(read) && !readers.will_open(listed));
        look(listed, 102..140, false);
        assert!(readers.will_open(read) && !readers.will_open(new));
        look(read, 12..90, true);
        assert!(readers.will_open(read) && !readers.will_open(listed) && readers.will_open(new));
        look(read, 200..217, false);
        assert!(!readers.will_open(read), "they are only looked at by now");
        look(read, 300..340, true);
        assert!(readers.will_open(read));
        readers.opened(InodeId(300));
    }
}
