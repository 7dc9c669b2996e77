//! What a file has and its data server has not: of copies a new epoch of the chain makes the others' content go there.

use super::rows::Places;
use super::{Restoring, at_rest};
use crate::server::MetaServer;
use braid_api::Result;
use braid_api::admin::MissingChunk;
use braid_api::data::{CopyState, GetCopies, LoseChunks};
use braid_chain::LeaderEvent;
use braid_report::{Doubt, View, Wrong};
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// Epochs begun for one copy: what they do not bring back is nowhere.
const TRIES: u32 = 3;

type ByServer = BTreeMap<ServerId, BTreeSet<ChunkId>>;

impl MetaServer {
    pub(super) async fn see_to_lost(&self, confirmed: &[(ServerId, Doubt)], view: &View, places: &Places) {
        let mut by_container: BTreeMap<(ContainerId, ChainEpoch), ByServer> = BTreeMap::new();
        for (server, doubt) in confirmed.iter().filter(|(_, doubt)| doubt.wrong == Wrong::Lost) {
            let of = by_container.entry((doubt.container, doubt.epoch)).or_default();
            of.entry(*server).or_default().insert(doubt.chunk);
        }
        for ((container, epoch), lost) in by_container {
            if at_rest(self, places, container) != Some(epoch) {
                continue;
            }
            let is_plain = places.get(container).is_some_and(|place| place.chain.len() == 1);
            let done = match is_plain {
                true => self.see_to_plain(container, lost, view).await,
                false => self.see_to_copies(container, epoch, lost, view).await,
            };
            if let Err(error) = done {
                tracing::info!(container = container.0, "lost chunks are looked for again later: {error}");
            }
        }
    }

    /// Nobody else has it. What was never stable may have gone with the power, and reads as a hole: that is no loss of what was promised.
    async fn see_to_plain(&self, container: ContainerId, lost: ByServer, view: &View) -> Result<()> {
        for (server, chunks) in lost {
            let stable = |chunk: &ChunkId| view.named(container, *chunk).is_some_and(|named| named.stable);
            let chunks: Vec<ChunkId> = chunks.into_iter().filter(stable).collect();
            for chunk in self.missing_at(server, container, chunks, false).await? {
                self.is_lost(server, container, chunk, view);
            }
        }
        Ok(())
    }

    /// The server's own word, by name.
    async fn missing_at(
        &self,
        server: ServerId,
        container: ContainerId,
        chunks: Vec<ChunkId>,
        begin_anew: bool,
    ) -> Result<Vec<ChunkId>> {
        if chunks.is_empty() {
            return Ok(chunks);
        }
        let missing = self.on_server(server, LoseChunks { container, chunks: chunks.clone(), begin_anew }).await?;
        Ok(chunks.into_iter().zip(missing).filter(|(_, missing)| *missing).map(|(chunk, _)| chunk).collect())
    }

    fn is_lost(&self, server: ServerId, container: ContainerId, chunk: ChunkId, view: &View) {
        let Some(named) = view.named(container, chunk) else { return };
        let missing = MissingChunk { server, chunk, container, inode: named.inode, index: named.index };
        let mut state = self.reports.state.lock();
        if state.missing.insert((server, chunk), missing).is_none() {
            state.counts.lost += 1;
            let (inode, index) = (named.inode.0, named.index.0);
            tracing::error!(
                server = server.0,
                chunk = chunk.0,
                inode,
                index,
                "a chunk of a file is missing at its data server"
            );
        }
    }

    /// Members that have lost some are told to forget what they know of it, and a new epoch is begun: in it they say that they have nothing,
    /// the content of the others goes on and is copied. Not before everybody else has all of it, at rest and on stable storage.
    async fn see_to_copies(
        &self,
        container: ContainerId,
        epoch: ChainEpoch,
        lost: ByServer,
        view: &View,
    ) -> Result<()> {
        let Some((_, chain)) = self.acting_chain(container).filter(|(now, _)| *now == epoch) else { return Ok(()) };
        let chunks: BTreeSet<ChunkId> = lost.values().flatten().copied().collect();
        let mut told: Vec<(ServerId, ChunkId)> = Vec::new();
        for chunk in chunks {
            let has_lost = |server: &&ServerId| lost.get(*server).is_some_and(|chunks| chunks.contains(&chunk));
            let (without, with): (Vec<&ServerId>, Vec<&ServerId>) = chain.iter().partition(has_lost);
            let mut copies: Vec<Option<CopyState>> = Vec::with_capacity(with.len());
            for server in with {
                // What it remembers, and what its disk has: who has lost it too, and was not asked or not heard, may read it still.
                let is_there = self.missing_at(*server, container, vec![chunk], false).await?.is_empty();
                copies.push(self.copy_at(*server, container, chunk).await?.filter(|_| is_there));
            }
            let is_whole = |copy: &CopyState| copy.epoch == epoch && is_at_rest(copy);
            let versions: BTreeSet<_> = copies.iter().flatten().map(|copy| copy.told).collect();
            let is_safe = versions.len() == 1 && copies.iter().all(|copy| copy.as_ref().is_some_and(is_whole));
            for server in without {
                // It is being copied there, as to any member that is behind.
                let own = self.copy_at(*server, container, chunk).await?;
                if own.is_some_and(|copy| copy.invalid_blocks > 0) {
                    continue;
                }
                let tries = self.reports.state.lock().restoring.get(&(*server, chunk)).map_or(0, |it| it.tries);
                let begin_anew = is_safe && tries < TRIES;
                if self.missing_at(*server, container, vec![chunk], begin_anew).await?.is_empty() {
                    continue;
                }
                self.is_lost(*server, container, chunk, view);
                if begin_anew {
                    told.push((*server, chunk));
                }
            }
        }
        if told.is_empty() || self.acting_chain(container).map(|(now, _)| now) != Some(epoch) {
            return Ok(());
        }
        for (server, chunk) in &told {
            let mut state = self.reports.state.lock();
            let restoring = state.restoring.entry((*server, *chunk)).or_insert(Restoring { container, tries: 0 });
            restoring.tries += 1;
        }
        tracing::warn!(
            container = container.0,
            count = told.len(),
            "lost copies are taken from the others in a new epoch"
        );
        self.leader_event(LeaderEvent::Lost { container });
        Ok(())
    }

    async fn copy_at(&self, server: ServerId, container: ContainerId, chunk: ChunkId) -> Result<Option<CopyState>> {
        let found = self.on_server(server, GetCopies::of(vec![chunk])).await?;
        Ok(found.into_iter().find(|copy| copy.container == container))
    }

    /// Whole again, or else gone for good. `None`: not yet.
    pub(super) async fn is_back(
        &self,
        server: ServerId,
        container: ContainerId,
        chunk: ChunkId,
    ) -> Result<Option<bool>> {
        let Some((epoch, chain)) = self.acting_chain(container) else { return Ok(None) };
        let copy = self.copy_at(server, container, chunk).await?.filter(|_| chain.contains(&server));
        let Some(copy) = copy else { return Ok(Some(false)) };
        let is_there = self.missing_at(server, container, vec![chunk], false).await?.is_empty();
        Ok((copy.epoch == epoch && is_at_rest(&copy) && is_there).then_some(true))
    }
}

fn is_at_rest(copy: &CopyState) -> bool {
    copy.invalid_blocks == 0 && copy.complete == copy.told && copy.stable == copy.told
}
