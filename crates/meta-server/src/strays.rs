//! Copies at servers that are no member of the chunk's chain any more, or of chunks that are gone: deleted by the leader's
//! word, and not before every member of the chain has all of the chunk on stable storage, and has read back what it got in its
//! stead.
//!
//! A server is looked through when it was removed from a chain, when it starts, and when the leader does: so a healthy
//! cluster is not asked for anything. It stays on the list until nothing of it is left to be decided.
//!
//! Who of the members came in its stead is known of a chain from which a server was drained, whose newest was read back then. Else a
//! copy was lost and made again, perhaps more than one, under a leader of before: then every member reads its copy.

use crate::server::MetaServer;
use braid_api::data::{CopyState, DeleteChunks, GetCopies, ScrubChunk};
use braid_api::meta::ServerState;
use braid_api::{Code, Context, DataNode, DataPeers, Error, Result};
use braid_env::Monotonic;
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::spares;
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId, Token};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Copies in one answer.
const PAGE: u32 = 1024;

/// A chunk may have up to 1 TiB: at 100 MB/s that is three hours.
const READ_BACK_DEADLINE: Duration = Duration::from_secs(4 * 3600);

/// Between two reads of a copy that was not found good: it is mended meanwhile.
const READ_AGAIN: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct ReadBack {
    /// Of chains from which a server is drained: the epoch in which it and all others had everything, the newest read back, and who they
    /// were.
    drained: Mutex<BTreeMap<ContainerId, (ChainEpoch, Vec<ServerId>)>>,
    /// Copies that are being read, or were not found good, and since when.
    read: Mutex<BTreeMap<(ServerId, ChunkId), Monotonic>>,
}

impl ReadBack {
    pub fn all_have(&self, container: ContainerId, epoch: ChainEpoch, members: Vec<ServerId>) {
        self.drained.lock().insert(container, (epoch, members));
    }

    fn waits(&self, server: ServerId, chunk: ChunkId, now: Monotonic) -> bool {
        self.read.lock().get(&(server, chunk)).is_some_and(|since| now.since(*since) < READ_AGAIN)
    }

    fn begins(&self, server: ServerId, chunk: ChunkId, now: Monotonic) {
        let mut read = self.read.lock();
        // Nobody asks for those any more.
        read.retain(|_, since| now.since(*since) < 2 * READ_BACK_DEADLINE);
        read.insert((server, chunk), now);
    }

    fn is_good(&self, server: ServerId, chunk: ChunkId) {
        self.read.lock().remove(&(server, chunk));
    }

