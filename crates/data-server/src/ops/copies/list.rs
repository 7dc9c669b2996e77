//! GetCopies: how the copies here stand.

use crate::core::Core;
use braid_api::data::{CopyState, GetCopies};

const LIMIT_MAX: u32 = 4096;

impl Core {
    pub fn list_copies(&self, m: &GetCopies) -> Vec<CopyState> {
        if !m.of.is_empty() {
            return self.chains.list_of(m.of.iter().copied().take(LIMIT_MAX as usize));
        }
        self.chains.list(m.after, m.limit.clamp(1, LIMIT_MAX) as usize)
    }
}
