//! Chunks in memory, up to a hard budget. Everything written is as stable as it will get.

use crate::checksum::{BLOCK, Block, blocks};
use crate::store::extents_of;
use crate::{
    ChunkHead, ChunkStat, ChunkStore, Cuts, Extent, FoundCopy, RecordMark, Result, ScrubCursor, ScrubStep, StoreError,
    StoreUsage, Synced, WriteInfo, Written,
};
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, ChunkIndex, ContainerId, InodeId, TruncGen, Version};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store that holds at most its budget of blocks; beyond, [`StoreError::NoSpace`].
///
/// Lock order: the chunk, then the budget.
pub struct MemoryStore {
    chunks: RwLock<BTreeMap<ChunkId, Arc<RwLock<Chunk>>>>,
    budget: Mutex<Budget>,
    budget_bytes: u64,
    seq: AtomicU64,
}

#[derive(Default)]
struct Budget {
    used: u64,
    reserved: HashMap<ChunkId, u64>,
    reserved_total: u64,
}

#[derive(Default)]
struct Chunk {
    container: ContainerId,
    chunk_bytes: u64,
    length: u64,
    version: Version,
    trunc_gen: TruncGen,
    file: (InodeId, ChunkIndex),
    /// Bytes beyond the length are zeros.
    /// Shared with chunks that were made from this one, until one of them changes; counted in each.
    blocks: BTreeMap<u64, Arc<Block>>,
    deleted: bool,
    /// `None`: it is no copy. `Some(None)`: one whose record was never kept.
    record: Option<Option<Vec<u8>>>,
}

impl Chunk {
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let range = ByteRange::at(offset, bytes.len() as u64);
        let mut rest = bytes;
        for (block, piece) in range.split_by(BLOCK_BYTES) {
            let (now, later) = rest.split_at(piece.len() as usize);
            let target = Arc::make_mut(self.blocks.entry(block).or_insert_with(|| Arc::new([0; BLOCK])));
            target[piece.start as usize..piece.end as usize].copy_from_slice(now);
            rest = later;
        }
        self.length = self.length.max(range.end);
    }

    fn get(&self, offset: u64, buf: &mut [u8]) {
        let mut rest = buf;
        for (block, piece) in ByteRange::at(offset, rest.len() as u64).split_by(BLOCK_BYTES) {
            let (now, later) = rest.split_at_mut(piece.len() as usize);
            match self.blocks.get(&block) {
                Some(bytes) => now.copy_from_slice(&bytes[piece.start as usize..piece.end as usize]),
                None => now.fill(0),
            }
            rest = later;
        }
    }

    /// Zeros the range, dropping whole blocks; returns how many.
    fn clear(&mut self, range: ByteRange) -> u64 {
        let mut dropped = 0;
        let whole = range.start.div_ceil(BLOCK_BYTES)..range.end / BLOCK_BYTES;
        if whole.start < whole.end {
            let gone: Vec<u64> = self.blocks.range(whole).map(|(block, _)| *block).collect();
            dropped = gone.len() as u64;
            gone.iter().for_each(|block| drop(self.blocks.remove(block)));
        }
        for block in [range.start / BLOCK_BYTES, range.end / BLOCK_BYTES] {
            let part = ByteRange::at(block * BLOCK_BYTES, BLOCK_BYTES).intersect(range);
            if let (Some(part), Some(bytes)) = (part, self.blocks.get_mut(&block)) {
                let base = block * BLOCK_BYTES;
                Arc::make_mut(bytes)[(part.start - base) as usize..(part.end - base) as usize].fill(0);
            }
        }
        dropped
    }
}

impl MemoryStore {
    pub fn new(budget_bytes: u64) -> MemoryStore {
        MemoryStore { chunks: RwLock::default(), budget: Mutex::default(), budget_bytes, seq: AtomicU64::new(0) }
    }

    fn find(&self, id: ChunkId) -> Result<Arc<RwLock<Chunk>>> {
        self.chunks.read().get(&id).cloned().ok_or(StoreError::NoSuchChunk(id))
    }

    fn copy(&self, id: ChunkId) -> Result<Arc<RwLock<Chunk>>> {
        let chunk = self.find(id)?;
        let is_copy = chunk.read().record.is_some();
        if is_copy { Ok(chunk) } else { Err(StoreError::NotACopy(id)) }
    }

