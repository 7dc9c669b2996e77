//! GetReport: what is here, in hashes. LoseChunks: what is not, and should be.

use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::{GetReport, LoseChunks};
use braid_report::Holdings;
use braid_types::{ChunkId, ContainerId, ReportAsk, ReportPart};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Headers that are read before others get at the disk.
const AT_ONCE: usize = 256;

impl Core {
    pub async fn report(self: &Arc<Self>, call: &Call, m: GetReport) -> Result<ReportPart> {
        let _working = self.working(call, ChunkId(0), "the disk");
        let mut holdings = self.holdings.lock().await;
        holdings.use_key(m.key);
        if m.ask == ReportAsk::All {
            self.look_at_chunks(call, &mut holdings).await?;
        }
        Ok(holdings.answer(&m.ask))
    }

    /// What came and went since the last look. Where a chunk belongs stays as it is, so it is looked up once; who asks again after the time
    /// of a call was over finds what had been looked up by then.
    async fn look_at_chunks(self: &Arc<Self>, call: &Call, holdings: &mut Holdings) -> Result<()> {
        let list = |core: &Core| {
            let mut here: BTreeSet<ChunkId> = core.store.list(ChunkId(0), usize::MAX).into_iter().collect();
            for gone in core.store.missing().map_err(|error| core.error(ChunkId(0), &error))? {
                here.remove(&gone);
            }
            Ok(here)
        };
        let here = self.on_disk(call, list).await?;
        holdings.retain(&here);
        let new: Vec<ChunkId> = here.into_iter().filter(|chunk| !holdings.has(*chunk)).collect();
        for some in new.chunks(AT_ONCE) {
            let some = some.to_vec();
            let places = move |core: &Core| Ok(core.places_of(&some));
            for (chunk, container) in self.on_disk(call, places).await? {
                holdings.insert(chunk, container);
            }
        }
        Ok(())
    }

    fn places_of(&self, chunks: &[ChunkId]) -> Vec<(ChunkId, ContainerId)> {
        let place = |chunk: &ChunkId| match self.chains.container_of(*chunk) {
            Some(container) => Some((*chunk, container)),
            // Deleted since it was listed, or its header is damaged: then it seems to be lost, until it is asked for by its id.
            None => self.store.stat(*chunk).ok().map(|stat| (*chunk, stat.container)),
        };
        chunks.iter().filter_map(place).collect()
    }

    pub async fn lose(self: &Arc<Self>, call: &Call, m: LoseChunks) -> Result<Vec<bool>> {
        self.gate.check(&call.token, ContainerId(0))?;
        let _working = self.working(call, m.chunks.first().copied().unwrap_or_default(), "the disk");
        let LoseChunks { container, chunks, begin_anew } = m;
        let look = move |core: &Core| {
            let is_missing =
                |chunk: &ChunkId| core.store.is_missing(*chunk).map_err(|error| core.error(*chunk, &error));
            let missing: Vec<bool> = chunks.iter().map(is_missing).collect::<Result<_>>()?;
            for (chunk, _) in chunks.iter().zip(&missing).filter(|(_, missing)| begin_anew && **missing) {
                if core.chains.lose(container, *chunk) {
                    tracing::error!("data server {}, chunk {chunk}: its copy here is gone from the disk", core.id);
                }
            }
            Ok(missing)
        };
        self.on_disk(call, look).await
    }
}
