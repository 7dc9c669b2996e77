//! Reading: whole blocks straight into the caller's buffer, parts of blocks through one of our own; all verified.

use super::chunk::{Chunk, State, ZERO_BLOCK};
use crate::checksum::{BASE, BLOCK, HOLE, block_sum, blocks};
use crate::{BadBlockCause, Result};
use braid_env::DiskFile;
use braid_types::{BLOCK_BYTES, ByteRange};
use std::io;

/// How bytes of a file are fetched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetch {
    Waiting,
    Once,
    /// Not if that would wait.
    Cached,
}

impl Fetch {
    /// `None` if it would have to wait.
    fn get(self, file: &dyn DiskFile, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        match self {
            Fetch::Waiting => file.read_at(buf, offset).map(Some),
            Fetch::Once => file.read_once_at(buf, offset).map(Some),
            Fetch::Cached => file.read_cached_at(buf, offset),
        }
    }
}

/// Where a block's bytes are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Base,
    Here,
}

fn place(sum: u32) -> Place {
    match sum {
        HOLE => Place::Nowhere,
        BASE => Place::Base,
        _ => Place::Here,
    }
}

impl Chunk {
    /// Fills `buf`; false if `fetch` would have to wait. The table's pages must be loaded.
    pub(super) fn read_verified(&self, state: &State, offset: u64, buf: &mut [u8], fetch: Fetch) -> Result<bool> {
        let inside = state.header.length.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (buf, beyond) = buf.split_at_mut(inside);
        beyond.fill(0);
        let mut at = offset;
        let end = offset + inside as u64;
        while at < end {
            let block = at / BLOCK_BYTES;
            let lies = place(state.table.get(block));
            let last = (block + 1..blocks(end)).take_while(|b| place(state.table.get(*b)) == lies).count() as u64;
            let run_end = ((block + 1 + last) * BLOCK_BYTES).min(end);
            let target = &mut buf[(at - offset) as usize..(run_end - offset) as usize];
            let is_read = match lies {
                Place::Nowhere => {
                    target.fill(0);
                    true
                }
                Place::Base => self.read_base(state, at, target, fetch)?,
                Place::Here => self.read_run(state, ByteRange::new(at, run_end), target, fetch)?,
            };
            if !is_read {
                return Ok(false);
            }
            at = run_end;
        }
        Ok(true)
    }

    /// A run of blocks that all have data.
    fn read_run(&self, state: &State, range: ByteRange, buf: &mut [u8], fetch: Fetch) -> Result<bool> {
        let length = state.header.length;
        // The blocks whose content the range covers; the last of a chunk may be shorter than a block.
        let whole_start = range.start.next_multiple_of(BLOCK_BYTES).min(range.end);
        let whole_end = if range.end == length { range.end } else { range.end / BLOCK_BYTES * BLOCK_BYTES };
        let whole = ByteRange::new(whole_start, whole_end.max(whole_start));
        if !whole.is_empty() {
            let at = (whole.start - range.start) as usize;
            let target = &mut buf[at..at + whole.len() as usize];
            match fetch.get(self.data.as_ref(), target, whole.start) {
                Ok(None) => return Ok(false),
                Ok(Some(n)) => target[n..].fill(0),
                Err(_) => return self.read_singly(state, whole, target, fetch),
            }
            for (bytes, block) in target.chunks(BLOCK).zip(whole.start / BLOCK_BYTES..) {
                self.verify(state, block, bytes)?;
            }
        }
        let parts = if whole.is_empty() {
            [Some(range), None]
        } else {
            [range.intersect(ByteRange::new(0, whole.start)), range.intersect(ByteRange::new(whole.end, u64::MAX))]
        };
        for part in parts.into_iter().flatten() {
            let at = (part.start - range.start) as usize;
            if !self.read_singly(state, part, &mut buf[at..at + part.len() as usize], fetch)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Block by block through a buffer: parts of blocks, and runs in which the disk fails somewhere.
    fn read_singly(&self, state: &State, range: ByteRange, buf: &mut [u8], fetch: Fetch) -> Result<bool> {
        for (block, piece) in range.split_by(BLOCK_BYTES) {
            let start = block * BLOCK_BYTES;
            let mut bytes = ZERO_BLOCK;
            let inside = (state.header.length - start).min(BLOCK_BYTES) as usize;
            match fetch.get(self.data.as_ref(), &mut bytes[..inside], start) {
                Ok(None) => return Ok(false),
                Ok(Some(n)) => bytes[n..].fill(0),
                Err(error) => return Err(self.bad_block(block, BadBlockCause::Unreadable(error.to_string()))),
            }
            self.verify(state, block, &bytes)?;
            let at = (start + piece.start - range.start) as usize;
            buf[at..at + piece.len() as usize].copy_from_slice(&bytes[piece.start as usize..piece.end as usize]);
        }
        Ok(true)
    }

    fn verify(&self, state: &State, block: u64, bytes: &[u8]) -> Result<()> {
        let sum = if bytes.len() == BLOCK {
            block_sum(bytes)
        } else {
            let mut padded = ZERO_BLOCK;
            padded[..bytes.len()].copy_from_slice(bytes);
            block_sum(&padded)
        };
        match sum == state.table.get(block) {
            true => Ok(()),
            false => Err(self.bad_block(block, BadBlockCause::Checksum)),
        }
    }
}
