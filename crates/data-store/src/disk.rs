//! Chunks as files of a directory. The format is drawn in docs/formats/data-store.md; design/0003 says why.

mod activity;
mod bad;
mod cache;
mod chunk;
mod clone;
mod copy;
mod cut;
mod examine;
mod header;
mod lately;
mod missing;
mod open;
mod read;
mod record;
mod recover;
mod renew;
mod scrub;
mod sequence;
mod share;
mod space;
mod sync;
mod table;
mod write;

use crate::checksum::{HOLE, blocks};
use crate::store::extents_of;
use crate::{
    ChunkHead, ChunkStat, ChunkStore, Cuts, Examined, Extent, FoundCopy, RecordMark, Result, ScrubCursor, ScrubStep,
    StoreError, StoreUsage, Synced, WriteInfo, Written,
};
use activity::ActivityLog;
use bad::BadBlocks;
use braid_env::{Disk, DiskLock, OpenMode};
use braid_local::LocalChunk;
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, ChunkIndex, ContainerId, InodeId, TruncGen, Version};
use cache::OpenChunks;
use chunk::{Chunk, shard_of};
use header::Header;
use lately::ReadLately;
use parking_lot::{Mutex, RwLock};
use read::Fetch;
use sequence::Sequence;
use share::Shares;
use space::Space;
pub use space::spare_bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Locks that keep one chunk from being opened twice at once; chunks of different locks open in parallel.
const OPENING_LOCKS: usize = 64;

#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Chunks kept open, each with two descriptors and up to 64 KiB (of a 64 MiB chunk) of checksums.
    pub open_chunks_max: usize,
    /// Planted bug, for tests of the tests: changes synced bytes without logging them first.
    #[doc(hidden)]
    pub plant_no_activity_log: bool,
    /// Planted bug: what a clone shares is not on stable storage before it is said to be the clone's own.
    #[doc(hidden)]
    pub plant_copy_up_unsynced: bool,
    /// Clones of less are copied: the first write copies as much.
    pub share_from_bytes: u64,
}

impl Default for StoreOptions {
    /// 384 chunks: 768 descriptors stay below the usual limit of 1,024, with 24 MiB of checksums.
    fn default() -> Self {
        StoreOptions {
            open_chunks_max: 384,
            plant_no_activity_log: false,
            plant_copy_up_unsynced: false,
            share_from_bytes: 1 << 20,
        }
    }
}

/// A store in a directory. One process has it open.
///
/// Lock order: a chunk's opening lock, its `sync`, its `state`, then the log, the sequence, the space, the index. Of two chunks the one that
/// has blocks of the other, or gets them, before that; and no opening lock under any `state`.
pub struct DiskStore {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: StoreOptions,
    log: ActivityLog,
    space: Space,
    sequence: Sequence,
    open: OpenChunks,
    opening: Vec<Mutex<()>>,
    /// Every chunk of the store: about 40 bytes each.
    index: RwLock<BTreeSet<ChunkId>>,
    /// Those of them that have a record.
    copies: RwLock<BTreeSet<ChunkId>>,
    /// Those that have blocks of others.
    shares: Shares,
    /// As they were when the store was opened.
    found: Mutex<BTreeMap<ChunkId, FoundCopy>>,
    bad: BadBlocks,
    sealed: AtomicU64,
    lately: ReadLately,
    renewals: OnceLock<Renewed>,
    _lock: Box<dyn DiskLock>,
}

/// Told that other files take the place of a chunk's.
type Renewed = Box<dyn Fn(ChunkId) + Send + Sync>;

/// What every change of a chunk passes.
struct Gate<'a> {
    end: u64,
    /// Bytes change, or become a hole.
    data: bool,
    version: Version,
    file: Option<(InodeId, ChunkIndex)>,
    cuts: &'a Cuts<'a>,
}

impl DiskStore {
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn read_by(&self, id: ChunkId, offset: u64, buf: &mut [u8], fetch: Fetch) -> Result<()> {
        let chunk = self.existing(id)?;
        loop {
            {
                let state = chunk.state.read();
                if state.deleted {
                    return Err(StoreError::NoSuchChunk(id));
                }
                let end = offset.saturating_add(buf.len() as u64).min(state.header.length);
                if offset >= end || state.table.has(&(offset / BLOCK_BYTES..blocks(end))) {
                    let result = chunk.read_verified(&state, offset, buf, fetch);
                    return result.map(drop).inspect_err(|error| self.note(error));
                }
            }
            let mut state = chunk.state.write();
            let end = offset.saturating_add(buf.len() as u64).min(state.header.length);
            if offset < end {
                chunk.load(&mut state, &(offset / BLOCK_BYTES..blocks(end)))?;
            }
        }
    }

