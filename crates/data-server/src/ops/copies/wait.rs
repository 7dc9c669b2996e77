//! WaitCopies: close, fsync, and the flush of a file lease.

use super::change::lease;
use crate::core::{Call, Core};
use crate::stats::count;
use braid_api::data::{CopiesAnswer, WaitCopies, WaitFor};
use braid_api::{Code, Result};
use braid_chain::{Call as Kind, Until, until};
use std::sync::Arc;

impl Core {
    /// All are asked before any is waited for.
    pub async fn wait_copies(self: &Arc<Self>, call: &Call, m: WaitCopies) -> Result<Vec<CopiesAnswer>> {
        let kind = match m.wait {
            WaitFor::Close => Kind::Close,
            WaitFor::Fsync => Kind::Fsync,
            WaitFor::Flush => Kind::Flush,
            WaitFor::Settle => Kind::Settle,
        };
        let until = until(kind, lease(m.held), m.durability);
        count(&self.stats.sync_requests, usize::from(until.stable));
        self.gate.settle(call, m.container)?;
        for chunk in &m.chunks {
            self.check_chain(call, m.container, *chunk)?;
        }
        let waiting: Vec<_> = m.chunks.iter().map(|chunk| self.chains.wait(m.container, *chunk, until)).collect();
        let mut answers = Vec::with_capacity(waiting.len());
        for one in waiting {
            answers.push(self.copies_done(call, one, "the chunk's other copies").await?);
        }
        Ok(answers)
    }

    /// What a session wrote here is known to every copy and on enough of them: before its fence is acknowledged.
    pub async fn flush_copies(self: &Arc<Self>, call: &Call) -> Result<()> {
        let flush = Until { shared: true, stable: false };
        let news = self.chains.unannounced();
        let waiting: Vec<_> = news.into_iter().map(|(id, chunk)| self.chains.wait(id, chunk, flush)).collect();
        for one in waiting {
            match self.copies_done(call, one, "copies to know what a fenced session wrote").await {
                // Given to another server, which happens when every copy knows all there is.
                Err(error) if error.code == Code::NotOwner => {}
                done => drop(done?),
            }
        }
        Ok(())
    }
}