    fn find_or_create(&self, id: ChunkId, container: ContainerId, chunk_bytes: u64) -> Result<Arc<RwLock<Chunk>>> {
        if let Ok(chunk) = self.find(id) {
            return Ok(chunk);
        }
        if chunk_bytes == 0 {
            return Err(StoreError::NoSuchChunk(id));
        }
        let mut chunks = self.chunks.write();
        let made = chunks
            .entry(id)
            .or_insert_with(|| Arc::new(RwLock::new(Chunk { container, chunk_bytes, ..Chunk::default() })));
        Ok(made.clone())
    }

    fn take(&self, id: ChunkId, bytes: u64) -> Result<()> {
        let mut budget = self.budget.lock();
        let held = budget.reserved.get(&id).copied().unwrap_or(0);
        let from_held = bytes.min(held);
        let free = self.budget_bytes.saturating_sub(budget.used).saturating_sub(budget.reserved_total);
        if bytes - from_held > free {
            return Err(StoreError::NoSpace { subject: format!("chunk {id} in memory"), needed: bytes, free });
        }
        budget.reserved_total -= from_held;
        match held - from_held {
            0 => budget.reserved.remove(&id),
            left => budget.reserved.insert(id, left),
        };
        budget.used += bytes;
        Ok(())
    }

    fn give_back(&self, blocks: u64) {
        let mut budget = self.budget.lock();
        budget.used = budget.used.saturating_sub(blocks * BLOCK_BYTES);
    }

    fn cut(&self, id: ChunkId, chunk: &mut Chunk, cuts: &Cuts) -> Result<()> {
        let seen = chunk.trunc_gen;
        if cuts.trunc_gen < seen {
            return Err(StoreError::StaleTruncGen { chunk: id, seen, got: cuts.trunc_gen });
        }
        if let Some(len) = cuts.shortest_since(seen)
            && len < chunk.length
        {
            let end = blocks(chunk.length) * BLOCK_BYTES;
            self.give_back(chunk.clear(ByteRange::new(len, end)));
            chunk.length = len;
        }
        chunk.trunc_gen = cuts.trunc_gen;
        Ok(())
    }

    fn change<T>(
        &self,
        id: ChunkId,
        chunk: &RwLock<Chunk>,
        cuts: &Cuts,
        change: impl FnOnce(&mut Chunk) -> Result<T>,
    ) -> Result<T> {
        let mut chunk = chunk.write();
        if chunk.deleted {
            return Err(StoreError::NoSuchChunk(id));
        }
        self.cut(id, &mut chunk, cuts)?;
        change(&mut chunk)
    }

    fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn reserve_of(&self, budget: &mut Budget, id: ChunkId, bytes: u64) -> Result<()> {
        let free = self.budget_bytes.saturating_sub(budget.used).saturating_sub(budget.reserved_total);
        if bytes > free {
            return Err(StoreError::NoSpace { subject: format!("chunk {id} in memory"), needed: bytes, free });
        }
        budget.reserved_total += bytes;
        *budget.reserved.entry(id).or_default() += bytes;
        Ok(())
    }
}

impl ChunkStore for MemoryStore {
    fn create(&self, chunk: ChunkId, container: ContainerId, chunk_bytes: u64) -> Result<()> {
        self.find_or_create(chunk, container, chunk_bytes).map(drop)
    }

    fn create_copy(&self, id: ChunkId, container: ContainerId, chunk_bytes: u64) -> Result<()> {
        if let Ok(found) = self.find(id) {
            return if found.read().record.is_some() { Ok(()) } else { Err(StoreError::NotACopy(id)) };
        }
        let made = self.find_or_create(id, container, chunk_bytes)?;
        made.write().record.get_or_insert(None);
        Ok(())
    }