    fn opening(&self, chunk: ChunkId) -> &Mutex<()> {
        &self.opening[chunk.0 as usize % OPENING_LOCKS]
    }

    /// The chunk, opened if it exists, and with it those whose blocks it has.
    fn find(&self, id: ChunkId) -> Result<Option<Arc<Chunk>>> {
        let found = self.find_alone(id)?;
        if let Some(chunk) = &found {
            self.find_base(chunk);
        }
        Ok(found)
    }

    fn find_alone(&self, id: ChunkId) -> Result<Option<Arc<Chunk>>> {
        if let Some(chunk) = self.open.get(id) {
            return Ok(Some(chunk));
        }
        if !self.index.read().contains(&id) {
            return Ok(None);
        }
        let found = {
            let _opening = self.opening(id).lock();
            self.find_locked(id)?
        };
        self.make_room();
        Ok(found)
    }

    /// The caller holds the chunk's opening lock.
    fn find_locked(&self, id: ChunkId) -> Result<Option<Arc<Chunk>>> {
        if let Some(chunk) = self.open.get(id) {
            return Ok(Some(chunk));
        }
        let is_copy = self.copies.read().contains(&id);
        let Some(chunk) = Chunk::open(self.disk.as_ref(), &self.dir, id, is_copy)? else {
            // A file whose header never reached the disk before a crash.
            self.index.write().remove(&id);
            return Ok(None);
        };
        // Copies were looked at when the store was opened.
        if !is_copy {
            self.recover(&chunk, &BTreeSet::new())?;
        }
        if chunk.state.read().header.base.0 == 0 {
            // A crash brought the name back. It says nothing, so that it may stay.
            let _ = self.remove_base_name(id);
        }
        let chunk = Arc::new(chunk);
        self.open.insert(chunk.clone());
        Ok(Some(chunk))
    }

    fn recover(&self, chunk: &Chunk, logged: &BTreeSet<u64>) -> Result<()> {
        let shard = shard_of(&self.dir, chunk.id);
        let (sealed, unreadable) = chunk.recover(self.disk.as_ref(), &shard, logged)?;
        if sealed > 0 {
            tracing::warn!("chunk {}: {sealed} blocks were being written at the crash; taken as they are", chunk.id);
        }
        self.sealed.fetch_add(sealed, Ordering::Relaxed);
        unreadable.into_iter().for_each(|block| self.bad.found(chunk.id, block));
        Ok(())
    }

    fn existing(&self, id: ChunkId) -> Result<Arc<Chunk>> {
        self.find(id)?.ok_or(StoreError::NoSuchChunk(id))
    }

    fn find_or_create(
        &self,
        id: ChunkId,
        container: ContainerId,
        chunk_bytes: u64,
        is_copy: bool,
    ) -> Result<Arc<Chunk>> {
        if let Some(chunk) = self.open.get(id) {
            self.find_base(&chunk);
            return Ok(chunk);
        }
        let made = {
            let _opening = self.opening(id).lock();
            match self.find_locked(id)? {
                Some(chunk) => chunk,
                None => {
                    if chunk_bytes == 0 {
                        return Err(StoreError::NoSuchChunk(id));
                    }
                    let (version, trunc_gen) = (Version::default(), TruncGen::default());
                    let (length, synced_len, slot_seq) = (0, 0, 0);
                    let (inode, index) = (InodeId::default(), ChunkIndex::default());
                    let header = Header {
                        chunk: id,
                        container,
                        chunk_bytes,
                        length,
                        synced_len,
                        slot_seq,
                        version,
                        trunc_gen,
                        inode,
                        index,
                        unsure: false,
                        base: ChunkId(0),
                    };
                    let made = Chunk::create(self.disk.as_ref(), &self.dir, header, is_copy);
                    let chunk = Arc::new(made.inspect_err(|error| self.space.failed(error))?);
                    self.begin(&chunk, &mut chunk.state.write());
                    self.index.write().insert(id);
                    if is_copy {
                        self.copies.write().insert(id);
                    }
                    self.open.insert(chunk.clone());
                    chunk
                }
            }
        };
        self.find_base(&made);
        self.make_room();
        Ok(made)
    }
}

impl ChunkStore for DiskStore {
    fn create(&self, chunk: ChunkId, container: ContainerId, chunk_bytes: u64) -> Result<()> {
        self.find_or_create(chunk, container, chunk_bytes, false).map(drop)
    }

