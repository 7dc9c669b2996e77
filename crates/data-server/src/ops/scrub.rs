//! ScrubChunk: verifies one chunk now, a step at a time, so that others get at the disk in between.

use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::{ScrubAnswer, ScrubChunk};
use braid_data_store::ScrubCursor;
use braid_types::BLOCK_BYTES;
use std::sync::Arc;

const STEP_BYTES: u64 = 1 << 20;

impl Core {
    pub async fn scrub(self: &Arc<Self>, call: &Call, m: ScrubChunk) -> Result<ScrubAnswer> {
        let chunk = m.chunk;
        let _working = self.working(call, chunk, "the disk");
        let stat = move |core: &Core| core.store.stat(chunk).map_err(|error| core.error(chunk, &error));
        let length = self.on_disk(call, stat).await?.length;
        let mut answer = ScrubAnswer { blocks: length.div_ceil(BLOCK_BYTES), bad: Vec::new() };
        let mut at = ScrubCursor { chunk, block: 0 };
        loop {
            let step =
                move |core: &Core| core.store.scrub_step(at, STEP_BYTES).map_err(|error| core.error(chunk, &error));
            let step = self.on_disk(call, step).await?;
            // The last step may have gone on into the next chunk.
            let bad = step.bad.iter().filter(|(of, _)| *of == chunk).map(|(_, block)| *block);
            self.chains.flawed(chunk, bad.clone());
            answer.bad.extend(bad.map(|block| block * BLOCK_BYTES));
            if let Some((_, error)) = step.failed.as_ref().filter(|(of, _)| *of == chunk) {
                return Err(self.error(chunk, error));
            }
            match step.next {
                Some(next) if next.chunk == chunk => at = next,
                _ => return Ok(answer),
            }
        }
    }
}
