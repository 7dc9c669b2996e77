//! Locks of regions that an operation holds at the owners of its chunks (docs/design/0018-region-locks.md): so that a read or write beside
//! others that takes several requests happens at one moment.
//!
//! Promises: regions are locked in ascending order, so that nobody waits in a circle; each stays locked until the operation is over,
//! however that ends, and is freed behind its back: whoever asked has the answer by then. Before it is answered the operation makes sure
//! that it has held all of them at once; what was lost with an owner it does again.

use crate::core::{Core, Op};
use crate::servers::Lane;
use crate::shared::Numbered;
use crate::wait::Attempts;
use braid_api::Result;
use braid_api::data::{CheckRegion, UnlockRegion};
use braid_types::{ChunkId, ContainerId, Token};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;

/// Where a region was asked for last.
#[derive(Clone)]
pub struct Place {
    pub lane: Arc<Lane>,
    pub token: Token,
    pub chunk: ChunkId,
}

/// A region of one chunk, in a lock of this operation's, if it was asked for.
pub struct Region<'a> {
    pub number: Numbered<'a>,
    asked: Mutex<Option<Place>>,
}

impl Region<'_> {
    /// From here on it may be locked.
    pub fn is_asked_for(&self, place: Place) {
        *self.asked.lock() = Some(place);
    }
}

/// Those of one operation. Dropped, they are unlocked.
pub struct Regions<'a> {
    core: &'a Arc<Core>,
    locked: Vec<Region<'a>>,
}

impl<'a> Regions<'a> {
    pub fn new(core: &'a Arc<Core>) -> Regions<'a> {
        Regions { core, locked: Vec::new() }
    }

    /// The next, in ascending order.
    pub fn next(&mut self) -> &Region<'a> {
        let number = self.core.told.begin();
        self.locked.push(Region { number, asked: Mutex::default() });
        // It was just put there.
        &self.locked[self.locked.len() - 1]
    }

    /// In place of one that was lost.
    pub fn instead_of(&mut self, at: usize) -> &Region<'a> {
        let number = self.core.told.begin();
        let lost = std::mem::replace(&mut self.locked[at], Region { number, asked: Mutex::default() });
        self.core.unlock(lost);
        &self.locked[at]
    }

    /// The first that is not locked any more, but for `last`, whose answer has just come: while that was under way the others must have been
    /// locked, and are, if they still are.
    pub async fn first_lost(&self, last: Option<usize>, op: Op) -> Result<Option<usize>> {
        for (at, region) in self.locked.iter().enumerate().filter(|(at, _)| Some(*at) != last) {
            if !self.core.is_locked(region, op).await? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

impl Drop for Regions<'_> {
    fn drop(&mut self) {
        self.locked.drain(..).for_each(|region| self.core.unlock(region));
    }
}

impl Core {
    /// Said until it is heard: others wait for it.
    fn unlock(self: &Arc<Self>, region: Region<'_>) {
        let Some(Place { lane, token, chunk }) = region.asked.into_inner() else { return };
        let (core, unlock) = (self.clone(), UnlockRegion { chunk, number: region.number.number() });
        drop(region.number);
        self.env.spawn("end of an operation beside others", async move {
            let mut attempts = Attempts::until(core.own_op().deadline);
            while let Err(error) = core.ask(&lane, token, unlock, Bytes::new(), core.own_op()).await {
                // With its session all of it has ended.
                if core.session.token().session != token.session || attempts.again(&core.env, error).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Has nobody come in between since it was locked? What was never asked for has nothing to be read or written.
    async fn is_locked(&self, region: &Region<'_>, op: Op) -> Result<bool> {
        let Some(Place { lane, token, chunk }) = region.asked.lock().clone() else { return Ok(true) };
        let copies_of = lane.container().unwrap_or_default();
        let check = CheckRegion { chunk, number: region.number.number(), copies_of };
        let mut attempts = Attempts::until(op.deadline);
        loop {
            let error = match self.ask(&lane, token, check, Bytes::new(), op).await {
                Ok((is_locked, _)) => return Ok(is_locked),
                Err(error) => error,
            };
            let is_over = |id: ContainerId| id.0 != 0 && self.servers.epoch(id) > token.chain_epoch;
            if is_over(copies_of) || self.session.token().session != token.session {
                return Ok(false);
            }
            self.recover(&mut attempts, error, copies_of, op).await?;
        }
    }
}
