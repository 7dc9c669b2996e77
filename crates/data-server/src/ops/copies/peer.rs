//! PeerSays and LeaderSays: into the chain's machine; the answer says only that they came.

use crate::core::Core;
use braid_api::data::{LeaderSays, PeerSays};
use braid_api::{Code, Error, Result};
use bytes::Bytes;
use std::sync::Arc;

impl Core {
    pub fn peer_says(self: &Arc<Self>, m: &PeerSays, payload: Bytes) -> Result<()> {
        let heard = self.chains.heard_of_peer(m, payload);
        heard.map_err(|cause| Error::new(Code::BadMessage, format_args!("data server {}", m.from), cause))
    }

    pub fn leader_says(self: &Arc<Self>, m: &LeaderSays, payload: &Bytes) -> Result<()> {
        // Before anything of the new epoch begins.
        self.gate.raise_sync_floor(m.sync_floor);
        let heard = self.chains.heard_of_leader(m.incarnation, payload);
        heard.map_err(|cause| Error::new(Code::BadMessage, "the leader", cause))
    }
}
