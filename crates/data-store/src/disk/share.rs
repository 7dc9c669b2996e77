//! Chunks that have blocks of another, their base: made so by [`crate::ChunkStore::clone_blocks`] where the file system shares nothing
//! itself.
//!
//! The table of such a chunk says of a block that it is the base's. It is read there, and verified by the base's checksum. **Before the first
//! change of such a block its whole extent is copied up**: the bytes of all its blocks that are the base's, then, when these are
//! stable, their checksums. When those are stable too, the change goes on as in any chunk. Before the base itself changes,
//! or is deleted, whoever has blocks of it copies all of them.
//!
//! Why a power cut at any point is harmless:
//! - *While bytes are copied*: the table says that the blocks are the base's, and whatever this chunk's file has there counts for nothing.
//! - *While their checksums are written*: each entry is the old one or the new, and the block is the same by either, because the bytes
//!   were synced before.
//! - *Afterwards* the block is one like any other that was stable with this content: what changes it leaves old, new or torn bytes, and
//!   the activity log or the synced length says so. Were the checksums not synced, a change could be in the file and the entry still say
//!   *the base's*: a write that a sync of the data alone had covered would be gone.
//! - *While a chunk gets a base*: first the name that says so, then the header, each stable before the next, then entries. Without the
//!   header entries mean nothing, and with it the base cannot be deleted without this chunk being asked.
//! - *While it loses it*: first all is copied, then the header, then the name. A name whose header says nothing is harmless.
//!
//! So a block that is the base's is never torn, and recovery passes over it. Of a copy it is suspect like others: what it was before
//! is not in its record.

use super::chunk::{Chunk, State, ZERO_BLOCK, file_path, shard_of};
use super::read::Fetch;
use super::{DiskStore, Gate};
use crate::checksum::{BASE, BLOCK, Block, HOLE, block_sum, blocks};
use crate::{BadBlockCause, Result, StoreError};
use braid_env::OpenMode;
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId};
use parking_lot::{RwLock, RwLockWriteGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A chunk reads its base's blocks, which may be those of a base of its own, and so on: so many steps at most.
pub(super) const DEPTH_MAX: usize = 8;
/// What is copied up together: blocks of an extent of the activity log.
const EXTENT_BLOCKS: u64 = super::activity::EXTENT_BYTES / BLOCK_BYTES;
/// What is copied under one lock, and between two syncs, when a base goes: 16 MiB.
const BATCH_BLOCKS: u64 = 4096;
/// Before the base's id, in the name that a chunk with a base has beside its others.
const BASE_SUFFIX: &str = "base-";

/// The base of a chunk that has a name with this suffix.
pub(super) fn base_of_suffix(suffix: &str) -> Option<ChunkId> {
    let id = suffix.strip_prefix(BASE_SUFFIX)?;
    u64::from_str_radix(id, 16).ok().map(ChunkId)
}

/// Who has blocks of whom: known from names when the store is opened.
#[derive(Default)]
pub(super) struct Shares {
    map: RwLock<Map>,
    /// Of the map, so that a write need not lock while there are none.
    count: AtomicUsize,
}

#[derive(Default)]
struct Map {
    bases: BTreeMap<ChunkId, ChunkId>,
    dependents: BTreeMap<ChunkId, BTreeSet<ChunkId>>,
}

impl Shares {
    pub fn insert(&self, chunk: ChunkId, base: ChunkId) {
        let mut map = self.map.write();
        map.remove(chunk);
        map.bases.insert(chunk, base);
        map.dependents.entry(base).or_default().insert(chunk);
        self.count.store(map.bases.len(), Ordering::Release);
    }

    pub fn remove(&self, chunk: ChunkId) -> Option<ChunkId> {
        let mut map = self.map.write();
        let base = map.remove(chunk);
        self.count.store(map.bases.len(), Ordering::Release);
        base
    }

    pub fn has_dependents(&self, base: ChunkId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.map.read().dependents.contains_key(&base)
    }

    pub fn has_base(&self, chunk: ChunkId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.map.read().bases.contains_key(&chunk)
    }

    fn dependents(&self, base: ChunkId) -> Vec<ChunkId> {
        self.map.read().dependents.get(&base).into_iter().flatten().copied().collect()
    }

    /// How many steps it is from the chunk to one without a base.
    pub fn depth(&self, chunk: ChunkId) -> usize {
        let map = self.map.read();
        let bases = std::iter::successors(Some(chunk), |chunk| map.bases.get(chunk).copied());
        // What names say may be anything.
        bases.take(2 * DEPTH_MAX).count() - 1
    }
}

impl Map {
    fn remove(&mut self, chunk: ChunkId) -> Option<ChunkId> {
        let base = self.bases.remove(&chunk)?;
        if let Some(of_base) = self.dependents.get_mut(&base) {
            of_base.remove(&chunk);
            if of_base.is_empty() {
                self.dependents.remove(&base);
            }
        }
        Some(base)
    }
}

impl Gate<'_> {
    /// Do its cuts take something away?
    pub(super) fn shortens(&self, state: &State) -> bool {
        self.cuts.shortest_since(state.header.trunc_gen).is_some_and(|len| len < state.header.length)
    }
}

