//! CutCopies: applies truncations now, on stable storage when it is answered.

use super::change::{Prepared, Subject};
use crate::chain::{Change, head};
use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::{CutCopies, Make};
use braid_chain::Until;
use braid_types::{ChunkId, ContainerId, TruncGen};
use std::sync::Arc;

impl Core {
    pub async fn cut_copies(self: &Arc<Self>, call: &Call, m: CutCopies) -> Result<()> {
        self.check_chain(call, m.container, m.chunk)?;
        self.cut_now(call, m.container, m.chunk, &m.cuts, true).await
    }

    /// The chunk has seen the call's generation when this returns.
    pub(super) async fn cut_now(
        self: &Arc<Self>,
        call: &Call,
        container: ContainerId,
        chunk: ChunkId,
        cuts: &[(TruncGen, u64)],
        stable: bool,
    ) -> Result<()> {
        let turn = self.turn(call, &self.lanes.get(chunk)).await;
        let subject = Subject { container, chunk, chunk_bytes: 0, cuts, make: Make::No };
        let Prepared { head: now, is_new } = self.prepare(call, &subject).await?;
        let until = Until { shared: false, stable };
        let waiting = if is_new {
            let change = Change {
                head: Some(now),
                bytes: None,
                head_after: now,
                chunk_bytes: now.chunk_bytes,
                trunc_gen: now.trunc_gen,
                file: Default::default(),
                _keep: (self.gate.enter(&call.token, container)?, None),
            };
            self.chains.change(container, chunk, change, head(), until)
        } else {
            self.chains.wait(container, chunk, until)
        };
        drop(turn);
        self.copies_done(call, waiting, "a truncation to be on stable storage").await.map(drop)
    }
}
