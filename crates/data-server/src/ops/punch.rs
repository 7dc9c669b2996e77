//! PunchChunk: a range becomes a hole, in order with the writes.

use crate::core::{Call, Change, Core, ONE_COPY};
use braid_api::Result;
use braid_api::data::{PunchChunk, WriteAnswer};
use std::sync::Arc;

impl Core {
    pub async fn punch(self: &Arc<Self>, call: &Call, m: PunchChunk) -> Result<WriteAnswer> {
        if m.range.start > m.range.end {
            return Err(self.invalid(m.chunk, "the range ends before it begins"));
        }
        self.gate.check(&call.token, m.container)?;
        self.gate.settle(call, ONE_COPY)?;
        let lane = self.lanes.get(m.chunk);
        let mut turn = self.turn(call, &lane).await;
        let _working = self.working(call, m.chunk, "the disk");
        let of_work = *call;
        let punch = move |core: &Core| {
            let _pass = core.gate.enter_change(&of_work, m.container, ONE_COPY)?;
            core.newest.check(core.id, m.chunk, &of_work.token, core.env.clock.now())?;
            let file = Default::default();
            let (container, range) = (m.container, m.range);
            let change = Change { container, file, chunk_bytes: 0, cuts: &m.cuts, range, kept_beside: false };
            core.apply(&mut turn, &of_work.token, &change, |store, info| store.punch(m.chunk, m.range, info))
        };
        let written = self.on_disk(call, punch).await?;
        Ok(self.write_answer(written))
    }
}
