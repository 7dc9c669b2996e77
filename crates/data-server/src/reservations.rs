//! What was reserved for which chunk, and by whom.

use braid_types::{BLOCK_BYTES, ChunkId, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// The store counts down what is left of a reservation; this knows how much was asked for in all, so that a repeated
/// request reserves nothing twice. Lost with the process, as the store's are: clients ask anew.
#[derive(Default)]
pub(crate) struct Reservations(Mutex<BTreeMap<ChunkId, Reserved>>);

#[derive(Default)]
struct Reserved {
    bytes: u64,
    /// Sessions that count on it; it is returned when none is left.
    holders: BTreeSet<SessionId>,
}

impl Reservations {
    /// Sets aside what is missing to `bytes` in all, of which `occupied` are there already. The table stays locked
    /// while the store reserves, which is a matter of counting.
    pub fn reserve<E>(
        &self,
        chunk: ChunkId,
        session: SessionId,
        bytes: u64,
        occupied: u64,
        reserve: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let mut table = self.0.lock();
        let reserved = table.entry(chunk).or_default();
        let have = reserved.bytes.max(occupied);
        let result = if bytes > have { reserve(bytes - have) } else { Ok(()) };
        if result.is_ok() {
            reserved.bytes = reserved.bytes.max(bytes);
            reserved.holders.insert(session);
        } else if reserved.holders.is_empty() {
            table.remove(&chunk);
        }
        result
    }

    /// The session counts on what `reserve` sets aside, in addition to what was there.
    pub fn hold<E>(
        &self,
        chunk: ChunkId,
        session: SessionId,
        reserve: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut table = self.0.lock();
        reserve()?;
        table.entry(chunk).or_default().holders.insert(session);
        Ok(())
    }

    /// The session needs no more of this; `unreserve` gives it back if nobody does.
    pub fn release(&self, chunk: ChunkId, session: SessionId, unreserve: impl FnOnce(ChunkId)) {
        let mut table = self.0.lock();
        let Some(reserved) = table.get_mut(&chunk) else { return };
        reserved.holders.remove(&session);
        if reserved.holders.is_empty() {
            table.remove(&chunk);
            // Still locked: a reservation that comes now must not be given back with the old one.
            unreserve(chunk);
        }
    }

    /// The session has ended.
    pub fn release_all(&self, session: SessionId, unreserve: impl Fn(ChunkId)) {
        let held: Vec<ChunkId> = {
            let table = self.0.lock();
            table.iter().filter(|(_, r)| r.holders.contains(&session)).map(|(chunk, _)| *chunk).collect()
        };
        held.into_iter().for_each(|chunk| self.release(chunk, session, &unreserve));
    }

    /// The chunk is gone.
    pub fn forget(&self, chunk: ChunkId) {
        self.0.lock().remove(&chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_for_the_whole_chunk_and_returned_by_the_last() {
        let reservations = Reservations::default();
        let mut asked = Vec::new();
        for (session, bytes, occupied) in [(1, 8192, 0), (1, 8192, 4096), (2, 9000, 8192), (2, 4096, 0)] {
            let reserve = |n| {
                asked.push(n);
                Ok::<(), ()>(())
            };
            assert_eq!(reservations.reserve(ChunkId(1), SessionId(session), bytes, occupied, reserve), Ok(()));
        }
        assert_eq!(asked, [8192, 4096]);
        assert_eq!(reservations.reserve(ChunkId(2), SessionId(1), 1, 0, |_| Err(())), Err(()));
        reservations.release(ChunkId(1), SessionId(1), |_| panic!("session 2 holds it"));
        let given_back = Mutex::new(Vec::new());
        reservations.release_all(SessionId(2), |chunk| given_back.lock().push(chunk));
        assert_eq!(given_back.into_inner(), [ChunkId(1)]);
        assert!(reservations.0.lock().is_empty());
    }
}
