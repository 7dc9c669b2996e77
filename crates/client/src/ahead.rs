//! Files of a directory that are opened one after the other: those that come next are asked for together with one that has to be asked for. Which, is
//! decided here. Pure but for its lock.
//!
//! Promises: of what was asked for ahead in a directory at least half has been opened before more is.

use crate::lru::Lru;
use braid_api::meta::OpenAhead;
use braid_types::InodeId;
use parking_lot::Mutex;

/// Directories of which it is remembered, and files that were asked for ahead and not opened yet.
const DIRS_MAX: usize = 256;
const BROUGHT_MAX: usize = 8192;
/// So many that had to be asked for say that more will be.
const MISSES_MIN: u32 = 3;
/// Of the first message; of each next one twice as many.
const FIRST: usize = 8;
/// After so many that had to be asked for it is tried again where guesses were wrong: who had the files may have given them up.
const AGAIN: u32 = 64;
/// What is older counts for half.
const BROUGHT_COUNTED: u32 = 256;

pub struct Ahead(Mutex<State>);

struct State {
    dirs: Lru<InodeId, Run>,
    /// With the directory of each.
    brought: Lru<InodeId, InodeId>,
}

#[derive(Clone, Copy, Default)]
struct Run {
    /// Since more was brought.
    misses: u32,
    brought: u32,
    used: u32,
    last: usize,
}

impl Run {
    fn next(&self) -> usize {
        (2 * self.last).clamp(FIRST, OpenAhead::MAX - 1)
    }
}

impl Default for Ahead {
    fn default() -> Self {
        Ahead(Mutex::new(State { dirs: Lru::new(DIRS_MAX), brought: Lru::new(BROUGHT_MAX) }))
    }
}

impl Ahead {
    /// A file in this directory has to be asked for. Gives how many are to be asked for with it.
    pub fn missed(&self, dir: InodeId) -> usize {
        let state = &mut *self.0.lock();
        let mut run = state.dirs.get(&dir).copied().unwrap_or_default();
        run.misses += 1;
        if run.misses >= AGAIN {
            run = Run { misses: MISSES_MIN, ..Run::default() };
        }
        state.dirs.insert(dir, run);
        let is_begun = run.last > 0 || run.misses >= MISSES_MIN;
        if is_begun && 2 * run.used >= run.brought { run.next() } else { 0 }
    }

    pub fn is_brought(&self, file: InodeId) -> bool {
        self.0.lock().brought.get(&file).is_some()
    }

    /// These are asked for with one of the directory.
    pub fn brings(&self, dir: InodeId, files: &[InodeId]) {
        let state = &mut *self.0.lock();
        files.iter().for_each(|file| state.brought.insert(*file, dir));
        if let Some(run) = state.dirs.get(&dir) {
            (run.misses, run.last) = (0, run.next());
            run.brought += files.len() as u32;
            if run.brought > BROUGHT_COUNTED {
                (run.brought, run.used) = (run.brought / 2, run.used / 2);
            }
        }
    }

    /// They were asked for in vain: to open them costs what it would have.
    pub fn did_not_come<'a>(&self, files: impl Iterator<Item = &'a InodeId>) {
        let state = &mut *self.0.lock();
        files.for_each(|file| _ = state.brought.remove(file));
    }

    /// It is opened to be read.
    pub fn opened(&self, file: InodeId) {
        let state = &mut *self.0.lock();
        let Some(dir) = state.brought.remove(&file) else { return };
        if let Some(run) = state.dirs.get(&dir) {
            run.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_and_more_is_brought_to_who_opens_all_and_nothing_to_who_opens_few() {
        let (ahead, all, few) = (Ahead::default(), InodeId(1), InodeId(2));
        let (mut next, mut sizes) = (100, Vec::new());
        for _ in 0..8 {
            let count = ahead.missed(all);
            let files: Vec<InodeId> = (next..next + count as u64).map(InodeId).collect();
            if count > 0 {
                ahead.brings(all, &files);
            }
            assert!(files.iter().all(|file| ahead.is_brought(*file)));
            files.iter().for_each(|file| ahead.opened(*file));
            assert!(!files.iter().any(|file| ahead.is_brought(*file)));
            next += count as u64;
            sizes.push(count);
        }
        assert_eq!(sizes, [0, 0, 8, 16, 32, 63, 63, 63]);
        assert_eq!([0, 0].map(|_| ahead.missed(few)), [0, 0]);
        let files: Vec<InodeId> = (900..908).map(InodeId).collect();
        assert_eq!(ahead.missed(few), 8);
        ahead.brings(few, &files);
        files[..3].iter().for_each(|file| ahead.opened(*file));
        assert_eq!([0; 5].map(|_| ahead.missed(few)), [0; 5], "of eight three were opened");
        ahead.opened(files[3]);
        assert_eq!(ahead.missed(few), 16);
    }

    #[test]
    fn what_does_not_come_is_no_good_guess_and_is_tried_again_later() {
        let (ahead, dir) = (Ahead::default(), InodeId(1));
        let files: Vec<InodeId> = (900..908).map(InodeId).collect();
        assert_eq!([0; 3].map(|_| ahead.missed(dir)), [0, 0, 8]);
        ahead.brings(dir, &files);
        ahead.did_not_come(files.iter());
        files.iter().for_each(|file| ahead.opened(*file));
        let first = (1..).find(|_| ahead.missed(dir) > 0);
        assert_eq!(first, Some(AGAIN));
    }

    #[test]
    fn a_long_row_of_good_guesses_is_no_reason_for_as_many_bad_ones() {
        let (ahead, dir) = (Ahead::default(), InodeId(1));
        _ = [0; 3].map(|_| ahead.missed(dir));
        let mut next = 100;
        let mut bring = |used: bool| {
            let files: Vec<InodeId> = (next..next + 63).map(InodeId).collect();
            next += 63;
            ahead.brings(dir, &files);
            files.iter().filter(|_| used).for_each(|file| ahead.opened(*file));
            ahead.missed(dir)
        };
        assert_eq!((0..200).map(|_| bring(true)).max(), Some(63));
        let bad = (1..).find(|_| bring(false) == 0).unwrap();
        assert!(bad <= 5, "{bad}");
    }
}
