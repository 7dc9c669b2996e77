//! WriteChunk: in order of arrival within the chunk, on the caller's thread if that cannot wait, else on an I/O thread.

use crate::core::{Call, Change, Core, ONE_COPY};
use crate::lane::{Turn, edges};
use crate::stats::count;
use braid_api::Result;
use braid_api::data::{WriteAnswer, WriteChunk};
use braid_data_store::Written;
use braid_types::{ByteRange, ChunkId};
use bytes::Bytes;
use std::sync::Arc;

/// A policy allows chunks up to 1 TiB.
const CHUNK_BYTES_MAX: u64 = 1 << 40;

impl Core {
    pub async fn write(self: &Arc<Self>, call: &Call, m: WriteChunk, payload: Bytes) -> Result<WriteAnswer> {
        let (chunk, sync) = (m.chunk, m.sync);
        if chunk.0 == 0 || m.chunk_bytes == 0 || m.chunk_bytes > CHUNK_BYTES_MAX {
            return Err(self.invalid(chunk, format_args!("no chunk has this id and {} bytes", m.chunk_bytes)));
        }
        self.gate.check(&call.token, m.container)?;
        self.gate.settle(call, ONE_COPY)?;
        let lane = self.lanes.get(chunk);
        let turn = self.turn(call, &lane).await;
        let written = if self.writes_at_once(&turn, call, m.offset, payload.len()) {
            count(&self.stats.writes_inline, 1);
            self.write_now(turn, call, &m, &payload)?
        } else {
            let working = self.working(call, chunk, "memory for requests");
            let held = self.budget.take(payload.len()).await;
            working.stage("the disk");
            let of_work = *call;
            let write = move |core: &Core| {
                let _held = held;
                core.write_now(turn, &of_work, &m, &payload)
            };
            self.on_disk(call, write).await?
        };
        if sync {
            self.sync_one(call, chunk).await?;
        }
        Ok(self.write_answer(written))
    }

    fn write_now(&self, mut turn: Turn, call: &Call, m: &WriteChunk, payload: &[u8]) -> Result<Written> {
        let _pass = self.gate.enter_change(call, m.container, ONE_COPY)?;
        self.newest.check(self.id, m.chunk, &call.token, self.env.clock.now())?;
        let range = ByteRange::at(m.offset, payload.len() as u64);
        let file = (m.inode, m.index);
        let chunk_bytes = if self.may_make(m.make) { m.chunk_bytes } else { 0 };
        let (container, kept_beside) = (m.container, m.kept_beside);
        let change = Change { container, file, chunk_bytes, cuts: &m.cuts, range, kept_beside };
        let written =
            self.apply(&mut turn, &call.token, &change, |store, info| store.write(m.chunk, m.offset, payload, info))?;
        if written.grew {
            self.grown.add(call.token.session, m.chunk, self.env.clock.now());
        }
        count(&self.stats.writes, 1);
        count(&self.stats.bytes_written, payload.len());
        Ok(written)
    }

    /// Is this write a matter of microseconds? Not if it is large; if the chunk is to be made, opened or cut; if the
    /// store must first sync its log, which it does once an extent after a sync; if a block written in part is not
    /// in the cache; or if a read that waits for the disk has the chunk. A sync that begins in this very moment may
    /// still make it wait: that is as rare as it is short of being impossible.
    fn writes_at_once(&self, turn: &Turn, call: &Call, offset: u64, len: usize) -> bool {
        let range = ByteRange::at(offset, len as u64);
        let (lane, store) = (&turn.lane, &self.store);
        // An empty read tells whether the chunk is open and free.
        let is_cached = |at: u64, buf: &mut [u8]| store.read_cached(lane.chunk, at, buf).unwrap_or(false);
        len <= self.config.inline_write_bytes
            && !lane.is_being_read()
            && lane.seen().is_some_and(|seen| seen.trunc_gen == call.token.trunc_gen)
            && turn.prepared.covers(self.lanes.mark(lane), range)
            && is_cached(offset, &mut [])
            && edges(range).all(|at| is_cached(at, &mut [0]))
    }

    pub fn write_answer(&self, written: Written) -> WriteAnswer {
        WriteAnswer {
            version: written.version,
            incarnation: self.incarnation,
            sequence: written.seq,
            stable: self.store.stable_seq(),
        }
    }

    /// The write is part of the sync, which begins after it.
    pub(super) async fn sync_one(&self, call: &Call, chunk: ChunkId) -> Result<()> {
        count(&self.stats.sync_requests, 1);
        let pending = self.syncs.ask(chunk);
        let _working = self.working(call, chunk, "a sync");
        self.synced(chunk, pending).await
    }
}