    fn create_copy(&self, chunk: ChunkId, container: ContainerId, chunk_bytes: u64) -> Result<()> {
        let made = self.find_or_create(chunk, container, chunk_bytes, true)?;
        if made.is_copy { Ok(()) } else { Err(StoreError::NotACopy(chunk)) }
    }

    fn clone_blocks(&self, to: ChunkId, from: ChunkId, blocks: Range<u64>, info: &WriteInfo) -> Result<Written> {
        self.clone_from(to, from, blocks, info)
    }

    fn sync_copy(&self, chunk: ChunkId) -> Result<RecordMark> {
        Ok(self.sync_marked(&*self.copy(chunk)?)?.1)
    }

    fn put_record(&self, chunk: ChunkId, mark: &RecordMark, record: &[u8]) -> Result<()> {
        self.keep_record(&*self.copy(chunk)?, mark, record)
    }

    fn copies(&self) -> Vec<FoundCopy> {
        self.found_copies()
    }

    fn set_head(&self, chunk: ChunkId, head: &ChunkHead) -> Result<()> {
        self.take_head(&*self.copy(chunk)?, head)
    }

    fn seal(&self, chunk: ChunkId, blocks: Range<u64>) -> Result<u64> {
        self.seal_blocks(&*self.copy(chunk)?, blocks)
    }

    fn write(&self, id: ChunkId, offset: u64, bytes: &[u8], info: &WriteInfo) -> Result<Written> {
        let chunk = self.find_or_create(id, info.container, info.chunk_bytes, false)?;
        let end = offset.saturating_add(bytes.len() as u64);
        let store = match info.kept_beside && lately::is_large(bytes.len() as u64) {
            true => write::once,
            false => write::kept,
        };
        let data = !bytes.is_empty();
        let gate = Gate { end, data, version: info.version, file: info.file(), cuts: &info.cuts };
        self.change(&chunk, &gate, |state| {
            let before = state.header.length;
            let seq = match bytes {
                [] => self.touch(&chunk, state)?,
                _ => self.write_locked(&chunk, state, offset, bytes, store)?,
            };
            tracing::debug!(chunk = id.0, offset, bytes = bytes.len(), "written");
            Ok(Written { version: state.header.version, seq, grew: state.header.length > before })
        })
    }

    fn read(&self, id: ChunkId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let first = self.lately.is_first_of_stream(id, offset, buf.len() as u64);
        self.read_by(id, offset, buf, if first { Fetch::Once } else { Fetch::Waiting })
    }

    fn read_kept_beside(&self, id: ChunkId, offset: u64, buf: &mut [u8]) -> Result<()> {
        // Others than the one that keeps it find it remembered.
        let large = self.lately.note(id, offset, buf.len() as u64);
        self.read_by(id, offset, buf, if large { Fetch::Once } else { Fetch::Waiting })
    }

    fn read_cached(&self, id: ChunkId, offset: u64, buf: &mut [u8]) -> Result<bool> {
        let Some(chunk) = self.open.get(id) else { return Ok(false) };
        let Some(state) = chunk.state.try_read() else { return Ok(false) };
        let end = offset.saturating_add(buf.len() as u64).min(state.header.length);
        if state.deleted || (offset < end && !state.table.has(&(offset / BLOCK_BYTES..blocks(end)))) {
            return Ok(false);
        }
        chunk.read_verified(&state, offset, buf, Fetch::Cached).inspect_err(|error| self.note(error))
    }

    fn local(&self, id: ChunkId) -> Result<Option<LocalChunk>> {
        let chunk = self.existing(id)?;
        let open = |path: &Path| {
            self.disk.open(path, OpenMode::ReadOnly).map_err(|error| StoreError::io("open for a reader", path, error))
        };
        if self.has_blocks_of_base(&chunk)? {
            // Not to be read from its files alone.
            return Ok(None);
        }
        // Its names are not those of another meanwhile.
        let state = chunk.state.read();
        match state.deleted {
            true => Err(StoreError::NoSuchChunk(id)),
            false => Ok(Some(LocalChunk::of(open(&chunk.data_path)?, open(&chunk.meta_path)?))),
        }
    }

    fn tell_of_renewals(&self, tell: Box<dyn Fn(ChunkId) + Send + Sync>) {
        let _ = self.renewals.set(tell);
    }

    fn apply_cuts(&self, id: ChunkId, cuts: &Cuts) -> Result<()> {
        let chunk = self.existing(id)?;
        {
            let state = chunk.state.read();
            if !state.deleted && state.header.trunc_gen == cuts.trunc_gen {
                return Ok(());
            }
        }
        let gate = Gate { end: 0, data: false, version: Version::default(), file: None, cuts };
        self.change(&chunk, &gate, |_| Ok(()))
    }

