//! CutChunk: applies truncations now, in order with the writes. It may take syncs, so always on an I/O thread.

use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::CutChunk;
use std::sync::Arc;

impl Core {
    pub async fn cut_chunk(self: &Arc<Self>, call: &Call, m: CutChunk) -> Result<()> {
        self.gate.check(&call.token, m.container)?;
        let lane = self.lanes.get(m.chunk);
        let turn = self.turn(call, &lane).await;
        let _working = self.working(call, m.chunk, "the disk");
        let of_work = *call;
        let cut = move |core: &Core| {
            let _pass = core.gate.enter(&of_work.token, m.container)?;
            core.cut(m.chunk, &of_work, &m.cuts)?;
            // Version and generation are asked for again when they are needed.
            turn.lane.forget();
            Ok(())
        };
        self.on_disk(call, cut).await
    }
}
