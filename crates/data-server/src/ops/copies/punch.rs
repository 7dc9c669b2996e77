//! PunchCopies: a range becomes a hole in all copies.

use super::change::{Prepared, Subject, lease};
use crate::chain::{Change, ChangeBytes, head, of_bytes, with_head};
use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::{CopiesAnswer, Make, PunchCopies};
use braid_chain::{Call as Kind, until};
use braid_types::ByteRange;
use std::sync::Arc;

impl Core {
    pub async fn punch_copies(self: &Arc<Self>, call: &Call, m: PunchCopies) -> Result<CopiesAnswer> {
        let (chunk, container) = (m.chunk, m.container);
        if m.range.start > m.range.end {
            return Err(self.invalid(chunk, "the range ends before it begins"));
        }
        self.check_chain(call, container, chunk)?;
        self.gate.settle(call, container)?;
        let turn = self.turn(call, &self.lanes.get(chunk)).await;
        let subject = Subject { container, chunk, chunk_bytes: 0, cuts: &m.cuts, make: Make::No };
        let Prepared { head: now, is_new } = self.prepare(call, &subject).await?;
        let range = m.range.intersect(ByteRange::new(0, now.length)).unwrap_or_default();
        let blocks = match (is_new, range.is_empty()) {
            (true, _) => with_head(of_bytes(range)),
            (false, true) => head(),
            (false, false) => of_bytes(range),
        };
        let change = Change {
            head: is_new.then_some(now),
            bytes: (!range.is_empty()).then_some(ChangeBytes::Zero(range)),
            head_after: now,
            chunk_bytes: now.chunk_bytes,
            trunc_gen: now.trunc_gen,
            file: Default::default(),
            _keep: (self.pass(call, container, chunk)?, None),
        };
        let until = until(Kind::Write { sync: false }, lease(m.held), m.durability);
        let punched = self.chains.change(container, chunk, change, blocks, until);
        drop(turn);
        self.copies_done(call, punched, "the chunk's other copies").await
    }
}
