//! The end of `sync` where several servers hold slots: each numbers its grants for itself, and data servers know one bound for all.
//!
//! Promises: what [`MetaServer::sync_floor`] gives is above every number that any holder had given out when [`MetaServer::end_sync`] was called
//! last, and every holder has ended `sync` since; it gives nothing before.

use super::WORD;
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

    /// Tells which leases are of before the last of these.
    pub(crate) async fn sync_floor(&self) -> Result<LeaseGen> {
        let Some(beside) = &self.beside else { return Ok(self.leases.sync_floor()) };
        let _one = beside.sync_round.lock().await;
        while beside.sync_due.swap(false, SeqCst) {
            if let Err(error) = self.end_sync_everywhere().await {
                beside.sync_due.store(true, SeqCst);
                return Err(error);
            }
        }
        Ok(self.leases.sync_floor())
    }

    async fn end_sync_everywhere(&self) -> Result<()> {
        let Some(beside) = &self.beside else { return Ok(()) };
        let epoch = self.leases.epoch();
        let seats = beside.others.roster().map(|roster| roster.members).unwrap_or_default();
        let others: Vec<_> = seats.into_iter().map(|seat| seat.id).filter(|id| *id != beside.others.me()).collect();
        let mut floor = self.leases.end_sync();
        for to in &others {
            floor = floor.max(self.say_to(*to, EndSyncAt { above: None }, WORD).await?);
        }
        // Each ends once more what it has given out meanwhile.
        for to in &others {
            self.say_to(*to, EndSyncAt { above: Some(floor) }, WORD).await?;
        }
        self.leases.raise_sync_floor(floor);
        match self.leases.epoch() == epoch {
            true => Ok(()),
            // Who has come since was not asked.
            false => Err(Error::new(Code::Busy, "the end of writes side by side", "who serves has changed meanwhile")),
        }
    }
}
