//! A random script is cut at every change of the disk; after each cut the store is opened again and examined:
//!
//! - what a sync covered is there, byte for byte;
//! - every other byte has one of the values it had since, and reads without an error;
//! - a truncate generation never goes back behind a sync, and one that is remembered has been carried out;
//! - what is read after the crash is stable: a second crash does not change it;
//! - a chunk that was made from another has what that had, once that was answered, whatever becomes of the other;
//! - the store works on: more changes, a sync, another crash, and all is there.

use super::contents::Dice;
use crate::{ChunkStore, Cuts, DiskStore, StoreIdentity, StoreOptions, WriteInfo};
use braid_env::Disk;
use braid_env::simdisk::SimDisk;
use braid_local::{LocalFetch, LocalRead};
use braid_types::{ByteRange, ChunkId, ClusterId, ServerId, TruncGen};
use std::path::Path;
use std::sync::Arc;

/// A bug put in on purpose, which the examination must find.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted {
    pub skip_syncs: bool,
    pub no_activity_log: bool,
    pub copy_up_unsynced: bool,
}

/// Whether chunks are made from others in the script, and whether the disk shares ranges of files then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clones {
    #[default]
    None,
    ByBase,
    ByDisk,
}

const CHUNKS: usize = 3;
/// All changes fall into the first and last half of this window, which is moved apart by [`GAP`], so that two
/// extents are touched and little has to be compared.
const WINDOW: u64 = 48 << 10;
const GAP: u64 = (1 << 20) - (24 << 10);
const OPS: u64 = 24;

/// Which of the 256 values a byte may have.
type Values = [u64; 4];

fn add(values: &mut Values, value: u8) {
    values[value as usize / 64] |= 1 << (value % 64);
}

fn has(values: &Values, value: u8) -> bool {
    values[value as usize / 64] >> (value % 64) & 1 == 1
}

/// What one chunk may hold after a crash.
#[derive(Clone)]
struct Expected {
    exists: bool,
    now: Vec<u8>,
    allowed: Vec<Values>,
    /// The same, if the newest truncate generation is still known.
    allowed_since_cut: Vec<Values>,
    trunc_gen: TruncGen,
    synced_gen: TruncGen,
    synced_counter: u64,
    counter: u64,
    /// The counter of the newest version the store was given.
    sent: u64,
    synced: bool,
    /// Its deletion was begun: whoever asked for it asks again.
    deleting: bool,
}

impl Expected {
    fn new() -> Expected {
        let zero = [1, 0, 0, 0];
        Expected {
            exists: false,
            now: vec![0; WINDOW as usize],
            allowed: vec![zero; WINDOW as usize],
            allowed_since_cut: vec![zero; WINDOW as usize],
            trunc_gen: TruncGen(0),
            synced_gen: TruncGen(0),
            synced_counter: 0,
            counter: 0,
            sent: 0,
            synced: false,
            deleting: false,
        }
    }

    fn put(&mut self, at: usize, value: u8) {
        self.now[at] = value;
        add(&mut self.allowed[at], value);
        add(&mut self.allowed_since_cut[at], value);
    }

    fn cut(&mut self, from: usize) {
        for at in from..self.now.len() {
            self.put(at, 0);
            self.allowed_since_cut[at] = [1, 0, 0, 0];
        }
    }

    /// The cut was answered, so it is forgotten by who asked: its generation stays, and nothing it took comes back.
    fn settle_cut(&mut self, from: usize) {
        self.synced_gen = self.trunc_gen;
        let since = self.allowed_since_cut[from..].to_vec();
        self.allowed[from..].copy_from_slice(&since);
    }

    fn settle(&mut self) {
        for (at, value) in self.now.iter().enumerate() {
            let mut only = [0; 4];
            add(&mut only, *value);
            (self.allowed[at], self.allowed_since_cut[at]) = (only, only);
        }
        (self.synced_gen, self.synced_counter, self.synced) = (self.trunc_gen, self.sent, self.exists);
    }
}

/// Position in the window to offset in the chunk.
fn offset_of(at: u64) -> u64 {
    if at < WINDOW / 2 { at } else { at + GAP }
}

struct Run {
    disk: SimDisk,
    store: DiskStore,
    chunks: Vec<Expected>,
    dice: Dice,
    clones: Clones,
}

fn open(disk: &SimDisk, planted: Planted, clones: Clones) -> crate::Result<DiskStore> {
    let identity = StoreIdentity { cluster: ClusterId([7; 16]), server: ServerId(1) };
    let options = StoreOptions {
        open_chunks_max: 2,
        plant_no_activity_log: planted.no_activity_log,
        plant_copy_up_unsynced: planted.copy_up_unsynced,
        share_from_bytes: if clones == Clones::None { StoreOptions::default().share_from_bytes } else { 0 },
    };
    DiskStore::open_or_create(Arc::new(disk.clone()), Path::new("/store"), identity, options)
}

