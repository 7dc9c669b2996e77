//! ListChunks: page by page, for fsck and for finding what rows have forgotten.

use super::stat::status_of;
use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::{ChunkList, ListChunks};
use braid_data_store::{ChunkStore, StoreError};
use std::sync::Arc;

/// A page of some 64 KiB.
const PAGE_MAX: usize = 1024;

impl<S: ChunkStore + 'static> Core<S> {
    pub async fn list(self: &Arc<Self>, call: &Call, m: ListChunks) -> Result<ChunkList> {
        let _working = self.working(call, Default::default(), "the disk");
        let limit = (m.limit as usize).clamp(1, PAGE_MAX);
        let list = move |core: &Core<S>| {
            let mut ids = core.store.list(m.after, limit + 1);
            let more = ids.len() > limit;
            ids.truncate(limit);
            let mut chunks = Vec::with_capacity(ids.len());
            for id in ids {
                match core.store.stat(id) {
                    Ok(stat) => chunks.push(status_of(id, &stat)),
                    // Deleted since it was listed.
                    Err(StoreError::NoSuchChunk(_)) => {}
                    Err(error) => return Err(core.error(id, &error)),
                }
            }
            Ok(ChunkList { chunks, more })
        };
        self.on_disk(call, list).await
    }
}
