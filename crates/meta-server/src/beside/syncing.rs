//! The end of `sync` where several servers hold slots: each numbers its grants for itself, and data servers know one bound for all.
//!
//! Promises: what [`MetaServer::new_sync_floor`] gives is above every number that any holder had given out when [`MetaServer::end_sync`] was
//! called last, and every holder has ended `sync` since; it gives nothing before. Whoever begins something new at a data server waits for it, and
//! nobody else does: what keeps a data server going is said with the last one.

use super::{Beside, WORD};
use crate::server::MetaServer;
use braid_api::meta::EndSyncAt;
use braid_api::{Code, Error, Result};
use braid_types::LeaseGen;
use std::sync::atomic::Ordering::SeqCst;

impl MetaServer {
    /// A data server begins anew, or a chain goes on with another owner, see [`crate::leases::Leases::end_sync`].
    pub(crate) fn end_sync(&self) {
        self.leases.end_sync();
        if let Some(beside) = &self.beside {
            beside.sync_due.store(true, SeqCst);
        }
    }

    /// Tells which leases are of before the last of these that all have heard of.
    pub(crate) fn sync_floor(&self) -> LeaseGen {
        match &self.beside {
            Some(beside) => *beside.sync_floor.lock(),
            None => self.leases.sync_floor(),
        }
    }

    /// Before the last of these, whoever has to hear of it.
    pub(crate) async fn new_sync_floor(&self) -> Result<LeaseGen> {
        let Some(beside) = &self.beside else { return Ok(self.leases.sync_floor()) };
        let one = self.env.timeout(WORD, beside.sync_round.lock()).await;
        let _one = one.map_err(|_| busy("others are being told"))?;
        while beside.sync_due.swap(false, SeqCst) {
            match self.end_sync_everywhere(beside).await {
                Ok(floor) => {
                    let mut known = beside.sync_floor.lock();
                    *known = floor.max(*known);
                }
                Err(error) => {
                    beside.sync_due.store(true, SeqCst);
                    return Err(error);
                }
            }
        }
        Ok(self.sync_floor())
    }

    async fn end_sync_everywhere(&self, beside: &Beside) -> Result<LeaseGen> {
        let epoch = self.leases.epoch();
        let others = beside.all_others().ok_or_else(|| busy("it is not known yet who serves"))?;
        let mut floor = self.leases.end_sync();
        for to in &others {
            floor = floor.max(self.say_to(*to, EndSyncAt { to: *to, above: None }, WORD).await?);
        }
        // Each ends once more what it has given out meanwhile.
        for to in &others {
            self.say_to(*to, EndSyncAt { to: *to, above: Some(floor) }, WORD).await?;
        }
        self.leases.raise_sync_floor(floor);
        match self.leases.epoch() == epoch {
            true => Ok(floor),
            // Who has come since was not asked.
            false => Err(busy("who serves has changed meanwhile")),
        }
    }
}

fn busy(cause: &str) -> Error {
    Error::new(Code::Busy, "the end of writes side by side", cause)
}
