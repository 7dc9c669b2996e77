//! Verifying what nobody reads.

use super::DiskStore;
use super::chunk::{Chunk, ZERO_BLOCK, file_path};
use crate::checksum::BASE;
use crate::{Result, ScrubCursor, ScrubStep, StoreError};
use braid_env::OpenMode;
use braid_types::{BLOCK_BYTES, ChunkId};
use std::io;

/// Where a scrub is: two numbers in decimal.
const CURSOR: &str = "scrub";
const NEW_CURSOR: &str = "scrub.new";
const CURSOR_BYTES_MAX: usize = 64;

impl DiskStore {
    pub(super) fn scrub(&self, from: ScrubCursor, bytes: u64) -> Result<ScrubStep> {
        let mut step = ScrubStep::default();
        let mut at = from;
        // Small chunks must not make a step long: a step looks at 64 chunks at most.
        for _ in 0..64 {
            let id = self.index.read().range(at.chunk..).next().copied();
            let Some(id) = id else {
                step.next = None;
                return Ok(step);
            };
            if id != at.chunk {
                at = ScrubCursor { chunk: id, block: 0 };
            }
            let verified = self.scrub_chunk(&mut at, bytes, &mut step);
            step.next = Some(at);
            match verified {
                Ok(()) => {}
                Err(StoreError::NoSuchChunk(_)) if !self.index.read().contains(&id) => {}
                // What was found before it is not lost with it.
                Err(error) => {
                    let gone = || StoreError::Missing { chunk: id, file: file_path(&self.dir, id, "meta") };
                    let error = if let StoreError::NoSuchChunk(_) = error { gone() } else { error };
                    step.failed = Some((id, error));
                    break;
                }
            }
            if at.chunk == id {
                break;
            }
        }
        Ok(step)
    }

    /// Verifies from the cursor on, and moves it: inside the chunk if the bytes are used up, else to the next.
    fn scrub_chunk(&self, at: &mut ScrubCursor, bytes: u64, step: &mut ScrubStep) -> Result<()> {
        let id = at.chunk;
        let first = at.block;
        at.chunk = ChunkId(id.0.saturating_add(1));
        at.block = 0;
        let mut block = first;
        let found = self.existing(id).and_then(|chunk| match first {
            0 => self.has_names(&chunk).map(|()| chunk),
            _ => Ok(chunk),
        });
        let chunk = match found {
            Err(StoreError::Missing { .. }) if self.renew_data(id)? => {
                block = 0;
                self.existing(id)?
            }
            found => found?,
        };
        loop {
            // The lock is taken for each block, so that readers and writers are not held up.
            let mut state = chunk.state.write();
            if state.deleted || block >= state.blocks() {
                return Ok(());
            }
            if step.checked_bytes >= bytes.max(1) {
                *at = ScrubCursor { chunk: id, block };
                return Ok(());
            }
            chunk.load(&mut state, &(block..block + 1))?;
            if state.table.get(block) == BASE {
                // Verified there.
                block += 1;
                continue;
            }
            let mut buf = ZERO_BLOCK;
            if let Err(error) = chunk.block(&state, block, &mut buf) {
                self.note(&error);
                step.bad.push((id, block));
            }
            step.checked_bytes += BLOCK_BYTES;
            block += 1;
        }
    }

    /// What this process has open it can read although somebody has removed it; the next one could not.
    fn has_names(&self, chunk: &Chunk) -> Result<()> {
        // Neither made nor deleted meanwhile.
        let _opening = self.opening(chunk.id).lock();
        if chunk.state.read().deleted {
            return Ok(());
        }
        for path in [&chunk.meta_path, &chunk.data_path] {
            match self.disk.open(path, OpenMode::ReadOnly) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(StoreError::Missing { chunk: chunk.id, file: path.clone() });
                }
                opened => drop(opened.map_err(|e| StoreError::io("open", path, e))?),
            }
        }
        Ok(())
    }

    pub(super) fn found_cursor(&self) -> ScrubCursor {
        let read = || -> io::Result<Option<ScrubCursor>> {
            let file = self.disk.open(&self.dir.join(CURSOR), OpenMode::Existing)?;
            let mut bytes = [0; CURSOR_BYTES_MAX];
            let len = file.read_at(&mut bytes, 0)?;
            let text = str::from_utf8(&bytes[..len]).unwrap_or_default();
            let mut numbers = text.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(chunk)), Some(Ok(block))) = (numbers.next(), numbers.next()) else { return Ok(None) };
            Ok(Some(ScrubCursor { chunk: ChunkId(chunk), block }))
        };
        // A store of before has none, and one that is damaged costs a round that begins anew.
        read().ok().flatten().unwrap_or_default()
    }

    /// Not synced: a power cut leaves the one before, or none.
    pub(super) fn keep_cursor(&self, at: ScrubCursor) -> Result<()> {
        let (path, new) = (self.dir.join(CURSOR), self.dir.join(NEW_CURSOR));
        let write = || {
            let file = self.disk.open(&new, OpenMode::OrCreate)?;
            file.set_len(0)?;
            file.write_at(format!("{} {}\n", at.chunk.0, at.block).as_bytes(), 0)?;
            self.disk.rename(&new, &path)
        };
        write().map_err(|e| StoreError::io("write", &path, e))
    }
}
