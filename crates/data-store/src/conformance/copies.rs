//! Copies and their records: what any store keeps, and, of those that keep promises over a power cut, that a record never
//! speaks of what is not there.

use super::contents::Dice;
use super::{CHUNK_BYTES, CONTAINER, info, must, read};
use crate::{ChunkHead, ChunkStore, DiskStore, FoundCopy, RecordMark, StoreError, StoreIdentity, StoreOptions};
use braid_env::Disk;
use braid_env::simdisk::SimDisk;
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, ChunkIndex, ClusterId, InodeId, ServerId, TruncGen};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

pub fn a_copy_is_known_as_one(store: &dyn ChunkStore) {
    let (copy, plain) = (ChunkId(3), ChunkId(4));
    assert!(store.copies().is_empty());
    must("create", store.create_copy(copy, CONTAINER, CHUNK_BYTES));
    must("a second create does nothing", store.create_copy(copy, CONTAINER, 4096));
    must("create", store.create(plain, CONTAINER, CHUNK_BYTES));
    assert!(matches!(store.create_copy(plain, CONTAINER, CHUNK_BYTES), Err(StoreError::NotACopy(id)) if id == plain));
    assert!(matches!(store.sync_copy(plain), Err(StoreError::NotACopy(_))));
    assert!(matches!(store.put_record(plain, &RecordMark::default(), b"r"), Err(StoreError::NotACopy(_))));
    assert!(matches!(store.sync_copy(ChunkId(5)), Err(StoreError::NoSuchChunk(_))));
    must("write", store.write(copy, 10, b"hello", &info(1)));
    let mark = must("sync", store.sync_copy(copy));
    must("record", store.put_record(copy, &mark, b"first"));
    must("record", store.put_record(copy, &mark, &[7; 9_000]));
    assert_eq!(read(store, copy, 10, 5), b"hello");
    must("a copy is synced with all else", store.sync_all());
    must("delete", store.delete(&[copy]));
    assert!(matches!(store.put_record(copy, &mark, b"late"), Err(StoreError::NoSuchChunk(_))));
    must("a deleted copy may come again as a plain chunk", store.create(copy, CONTAINER, CHUNK_BYTES));
    assert!(store.sync_copy(copy).is_err());
}

pub fn a_head_is_taken_as_it_is(store: &dyn ChunkStore) {
    let id = ChunkId(3);
    must("create", store.create_copy(id, CONTAINER, CHUNK_BYTES));
    must("write", store.write(id, 0, &[9; 10_000], &info(1)));
    let head = |length, trunc_gen| ChunkHead {
        chunk_bytes: CHUNK_BYTES,
        length,
        trunc_gen: TruncGen(trunc_gen),
        inode: InodeId(5),
        index: ChunkIndex(6),
    };
    let stat = || must("stat", store.stat(id));
    must("longer", store.set_head(id, &head(20_000, 3)));
    assert_eq!((stat().length, stat().trunc_gen, stat().inode), (20_000, TruncGen(3), InodeId(5)));
    assert_eq!(read(store, id, 9_999, 3), [9, 0, 0]);
    must("shorter, and an older generation", store.set_head(id, &head(5_000, 2)));
    assert_eq!((stat().length, stat().trunc_gen), (5_000, TruncGen(2)));
    must("longer again", store.set_head(id, &head(10_000, 2)));
    assert_eq!(read(store, id, 4_999, 3), [9, 0, 0], "what was cut does not come back");
    must("sync", store.sync_copy(id));
}

const CHUNKS: u64 = 2;
/// Blocks of a chunk that are used: in two extents of the activity log.
const BLOCKS: [u64; 6] = [0, 1, 2, 256, 257, 258];
const OPS: u64 = 30;

type Content = BTreeMap<u64, u8>;

/// What one copy was told to keep.
#[derive(Default)]
struct Copy {
    now: Content,
    /// Records by number: the content when their sync began.
    records: BTreeMap<u64, Content>,
    /// The last that was kept, and the last that was tried.
    kept: Option<u64>,
    tried: Option<u64>,
}