impl Run {
    fn new(seed: u64, planted: Planted, clones: Clones) -> Result<Run, String> {
        let disk = SimDisk::new();
        disk.share_ranges(clones == Clones::ByDisk);
        let store = open(&disk, planted, clones).map_err(|e| format!("the first opening: {e}"))?;
        let count = if clones == Clones::None { CHUNKS } else { 2 * CHUNKS };
        let chunks = (0..count).map(|_| Expected::new()).collect();
        disk.skip_syncs(planted.skip_syncs);
        Ok(Run { disk, store, chunks, dice: Dice::new(seed), clones })
    }

    /// One change; false if the disk has stopped.
    fn step(&mut self) -> Result<bool, String> {
        let n = self.dice.below(self.chunks.len() as u64) as usize;
        let id = ChunkId(n as u64 + 1);
        if self.clones != Clones::None && self.dice.below(3) == 0 {
            let other = self.dice.below(self.chunks.len() as u64) as usize;
            let result = if self.dice.below(6) == 0 { self.delete(n) } else { self.make_from(n, other) };
            return self.judge(result, "a clone or a deletion", id);
        }
        let what = self.dice.below(10);
        let half = self.dice.below(2) * (WINDOW / 2);
        let inside = self.dice.range(WINDOW / 2);
        let range = ByteRange::new(half + inside.start, half + inside.end);
        let chunk = &mut self.chunks[n];
        chunk.counter += 1;
        let cuts = Cuts { trunc_gen: chunk.trunc_gen, list: &[] };
        let info = WriteInfo { cuts, ..super::info(chunk.counter) };
        if what < 5 || (what == 5 && chunk.exists) {
            chunk.sent = chunk.counter;
        }
        let window = range.start as usize..range.end as usize;
        let result = match what {
            0..5 => {
                let bytes = self.dice.bytes(window.len());
                chunk.exists = true;
                window.zip(&bytes).for_each(|(at, value)| chunk.put(at, *value));
                self.store.write(id, offset_of(range.start), &bytes, &info).map(drop)
            }
            5 if chunk.exists => {
                window.for_each(|at| chunk.put(at, 0));
                let range = ByteRange::at(offset_of(range.start), range.len());
                self.store.punch(id, range, &info).map(drop)
            }
            6 if chunk.exists => {
                let next = chunk.trunc_gen.next();
                chunk.trunc_gen = next;
                chunk.cut(range.start as usize);
                let len = offset_of(range.start);
                let cuts = self.store.stat(id).is_ok_and(|stat| len < stat.length);
                let result = self.store.apply_cuts(id, &Cuts { trunc_gen: next, list: &[(next, len)] });
                if cuts && result.is_ok() {
                    chunk.settle_cut(range.start as usize);
                }
                result
            }
            7 if chunk.exists => match self.store.sync(&[id]) {
                Ok(_) => {
                    chunk.settle();
                    Ok(())
                }
                Err(error) => Err(error),
            },
            8 => match self.store.sync_all() {
                Ok(stable) if stable != self.store.write_seq() => {
                    return Err(format!("after sync_all {stable} of {} is stable", self.store.write_seq()));
                }
                Ok(_) => {
                    self.chunks.iter_mut().for_each(Expected::settle);
                    Ok(())
                }
                Err(error) => Err(error),
            },
            _ => Ok(()),
        };
        self.judge(result, &format!("operation {what}"), id)
    }

    fn judge(&self, result: crate::Result<()>, what: &str, id: ChunkId) -> Result<bool, String> {
        match result {
            Ok(()) => Ok(true),
            Err(_) if self.disk.space(Path::new("/")).is_err() => Ok(false),
            Err(error) => Err(format!("{what} on chunk {id} failed on a healthy disk: {error}")),
        }
    }

    /// Makes a chunk that is not there, or of which an attempt left something, from another; it is all there when that returns.
    fn make_from(&mut self, n: usize, other: usize) -> crate::Result<()> {
        let (id, from) = (ChunkId(n as u64 + 1), ChunkId(other as u64 + 1));
        let (chunk, of) = (&self.chunks[n], &self.chunks[other]);
        if n == other || chunk.sent > 0 || !of.exists || of.trunc_gen < chunk.trunc_gen {
            return Ok(());
        }
        let source = self.chunks[other].clone();
        let chunk = &mut self.chunks[n];
        chunk.counter += 1;
        (chunk.exists, chunk.trunc_gen, chunk.sent) = (true, source.trunc_gen, chunk.counter);
        source.now.iter().enumerate().for_each(|(at, value)| chunk.put(at, *value));
        let cuts = Cuts { trunc_gen: source.trunc_gen, list: &[] };
        self.store.clone_chunk(id, from, &WriteInfo { cuts, ..super::info(chunk.counter) })?;
        chunk.settle();
        self.chunks[other].settle();
        Ok(())
    }