    fn clone_blocks(&self, to: ChunkId, from: ChunkId, range: Range<u64>, info: &WriteInfo) -> Result<Written> {
        let (found, end): (BTreeMap<u64, Arc<Block>>, u64) = {
            let source = self.find(from)?;
            let source = source.read();
            let found = source.blocks.range(range.clone()).map(|(block, bytes)| (*block, bytes.clone()));
            (found.collect(), source.length.min(range.end.saturating_mul(BLOCK_BYTES)))
        };
        let target = self.find(to)?;
        let chunk_bytes = target.read().chunk_bytes;
        if end > chunk_bytes {
            return Err(StoreError::BeyondChunk { chunk: to, end, chunk_bytes });
        }
        self.change(to, &target, &info.cuts, |chunk| {
            let before = chunk.length;
            let have: Vec<u64> = chunk.blocks.range(range.clone()).map(|(block, _)| *block).collect();
            let new = found.keys().filter(|block| !chunk.blocks.contains_key(block)).count() as u64;
            self.take(to, new * BLOCK_BYTES)?;
            let gone = have.iter().filter(|block| !found.contains_key(block)).count() as u64;
            have.iter().for_each(|block| drop(chunk.blocks.remove(block)));
            self.give_back(gone);
            chunk.blocks.extend(found);
            chunk.length = chunk.length.max(end);
            chunk.version = chunk.version.max(info.version);
            chunk.file = info.file().unwrap_or(chunk.file);
            Ok(Written { version: chunk.version, seq: self.next_seq(), grew: chunk.length > before })
        })
    }

    fn sync_copy(&self, id: ChunkId) -> Result<RecordMark> {
        self.copy(id).map(|_| RecordMark::default())
    }

    fn put_record(&self, id: ChunkId, _mark: &RecordMark, record: &[u8]) -> Result<()> {
        self.copy(id)?.write().record = Some(Some(record.to_vec()));
        Ok(())
    }

    /// Which blocks changed since a record is not kept here: any may have. What this store holds goes with its
    /// process, so that only a test opens it again.
    fn copies(&self) -> Vec<FoundCopy> {
        let chunks = self.chunks.read();
        let found = chunks.iter().filter_map(|(id, chunk)| {
            let chunk = chunk.read();
            let record = chunk.record.clone()?;
            let suspect = Some(0..blocks(chunk.length)).filter(|all| !all.is_empty()).into_iter().collect();
            Some(FoundCopy { chunk: *id, container: chunk.container, record, suspect, bad: Vec::new() })
        });
        found.collect()
    }

    fn set_head(&self, id: ChunkId, head: &ChunkHead) -> Result<()> {
        let chunk = self.copy(id)?;
        let mut chunk = chunk.write();
        if head.length < chunk.length {
            let end = blocks(chunk.length) * BLOCK_BYTES;
            self.give_back(chunk.clear(ByteRange::new(head.length, end)));
        }
        (chunk.chunk_bytes, chunk.length, chunk.trunc_gen) = (head.chunk_bytes, head.length, head.trunc_gen);
        chunk.file = (head.inode, head.index);
        self.next_seq();
        Ok(())
    }

    fn seal(&self, id: ChunkId, _blocks: Range<u64>) -> Result<u64> {
        self.copy(id).map(|_| 0)
    }

    fn write(&self, id: ChunkId, offset: u64, bytes: &[u8], info: &WriteInfo) -> Result<Written> {
        let chunk = self.find_or_create(id, info.container, info.chunk_bytes)?;
        let end = offset.saturating_add(bytes.len() as u64);
        let chunk_bytes = chunk.read().chunk_bytes;
        if end > chunk_bytes {
            return Err(StoreError::BeyondChunk { chunk: id, end, chunk_bytes });
        }
        self.change(id, &chunk, &info.cuts, |chunk| {
            let before = chunk.length;
            let touched = offset / BLOCK_BYTES..blocks(end);
            let have = chunk.blocks.range(touched.clone()).count() as u64;
            if !bytes.is_empty() {
                self.take(id, (touched.end - touched.start - have) * BLOCK_BYTES)?;
                chunk.put(offset, bytes);
            }
            chunk.version = chunk.version.max(info.version);
            chunk.file = info.file().unwrap_or(chunk.file);
            Ok(Written { version: chunk.version, seq: self.next_seq(), grew: chunk.length > before })
        })
    }

    fn read(&self, id: ChunkId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let chunk = self.find(id)?;
        chunk.read().get(offset, buf);
        Ok(())
    }

    fn read_cached(&self, id: ChunkId, offset: u64, buf: &mut [u8]) -> Result<bool> {
        let chunk = self.find(id)?;
        let Some(chunk) = chunk.try_read() else { return Ok(false) };
        chunk.get(offset, buf);
        Ok(true)
    }

    fn apply_cuts(&self, id: ChunkId, cuts: &Cuts) -> Result<()> {
        let chunk = self.find(id)?;
        if chunk.read().trunc_gen == cuts.trunc_gen {
            return Ok(());
        }
        self.change(id, &chunk, cuts, |_| Ok(()))
    }

