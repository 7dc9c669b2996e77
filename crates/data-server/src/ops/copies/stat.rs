//! StatCopy, with the ranges that hold data.

use crate::chain::{of_bytes, with_head};
use crate::core::{Call, Core};
use crate::ops::stat::status_of;
use braid_api::Result;
use braid_api::data::{ChunkStatus, StatCopy};
use braid_types::ByteRange;
use std::sync::Arc;

impl Core {
    pub async fn stat_copy(self: &Arc<Self>, call: &Call, m: StatCopy) -> Result<ChunkStatus> {
        let (chunk, container) = (m.chunk, m.container);
        if m.extents_in.start > m.extents_in.end {
            return Err(self.invalid(chunk, "the range ends before it begins"));
        }
        let blocks = with_head(of_bytes(m.extents_in));
        let Some(stat) = self.look_before(call, container, chunk, &m.cuts, Some(&blocks), m.at_least).await? else {
            return Ok(ChunkStatus { chunk, container, ..ChunkStatus::default() });
        };
        let mut status = status_of(chunk, &stat);
        let within = m.extents_in.intersect(ByteRange::new(0, stat.length));
        if let Some(range) = within {
            let find = move |core: &Core| core.store.extents(chunk, range).map_err(|error| core.error(chunk, &error));
            let found = self.on_disk(call, find).await?;
            status.extents = found.iter().filter(|e| e.data).filter_map(|e| e.range.intersect(range)).collect();
        }
        self.still_right(container, chunk, Some(&blocks), m.at_least)?;
        Ok(status)
    }
}
