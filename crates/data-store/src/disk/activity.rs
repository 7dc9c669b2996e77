//! The activity log: which 1 MiB extents may hold bytes that their checksums do not match after a crash.
//!
//! An extent is logged, durably, before its first block that a sync has covered is changed. It stays logged when the
//! chunk is synced, so that a working set that is written and synced again and again costs one log write and not one
//! each time (as DRBD's log does); when the log has grown, it is written anew with the extents that are still dirty.
//! Format: docs/formats/data-store.md.

mod record;

use crate::{Result, StoreError};
use braid_env::{Disk, DiskFile, OpenMode};
use braid_types::ChunkId;
use parking_lot::{Condvar, Mutex, MutexGuard};
use record::{Logged, RECORD, header, parse, record};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Grain of the log.
pub(crate) const EXTENT_BYTES: u64 = 1 << 20;

/// A change of more extents than this (a cut or hole in a chunk above 64 MiB) logs the whole chunk instead: the
/// million extents of a 1 TiB chunk would be a log of 32 MB.
pub(crate) const EXTENTS_SINGLY_MAX: u64 = 64;
pub(crate) const WHOLE_CHUNK: u64 = u64::MAX;

/// Records before the log is written anew. After a crash each costs reading 1 MiB: 1,024 are 1 GiB, two to five
/// seconds of a plain disk.
const RECORDS_MAX: usize = 1024;
const FILE: &str = "activity";
const NEW_FILE: &str = "activity.new";

/// Extents to log with `new`, though nothing writes to them yet: the aligned group around each, as large as what the
/// chunk has logged already with one more, rounded up to a power of two and at most 64.
///
/// A file that is overwritten here and there would pay a sync for each extent: 64 a chunk of 64 MiB. With groups of
/// 1, 2, 4 … 64 it pays about 7, and a chunk that is written in one place pays one as before. What is logged
/// ahead counts as clean, so that the next log leaves it out unless it was used; until then a crash reads it too, within
/// the bound of [`RECORDS_MAX`].
fn ahead(entries: &HashMap<u64, Entry>, new: &[u64]) -> Vec<u64> {
    let group = (entries.len() as u64 + 1).min(EXTENTS_SINGLY_MAX).next_power_of_two();
    let singly = new.iter().filter(|extent| **extent != WHOLE_CHUNK);
    let around = |extent: &u64| extent / group * group..extent / group * group + group;
    let mut ahead: Vec<u64> = singly.flat_map(around).collect();
    ahead.sort_unstable();
    ahead.dedup();
    ahead.retain(|extent| !entries.contains_key(extent) && !new.contains(extent));
    ahead
}

/// Lock order: a chunk's lock, then this one.
pub(crate) struct ActivityLog {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    state: Mutex<State>,
    synced: Condvar,
}

struct State {
    file: Option<Arc<dyn DiskFile>>,
    /// Ties records to their file: what an older one left on the disk is not taken for a record.
    generation: u64,
    entries: HashMap<ChunkId, HashMap<u64, Entry>>,
    /// Records in the file, and how many of them are on stable storage.
    appended: usize,
    synced: usize,
    records_max: usize,
    syncing: bool,
    /// Counts calls of `ensure`, so that a sync knows which of them it covers.
    uses: u64,
}

struct Entry {
    record: usize,
    last_use: u64,
    dirty: bool,
}

impl ActivityLog {
    /// Makes the log of a new store.
    pub fn create(disk: Arc<dyn Disk>, dir: &Path) -> Result<()> {
        let log = ActivityLog::empty(disk, dir, 0);
        log.rewrite(&mut log.state.lock()).map_err(|e| StoreError::io("write", &dir.join(FILE), e))
    }

    fn empty(disk: Arc<dyn Disk>, dir: &Path, generation: u64) -> ActivityLog {
        let state = State {
            file: None,
            generation,
            entries: HashMap::new(),
            appended: 0,
            synced: 0,
            records_max: RECORDS_MAX,
            syncing: false,
            uses: 0,
        };
        ActivityLog { disk, dir: dir.to_owned(), state: Mutex::new(state), synced: Condvar::new() }
    }

