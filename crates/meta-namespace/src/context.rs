use braid_types::{InodeId, RequestId, SessionEpoch, SessionId, Timestamp};

/// What an operation may not make itself: who asks, the time, a fresh id.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpContext {
    pub session: SessionId,
    pub session_epoch: SessionEpoch,
    pub request: RequestId,
    /// The server's wall clock when the request came; times in a row never go back behind it.
    pub now: Timestamp,
    /// Not used before; lost if the operation makes nothing. Its slot is random: what is no directory takes
    /// its parent's slot instead.
    pub fresh: InodeId,
    /// Other sessions live: they may have open what this one does not.
    pub others: bool,
    /// The session keeps the request until it is durable and is to be answered before.
    pub early: bool,
}

impl OpContext {
    /// The id for a new inode below `parent`: a directory draws its slot, all else shares its parent's, so that
    /// one slot holder serves a directory and its files.
    pub fn new_id(&self, parent: InodeId, is_dir: bool) -> InodeId {
        let counter = self.fresh.0 >> braid_types::SLOT_BITS;
        InodeId::new(counter, if is_dir { self.fresh.slot() } else { parent.slot() })
    }
}