    fn punch(&self, id: ChunkId, range: ByteRange, info: &WriteInfo) -> Result<Written> {
        let chunk = self.find(id)?;
        self.change(id, &chunk, &info.cuts, |chunk| {
            if let Some(range) = range.intersect(ByteRange::new(0, chunk.length)) {
                // The last block goes whole when all of its content does.
                let end = if range.end == chunk.length { blocks(range.end) * BLOCK_BYTES } else { range.end };
                self.give_back(chunk.clear(ByteRange::new(range.start, end)));
            }
            chunk.version = chunk.version.max(info.version);
            chunk.file = info.file().unwrap_or(chunk.file);
            Ok(Written { version: chunk.version, seq: self.next_seq(), grew: false })
        })
    }

    fn sync(&self, chunks: &[ChunkId]) -> Result<Vec<Synced>> {
        chunks.iter().map(|id| Ok(Synced { chunk: *id, version: self.find(*id)?.read().version })).collect()
    }

    fn sync_all(&self) -> Result<u64> {
        Ok(self.stable_seq())
    }

    fn write_seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    fn stable_seq(&self) -> u64 {
        self.write_seq()
    }

    fn reserve(&self, id: ChunkId, bytes: u64) -> Result<()> {
        self.reserve_of(&mut self.budget.lock(), id, bytes)
    }

    fn reserve_at_least(&self, id: ChunkId, bytes: u64) -> Result<()> {
        let mut budget = self.budget.lock();
        let held = budget.reserved.get(&id).copied().unwrap_or(0);
        if bytes > held { self.reserve_of(&mut budget, id, bytes - held) } else { Ok(()) }
    }

    fn unreserve(&self, id: ChunkId, bytes: u64) {
        let mut budget = self.budget.lock();
        let held = budget.reserved.get(&id).copied().unwrap_or(0);
        let given = bytes.min(held);
        budget.reserved_total -= given;
        match held - given {
            0 => budget.reserved.remove(&id),
            left => budget.reserved.insert(id, left),
        };
    }

    fn delete(&self, chunks: &[ChunkId]) -> Result<()> {
        for id in chunks {
            let Some(chunk) = self.chunks.write().remove(id) else { continue };
            let mut chunk = chunk.write();
            chunk.deleted = true;
            self.give_back(chunk.blocks.len() as u64);
            chunk.blocks.clear();
            self.unreserve(*id, u64::MAX);
        }
        Ok(())
    }

    fn stat(&self, id: ChunkId) -> Result<ChunkStat> {
        let chunk = self.find(id)?;
        let chunk = chunk.read();
        Ok(ChunkStat {
            container: chunk.container,
            chunk_bytes: chunk.chunk_bytes,
            length: chunk.length,
            occupied: chunk.blocks.len() as u64 * BLOCK_BYTES,
            version: chunk.version,
            trunc_gen: chunk.trunc_gen,
            inode: chunk.file.0,
            index: chunk.file.1,
            unsure: false,
        })
    }

    fn extents(&self, id: ChunkId, range: ByteRange) -> Result<Vec<Extent>> {
        let chunk = self.find(id)?;
        let chunk = chunk.read();
        let range = ByteRange::new(range.start, range.end.min(chunk.chunk_bytes).max(range.start));
        Ok(extents_of(range, BLOCK_BYTES, |block| chunk.blocks.contains_key(&block)))
    }

    fn list(&self, after: ChunkId, limit: usize) -> Vec<ChunkId> {
        let chunks = self.chunks.read();
        chunks.range((Bound::Excluded(after), Bound::Unbounded)).take(limit).map(|(id, _)| *id).collect()
    }

    /// Memory is not verified: the machine's own check of it is all there is.
    fn scrub_step(&self, _from: ScrubCursor, _bytes: u64) -> Result<ScrubStep> {
        Ok(ScrubStep::default())
    }

    fn usage(&self) -> Result<StoreUsage> {
        let budget = self.budget.lock();
        Ok(StoreUsage {
            chunks: self.chunks.read().len() as u64,
            total_bytes: self.budget_bytes,
            free_bytes: self.budget_bytes.saturating_sub(budget.used).saturating_sub(budget.reserved_total),
            reserved_bytes: budget.reserved_total,
            disk: 0,
            sealed_blocks: 0,
            bad_blocks: 0,
        })
    }
}
