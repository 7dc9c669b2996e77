//! WantChunk: a writer on this host would have its chunk owned here.

use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::WantChunk;
use std::sync::Arc;

impl Core {
    pub fn want(self: &Arc<Self>, call: &Call, m: WantChunk) -> Result<()> {
        self.check_chain(call, m.container, m.chunk)?;
        if call.token.lease_gen.0 > 0 {
            // What was sent here under an older lease and not taken, because this server was not the owner, must not come late to one
            // that is.
            self.newest.check(self.id, m.chunk, &call.token, self.env.clock.now())?;
            self.chains.want(m.container, m.chunk);
        }
        Ok(())
    }
}
