//! Sizes that no client will report any more: whoever wrote at the end of a file has died (design.md §8: a write that
//! reached its owner survives the loss of its client).
//!
//! A data server remembers which chunks a session made longer and says so when the session is fenced. It forgets that
//! when it restarts, and a session may have ended while it was away; so all its chunks are looked through once when a start
//! of it is first heard of, some pages a round: 16 pages of 1,024 chunks cost it about a second if nothing is
//! cached (a header each) and 10 ms if all is.

use crate::server::MetaServer;
use braid_api::data::{ChunkStatus, ListChunks, SyncChunks};
use braid_api::{Error, Result};
use braid_lease::Key;
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::sizes::{FindBeyond, RaiseSize};
use braid_types::{ChunkId, ContainerId, ServerId, SessionId};
use parking_lot::Mutex;
use std::collections::BTreeMap;

const PAGE: u32 = 1024;
const PAGES_A_ROUND: usize = 16;
/// Chunks whose rows are read in one snapshot.
const ROWS_AT_ONCE: usize = 256;

/// Data servers whose chunks are to be looked through, and up to where that is done.
#[derive(Default)]
pub struct SizesToCheck(Mutex<BTreeMap<ServerId, ChunkId>>);

impl SizesToCheck {
    /// From the beginning, also if it had begun.
    pub fn look_through(&self, server: ServerId) {
        self.0.lock().insert(server, ChunkId(0));
    }

    fn all(&self) -> Vec<(ServerId, ChunkId)> {
        self.0.lock().iter().map(|(server, after)| (*server, *after)).collect()
    }

    /// The page after `from` is done; `None` if it was the last. Nothing happens if it was begun anew meanwhile.
    fn done(&self, server: ServerId, from: ChunkId, until: Option<ChunkId>) {
        let mut all = self.0.lock();
        if all.get(&server) != Some(&from) {
            return;
        }
        match until {
            Some(until) => drop(all.insert(server, until)),
            None => drop(all.remove(&server)),
        }
    }
}

impl MetaServer {
    /// Goes on with the data servers that have restarted. One that does not answer is asked again in the next round.
    pub(crate) async fn look_through_sizes(&self) -> Result<()> {
        for (server, mut from) in self.sizes.all() {
            for _ in 0..PAGES_A_ROUND {
                let page = match self.on_server(server, ListChunks { after: from, limit: PAGE }).await {
                    Ok(page) => page,
                    Err(e) => {
                        tracing::debug!(server = server.0, "sizes are looked through later: {e}");
                        break;
                    }
                };
                let last = page.last();
                let more = page.more;
                self.raise_sizes(SessionId(0), server, page.chunks).await?;
                let until = last.filter(|_| more);
                self.sizes.done(server, from, until);
                let Some(next) = until else { break };
                from = next;
            }
        }
        Ok(())
    }

    /// The chunks with these ids, which an ended session has made longer.
    pub(crate) async fn raise_sizes_of(&self, of: SessionId, server: ServerId, chunks: Vec<ChunkId>) -> Result<()> {
        let mut held = Vec::new();
        for chunk in chunks {
            held.extend(self.stat_chunk(server, chunk, ContainerId(0)).await?);
        }
        self.raise_sizes(of, server, held).await
    }

    /// The same for chunks with several copies: how long one is its owner says, who may be another by now.
    pub(crate) async fn raise_sizes_of_copies(&self, of: SessionId, chunks: Vec<(ChunkId, ContainerId)>) -> Result<()> {
        for (chunk, container) in chunks {
            let chain = self.chain(container).await?;
            let newest: Vec<ChunkStatus> = self.newest_copy(chunk, container, &chain).await?.into_iter().collect();
            self.raise_to(of, self.find_beyond(&newest).await?).await?;
        }
        Ok(())
    }

    async fn raise_sizes(&self, of: SessionId, server: ServerId, all: Vec<ChunkStatus>) -> Result<()> {
        let (mut held, mut copies) = (Vec::with_capacity(all.len()), Vec::new());
        for status in all {
            match self.chain(status.container).await?.len() {
                0 | 1 => held.push(status),
                _ => copies.push(status),
            }
        }
        for some in held.chunks(ROWS_AT_ONCE) {
            let beyond = self.find_beyond(some).await?;
            if !beyond.is_empty() {
                // A size is as stable as the bytes that it speaks of.
                let ids = beyond.iter().map(|status| status.chunk).collect();
                self.on_server(server, SyncChunks::of(ids)).await?;
                self.raise_to(of, beyond).await?;
            }
        }
        // One of several copies may hold what its chain has left behind: only where it says more is the owner asked.
        for some in copies.chunks(ROWS_AT_ONCE) {
            let beyond = self.find_beyond(some).await?;
            self.raise_sizes_of_copies(of, beyond.iter().map(|held| (held.chunk, held.container)).collect()).await?;
        }
        Ok(())
    }

    async fn find_beyond(&self, held: &[ChunkStatus]) -> Result<Vec<ChunkStatus>> {
        self.engine.read(0, FindBeyond(held.to_vec())).await.map_err(Error::from)
    }

    /// What these chunks hold is stable, and beyond their files' sizes.
    async fn raise_to(&self, of: SessionId, beyond: Vec<ChunkStatus>) -> Result<()> {
        for chunk in beyond {
            let (keys, partition) = (vec![Key::Attr(chunk.inode)], chunk.inode.0);
            let raise = RaiseSize { chunk, now: self.env.clock.wall() };
            let raised = async { self.engine.transact(partition, raise).await.map_err(Error::from) };
            if let Some(inode) = self.announced_keys(of, keys, raised).await? {
                tracing::info!(inode = inode.0, "the size of a file was raised to what a lost client had written");
            }
        }
        Ok(())
    }
}
