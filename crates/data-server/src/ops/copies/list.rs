//! GetCopies: how the copies here stand.

use crate::core::Core;
use braid_api::data::{CopyState, GetCopies};
use braid_data_store::ChunkStore;

const LIMIT_MAX: u32 = 4096;

impl<S: ChunkStore + 'static> Core<S> {
    pub fn list_copies(&self, m: &GetCopies) -> Vec<CopyState> {
        self.chains.list(m.after, m.limit.clamp(1, LIMIT_MAX) as usize)
    }
}