    /// Reads what the last run logged. These extents stay dirty until [`ActivityLog::clean`]: a crash during
    /// recovery must find them again.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<(ActivityLog, Logged)> {
        let path = dir.join(FILE);
        let read = || -> io::Result<Vec<u8>> {
            let file = disk.open(&path, OpenMode::Existing)?;
            let mut bytes = vec![0; file.len()? as usize];
            let n = file.read_at(&mut bytes, 0)?;
            bytes.truncate(n);
            Ok(bytes)
        };
        let bytes = read().map_err(|e| StoreError::io("read", &path, e))?;
        let (generation, logged) = parse(&bytes, &path)?;
        let log = ActivityLog::empty(disk, dir, generation);
        {
            let mut state = log.state.lock();
            for (chunk, extents) in &logged {
                let entries = extents.iter().map(|extent| (*extent, Entry { record: 0, last_use: 0, dirty: true }));
                state.entries.insert(*chunk, entries.collect());
            }
            log.rewrite(&mut state).map_err(|e| StoreError::io("write", &path, e))?;
        }
        Ok((log, logged))
    }

    /// Returns when the extents are logged on stable storage, and counts them as dirty.
    pub fn ensure(&self, chunk: ChunkId, extents: impl Iterator<Item = u64>) -> Result<()> {
        let mut state = self.state.lock();
        self.log(&mut state, chunk, extents).map_err(|e| StoreError::io("write", &self.dir.join(FILE), e))
    }

    fn log(
        &self,
        state: &mut MutexGuard<'_, State>,
        chunk: ChunkId,
        extents: impl Iterator<Item = u64>,
    ) -> io::Result<()> {
        state.uses += 1;
        let uses = state.uses;
        let mut newest = 0;
        let mut new: Vec<u64> = Vec::new();
        let entries = state.entries.entry(chunk).or_default();
        for extent in extents {
            match entries.get_mut(&extent) {
                Some(entry) => {
                    (entry.last_use, entry.dirty) = (uses, true);
                    newest = newest.max(entry.record);
                }
                None => new.push(extent),
            }
        }
        if new.is_empty() && newest <= state.synced && state.file.is_some() {
            return Ok(());
        }
        let entries = state.entries.entry(chunk).or_default();
        let ahead = ahead(entries, &new);
        for extent in &new {
            entries.insert(*extent, Entry { record: usize::MAX, last_use: uses, dirty: true });
        }
        for extent in &ahead {
            entries.insert(*extent, Entry { record: usize::MAX, last_use: 0, dirty: false });
        }
        new.extend(ahead);
        while state.syncing {
            self.synced.wait(state);
        }
        if state.file.is_none() || state.appended + new.len() > state.records_max {
            return self.rewrite(state);
        }
        // Another thread may have rewritten the log, with these extents, while this one waited.
        let has = |state: &State, extent: &u64| {
            state.entries.get(&chunk).and_then(|e| e.get(extent)).is_some_and(|e| e.record != usize::MAX)
        };
        new.retain(|extent| !has(state, extent));
        self.append(state, chunk, &new)?;
        let target = state
            .entries
            .get(&chunk)
            .map_or(0, |entries| entries.values().filter(|e| e.last_use == uses).map(|e| e.record).max().unwrap_or(0));
        self.wait_synced(state, target)
    }

    fn append(&self, state: &mut State, chunk: ChunkId, extents: &[u64]) -> io::Result<()> {
        if extents.is_empty() {
            return Ok(());
        }
        let bytes: Vec<u8> = extents.iter().flat_map(|extent| record(state.generation, chunk.0, *extent)).collect();
        let offset = (state.appended + 1) * RECORD;
        let written = match &state.file {
            Some(file) => file.write_at(&bytes, offset as u64),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        if let Err(error) = written {
            state.file = None;
            return Err(error);
        }
        for extent in extents {
            state.appended += 1;
            let record = state.appended;
            if let Some(entry) = state.entries.get_mut(&chunk).and_then(|e| e.get_mut(extent)) {
                entry.record = record;
            }
        }
        Ok(())
    }

    /// One thread syncs for all whose records are in the file when it begins.
    fn wait_synced(&self, state: &mut MutexGuard<'_, State>, target: usize) -> io::Result<()> {
        let generation = state.generation;
        while state.generation == generation && state.synced < target {
            if state.syncing {
                self.synced.wait(state);
                continue;
            }
            let Some(file) = state.file.clone() else { return Err(io::ErrorKind::BrokenPipe.into()) };
            let covered = state.appended;
            state.syncing = true;
            let result = MutexGuard::unlocked(state, || file.sync_data());
            state.syncing = false;
            self.synced.notify_all();
            match result {
                Ok(()) => state.synced = state.synced.max(covered),
                // What a failed sync lost does not come back: the next caller writes a new file.
                Err(error) => {
                    state.file = None;
                    return Err(error);
                }
            }
        }
        // A log written anew holds every dirty extent, this one too.
        Ok(())
    }

    /// Writes a new log with the dirty extents alone.
    fn rewrite(&self, state: &mut State) -> io::Result<()> {
        state.file = None;
        for entries in state.entries.values_mut() {
            entries.retain(|_, entry| entry.dirty);
        }
        state.entries.retain(|_, entries| !entries.is_empty());
        let generation = state.generation + 1;
        let mut bytes = header(generation).to_vec();
        let mut count = 0;
        for (chunk, entries) in &mut state.entries {
            for (extent, entry) in entries {
                count += 1;
                entry.record = count;
                bytes.extend_from_slice(&record(generation, chunk.0, *extent));
            }
        }
        let records_max = RECORDS_MAX.max(2 * count);
        let (path, new) = (self.dir.join(FILE), self.dir.join(NEW_FILE));
        let file = self.disk.open(&new, OpenMode::OrCreate)?;
        file.set_len(0)?;
        match file.allocate(0, ((records_max + 1) * RECORD) as u64) {
            Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
            _ => {}
        }
        file.write_at(&bytes, 0)?;
        file.sync_data()?;
        self.disk.rename(&new, &path)?;
        self.disk.sync_dir(&self.dir)?;
        state.generation = generation;
        (state.appended, state.synced, state.records_max) = (count, count, records_max);
        state.file = Some(file);
        Ok(())
    }

    /// Marks a moment: what was ensured before it is covered by a sync that begins now.
    pub fn mark(&self) -> u64 {
        self.state.lock().uses
    }

    /// A sync that began at `mark` covered the chunk.
    pub fn clean(&self, chunk: ChunkId, mark: u64) {
        if let Some(entries) = self.state.lock().entries.get_mut(&chunk) {
            entries.values_mut().filter(|entry| entry.last_use <= mark).for_each(|entry| entry.dirty = false);
        }
    }

    /// The chunk is gone.
    pub fn forget(&self, chunk: ChunkId) {
        self.clean(chunk, u64::MAX);
    }

    /// Writes an empty log in the place of one of whose records none is needed: a crash in quiet times then finds nothing
    /// to verify, and a copy nothing that it must take from another.
    pub fn rest(&self) -> Result<()> {
        let mut state = self.state.lock();
        let is_needed = state.entries.values().any(|entries| entries.values().any(|entry| entry.dirty));
        if state.syncing || state.appended == 0 || is_needed {
            return Ok(());
        }
        self.rewrite(&mut state).map_err(|e| StoreError::io("write", &self.dir.join(FILE), e))
    }

    /// Writes the log anew if it holds nothing that is dirty: a clean stop leaves an empty one.
    pub fn compact(&self) -> Result<()> {
        let mut state = self.state.lock();
        while state.syncing {
            self.synced.wait(&mut state);
        }
        self.rewrite(&mut state).map_err(|e| StoreError::io("write", &self.dir.join(FILE), e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_env::simdisk::SimDisk;
    use std::collections::BTreeSet;

    fn store() -> (SimDisk, ActivityLog) {
        let disk = SimDisk::new();
        let dir = Path::new("/");
        ActivityLog::create(Arc::new(disk.clone()), dir).unwrap();
        let log = ActivityLog::open(Arc::new(disk.clone()), dir).unwrap().0;
        (disk, log)
    }

    fn reopened(disk: &SimDisk, seed: u64) -> Logged {
        disk.crash(seed);
        ActivityLog::open(Arc::new(disk.clone()), Path::new("/")).unwrap().1
    }

    #[test]
    fn what_is_ensured_is_found_after_every_crash() {
        for seed in 0..50 {
            let (disk, log) = store();
            log.ensure(ChunkId(7), [1, 2].into_iter()).unwrap();
            log.ensure(ChunkId(8), [3].into_iter()).unwrap();
            let found = reopened(&disk, seed);
            assert_eq!(found[&ChunkId(7)], BTreeSet::from([1, 2]));
            assert_eq!(reopened(&disk, seed), found, "until it is cleaned");
        }
    }

    #[test]
    fn an_extent_costs_one_sync_for_many_writes() {
        let (disk, log) = store();
        log.ensure(ChunkId(7), [1].into_iter()).unwrap();
        let before = disk.counters().syncs;
        for _ in 0..100 {
            log.clean(ChunkId(7), log.mark());
            log.ensure(ChunkId(7), [1].into_iter()).unwrap();
        }
        assert_eq!(disk.counters().syncs, before);
    }

    #[test]
    fn a_chunk_overwritten_at_random_costs_a_few_syncs() {
        let (disk, log) = store();
        let before = disk.counters().syncs;
        let mut used = BTreeSet::new();
        // 29 and 64 have no common divisor: every extent of a 64 MiB chunk, in a scattered order.
        for n in 0..64 {
            used.insert(n * 29 % 64);
            log.ensure(ChunkId(7), [n * 29 % 64].into_iter()).unwrap();
        }
        assert!(disk.counters().syncs - before <= 8, "{} syncs", disk.counters().syncs - before);
        assert!(reopened(&disk, 3)[&ChunkId(7)].is_superset(&used));
    }

    #[test]
    fn what_is_logged_ahead_is_dropped_unless_it_was_used() {
        let (disk, log) = store();
        for extent in [0, 40, 20, 9] {
            log.ensure(ChunkId(7), [extent].into_iter()).unwrap();
        }
        assert!(reopened(&disk, 1)[&ChunkId(7)].len() > 4);
        let (disk, log) = store();
        for extent in [0, 40, 20, 9] {
            log.ensure(ChunkId(7), [extent].into_iter()).unwrap();
        }
        log.compact().unwrap();
        assert_eq!(reopened(&disk, 1)[&ChunkId(7)], BTreeSet::from([0, 40, 20, 9]));
    }

    #[test]
    fn a_log_at_rest_is_empty_and_one_in_use_is_left_alone() {
        let (disk, log) = store();
        log.ensure(ChunkId(7), [1, 2].into_iter()).unwrap();
        log.rest().unwrap();
        assert_eq!(reopened(&disk, 1)[&ChunkId(7)], BTreeSet::from([1, 2]));
        let (disk, log) = store();
        log.ensure(ChunkId(7), [1, 2].into_iter()).unwrap();
        log.clean(ChunkId(7), log.mark());
        log.rest().unwrap();
        let syncs = disk.counters().syncs;
        log.rest().unwrap();
        assert_eq!(disk.counters().syncs, syncs, "once");
        assert!(reopened(&disk, 1).is_empty());
    }

    #[test]
    fn a_full_log_keeps_what_is_dirty() {
        let (disk, log) = store();
        log.ensure(ChunkId(1), 0..10).unwrap();
        for n in 0..3 * RECORDS_MAX as u64 {
            log.ensure(ChunkId(2), [n].into_iter()).unwrap();
            log.clean(ChunkId(2), log.mark());
        }
        let found = reopened(&disk, 1);
        assert_eq!(found[&ChunkId(1)].len(), 10);
        assert!(found[&ChunkId(2)].len() <= RECORDS_MAX);
    }

    #[test]
    fn a_failed_sync_is_an_error_and_the_next_call_makes_it_good() {
        for seed in 0..20 {
            let (disk, log) = store();
            disk.fail_next_sync(braid_env::simdisk::SyncFault::Error);
            assert!(log.ensure(ChunkId(7), [1].into_iter()).is_err());
            log.ensure(ChunkId(7), [1].into_iter()).unwrap();
            assert!(reopened(&disk, seed).contains_key(&ChunkId(7)));
        }
    }
}
