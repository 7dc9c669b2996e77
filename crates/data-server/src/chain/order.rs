//! What the owner knows of a chunk's head when it orders a change: as it will be when all before has been applied.

use super::{Chains, Failure};
use braid_chain::Refusal;
use braid_data_store::{ChunkHead, StoreError};
use braid_env::Monotonic;
use braid_types::{ChunkId, ContainerId, Version};
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(1);

impl Chains {
    /// May this server order changes of the chunk, as far as it knows? For what is to be done before the change itself,
    /// which asks again.
    pub fn may_order(&self, container: ContainerId, chunk: ChunkId) -> Result<(), Failure> {
        let state = self.state.lock();
        if let Some(cause) = &state.halted {
            return Err(Failure::Halted(cause.clone()));
        }
        state.machine.may_order(self.now(), container, chunk).map_err(Failure::Refused)
    }

    /// As [`Chains::may_order`], but while ownership is on its way to another server the answer waits, until `until` at most: it is not
    /// known yet who will be asked. Nothing of this chunk is ordered by whoever comes later, for the caller has its turn.
    pub async fn may_order_soon(
        &self,
        container: ContainerId,
        chunk: ChunkId,
        until: Monotonic,
    ) -> Result<(), Failure> {
        loop {
            match self.may_order(container, chunk) {
                Err(Failure::Refused(Refusal::Moving)) if self.env.clock.now() < until => self.env.sleep(PAUSE).await,
                known => return known,
            }
        }
    }

    /// Up to which version all of a chunk is here and may be read, nothing missing.
    pub fn all_of(&self, container: ContainerId, chunk: ChunkId) -> Result<Version, Failure> {
        self.may_serve(container, chunk, None, Version::default())?;
        let state = self.state.lock();
        let told = state.machine.copy(container, chunk).map(|copy| copy.told).unwrap_or_default();
        match state.machine.epoch(container) {
            Some(epoch) if state.has_all(container, chunk, told, epoch) => Ok(told),
            _ => Err(Failure::Refused(Refusal::NotReady)),
        }
    }

    /// Was the chunk made from the other here, in this epoch?
    pub fn is_made_from(&self, chunk: ChunkId, from: ChunkId) -> bool {
        let state = self.state.lock();
        state.copies.get(&chunk).and_then(|copy| copy.same.as_ref()).is_some_and(|same| same.is_made_from(from))
    }

    /// The caller has the chunk's turn; `None` if nothing was ever written to it.
    pub async fn ordered_head(&self, chunk: ChunkId) -> Result<Option<ChunkHead>, StoreError> {
        let lost = loop {
            match self.state.lock().copies.get(&chunk) {
                None => return Ok(None),
                Some(copy) if copy.head.is_some() => return Ok(copy.head),
                Some(copy) if copy.at_work => {}
                Some(copy) if !copy.exists => return Ok(None),
                Some(copy) => break copy.head_lost,
            }
            // What was ordered before it was lost is still being applied.
            self.env.sleep(PAUSE).await;
        };
        let store = self.store.clone();
        let found = match self.env.blocking(move || store.stat(chunk)).await {
            Ok(stat) => ChunkHead {
                chunk_bytes: stat.chunk_bytes,
                length: stat.length,
                trunc_gen: stat.trunc_gen,
                inode: stat.inode,
                index: stat.index,
            },
            Err(StoreError::NoSuchChunk(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut state = self.state.lock();
        if let Some(copy) = state.copies.get_mut(&chunk).filter(|copy| copy.head_lost == lost) {
            copy.head = Some(found);
        }
        Ok(Some(found))
    }
}
