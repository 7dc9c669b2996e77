//! What a data server has and no row names: deleted, of copies at every member in one epoch.

use super::at_rest;
use super::rows::Places;
use crate::server::MetaServer;
use braid_api::data::DeleteChunks;
use braid_api::{Code, Context, DataNode, DataPeers, Error, Result};
use braid_report::{Doubt, View, Wrong};
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId, Token};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

impl MetaServer {
    pub(super) async fn remove_extra(&self, confirmed: &[(ServerId, Doubt)], view: &View, places: &Places) {
        let mut by_server: BTreeMap<(ServerId, ContainerId), BTreeSet<ChunkId>> = BTreeMap::new();
        let mut of_copies: BTreeMap<ContainerId, BTreeSet<ChunkId>> = BTreeMap::new();
        for (server, doubt) in confirmed.iter().filter(|(_, doubt)| doubt.wrong == Wrong::Extra) {
            // A row may name it under another container than its server does.
            if view.has_seen(doubt.chunk) || at_rest(self, places, doubt.container) != Some(doubt.epoch) {
                continue;
            }
            match places.get(doubt.container) {
                Some(place) if place.chain.len() > 1 => {
                    of_copies.entry(doubt.container).or_default().insert(doubt.chunk);
                }
                _ => drop(by_server.entry((*server, doubt.container)).or_default().insert(doubt.chunk)),
            }
        }
        for ((server, container), chunks) in by_server {
            let of_nobody = places.get(container).is_none();
            let removed = self.delete_extra(server, of_nobody, chunks.iter().copied().collect()).await;
            self.removed(container, &chunks, removed.map(|()| true));
        }
        for (container, chunks) in of_copies {
            let removed = self.delete_copies(container, &chunks.iter().copied().collect::<Vec<_>>()).await;
            self.removed(container, &chunks, Ok(removed.is_some()));
        }
    }

    async fn delete_extra(&self, server: ServerId, of_nobody: bool, chunks: Vec<ChunkId>) -> Result<()> {
        let info = self.servers.info(server, self.env.clock.now());
        let info =
            info.ok_or_else(|| Error::new(Code::Unreachable, format_args!("data server {server}"), "unknown"))?;
        // Of a container that has no row no epoch will ever be again.
        let chain_epoch = if of_nobody { ChainEpoch(u32::MAX) } else { ChainEpoch(0) };
        let token = Token { chain_epoch, ..Token::default() };
        let cx = Context { deadline: self.config.data_deadline, token, ..Context::default() };
        self.peers.node(&info).call(cx, DeleteChunks { chunks }, Bytes::new()).await.map(drop)
    }

    fn removed(&self, container: ContainerId, chunks: &BTreeSet<ChunkId>, done: Result<bool>) {
        let count = chunks.len() as u64;
        self.reports.count(|counts| counts.extra += count);
        match done {
            Ok(true) => {
                self.reports.count(|counts| counts.removed += count);
                let some: Vec<u64> = chunks.iter().take(8).map(|chunk| chunk.0).collect();
                tracing::warn!(container = container.0, count, ?some, "chunks that no row names were deleted");
            }
            // Found again in the next round.
            Ok(false) => {}
            Err(error) => tracing::info!(container = container.0, "chunks that no row names stay for now: {error}"),
        }
    }
}
