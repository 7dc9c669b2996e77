//! A chunk's files in the hands of a reader beside the store (docs/design/0013-local-reads.md).
//!
//! Promises: bytes that are given have the checksum that the chunk's table has for them, or the table has a hole there and
//! they are zeros. Anything else is a doubt and no verdict: a write may have come between the two files, or the block has
//! rotted; the store knows, and names it.
//!
//! Leaves to others: whether the chunk may be read here at all, and whether what was read is still what it should be.

use crate::sums::{BLOCK, HOLE, block_sum, entry_offset};
use braid_env::DiskFile;
use braid_types::BLOCK_BYTES;
use std::sync::Arc;

/// Read at once while a whole chunk is looked at: 1 MiB.
const PIECE_BLOCKS: usize = 256;

/// Read-only descriptors of a chunk. They stay those of this chunk, whatever becomes of its names.
#[derive(Clone)]
pub struct LocalChunk {
    data: Arc<dyn DiskFile>,
    meta: Arc<dyn DiskFile>,
}

/// How the bytes come from the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalFetch {
    Waiting,
    /// Only what is in the page cache.
    Cached,
}

#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalRead {
    /// Every byte asked for is there.
    Done,
    /// It would have to wait for the disk, and was not to.
    Waits,
    /// Some block is not the one of its checksum, or cannot be read.
    Doubt,
}

impl LocalFetch {
    /// Fills `buf`, with zeros beyond the end of the file; false if that would wait.
    fn fill(self, file: &dyn DiskFile, buf: &mut [u8], offset: u64) -> std::io::Result<bool> {
        let read = match self {
            LocalFetch::Waiting => Some(file.read_at(buf, offset)?),
            LocalFetch::Cached => file.read_cached_at(buf, offset)?,
        };
        if let Some(read) = read {
            buf[read..].fill(0);
        }
        Ok(read.is_some())
    }
}

impl LocalChunk {
    /// Of files that are open for reading.
    pub fn of(data: Arc<dyn DiskFile>, meta: Arc<dyn DiskFile>) -> Self {
        Self { data, meta }
    }

    /// Data and meta, to be handed to another process.
    pub fn files(&self) -> [&Arc<dyn DiskFile>; 2] {
        [&self.data, &self.meta]
    }

    /// Fills `buf`; holes and what is beyond the chunk's length are zeros. `buf` is undefined unless it is [`LocalRead::Done`].
    pub fn read(&self, offset: u64, buf: &mut [u8], fetch: LocalFetch) -> LocalRead {
        if buf.is_empty() {
            return LocalRead::Done;
        }
        match self.try_read(offset, buf, fetch) {
            Ok(read) => read,
            Err(_) => LocalRead::Doubt,
        }
    }

    /// The data file has the chunk's bytes up to `len`, its holes included, and ends there: it can be read without the table.
    /// Reads all of it, and waits for the disk.
    pub fn is_plain(&self, len: u64) -> bool {
        self.try_plain(len).unwrap_or(false)
    }

    fn try_plain(&self, len: u64) -> std::io::Result<bool> {
        if self.data.len()? != len {
            return Ok(false);
        }
        let (mut room, mut entries) = (vec![0; PIECE_BLOCKS * BLOCK], vec![0; PIECE_BLOCKS * 4]);
        let last = len.div_ceil(BLOCK_BYTES);
        for first in (0..last).step_by(PIECE_BLOCKS) {
            let blocks = (last - first).min(PIECE_BLOCKS as u64) as usize;
            let (bytes, sums) = (&mut room[..blocks * BLOCK], &mut entries[..blocks * 4]);
            LocalFetch::Waiting.fill(&*self.meta, sums, entry_offset(first))?;
            LocalFetch::Waiting.fill(&*self.data, bytes, first * BLOCK_BYTES)?;
            let is_there = |(block, sum): (&[u8], &[u8])| match u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]) {
                HOLE => block.iter().all(|byte| *byte == 0),
                sum => sum == block_sum(block),
            };
            if !bytes.chunks_exact(BLOCK).zip(sums.chunks_exact(4)).all(is_there) {
                return Ok(false);
            }
        }
        Ok(self.data.len()? == len)
    }

    fn try_read(&self, offset: u64, buf: &mut [u8], fetch: LocalFetch) -> std::io::Result<LocalRead> {
        let end = offset.checked_add(buf.len() as u64).ok_or(std::io::ErrorKind::InvalidInput)?;
        let (first, last) = (offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let mut sums = vec![0; (last - first) as usize * 4];
        if !fetch.fill(&*self.meta, &mut sums, entry_offset(first))? {
            return Ok(LocalRead::Waits);
        }
        let sums = sums.chunks_exact(4).map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]));
        let sums: Vec<u32> = sums.collect();
        let is_whole = offset.is_multiple_of(BLOCK_BYTES) && end.is_multiple_of(BLOCK_BYTES);
        let mut room = if is_whole { Vec::new() } else { vec![0; sums.len() * BLOCK] };
        let bytes = if is_whole { &mut *buf } else { &mut room[..] };
        if !fetch.fill(&*self.data, bytes, first * BLOCK_BYTES)? {
            return Ok(LocalRead::Waits);
        }
        for (block, sum) in bytes.chunks_exact_mut(BLOCK).zip(&sums) {
            match *sum {
                HOLE => block.fill(0),
                sum if sum != block_sum(block) => return Ok(LocalRead::Doubt),
                _ => {}
            }
        }
        if !is_whole {
            let from = (offset - first * BLOCK_BYTES) as usize;
            buf.copy_from_slice(&room[from..from + buf.len()]);
        }
        Ok(LocalRead::Done)
    }
}