    /// The server was one of them, and with the next epoch, which this is, nobody came.
    fn is_of(&self, left: ServerId, container: ContainerId, epoch: ChainEpoch, chain: &[ServerId]) -> bool {
        self.drained.lock().get(&container).is_some_and(|(of, members)| {
            of.0 + 1 == epoch.0 && members.contains(&left) && chain.iter().all(|one| members.contains(one))
        })
    }
}

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
    /// Beside the other housekeeping, which does not wait until whole chunks have been read.
    pub(crate) fn keep_removing_strays(self: Arc<Self>) {
        let env = self.env.clone();
        env.spawn("copies outside their chains", async move {
            let mut told = None;
            while !self.stopping.load(Relaxed) {
                self.env.sleep(self.config.housekeeping).await;
                if !self.recovery.is_open() {
                    continue;
                }
                let failed = self.remove_strays().await.err().map(|error| error.to_string());
                // Once while it stays the same: a server may be away for long.
                if let Some(cause) = failed.as_ref().filter(|_| failed != told) {
                    tracing::warn!("copies outside their chains are removed later: {cause}");
                }
                told = failed;
            }
        });
    }

    async fn remove_strays(&self) -> Result<()> {
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
        let (mut after, mut all_decided, mut failed) = (ChunkId(0), true, None);
        loop {
            let page = self.on_server(server, GetCopies::after(after, PAGE)).await?;
            let Some(last) = page.last() else { return failed.map_or(Ok(all_decided), Err) };
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
                        let is_read = self.read_back.is_of(server, container, epoch, &chain);
                        // Where whole chunks are read first each goes by itself: an hour later the chain is another.
                        for some in chunks.chunks(if is_read { PAGE as usize } else { 1 }) {
                            // One that cannot be read keeps none of the others.
                            match self.remove_replaced(server, container, some, (epoch, &chain), is_read).await {
                                Ok(all) => all_decided &= all,
                                Err(error) => failed = Some(error),
                            }
                        }
                    }
                }
            }
        }
    }

    /// Of these chunks those that the others have. True if nothing is left to be decided.
    async fn remove_replaced(
        &self,
        server: ServerId,
        container: ContainerId,
        chunks: &[ChunkId],
        (epoch, chain): (ChainEpoch, &[ServerId]),
        is_read: bool,
    ) -> Result<bool> {
        if self.stopping.load(Relaxed) {
            return Ok(false);
        }
        let (mut strays, mut failed) = (Vec::with_capacity(chunks.len()), None);
        for chunk in chunks {
            match self.is_replaced(*chunk, epoch, chain, is_read).await {
                Ok(true) => strays.push(*chunk),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
        }
        let all = strays.len() == chunks.len();
        // The chain may have changed while its members were asked: then a server outside it may be in it.
        let is_same = self.chains.row(container).map(|row| row.epoch()) == Some(epoch);
        if is_same && !strays.is_empty() {
            self.delete_strays(server, epoch, strays).await?;
        }
        failed.map_or(Ok(all && is_same), Err)
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

    /// Every member has all of the epoch's start of the chunk on stable storage, and has read it, now if it has not yet; or none knows
    /// it, because it was deleted.
    async fn is_replaced(&self, chunk: ChunkId, epoch: ChainEpoch, chain: &[ServerId], is_read: bool) -> Result<bool> {
        let mut held = Vec::with_capacity(chain.len());
        for member in chain {
            held.push(self.on_server(*member, GetCopies::of(vec![chunk])).await?.pop());
        }
        let is_whole = |copy: &CopyState| copy.epoch == epoch && copy.stable.chain_epoch == epoch;
        let whole = held.iter().filter(|copy| copy.as_ref().is_some_and(is_whole)).count();
        if whole < chain.len() {
            return Ok(held.iter().all(Option::is_none));
        }
        for member in chain.iter().filter(|_| !is_read) {
            if !self.reads_back(*member, chunk).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Has a server read its copy of the chunk. False if a block does not match its checksum: it is mended from another copy, and is to
    /// be looked at again; or if the chunk is there no more.
    pub(crate) async fn reads_back(&self, server: ServerId, chunk: ChunkId) -> Result<bool> {
        let now = self.env.clock.now();
        if self.read_back.waits(server, chunk, now) {
            return Ok(false);
        }
        let info = self.servers.info(server, now);
        let Some(info) = info.filter(|info| info.state == ServerState::Up) else { return Ok(false) };
        // Until it has been found good.
        self.read_back.begins(server, chunk, now);
        let cx = Context { deadline: READ_BACK_DEADLINE, ..Context::default() };
        match self.peers.node(&info).call(cx, ScrubChunk { chunk }, Bytes::new()).await {
            Ok((answer, _)) if answer.bad.is_empty() => {
                self.read_back.is_good(server, chunk);
                Ok(true)
            }
            Ok((answer, _)) => {
                let (bad, chunk) = (answer.bad.len(), chunk.0);
                tracing::warn!(server = server.0, chunk, bad, "a new copy does not verify: the old one stays");
                Ok(false)
            }
            // Deleted since it was listed.
            Err(error) if error.code == Code::ChunkUnknown => Ok(false),
            Err(error) => Err(error),
        }
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
