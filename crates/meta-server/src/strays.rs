//! Copies at servers that are no member of the chunk's chain any more, or of chunks that are gone: deleted by the leader's
//! word, and not before every member of the chain has all of the chunk on stable storage.
//!
//! A server is looked through when it was removed from a chain, when it starts, and when the leader does: so a healthy
//! cluster is not asked for anything. It stays on the list until nothing of it is left to be decided.

use crate::server::MetaServer;
use braid_api::data::{CopyState, DeleteChunks, GetCopies};
use braid_api::meta::ServerState;
use braid_api::{Code, Context, DataNode, DataPeers, Error, Result};
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::spares;
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId, Token};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Copies in one answer.
const PAGE: u32 = 1024;

/// What is to be done about a server's copies of one container.
enum Verdict {
    /// It is a member, or may be soon.
    Stays,
    /// Not yet known.
    Later,
    /// No row speaks of the container.
    Gone,
    /// It is outside the chain of this epoch.
    Outside(ChainEpoch, Vec<ServerId>),
}

impl MetaServer {
    pub(crate) async fn remove_strays(&self) -> Result<()> {
        // What rows of a backup do not know may be all that there is of it.
        if self.restored.lock().is_some() {
            return Ok(());
        }
        let mut failed = None;
        for (server, times) in self.chains.may_have_strays() {
            let info = self.servers.info(server, self.env.clock.now());
            // One that is down is looked through when it is back.
            if info.is_none_or(|info| info.state != ServerState::Up) {
                continue;
            }
            // One whose disk refuses does not keep others from being looked through.
            match self.remove_strays_of(server).await {
                Ok(true) => self.chains.has_no_strays(server, times),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// True if nothing is left to be decided.
    async fn remove_strays_of(&self, server: ServerId) -> Result<bool> {
        let (mut after, mut all_decided) = (ChunkId(0), true);
        loop {
            let page = self.on_server(server, GetCopies { after, limit: PAGE }).await?;
            let Some(last) = page.last() else { return Ok(all_decided) };
            after = last.chunk;
            let mut by_container: BTreeMap<ContainerId, Vec<ChunkId>> = BTreeMap::new();
            page.into_iter().for_each(|copy| by_container.entry(copy.container).or_default().push(copy.chunk));
            for (container, chunks) in by_container {
                match self.verdict(server, container).await? {
                    Verdict::Stays => {}
                    Verdict::Later => all_decided = false,
                    // No epoch of it will ever be again.
                    Verdict::Gone => self.delete_strays(server, ChainEpoch(u32::MAX), chunks).await?,
                    Verdict::Outside(epoch, chain) => {
                        let mut strays = Vec::with_capacity(chunks.len());
                        for chunk in chunks {
                            match self.is_replaced(chunk, epoch, &chain).await? {
                                true => strays.push(chunk),
                                false => all_decided = false,
                            }
                        }
                        // The chain may have changed while its members were asked: then a server outside it may be in it.
                        if !strays.is_empty() && self.chains.row(container).map(|row| row.epoch()) == Some(epoch) {
                            self.delete_strays(server, epoch, strays).await?;
                        } else {
                            all_decided &= strays.is_empty();
                        }
                    }
                }
            }
        }
    }

    async fn verdict(&self, server: ServerId, container: ContainerId) -> Result<Verdict> {
        let Some(row) = self.chains.row(container) else {
            let rows = self.engine.read(0, spares::ReadContainers(vec![container])).await.map_err(Error::from)?;
            return Ok(if rows.is_empty() { Verdict::Gone } else { Verdict::Later });
        };
        if row.members().contains(&server) {
            return Ok(Verdict::Stays);
        }
        // A chain that is kept may still need what it has.
        match self.acting_chain(container).filter(|_| !row.knows(server) && row.last_open.is_empty()) {
            Some((epoch, chain)) if chain.len() >= usize::from(row.copies) => Ok(Verdict::Outside(epoch, chain)),
            _ => Ok(Verdict::Later),
        }
    }

    /// Every member has all of the epoch's start of the chunk on stable storage; or none knows it, because it was deleted.
    async fn is_replaced(&self, chunk: ChunkId, epoch: ChainEpoch, chain: &[ServerId]) -> Result<bool> {
        let mut held = Vec::with_capacity(chain.len());
        for member in chain {
            let found =
                self.on_server(*member, GetCopies { after: ChunkId(chunk.0.saturating_sub(1)), limit: 1 }).await?;
            held.push(found.into_iter().find(|copy| copy.chunk == chunk));
        }
        let is_whole = |copy: &CopyState| copy.epoch == epoch && copy.stable.chain_epoch == epoch;
        let whole = held.iter().filter(|copy| copy.as_ref().is_some_and(is_whole)).count();
        Ok(whole == chain.len() || held.iter().all(Option::is_none))
    }

    async fn delete_strays(&self, server: ServerId, outside: ChainEpoch, chunks: Vec<ChunkId>) -> Result<()> {
        let count = chunks.len();
        let info = self.servers.info(server, self.env.clock.now());
        let info =
            info.ok_or_else(|| Error::new(Code::Unreachable, format_args!("data server {server}"), "unknown"))?;
        let token = Token { chain_epoch: outside, ..Token::default() };
        let cx = Context { deadline: self.config.data_deadline, token, ..Context::default() };
        self.peers.node(&info).call(cx, DeleteChunks { chunks }, Bytes::new()).await?;
        tracing::info!(server = server.0, count, "copies outside their chains were deleted");
        Ok(())
    }
}
