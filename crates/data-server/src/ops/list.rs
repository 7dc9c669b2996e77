//! ListChunks: page by page, for fsck and for finding what rows have forgotten. A chunk that is damaged is told beside the
//! others and hides none of them; SetAside takes such a chunk out of the store.

use super::stat::status_of;
use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::{ChunkList, DamagedChunk, ListChunks, SetAside};
use braid_data_store::{DamagedPart, StoreError};
use braid_types::ContainerId;
use std::sync::Arc;

/// A page of some 64 KiB.
const PAGE_MAX: usize = 1024;

impl Core {
    pub async fn list(self: &Arc<Self>, call: &Call, m: ListChunks) -> Result<ChunkList> {
        let _working = self.working(call, Default::default(), "the disk");
        let limit = (m.limit as usize).clamp(1, PAGE_MAX);
        let list = move |core: &Core| {
            let mut ids = core.store.list(m.after, limit + 1);
            let more = ids.len() > limit;
            ids.truncate(limit);
            let mut page = ChunkList { chunks: Vec::with_capacity(ids.len()), damaged: Vec::new(), more };
            for id in ids {
                let (stat, damage) = match core.store.examine(id) {
                    Ok(found) => (found.stat, found.damage.map(|d| (d.part == DamagedPart::Header, d.cause))),
                    // Deleted since it was listed.
                    Err(StoreError::NoSuchChunk(_)) => continue,
                    // Nobody can tell what it is.
                    Err(error) => (None, Some((true, error.to_string()))),
                };
                page.chunks.extend(stat.map(|stat| status_of(id, &stat)));
                page.damaged.extend(damage.map(|(header, cause)| DamagedChunk { chunk: id, header, cause }));
            }
            Ok(page)
        };
        self.on_disk(call, list).await
    }

    pub async fn set_aside(self: &Arc<Self>, call: &Call, m: SetAside) -> Result<()> {
        self.gate.check(&call.token, ContainerId(0))?;
        for chunk in m.chunks {
            let lane = self.lanes.get(chunk);
            let turn = self.turn(call, &lane).await;
            let _working = self.working(call, chunk, "the disk");
            let aside = move |core: &Core| {
                let moved = match core.store.set_aside(chunk) {
                    Err(StoreError::NoSuchChunk(_)) => return Ok(()),
                    moved => moved.map_err(|error| core.error(chunk, &error))?,
                };
                core.chains.end_local(chunk);
                turn.lane.forget();
                if let Some(dir) = moved {
                    core.reservations.forget(chunk);
                    tracing::warn!(chunk = chunk.0, dir = %dir.display(), "a damaged chunk was moved aside");
                }
                Ok(())
            };
            self.on_disk(call, aside).await?;
        }
        Ok(())
    }
}
