//! FenceSession and SetChains: acknowledged when nothing that they forbid is being applied any more.

use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::{FenceSession, Fenced, SetChains};
use std::sync::Arc;

impl Core {
    pub async fn fence(self: &Arc<Self>, call: &Call, m: FenceSession) -> Result<Fenced> {
        let _working = self.working(call, Default::default(), "writes of the fenced session");
        let has_ended = self.gate.fence(&m).await?;
        // Whose the readers are is not known here; fences are rare.
        if let Some(local) = self.chains.local.get() {
            local.end_all();
        }
        self.flush_copies(call).await?;
        if has_ended {
            self.once.end_session(m.session);
            self.regions.end(m.session);
            // None can be made any more, so nothing is left behind.
            self.reservations.release_all(m.session, |chunk| self.store.unreserve(chunk, u64::MAX));
        }
        let mut fenced = Fenced::default();
        for chunk in self.grown.of(m.session) {
            match self.chains.container_of(chunk) {
                Some(container) => fenced.grown_copies.push((chunk, container)),
                None => fenced.grown.push(chunk),
            }
        }
        Ok(fenced)
    }

    pub async fn set_chains(&self, call: &Call, m: SetChains) -> Result<()> {
        let _working = self.working(call, Default::default(), "writes under older chain epochs");
        self.gate.set_chains(&m.containers).await;
        Ok(())
    }
}