impl Chunk {
    /// A range whose blocks are the base's. False if `fetch` would have to wait.
    pub(super) fn read_base(&self, state: &State, offset: u64, buf: &mut [u8], fetch: Fetch) -> Result<bool> {
        let Some(base) = &state.base else {
            if fetch == Fetch::Cached {
                return Ok(false);
            }
            let cause = format!("it is a block of chunk {}, which is not here", state.header.base);
            return Err(self.bad_block(offset / BLOCK_BYTES, BadBlockCause::Unreadable(cause)));
        };
        let needed = |state: &State| {
            let end = offset.saturating_add(buf.len() as u64).min(state.header.length);
            (offset < end).then(|| offset / BLOCK_BYTES..blocks(end))
        };
        loop {
            {
                let of_base = base.state.read();
                if needed(&of_base).is_none_or(|needed| of_base.table.has(&needed)) {
                    return base.read_verified(&of_base, offset, buf, fetch).map_err(|error| self.own(error));
                }
            }
            if fetch == Fetch::Cached {
                return Ok(false);
            }
            let mut of_base = base.state.write();
            if let Some(needed) = needed(&of_base) {
                base.load(&mut of_base, &needed)?;
            }
        }
    }

    /// A base's bad block is bad here; the file is the one that has it.
    fn own(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::BadBlock { block, file, cause, .. } => {
                StoreError::BadBlock { chunk: self.id, block, file, cause }
            }
            error => error,
        }
    }

    /// A block as it is in its file, and the checksum it should have.
    fn bytes_and_sum(&self, block: u64, buf: &mut Block) -> Result<u32> {
        let mut state = self.state.write();
        self.load(&mut state, &(block..block + 1))?;
        let sum = state.table.get(block);
        if sum != BASE {
            if sum == HOLE || self.raw_block(state.header.length, block, buf).is_err() {
                buf.fill(0);
            }
            return Ok(sum);
        }
        match state.base.clone() {
            Some(base) => {
                drop(state);
                base.bytes_and_sum(block, buf)
            }
            None => {
                buf.fill(0);
                // Not that of zeros.
                Ok(block_sum(buf) ^ 2)
            }
        }
    }
}

