//! StatChunk, with the ranges that hold data.

use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::{ChunkStatus, StatChunk};
use braid_data_store::ChunkStat;
use braid_types::{ByteRange, ChunkId};
use std::sync::Arc;

impl Core {
    pub async fn stat(self: &Arc<Self>, call: &Call, m: StatChunk) -> Result<ChunkStatus> {
        if m.extents_in.start > m.extents_in.end {
            return Err(self.invalid(m.chunk, "the range ends before it begins"));
        }
        self.gate.check(&call.token, m.container)?;
        let _working = self.working(call, m.chunk, "the disk");
        let reading = self.lanes.get(m.chunk).reading();
        let of_work = *call;
        let stat = move |core: &Core| {
            let _reading = reading;
            core.cut(m.chunk, &of_work, &m.cuts)?;
            let stat = core.store.stat(m.chunk).map_err(|error| core.error(m.chunk, &error))?;
            let mut status = status_of(m.chunk, &stat);
            let content = ByteRange::new(0, stat.length);
            if let Some(range) = m.extents_in.intersect(content) {
                let found = core.store.extents(m.chunk, range).map_err(|error| core.error(m.chunk, &error))?;
                status.extents = found.iter().filter(|e| e.data).filter_map(|e| e.range.intersect(range)).collect();
            }
            Ok(status)
        };
        self.on_disk(call, stat).await
    }
}

pub(crate) fn status_of(chunk: ChunkId, stat: &ChunkStat) -> ChunkStatus {
    ChunkStatus {
        chunk,
        container: stat.container,
        len: stat.length,
        occupied: stat.occupied,
        version: stat.version,
        trunc_gen: stat.trunc_gen,
        inode: stat.inode,
        index: stat.index,
        extents: Vec::new(),
        unsure: stat.unsure,
    }
}
