//! How much the store may still grow, and what is let through when it may not.
//!
//! LMDB copies pages before it changes them, so removing a row needs free pages first. Therefore
//! `reserve_bytes` of the map and of the disk are kept for removals: while less is free, transactions that
//! grow are refused. On the disk the reserve is allocated behind the end of the file, where other programs
//! cannot take it.

use crate::error::is_full;
use braid_meta_engine::EngineError;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;
use std::fs::File;

pub struct Room {
    file: File,
    reserve_bytes: u64,
    map_bytes: u64,
    /// The file's blocks are allocated up to here.
    allocated_bytes: u64,
    /// Groups to go before the full disk is asked again.
    pause: u32,
    /// The file system cannot allocate ahead: what it says to have free counts.
    cannot_allocate: bool,
    /// What may be written between two looks: so much more than the reserve is enough.
    margin_bytes: u64,
    near: bool,
}

/// A full disk looks for space at every request, at some cost; this many groups later is soon enough.
const FULL_PAUSE_GROUPS: u32 = 16;

impl Room {
    pub fn new(file: File, reserve_bytes: u64, map_bytes: u64, margin_bytes: u64) -> Self {
        Room {
            file,
            reserve_bytes,
            map_bytes,
            allocated_bytes: 0,
            pause: 0,
            cannot_allocate: false,
            margin_bytes,
            near: false,
        }
    }

    /// Little more than the reserve is free, as far as is known: whoever looks only now and then would use it up.
    pub fn is_near(&self) -> bool {
        self.near
    }

    /// What is missing, for whoever is refused.
    pub fn told(&self) -> String {
        format!(
            "less than {} MiB are free in its map of {} MiB or on its disk, and that is kept for removing files",
            self.reserve_bytes.div_ceil(1 << 20),
            self.map_bytes >> 20
        )
    }

    /// Whether less than the reserve is free when the file's pages end at `end_bytes` and `used_bytes` of them
    /// hold rows. The latter is asked only when there is not enough behind the end: it looks at each table.
    pub fn is_low(
        &mut self,
        end_bytes: u64,
        used_bytes: impl FnOnce() -> Result<u64, EngineError>,
    ) -> Result<bool, EngineError> {
        let ceiling = self.allocate(end_bytes).min(self.map_bytes);
        self.near = ceiling.saturating_sub(end_bytes) < self.reserve_bytes + self.margin_bytes;
        if ceiling.saturating_sub(end_bytes) >= self.reserve_bytes {
            return Ok(false);
        }
        Ok(ceiling.max(end_bytes).saturating_sub(used_bytes()?) < self.reserve_bytes)
    }

    /// Sees to the reserve behind `end_bytes`; up to where there is disk.
    fn allocate(&mut self, end_bytes: u64) -> u64 {
        if self.cannot_allocate {
            return end_bytes + self.disk_free();
        }
        let least = (end_bytes + self.reserve_bytes).min(self.map_bytes);
        let wanted = (end_bytes + self.reserve_bytes + self.margin_bytes).min(self.map_bytes);
        if self.allocated_bytes >= wanted || self.pause > 0 {
            self.pause = self.pause.saturating_sub(1);
            return self.allocated_bytes;
        }
        // Half a reserve more than asked for, so that it is done once in a while and not with each page. The
        // first time from the very beginning, as the file of an earlier run may have holes.
        for ahead in [(wanted + self.reserve_bytes / 2).min(self.map_bytes), wanted, least] {
            let Some(missing) = ahead.checked_sub(self.allocated_bytes).filter(|missing| *missing > 0) else { break };
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.allocated_bytes, missing) {
                Ok(()) => {
                    self.allocated_bytes = ahead;
                    self.pause = 0;
                    break;
                }
                Err(errno) if is_full(errno) => self.pause = FULL_PAUSE_GROUPS,
                Err(Errno::INTR) => break,
                Err(errno) => {
                    tracing::info!(%errno, "the metadata disk cannot reserve space ahead");
                    self.cannot_allocate = true;
                    return end_bytes + self.disk_free();
                }
            }
        }
        self.allocated_bytes
    }

    fn disk_free(&self) -> u64 {
        fstatvfs(&self.file).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// What a transaction adds and removes, in bytes of keys and rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weight {
    added: usize,
    removed: usize,
    rows_removed: usize,
}

/// An unlink removes the row of a file and writes that of what is to be freed, the result of the request and
/// the directory's times; more than a page of those it never is.
const UNLINK_GROWTH_MAX: usize = 4096;

impl Weight {
    /// One row that was `old` and becomes `new` bytes long.
    pub fn count(&mut self, key: usize, old: Option<usize>, new: Option<usize>) {
        self.removed += old.map_or(0, |old| key + old);
        self.added += new.map_or(0, |new| key + new);
        self.rows_removed += usize::from(old.is_some() && new.is_none());
    }

    /// Whether it goes through when room is low.
    pub fn may_use_reserve(&self) -> bool {
        self.added <= self.removed || (self.rows_removed > 0 && self.added - self.removed <= UNLINK_GROWTH_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_removes_and_what_keeps_its_size_may_use_the_reserve() {
        let weight = |rows: &[(Option<usize>, Option<usize>)]| {
            let mut weight = Weight::default();
            rows.iter().for_each(|(old, new)| weight.count(20, *old, *new));
            weight.may_use_reserve()
        };
        assert!(weight(&[(Some(100), None)]), "removal");
        assert!(weight(&[(Some(100), Some(100))]), "a heartbeat");
        assert!(weight(&[(Some(100), None), (None, Some(120)), (None, Some(40))]), "an unlink");
        assert!(!weight(&[(None, Some(1))]), "a creation");
        assert!(!weight(&[(Some(100), Some(101))]), "growth of a row");
        assert!(!weight(&[(Some(100), None), (None, Some(10_000))]), "growth that hides behind a removal");
    }

    #[test]
    fn room_is_low_when_neither_the_end_nor_the_middle_has_the_reserve() {
        let file = tempfile::tempfile().expect("a temporary file");
        let mut room = Room::new(file, 1 << 20, 8 << 20, 1 << 18);
        let never = || panic!("not asked while there is room behind the end");
        assert!(!room.is_low(1 << 20, never).expect("no error") && !room.is_near());
        assert!(!room.is_low(6 << 20, never).expect("no error") && !room.is_near());
        assert!(!room.is_low(7 << 20, never).expect("no error") && room.is_near());
        let end = (7 << 20) + 4096;
        assert!(room.is_low(end, || Ok(end)).expect("no error"));
        assert!(!room.is_low(end, || Ok(6 << 20)).expect("no error"), "pages in the middle are free");
        assert!(!room.is_low(8 << 20, || Ok(7 << 20)).expect("no error"));
    }
}
