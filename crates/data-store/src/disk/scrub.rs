//! Verifying what nobody reads.

use super::DiskStore;
use super::chunk::ZERO_BLOCK;
use crate::{Result, ScrubCursor, ScrubStep, StoreError};
use braid_types::{BLOCK_BYTES, ChunkId};

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
            match self.scrub_chunk(&mut at, bytes, &mut step) {
                Err(StoreError::NoSuchChunk(_)) => {}
                result => result?,
            }
            step.next = Some(at);
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
        let chunk = self.existing(id)?;
        let mut block = first;
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
            let mut buf = ZERO_BLOCK;
            if let Err(error) = chunk.block(&state, block, &mut buf) {
                self.note(&error);
                step.bad.push((id, block));
            }
            step.checked_bytes += BLOCK_BYTES;
            block += 1;
        }
    }
}
