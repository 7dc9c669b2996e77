//! Housekeeping: ends sessions that are gone, notices servers that are down, has freed what nobody has any more.

use crate::freeing::Goes;
use crate::server::MetaServer;
use braid_api::data::{ChunkStatus, FenceSession, Held, StatChunk, StatCopy, SyncChunks, WaitCopies, WaitFor};
use braid_api::meta::{Ends, LiveSessions};
use braid_api::{Code, Context, DataNode, DataPeers, Error, Result};
use braid_env::Monotonic;
use braid_lease::Key;
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::room::{GiveBack, RETURNED_A_PAGE};
use braid_meta_namespace::ops::{session, spares};
use braid_types::{ByteRange, ChunkId, ContainerId, Durability, ServerId, SessionId, Version};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two rounds while there is much to free: a round frees for [`crate::freeing::SLICE`], so 250 of 260 ms.
const PAUSE_BUSY: Duration = Duration::from_millis(10);

/// After so long without a change a session is no longer on record as keeping something. A session that begins to change
/// things pays one commit for that; a crash is followed by a wait only for clients that were busy in the last moments.
const KEEPS_FOR: Duration = Duration::from_secs(2);

impl MetaServer {
    pub(crate) fn keep_house(self: Arc<Self>) {
        let env = self.env.clone();
        env.spawn("housekeeping", async move {
            let (mut pause, mut told) = (self.config.housekeeping, Vec::<String>::new());
            while !self.stopping.load(Ordering::Relaxed) {
                self.env.sleep(pause).await;
                pause = self.config.housekeeping;
                let now = self.env.clock.now();
                for id in self.servers.expire(self.config.server_lease, now) {
                    tracing::warn!(server = id.0, "data server is silent: nothing new is placed there");
                }
                if !self.recovery.is_open() {
                    continue;
                }
                for id in self.sessions.silent_longer_than(self.config.session_expiry, now) {
                    tracing::warn!(session = id.0, "session is silent and ends");
                    // Where others serve it is renewed by none of them from its first attempt on.
                    let ended = match self.beside.is_some() {
                        true => self.end_or_try_again(id, Leaves::Silently).await,
                        false => self.end_session(id, Leaves::Silently).await,
                    };
                    if let Err(e) = ended {
                        tracing::warn!(session = id.0, "cannot end it yet: {e}");
                    }
                }
                self.waiting.lock().begin();
                if self.beside.is_some() {
                    // What others leave to be done is told by rows alone.
                    self.subtree_ops.look();
                }
                let (orphans, reclaimed) = (self.free_orphans().await, self.reclaim().await);
                if matches!(orphans, Ok(Goes::On)) || matches!(reclaimed, Ok(Goes::On)) {
                    pause = PAUSE_BUSY;
                }
                let steps = [
                    orphans.map(drop),
                    reclaimed.map(drop),
                    self.forget_sessions().await,
                    self.settle_idle().await,
                    self.prune().await,
                    self.look_through_sizes().await,
                    self.forget_ended().await,
                ];
                let causes: Vec<String> = steps.into_iter().filter_map(Result::err).map(|e| e.to_string()).collect();
                // Told once while it stays the same: the metadata may be held still for long.
                for cause in causes.iter().filter(|cause| !told.contains(cause)) {
                    tracing::warn!("housekeeping goes on later: {cause}");
                }
                told = causes;
            }
        });
    }

    /// Takes sessions off the record of those that keep something, when they have not changed anything for a while.
    async fn settle_idle(&self) -> Result<()> {
        let now = self.env.clock.now();
        let before = Monotonic(now.0.saturating_sub(KEEPS_FOR));
        self.keep_nothing(self.sessions.keeping(Some(before), |id| self.leases.works_alone(id))).await
    }

    /// A client that has not come back asks for nothing any more: its calls have ended by their deadlines.
    async fn forget_sessions(&self) -> Result<()> {
        let before = Monotonic(self.env.clock.now().0.saturating_sub(2 * self.config.session_expiry));
        for session in self.sessions.remembered(before) {
            self.engine.transact(0, session::ForgetSession { session }).await.map_err(Error::from)?;
            self.sessions.forget(session);
        }
        Ok(())
    }

    /// Forgets remembered answers that will not be asked for again.
    async fn prune(&self) -> Result<()> {
        for (id, state) in self.sessions.snapshot() {
            if state.low_water <= state.pruned {
                continue;
            }
            let below = state.low_water;
            while self.engine.transact(0, session::PruneRequests { session: id, below }).await.map_err(Error::from)? {}
            self.sessions.with(id, |s| s.pruned = below);
        }
        Ok(())
    }