struct Run {
    disk: SimDisk,
    store: DiskStore,
    copies: Vec<Copy>,
    dice: Dice,
    number: u64,
    /// A sync whose record is to be kept later: of which copy, its number and its mark.
    synced: Vec<(u64, u64, RecordMark)>,
}

/// Mistakes that the examination must find.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted {
    pub skip_syncs: bool,
    pub no_activity_log: bool,
    /// The log forgets with the sync, not with the record.
    pub forgets_early: bool,
}

fn open(disk: &SimDisk, planted: Planted) -> crate::Result<DiskStore> {
    let identity = StoreIdentity { cluster: ClusterId([7; 16]), server: ServerId(1) };
    let options = StoreOptions {
        open_chunks_max: 2,
        plant_no_activity_log: planted.no_activity_log,
        share_from_bytes: 0,
        ..StoreOptions::default()
    };
    DiskStore::open_or_create(Arc::new(disk.clone()), Path::new("/store"), identity, options)
}

impl Run {
    fn step(&mut self, planted: Planted) -> Result<bool, String> {
        let id = 1 + self.dice.below(CHUNKS);
        let chunk = ChunkId(id);
        let copy = &mut self.copies[id as usize - 1];
        let block = BLOCKS[self.dice.below(BLOCKS.len() as u64) as usize];
        self.number += 1;
        let value = self.number as u8 | 1;
        let done = match self.dice.below(10) {
            0..3 => {
                copy.now.insert(block, value);
                let made = self.store.create_copy(chunk, CONTAINER, CHUNK_BYTES);
                let bytes = [value; BLOCK_BYTES as usize];
                made.and_then(|()| self.store.write(chunk, block * BLOCK_BYTES, &bytes, &info(self.number))).map(drop)
            }
            3 => {
                copy.now.remove(&block);
                let range = ByteRange::at(block * BLOCK_BYTES, BLOCK_BYTES);
                match self.store.punch(chunk, range, &info(self.number)) {
                    Err(StoreError::NoSuchChunk(_)) => Ok(()),
                    punched => punched.map(drop),
                }
            }
            8.. => {
                let (from, whole) = (1 + self.dice.below(CHUNKS), self.dice.below(2) == 0);
                let range = if whole { 0..CHUNK_BYTES / BLOCK_BYTES } else { block..block + 2 };
                let other = self.copies[from as usize - 1].now.clone();
                match self.store.clone_blocks(chunk, ChunkId(from), range.clone(), &info(self.number)) {
                    // Nothing was made under one of the two yet.
                    Err(StoreError::NoSuchChunk(_)) => Ok(()),
                    cloned => {
                        let copy = &mut self.copies[id as usize - 1];
                        copy.now.retain(|block, _| !range.contains(block));
                        copy.now.extend(other.into_iter().filter(|(block, _)| range.contains(block)));
                        cloned.map(drop)
                    }
                }
            }
            4 => self.store.sync_all().map(drop),
            5 => match self.store.sync_copy(chunk) {
                Ok(mark) => {
                    copy.records.insert(self.number, copy.now.clone());
                    if planted.forgets_early {
                        // As if the sync had settled it: with the record that is there.
                        let last = copy.kept.map(|number| number.to_le_bytes().to_vec());
                        let _ = last.map(|record| self.store.put_record(chunk, &mark, &record));
                    }
                    self.synced.push((id, self.number, mark));
                    Ok(())
                }
                Err(StoreError::NoSuchChunk(_)) => Ok(()),
                Err(error) => Err(error),
            },
            _ => match self.synced.pop() {
                // Older ones are not kept any more.
                Some((id, number, mark)) if self.copies[id as usize - 1].tried.is_none_or(|tried| tried < number) => {
                    let copy = &mut self.copies[id as usize - 1];
                    copy.tried = Some(number);
                    // Of many sizes, so that slots grow.
                    let mut record = number.to_le_bytes().to_vec();
                    record.resize(8 + (number as usize % 7) * 1500, 1);
                    let kept = self.store.put_record(ChunkId(id), &mark, &record);
                    if kept.is_ok() {
                        copy.kept = copy.tried;
                    }
                    kept
                }
                _ => Ok(()),
            },
        };
        match done {
            Ok(()) => Ok(true),
            Err(_) if self.disk.space(Path::new("/")).is_err() => Ok(false),
            Err(error) => Err(format!("copy {id} failed on a healthy disk: {error}")),
        }
    }

