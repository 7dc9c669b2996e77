//! ReserveChunk, ReserveRoom and UnreserveChunks.

use crate::core::{Call, Core, ONE_COPY};
use braid_api::Result;
use braid_api::data::{ReserveChunk, ReserveRoom, UnreserveChunks};
use braid_data_store::StoreError;
use braid_types::{ChunkId, ContainerId};
use std::sync::Arc;

impl Core {
    /// In order with the chunk's writes, so that what it occupies does not change meanwhile.
    pub async fn reserve(self: &Arc<Self>, call: &Call, m: ReserveChunk) -> Result<()> {
        if m.bytes > m.chunk_bytes {
            let cause = format_args!("{} bytes are more than the chunk can have: {}", m.bytes, m.chunk_bytes);
            return Err(self.invalid(m.chunk, cause));
        }
        self.gate.check(&call.token, m.container)?;
        let lane = self.lanes.get(m.chunk);
        let turn = self.turn(call, &lane).await;
        let _working = self.working(call, m.chunk, "the disk");
        let of_work = *call;
        let reserve = move |core: &Core| {
            let _turn = turn;
            let _pass = core.gate.enter_change(&of_work, m.container, ONE_COPY)?;
            let fail = |error: StoreError| core.error(m.chunk, &error);
            let occupied = match core.store.stat(m.chunk) {
                Ok(stat) => stat.occupied,
                // The client is going to name the chunk in a row, written or not: so it exists from now on, durably, or
                // reading the reserved range would find a chunk missing after a power cut.
                Err(StoreError::NoSuchChunk(_)) if core.may_make(m.make) => {
                    core.store.create(m.chunk, m.container, m.chunk_bytes).map_err(fail)?;
                    core.store.sync(&[m.chunk]).map_err(fail)?;
                    0
                }
                Err(error) => return Err(fail(error)),
            };
            let reserve = |missing| core.store.reserve(m.chunk, missing);
            core.reservations.reserve(m.chunk, of_work.token.session, m.bytes, occupied, reserve).map_err(fail)
        };
        self.on_disk(call, reserve).await
    }

    pub fn reserve_room(&self, call: &Call, m: &ReserveRoom) -> Result<Vec<ChunkId>> {
        let (mut granted, mut refused) = (Vec::new(), None);
        for (chunk, container) in &m.chunks {
            // Else a fence could find nothing to give back, and this come after it.
            let _pass = self.gate.enter(&call.token, *container)?;
            let reserve = || self.store.reserve_at_least(*chunk, m.bytes);
            match self.reservations.hold(*chunk, call.token.session, reserve) {
                Ok(()) => granted.push(*chunk),
                Err(error) => refused = refused.or(Some(self.error(*chunk, &error))),
            }
        }
        match refused {
            Some(error) if granted.is_empty() => Err(error),
            _ => Ok(granted),
        }
    }

    pub fn unreserve(&self, call: &Call, m: &UnreserveChunks) -> Result<()> {
        self.gate.check(&call.token, ContainerId(0))?;
        self.release(call, &m.chunks);
        Ok(())
    }

    pub(super) fn release(&self, call: &Call, chunks: &[ChunkId]) {
        for chunk in chunks {
            let give_back = |chunk| self.store.unreserve(chunk, u64::MAX);
            self.reservations.release(*chunk, call.token.session, give_back);
        }
    }
}