    fn delete(&mut self, n: usize) -> crate::Result<()> {
        self.chunks[n].deleting = true;
        self.store.delete(&[ChunkId(n as u64 + 1)])?;
        self.chunks[n] = Expected::new();
        Ok(())
    }

    /// Examines every chunk and goes on from what it finds.
    fn examine(&mut self) -> Result<(), String> {
        for (n, chunk) in self.chunks.iter_mut().enumerate() {
            let id = ChunkId(n as u64 + 1);
            if chunk.deleting {
                self.store.delete(&[id]).map_err(|e| format!("a deletion that comes again: {e}"))?;
                *chunk = Expected::new();
            }
            let Ok(stat) = self.store.stat(id) else {
                if chunk.synced {
                    return Err(format!("chunk {id} was synced and is gone"));
                }
                *chunk = Expected::new();
                continue;
            };
            if stat.trunc_gen < chunk.synced_gen {
                return Err(format!("chunk {id} went back to truncate generation {}", stat.trunc_gen));
            }
            if stat.version.counter < chunk.synced_counter {
                return Err(format!("chunk {id} went back to version {:?}", stat.version));
            }
            let known = stat.trunc_gen == chunk.trunc_gen;
            let allowed = if known { &chunk.allowed_since_cut } else { &chunk.allowed };
            let mut found = Vec::new();
            for half in [0, WINDOW / 2] {
                let mut buf = vec![0; WINDOW as usize / 2];
                self.store.read(id, offset_of(half), &mut buf).map_err(|e| format!("a read after the crash: {e}"))?;
                let local = self.store.local(id).map_err(|e| format!("files after the crash: {e}"))?;
                let mut beside = buf.clone();
                let read = local.map(|local| local.read(offset_of(half), &mut beside, LocalFetch::Waiting));
                if read.is_some_and(|read| read != LocalRead::Done) || beside != buf {
                    return Err(format!("chunk {id} is another beside the store after the crash: {read:?}"));
                }
                found.extend(buf);
            }
            if let Some(at) = (0..found.len()).find(|at| !has(&allowed[*at], found[*at])) {
                let offset = offset_of(at as u64);
                return Err(format!("chunk {id} has {:#04x} at {offset}, which was never there", found[at]));
            }
            let mut between = [1; 64];
            self.store.read(id, WINDOW, &mut between).map_err(|e| format!("a read between: {e}"))?;
            if between != [0; 64] {
                return Err(format!("chunk {id} has bytes that were never written"));
            }
            chunk.now = found;
            (chunk.exists, chunk.trunc_gen) = (true, stat.trunc_gen);
            (chunk.counter, chunk.sent) = (stat.version.counter, stat.version.counter);
            chunk.settle();
        }
        Ok(())
    }

    fn crash(&mut self, seed: u64, planted: Planted) -> Result<(), String> {
        self.disk.crash(seed);
        self.store = open(&self.disk, planted, self.clones).map_err(|e| format!("opening after the crash: {e}"))?;
        self.examine()
    }
}

/// Cuts the script of `script_seed` after `stop` changes and examines what is left; true if the script ended before.
fn cut_at(script_seed: u64, stop: u64, crash_seed: u64, planted: Planted, clones: Clones) -> Result<bool, String> {
    let mut run = Run::new(script_seed, planted, clones)?;
    run.disk.stop_after(Some(stop));
    let mut ended = true;
    for _ in 0..OPS {
        if !run.step()? {
            ended = false;
            break;
        }
    }
    run.crash(crash_seed, planted)?;
    run.crash(crash_seed + 1, planted).map_err(|e| format!("second crash: {e}"))?;
    for _ in 0..OPS / 2 {
        run.step().map_err(|e| format!("after the crash: {e}"))?;
    }
    run.crash(crash_seed + 2, planted).map_err(|e| format!("third crash: {e}"))?;
    Ok(ended)
}

/// Cuts one script at every change, with `crash_seeds` crashes each. `Err` says what was broken, and where.
pub fn everywhere(script_seed: u64, crash_seeds: u64, planted: Planted) -> Result<u64, String> {
    everywhere_with(script_seed, crash_seeds, planted, Clones::None)
}

/// The same with chunks that are made from others.
pub fn everywhere_with(script_seed: u64, crash_seeds: u64, planted: Planted, clones: Clones) -> Result<u64, String> {
    for stop in 0.. {
        let mut ended = true;
        for n in 0..crash_seeds {
            let crash_seed = (script_seed << 32) + stop * 100 + n * 10;
            ended &= cut_at(script_seed, stop, crash_seed, planted, clones)
                .map_err(|e| format!("script {script_seed}, cut after {stop} changes, crash {crash_seed}: {e}"))?;
        }
        if ended {
            return Ok(stop);
        }
    }
    Ok(0)
}