    /// A record that was kept is there, and all that is not suspect is as it was when its sync began.
    fn examine(&self, found: &[FoundCopy]) -> Result<(), String> {
        for (id, copy) in (1..).zip(&self.copies) {
            let Some(found) = found.iter().find(|found| found.chunk == ChunkId(id)) else {
                if copy.kept.is_some() {
                    return Err(format!("copy {id} is gone with its record"));
                }
                continue;
            };
            let number = found
                .record
                .as_ref()
                .map(|record| u64::from_le_bytes(std::array::from_fn(|i| record.get(i).copied().unwrap_or_default())));
            if number != copy.kept && number != copy.tried {
                return Err(format!("copy {id} has record {number:?}, {:?} was kept", copy.kept));
            }
            let suspect: BTreeSet<u64> = found.suspect.iter().cloned().flatten().collect();
            let Some(content) = number.and_then(|number| copy.records.get(&number)) else { continue };
            for block in BLOCKS {
                let mut bytes = [0; BLOCK_BYTES as usize];
                let read = self.store.read(ChunkId(id), block * BLOCK_BYTES, &mut bytes);
                if found.bad.contains(&block) && !suspect.contains(&block) {
                    return Err(format!("copy {id}, block {block} is bad and not suspect"));
                }
                if read.is_err() && !found.bad.contains(&block) {
                    return Err(format!("copy {id}, block {block} cannot be read: {read:?}"));
                }
                let value = content.get(&block).copied().unwrap_or(0);
                if !suspect.contains(&block) && bytes != [value; BLOCK_BYTES as usize] {
                    return Err(format!("copy {id}, block {block} is not what record {number:?} says, nor suspect"));
                }
            }
        }
        Ok(())
    }
}

fn cut_at(seed: u64, stop: u64, crash: u64, planted: Planted) -> Result<bool, String> {
    let disk = SimDisk::new();
    let store = open(&disk, planted).map_err(|e| format!("the first opening: {e}"))?;
    disk.skip_syncs(planted.skip_syncs);
    disk.stop_after(Some(stop));
    let copies = (0..CHUNKS).map(|_| Copy::default()).collect();
    let mut run = Run { disk, store, copies, dice: Dice::new(seed), number: 0, synced: Vec::new() };
    let mut ended = true;
    for _ in 0..OPS {
        if !run.step(planted)? {
            ended = false;
            break;
        }
    }
    // What is suspect stays so over another crash, because no record says otherwise.
    for again in 0..2 {
        run.disk.crash(crash + again);
        run.store = open(&run.disk, planted).map_err(|e| format!("opening after crash {again}: {e}"))?;
        run.examine(&run.store.copies()).map_err(|e| format!("after crash {again}: {e}"))?;
    }
    Ok(ended)
}

/// Cuts one script at every change of the disk. `Err` says what was broken, and where.
pub fn everywhere(seed: u64, crash_seeds: u64, planted: Planted) -> Result<u64, String> {
    for stop in 0.. {
        let mut ended = true;
        for n in 0..crash_seeds {
            ended &= cut_at(seed, stop, (seed << 32) + stop * 100 + n * 10, planted)
                .map_err(|e| format!("script {seed}, cut after {stop} changes: {e}"))?;
        }
        if ended {
            return Ok(stop);
        }
    }
    Ok(0)
}