    fn punch(&self, id: ChunkId, range: ByteRange, info: &WriteInfo) -> Result<Written> {
        let chunk = self.existing(id)?;
        let gate = Gate { end: 0, data: true, version: info.version, file: info.file(), cuts: &info.cuts };
        self.change(&chunk, &gate, |state| {
            let seq = self.punch_locked(&chunk, state, range)?;
            Ok(Written { version: state.header.version, seq, grew: false })
        })
    }

    fn sync(&self, chunks: &[ChunkId]) -> Result<Vec<Synced>> {
        chunks.iter().map(|id| self.sync_chunk(&*self.existing(*id)?)).collect()
    }

    fn sync_all(&self) -> Result<u64> {
        self.sync_dirty()?;
        Ok(self.stable_seq())
    }

    fn rest(&self) -> Result<()> {
        self.log.rest()
    }

    fn write_seq(&self) -> u64 {
        self.sequence.last()
    }

    fn stable_seq(&self) -> u64 {
        self.sequence.stable()
    }

    fn reserve(&self, chunk: ChunkId, bytes: u64) -> Result<()> {
        self.space.reserve(chunk, bytes)
    }

    fn reserve_at_least(&self, chunk: ChunkId, bytes: u64) -> Result<()> {
        // A write copies more than it brings.
        self.space.reserve_at_least(chunk, bytes.saturating_add(self.shared_at_most(chunk)?))
    }

    fn unreserve(&self, chunk: ChunkId, bytes: u64) {
        self.space.unreserve(chunk, bytes);
    }

    fn delete(&self, chunks: &[ChunkId]) -> Result<()> {
        let mut shards = BTreeSet::new();
        // Those that have blocks of others first: else they would be given what they share.
        let mut chunks = chunks.to_vec();
        chunks.sort_by_cached_key(|id| std::cmp::Reverse(self.shares.depth(*id)));
        for id in chunks {
            self.delete_chunk(id)?;
            shards.insert(shard_of(&self.dir, id));
        }
        shards.iter().try_for_each(|dir| self.disk.sync_dir(dir).map_err(|e| StoreError::io("sync", dir, e)))
    }

    fn stat(&self, id: ChunkId) -> Result<ChunkStat> {
        let chunk = self.existing(id)?;
        let state = chunk.state.read();
        chunk.stat(&state)
    }

    fn examine(&self, chunk: ChunkId) -> Result<Examined> {
        self.examine_chunk(chunk)
    }

    fn set_aside(&self, chunk: ChunkId) -> Result<Option<PathBuf>> {
        self.set_chunk_aside(chunk)
    }

    fn extents(&self, id: ChunkId, range: ByteRange) -> Result<Vec<Extent>> {
        let chunk = self.existing(id)?;
        let mut state = chunk.state.write();
        let range = ByteRange::new(range.start, range.end.min(state.header.chunk_bytes).max(range.start));
        let end = range.end.min(state.header.length);
        if range.start < end {
            chunk.load(&mut state, &(range.start / BLOCK_BYTES..blocks(end)))?;
        }
        let count = state.blocks();
        Ok(extents_of(range, BLOCK_BYTES, |block| block < count && state.table.get(block) != HOLE))
    }

    fn list(&self, after: ChunkId, limit: usize) -> Vec<ChunkId> {
        let index = self.index.read();
        index.range((Bound::Excluded(after), Bound::Unbounded)).take(limit).copied().collect()
    }

    fn missing(&self) -> Result<Vec<ChunkId>> {
        self.find_missing()
    }

    fn is_missing(&self, chunk: ChunkId) -> Result<bool> {
        self.has_lost(chunk)
    }

    fn scrub_step(&self, from: ScrubCursor, bytes: u64) -> Result<ScrubStep> {
        self.scrub(from, bytes)
    }

    fn scrub_cursor(&self) -> ScrubCursor {
        self.found_cursor()
    }

    fn keep_scrub_cursor(&self, at: ScrubCursor) -> Result<()> {
        self.keep_cursor(at)
    }

    fn usage(&self) -> Result<StoreUsage> {
        let (total_bytes, free_bytes, reserved_bytes, disk) = self.space.usage()?;
        Ok(StoreUsage {
            chunks: self.index.read().len() as u64,
            total_bytes,
            free_bytes,
            reserved_bytes,
            disk,
            sealed_blocks: self.sealed.load(Ordering::Relaxed),
            bad_blocks: self.bad.count(),
        })
    }

    /// Empties the activity log.
    fn close(&self) -> Result<()> {
        self.sync_dirty()?;
        self.log.compact()
    }
}
