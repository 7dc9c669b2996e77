//! Frees what nobody has any more: files without a name that no session holds, their rows, their chunks at the data servers.
//!
//! A million files that are removed while someone lists them are a million orphans, so this goes in batches, one transaction
//! each, and gives the rest of the house its turn after each [`SLICE`].

use crate::server::MetaServer;
use braid_api::admin::Waiting;
use braid_api::data::DeleteChunks;
use braid_api::{Error, Result};
use braid_env::Monotonic;
use braid_meta_engine::{Engine, Key};
use braid_meta_namespace::ops::reclaim;
use braid_types::{ChunkId, ContainerId, ServerId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for freeing before sessions and servers are looked at again.
pub(crate) const SLICE: Duration = Duration::from_millis(250);

/// Files freed in one transaction: about 10 µs each, so that a change which waits for it waits for 3 ms.
const ORPHANS_AT_ONCE: usize = 256;

/// Rows of what is to be freed that are read at once; chunks named to a data server in one message.
const RECLAIM_AT_ONCE: usize = 1024;

/// Whether there is more to be done at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goes {
    On,
    /// All is done, or waits for something.
    Later,
}

/// Where the last look at the rows of what is to be freed ended. Chunks of a server that is down stay at the head of the
/// table; looked at from the head each time, a thousand of them would keep all others from being freed.
#[derive(Default)]
pub(crate) struct ReclaimFrom(Mutex<Option<Key>>);

impl MetaServer {
    fn slice_ends(&self) -> Monotonic {
        self.env.clock.now() + SLICE
    }

    pub(crate) async fn free_orphans(&self) -> Result<Goes> {
        let ends = self.slice_ends();
        loop {
            let last = self.orphans.last();
            let free = self.orphans.free_now(last, &self.sessions.snapshot(), ORPHANS_AT_ONCE);
            if free.is_empty() {
                return Ok(Goes::Later);
            }
            let inodes = free.iter().map(|(_, inode)| *inode).collect();
            self.engine.transact(0, reclaim::FreeOrphans { inodes }).await.map_err(Error::from)?;
            self.orphans.remove(free.into_iter().map(|(number, _)| number));
            if self.env.clock.now() >= ends {
                return Ok(Goes::On);
            }
        }
    }

    /// Rows of freed files become chunks to delete; chunks are deleted at their servers; then their rows go.
    pub(crate) async fn reclaim(&self) -> Result<Goes> {
        let ends = self.slice_ends();
        let mut goes = Goes::Later;
        loop {
            let after = self.reclaim_from.0.lock().take();
            let list = reclaim::ListReclaim { after, limit: RECLAIM_AT_ONCE };
            let waiting = self.engine.read(0, list).await.map_err(Error::from)?;
            let next = waiting.next.clone();
            if self.reclaim_page(waiting).await? > 0 {
                goes = Goes::On;
            }
            if next.is_none() {
                return Ok(goes);
            }
            *self.reclaim_from.0.lock() = next;
            if self.env.clock.now() >= ends {
                return Ok(goes);
            }
        }
    }

    /// Answers how many of them have been freed.
    async fn reclaim_page(&self, waiting: reclaim::Waiting) -> Result<usize> {
        self.trees_found(waiting.trees);
        let mut freed = waiting.inodes.len();
        let mut inodes = waiting.inodes;
        while !inodes.is_empty() {
            let op = reclaim::ReclaimInodes { inodes: inodes.clone() };
            let done = self.engine.transact(0, op).await.map_err(Error::from)?;
            inodes.drain(..done);
        }
        // A better backup may still have them in files.
        if self.restored.lock().is_some() {
            let for_what = "braid admin metadata confirm: the metadata comes from a backup".to_owned();
            let what = format!("freeing of {} chunks", waiting.chunks.len());
            (!waiting.chunks.is_empty()).then(|| self.freeing_waits(Waiting::new(what, for_what)));
            return Ok(freed);
        }
        let mut by_server: BTreeMap<ServerId, Vec<(ChunkId, ContainerId)>> = BTreeMap::new();
        let mut of_copies: BTreeMap<ContainerId, Vec<ChunkId>> = BTreeMap::new();
        for (chunk, container) in waiting.chunks {
            let chain = self.chain(container).await?;
            match chain.as_slice() {
                [] => by_server.entry(ServerId(0)).or_default().push((chunk, container)),
                [one] => by_server.entry(*one).or_default().push((chunk, container)),
                _ => of_copies.entry(container).or_default().push(chunk),
            }
        }
        for (container, chunks) in of_copies {
            freed += self.reclaim_copies(container, chunks).await?;
        }
        for (server, chunks) in by_server {
            let ids = chunks.iter().map(|(chunk, _)| *chunk).collect();
            if server == ServerId(0) || self.delete_chunks(server, ids).await.is_ok() {
                freed += chunks.len();
                self.engine.transact(0, reclaim::ForgetChunks { chunks }).await.map_err(Error::from)?;
            }
        }
        Ok(freed)
    }

    /// Copies of chunks are deleted at every member, in one epoch in which all act. Otherwise a member that reported a chunk
    /// before it deleted it, or was invited meanwhile, brings it back, and nobody would know of it any more.
    async fn reclaim_copies(&self, container: ContainerId, chunks: Vec<ChunkId>) -> Result<usize> {
        let Some(chunks) = self.delete_copies(container, &chunks).await else { return Ok(0) };
        let chunks: Vec<_> = chunks.into_iter().map(|chunk| (chunk, container)).collect();
        let count = chunks.len();
        self.engine.transact(0, reclaim::ForgetChunks { chunks }).await.map_err(Error::from)?;
        Ok(count)
    }

    /// `None`: not now. Else those of the chunks that are gone for good.
    pub(crate) async fn delete_copies(&self, container: ContainerId, chunks: &[ChunkId]) -> Option<Vec<ChunkId>> {
        let count = chunks.len();
        let Some((epoch, chain)) = self.acting_chain(container) else {
            let for_what = format!("the chain of container {container}, which is changing");
            self.freeing_waits(Waiting {
                container: Some(container),
                ..Waiting::new(format!("freeing of {count} chunks"), for_what)
            });
            return None;
        };
        for server in chain {
            self.delete_chunks(server, chunks.to_vec()).await.ok()?;
        }
        let row = self.chains.row(container);
        if self.acting_chain(container).map(|(now, _)| now) != Some(epoch) {
            return None;
        }
        chunks.iter().for_each(|chunk| self.chunk_deleted(container, *chunk));
        // While the chain's row lists a chunk as not open, a take-over asks an older chain for it, of which a member may have
        // it. So the chain's row first: if both were lost but this one, nobody would know of the chunk when it comes back.
        let is_listed = |chunk: &ChunkId| row.as_ref().is_none_or(|row| row.last_open.contains_key(chunk));
        Some(chunks.iter().filter(|chunk| !is_listed(chunk)).copied().collect())
    }

    async fn delete_chunks(&self, server: ServerId, chunks: Vec<ChunkId>) -> Result<()> {
        let count = chunks.len();
        let result = self.on_server(server, DeleteChunks { chunks }).await;
        if let Err(e) = &result {
            self.freeing_waits(Waiting {
                servers: vec![server],
                ..Waiting::new(format!("freeing of {count} chunks"), format!("data server {server}: {e}"))
            });
        }
        result
    }

    /// It waits since it first did, for as long as each round finds that it still does.
    pub(crate) fn freeing_waits(&self, waiting: Waiting) {
        self.waiting.lock().add(waiting, self.env.clock.now());
    }
}
