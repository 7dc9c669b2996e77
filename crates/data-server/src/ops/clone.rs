//! CloneChunk: a chunk that begins as another is, which nobody writes any more.

use crate::core::{Call, Change, Core, ONE_COPY};
use crate::stats::count;
use braid_api::Result;
use braid_api::data::{CloneChunk, WriteAnswer};
use braid_data_store::{ChunkStore, StoreError};
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId};
use std::sync::Arc;

/// A policy allows chunks up to 1 TiB.
const CHUNK_BYTES_MAX: u64 = 1 << 40;

/// Bytes of a chunk's blocks that have data: what a clone of it occupies when nothing is shared any more.
pub(super) fn data_bytes(store: &dyn ChunkStore, chunk: ChunkId) -> std::result::Result<u64, StoreError> {
    let all = ByteRange::new(0, store.stat(chunk)?.length.next_multiple_of(BLOCK_BYTES));
    let extents = store.extents(chunk, all)?;
    Ok(extents.iter().filter(|extent| extent.data).map(|extent| extent.range.len()).sum())
}

impl Core {
    pub(super) fn check_clone(&self, m: &CloneChunk) -> Result<()> {
        let (chunk, bytes) = (m.chunk, m.chunk_bytes);
        if chunk.0 == 0 || m.from.0 == 0 || bytes == 0 || bytes > CHUNK_BYTES_MAX {
            return Err(self.invalid(chunk, format_args!("no chunk has this id and {bytes} bytes")));
        }
        if chunk == m.from {
            return Err(self.invalid(chunk, "a chunk is not made from itself"));
        }
        Ok(())
    }

    pub async fn clone_chunk(self: &Arc<Self>, call: &Call, m: CloneChunk) -> Result<WriteAnswer> {
        let chunk = m.chunk;
        self.check_clone(&m)?;
        self.gate.check(&call.token, m.container)?;
        self.gate.settle(call, ONE_COPY)?;
        let lane = self.lanes.get(chunk);
        let mut turn = self.turn(call, &lane).await;
        let _working = self.working(call, chunk, "the disk");
        let of_work = *call;
        let clone = move |core: &Core| {
            let _pass = core.gate.enter_change(&of_work, m.container, ONE_COPY)?;
            core.newest.check(core.id, chunk, &of_work.token, core.env.clock.now())?;
            core.reserve_for_clone(&of_work, chunk, m.from)?;
            // It syncs: what was prepared for writing at once is not any more.
            core.lanes.sync_begins(chunk);
            let change = Change {
                container: m.container,
                file: (m.inode, m.index),
                chunk_bytes: m.chunk_bytes,
                cuts: &m.cuts,
                range: ByteRange::default(),
                kept_beside: false,
            };
            let written =
                core.apply(&mut turn, &of_work.token, &change, |store, info| store.clone_chunk(chunk, m.from, info));
            // How new it is is asked again: an attempt that came before may have made it.
            turn.lane.forget();
            if written.is_err() {
                core.release(&of_work, &[chunk]);
            }
            count(&core.stats.writes, 1);
            written
        };
        let written = self.on_disk(call, clone).await?;
        Ok(self.write_answer(written))
    }

    /// All that the chunk will have is reserved for it, as if it were written: what it shares has to be copied some time, and no write is
    /// to find no room then.
    pub(super) fn reserve_for_clone(&self, call: &Call, chunk: ChunkId, from: ChunkId) -> Result<()> {
        let bytes = data_bytes(&*self.store, from).map_err(|error| self.error(from, &error))?;
        let occupied = match self.store.stat(chunk) {
            Ok(stat) => stat.occupied,
            Err(StoreError::NoSuchChunk(_)) => 0,
            Err(error) => return Err(self.error(chunk, &error)),
        };
        let reserve = |missing| self.store.reserve(chunk, missing);
        let reserved = self.reservations.reserve(chunk, call.token.session, bytes, occupied, reserve);
        reserved.map_err(|error| self.error(chunk, &error))
    }
}