impl DiskStore {
    /// Looks for the chunk whose blocks the chunk has, once, and for whose that has, and so on. If one is not there, or damaged, these
    /// blocks are bad. The caller holds nothing.
    pub(super) fn find_base(&self, chunk: &Arc<Chunk>) {
        let mut found = vec![chunk.clone()];
        loop {
            let last = &found[found.len() - 1];
            let base = ChunkId(last.base_wanted.load(Ordering::Acquire));
            // What files say may go round in a circle.
            if base.0 == 0 || found.len() > DEPTH_MAX || found.iter().any(|chunk| chunk.id == base) {
                break;
            }
            match self.find_alone(base) {
                Ok(Some(next)) => found.push(next),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!("chunk {} has blocks of chunk {base}: {error}", last.id);
                    break;
                }
            }
        }
        let mut base = None;
        for chunk in found.into_iter().rev() {
            let wanted = ChunkId(chunk.base_wanted.load(Ordering::Acquire));
            if wanted.0 != 0 {
                let mut state = chunk.state.write();
                if state.header.base == wanted && !state.deleted {
                    // Also if its name was lost: whoever removes the base must know.
                    self.shares.insert(chunk.id, wanted);
                    state.base = base.take();
                }
                chunk.base_wanted.store(0, Ordering::Release);
            }
            base = Some(chunk);
        }
    }

    /// Before blocks change: those of their extents that are the base's become the chunk's own, on stable storage.
    pub(super) fn copy_up(&self, chunk: &Chunk, state: &mut State, touched: &Range<u64>) -> Result<()> {
        if state.header.base.0 == 0 {
            return Ok(());
        }
        let count = state.blocks();
        for first in (touched.start / EXTENT_BLOCKS * EXTENT_BLOCKS..touched.end).step_by(EXTENT_BLOCKS as usize) {
            let extent = first..(first + EXTENT_BLOCKS).min(count);
            let touched = touched.start.max(extent.start)..touched.end.min(extent.end);
            chunk.load(state, &extent)?;
            if touched.into_iter().any(|block| state.table.get(block) == BASE) {
                let bytes = extent.clone().filter(|block| state.table.get(*block) == BASE).count() as u64 * BLOCK_BYTES;
                let _taken = self.space.take(chunk.id, bytes)?;
                self.copy_blocks(chunk, state, extent)?;
            }
        }
        // The extents' entries may have pushed them out.
        chunk.load(state, touched)
    }

    /// Makes the blocks that are the base's the chunk's own, on stable storage; see the top for the order. Their entries are loaded.
    fn copy_blocks(&self, chunk: &Chunk, state: &mut State, range: Range<u64>) -> Result<()> {
        let length = state.header.length;
        let mut copied: Vec<(u64, Vec<u32>)> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            if state.table.get(at) != BASE {
                at += 1;
                continue;
            }
            let run =
                (at..range.end.min(at + EXTENT_BLOCKS)).take_while(|block| state.table.get(*block) == BASE).count();
            let mut bytes = vec![0; run * BLOCK];
            let sums = match chunk.read_base(state, at * BLOCK_BYTES, &mut bytes, Fetch::Waiting) {
                Ok(_) => bytes.chunks_exact(BLOCK).map(block_sum).collect(),
                Err(_) => self.copy_singly(chunk, state, at, &mut bytes)?,
            };
            let inside = (length - at * BLOCK_BYTES).min(bytes.len() as u64) as usize;
            // Nothing is lost if this fails: the table says that it does not count.
            chunk.data.write_at(&bytes[..inside], at * BLOCK_BYTES).map_err(|e| chunk.data_error(e))?;
            copied.push((at, sums));
            at += run as u64;
        }
        let settle = |state: &mut State| -> io::Result<()> {
            if !self.options.plant_copy_up_unsynced {
                chunk.data.sync_data()?;
            }
            for (first, sums) in &copied {
                state.table.set(chunk.meta.as_ref(), *first, sums)?;
            }
            chunk.meta.sync_data()
        };
        settle(state).map_err(|e| self.fail(state, chunk.meta_error(e)))
    }

    /// Blocks of which some are bad: these stay so, under the checksum that they do not match.
    fn copy_singly(&self, chunk: &Chunk, state: &State, first: u64, bytes: &mut [u8]) -> Result<Vec<u32>> {
        let mut sums = Vec::with_capacity(bytes.len() / BLOCK);
        for (target, block) in bytes.chunks_exact_mut(BLOCK).zip(first..) {
            let mut buf = ZERO_BLOCK;
            let sum = match &state.base {
                Some(base) => base.bytes_and_sum(block, &mut buf)?,
                None => block_sum(&buf) ^ 2,
            };
            if block_sum(&buf) != sum {
                self.bad.found(chunk.id, block);
            }
            target.copy_from_slice(&buf);
            sums.push(sum);
        }
        Ok(sums)
    }

    /// The chunk's lock, when nobody has blocks of it any more that `disturbs` says will change.
    pub(super) fn undisturbing<'a>(
        &self,
        chunk: &'a Chunk,
        disturbs: impl Fn(&State) -> bool,
    ) -> Result<RwLockWriteGuard<'a, State>> {
        loop {
            let state = chunk.state.write();
            if !self.shares.has_dependents(chunk.id) || state.deleted || !disturbs(&state) {
                return Ok(state);
            }
            // Who has blocks of another is locked before that one.
            drop(state);
            self.give_to_sharers(chunk.id, false)?;
        }
    }

    /// Those that have blocks of this chunk get them for their own, on stable storage. Where it goes itself, its room can become theirs.
    pub(super) fn give_to_sharers(&self, base: ChunkId, goes: bool) -> Result<()> {
        if !self.shares.has_dependents(base) {
            return Ok(());
        }
        let mut dependents = self.shares.dependents(base);
        while let Some(id) = dependents.pop() {
            let is_last = goes && dependents.is_empty();
            match self.find(id) {
                Ok(Some(chunk)) => self.leave_base(&chunk, base, is_last)?,
                Ok(None) => drop(self.shares.remove(id)),
                // Nothing of it can be read, with its base or without.
                Err(error @ (StoreError::BadHeader { .. } | StoreError::Missing { .. })) => {
                    tracing::error!("{error}");
                    self.shares.remove(id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// `is_last`: nobody else needs what is read from the base.
    fn leave_base(&self, chunk: &Arc<Chunk>, base: ChunkId, is_last: bool) -> Result<()> {
        let mut from = 0;
        let mut step = BATCH_BLOCKS;
        loop {
            let mut state = chunk.state.write();
            let state = &mut *state;
            if state.deleted || state.header.base != base {
                // It has been made anew, or was: what the index says of it is of before.
                if state.header.base.0 == 0 || state.deleted {
                    self.shares.remove(chunk.id);
                }
                return Ok(());
            }
            if let Some(cause) = &state.failed {
                return Err(StoreError::Failed { chunk: chunk.id, cause: cause.clone() });
            }
            let batch = from..state.blocks().min(from + step);
            if !batch.is_empty() {
                chunk.load(state, &batch)?;
                let shared = batch.clone().filter(|block| state.table.get(*block) == BASE).count() as u64;
                if shared > 0 {
                    let taken = match self.space.take(chunk.id, shared * BLOCK_BYTES) {
                        // A full disk must not keep what would make room from being deleted. What is kept back does for one extent, and
                        // then the base's is free.
                        Err(error) if error.is_no_space() && is_last => None,
                        taken => Some(taken?),
                    };
                    if taken.is_none() && step > EXTENT_BLOCKS {
                        step = EXTENT_BLOCKS;
                        continue;
                    }
                    self.copy_blocks(chunk, state, batch.clone())?;
                    if let (EXTENT_BLOCKS, Some(base)) = (step, &state.base) {
                        let bytes = ByteRange::new(batch.start * BLOCK_BYTES, batch.end * BLOCK_BYTES);
                        // Where that cannot be, the next extent has no room.
                        let _ = base.data.punch_hole(bytes.start, bytes.len());
                    }
                }
                from = batch.end;
                continue;
            }
            if self.has_base_blocks(chunk, state)? {
                // Others were made the base's meanwhile.
                from = 0;
                continue;
            }
            state.header.base = ChunkId(0);
            self.write_base(chunk, state).map_err(|e| self.fail(state, chunk.meta_error(e)))?;
            (state.base, state.table.has_base) = (None, false);
            return self.remove_base_name(chunk.id);
        }
    }

    /// The header, which has another base now, on stable storage. No write that is torn later takes it away: the next goes to another slot.
    fn write_base(&self, chunk: &Chunk, state: &mut State) -> io::Result<()> {
        chunk.write_header(&state.header)?;
        chunk.meta.sync_data()?;
        state.header.slot_seq += 1;
        Ok(())
    }

    fn base_name(&self, chunk: ChunkId, base: ChunkId) -> PathBuf {
        file_path(&self.dir, chunk, &format!("{BASE_SUFFIX}{:016x}", base.0))
    }

    /// The chunk is going to have blocks of `base`, which is open and locked.
    pub(super) fn take_base(&self, chunk: &Chunk, state: &mut State, base: &Arc<Chunk>) -> Result<()> {
        let name = self.base_name(chunk.id, base.id);
        self.shares.insert(chunk.id, base.id);
        let named = || -> io::Result<()> {
            drop(self.disk.open(&name, OpenMode::OrCreate)?);
            self.disk.sync_dir(&shard_of(&self.dir, chunk.id))
        };
        if let Err(error) = named() {
            self.shares.remove(chunk.id);
            return Err(StoreError::io("make", &name, error));
        }
        // From now on the highest value is no checksum.
        let mut is_changed = false;
        for first in (0..state.blocks()).step_by(BATCH_BLOCKS as usize) {
            let batch = first..state.blocks().min(first + BATCH_BLOCKS);
            chunk.load(state, &batch)?;
            for block in batch {
                if state.table.get(block) == crate::checksum::BASE_ALIAS {
                    let set = state.table.set(chunk.meta.as_ref(), block, &[crate::checksum::BASE_ALIAS]);
                    set.map_err(|e| self.fail(state, chunk.meta_error(e)))?;
                    is_changed = true;
                }
            }
        }
        if is_changed {
            // These before the header that ends their old meaning.
            chunk.meta.sync_data().map_err(|e| self.fail(state, chunk.meta_error(e)))?;
        }
        state.header.base = base.id;
        self.write_base(chunk, state).map_err(|e| self.fail(state, chunk.meta_error(e)))?;
        (state.base, state.table.has_base) = (Some(base.clone()), true);
        Ok(())
    }

    /// The chunk has no blocks of another any more, or is gone. Not synced: a name too many says nothing.
    pub(super) fn remove_base_name(&self, chunk: ChunkId) -> Result<()> {
        let Some(base) = self.shares.remove(chunk) else { return Ok(()) };
        let name = self.base_name(chunk, base);
        match self.disk.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &name, error)),
            _ => Ok(()),
        }
    }

    /// No more bytes than this are in blocks that are its base's; without looking at each.
    pub(super) fn shared_at_most(&self, chunk: ChunkId) -> Result<u64> {
        if !self.shares.has_base(chunk) {
            return Ok(0);
        }
        let Some(chunk) = self.find(chunk)? else { return Ok(0) };
        let state = chunk.state.read();
        let has_base = state.header.base.0 != 0;
        let own = chunk.data.occupied().map_err(|e| chunk.data_error(e))?;
        Ok(if has_base { (state.blocks() * BLOCK_BYTES).saturating_sub(own) } else { 0 })
    }

    /// Has the chunk blocks that are its base's?
    pub(super) fn has_blocks_of_base(&self, chunk: &Chunk) -> Result<bool> {
        if chunk.state.read().header.base.0 == 0 {
            return Ok(false);
        }
        self.has_base_blocks(chunk, &mut chunk.state.write())
    }

    fn has_base_blocks(&self, chunk: &Chunk, state: &mut State) -> Result<bool> {
        for first in (0..state.blocks()).step_by(BATCH_BLOCKS as usize) {
            let batch = first..state.blocks().min(first + BATCH_BLOCKS);
            chunk.load(state, &batch)?;
            if batch.into_iter().any(|block| state.table.get(block) == BASE) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