    pub(crate) async fn chain(&self, container: ContainerId) -> Result<Vec<ServerId>> {
        if let Some(info) = self.containers.get(container) {
            return Ok(info.chain);
        }
        let rows = self.engine.read(0, spares::ReadContainers(vec![container])).await.map_err(Error::from)?;
        Ok(rows.into_iter().next().map(|(_, row)| row.chain).unwrap_or_default())
    }

    pub(crate) async fn on_server<M>(&self, server: ServerId, message: M) -> Result<M::Answer>
    where
        M: braid_api::Carries<braid_api::data::DataRequest, braid_api::data::DataAnswer> + Send,
        M::Answer: Send,
    {
        let info = self.servers.info(server, self.env.clock.now());
        let Some(info) = info.filter(|i| i.state == braid_api::meta::ServerState::Up) else {
            return Err(Error::new(Code::Unreachable, format_args!("data server {server}"), "it is down"));
        };
        let cx = Context { deadline: self.config.data_deadline, ..Context::default() };
        Ok(self.peers.node(&info).call(cx, message, Bytes::new()).await?.0)
    }

    /// What a data server has of a chunk with one copy, if it knows the chunk.
    pub(crate) async fn stat_chunk(
        &self,
        server: ServerId,
        chunk: ChunkId,
        container: ContainerId,
    ) -> Result<Option<ChunkStatus>> {
        let ask = StatChunk { chunk, container, extents_in: ByteRange::default(), cuts: Vec::new() };
        match self.on_server(server, ask).await {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.code == Code::ChunkUnknown => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Ends a session: data servers refuse what it still sends, what it wrote into spare chunks and could not
    /// commit goes into its files, the rest is freed. Design.md §5: it has ended only when every live data
    /// server has acknowledged, and what a silent one may have of it can be seen no more; so an error leaves it for the next round.
    pub(crate) async fn end_session(&self, id: SessionId, leaves: Leaves) -> Result<()> {
        let Some(ending) = self.sessions.begin_end(id).await else { return Ok(()) };
        match self.beside.is_some() {
            true => {
                self.expect_end(leaves).await?;
                self.until_over_everywhere(id).await?;
                self.end_session_steps(id, ending.epoch, leaves).await?;
                self.ends_elsewhere(id, Ends::Over).await?;
            }
            false => {
                self.end_session_steps(id, ending.epoch, leaves).await?;
                self.leases.until_over(id).await;
            }
        }
        ending.done();
        self.leases.ended(id);
        Ok(())
    }

    /// For a data server that is up by now, and does not know which sessions have ended. Of those that are ending it may be too late
    /// to be told by a fence, so these are not live here; an end that begins from here on is told to it. In this order: an
    /// end that is over before the look at the rows is not in them.
    pub(crate) async fn live_sessions(&self) -> Result<LiveSessions> {
        let ending = self.sessions.ending();
        let mut sessions = self.engine.read(0, session::Live).await.map_err(Error::from)?;
        sessions.live.retain(|id| !ending.contains(id));
        Ok(sessions)
    }

    async fn end_session_steps(&self, id: SessionId, epoch: braid_types::SessionEpoch, leaves: Leaves) -> Result<()> {
        self.expect_end(leaves).await?;
        let mut grown = Vec::new();
        for server in self.servers.candidates().into_iter().filter(|c| c.up) {
            let fence = FenceSession { session: id, epoch, by: self.leases.epoch() };
            let fenced = self.on_server(server.id, fence).await?;
            grown.push((server.id, fenced));
        }
        let held = self.engine.read(0, session::ListSpares { session: id }).await.map_err(Error::from)?;
        for (chunk, container) in held {
            let chain = self.chain(container).await?;
            if chain.len() > 1 {
                self.adopt_copies(id, chunk, container, &chain).await?;
                continue;
            }
            let Some(first) = chain.first().copied() else { continue };
            let found = self.stat_chunk(first, chunk, container).await?;
            if let Some(found) = found.filter(|found| found.len > 0) {
                // Its row may replace inline bytes, which were durable, and nobody is left to repeat the write.
                self.on_server(first, SyncChunks::of(vec![chunk])).await?;
                let keys = vec![Key::Attr(found.inode)];
                let adopt = spares::AdoptSpare { session: id, chunk: found, now: self.env.clock.wall() };
                let adopt = async { self.engine.transact(0, adopt).await.map_err(Error::from) };
                if self.announced_keys(id, keys, adopt).await? {
                    tracing::info!(session = id.0, chunk = chunk.0, "a lost client's chunk was put into its file");
                }
            }
        }
        if leaves == Leaves::Silently {
            for (server, fenced) in grown {
                self.raise_sizes_of(id, server, fenced.grown).await?;
                self.raise_sizes_of_copies(id, fenced.grown_copies).await?;
            }
        }
        let room = || GiveBack { session: id, limit: RETURNED_A_PAGE };
        while self.engine.transact(0, room()).await.map_err(Error::from)? {}
        let remember = leaves == Leaves::Silently;
        self.engine.transact(0, session::EndSession { session: id, remember }).await.map_err(Error::from)?;
        if remember {
            self.sessions.remember(id, self.env.clock.now());
        }
        Ok(())
    }

    /// A session can be ended now.
    async fn expect_end(&self, leaves: Leaves) -> Result<()> {
        // Who has lost the lead knows nothing of which sessions live, and data servers cannot tell.
        self.may_answer().await?;
        if leaves == Leaves::Silently { self.go_on_without_silent() } else { Ok(()) }
    }

    /// What a server has that can be told of no session's end must not come to be seen after it: docs/design/0006-replica-chains.md, *A
    /// session ends without a silent server*.
    fn go_on_without_silent(&self) -> Result<()> {
        let now = self.env.clock.now().0;
        let mut waits = None;
        // Of all of them first: each begins what it waits for.
        for server in self.servers.candidates() {
            let cause = match server.up {
                true if self.chains.has_begun_anew(server.id, now) => {
                    "it has started again, and its chains are not decided"
                }
                false if !self.chains.goes_on_without(server.id, now) => {
                    "it is silent, and its chains do not go on without it yet"
                }
                _ => continue,
            };
            waits = Some(Error::new(Code::Unreachable, format_args!("data server {}", server.id), cause));
        }
        waits.map_or(Ok(()), Err)
    }

    /// As with a spare chunk that has one copy, of one with several.
    async fn adopt_copies(
        &self,
        session: SessionId,
        chunk: ChunkId,
        container: ContainerId,
        chain: &[ServerId],
    ) -> Result<()> {
        let found = self.newest_copy(chunk, container, chain).await?;
        if let Some(found) = found.filter(|found| found.len > 0) {
            let keys = vec![Key::Attr(found.inode)];
            let adopt = spares::AdoptSpare { session, chunk: found, now: self.env.clock.wall() };
            let adopt = async { self.engine.transact(0, adopt).await.map_err(Error::from) };
            if self.announced_keys(session, keys, adopt).await? {
                tracing::info!(session = session.0, chunk = chunk.0, "a lost client's chunk was put into its file");
            }
        }
        Ok(())
    }

    /// What the owner says of a chunk with several copies, whichever member that is, after it has made it stable. `None`:
    /// there is no such chunk. An error, as while its chain is changing: ask later.
    pub(crate) async fn newest_copy(
        &self,
        chunk: ChunkId,
        container: ContainerId,
        chain: &[ServerId],
    ) -> Result<Option<ChunkStatus>> {
        let mut last = Error::new(Code::NoServers, format_args!("chunk {chunk}"), "none of its servers answers");
        for server in chain {
            // A wait first: only the owner takes it, so that what it says next is the newest.
            let (held, durability) = (Held::Exclusive, Durability::Fsync);
            let wait = WaitCopies { container, chunks: vec![chunk], wait: WaitFor::Fsync, held, durability };
            match self.on_server(*server, wait).await {
                // Nothing was ever written to it that an answer speaks of, or it was deleted and its server restarted since.
                Ok(answers) if answers.iter().all(|answer| answer.version == Version::default()) => return Ok(None),
                Ok(_) => {}
                Err(e) if e.code == Code::ChunkUnknown => return Ok(None),
                Err(e) => {
                    last = e;
                    continue;
                }
            }
            let (extents_in, cuts, at_least) = (ByteRange::default(), Vec::new(), Version::default());
            return self.on_server(*server, StatCopy { chunk, container, extents_in, cuts, at_least }).await.map(Some);
        }
        Err(last)
    }
}

/// How a session ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// It said so, after it had saved everything.
    InOrder,
    Silently,
}
