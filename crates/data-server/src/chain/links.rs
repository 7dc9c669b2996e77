//! Ways to the other data servers and to the leader.

use braid_api::data::PeerSays;
use braid_types::ServerId;
use bytes::Bytes;

/// Carries messages that may be lost, repeated and late. Never waits: what cannot be sent soon is dropped, for it is sent
/// again by who needs it.
pub trait ChainLinks: Send + Sync + 'static {
    fn to_peer(&self, to: ServerId, message: PeerSays, payload: Bytes);

    /// A `braid_chain::ToLeader`, from this incarnation.
    fn to_leader(&self, incarnation: u64, message: Vec<u8>);
}
