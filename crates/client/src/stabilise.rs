//! Making answered writes stable, and repeating those a restarted server has forgotten.
//!
//! A repetition makes a chunk only if a row still names it, see `unknown`: else a file that another client has removed
//! meanwhile would leave chunks behind that nobody frees.

use crate::core::{Core, Op};
use crate::inode::Inode;
use crate::retain::{Receipt, Repeat};
use crate::servers::Lane;
use crate::wait::{Attempts, join_all, timed_out};
use braid_api::data::{Make, SyncChunks, WriteChunk};
use braid_api::{Code, Error, Result, Retry};
use braid_types::{ChunkId, InodeId, Token};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);

impl Core {
    /// Something is retained for this server: see that it becomes stable in time.
    pub fn mind(self: &Arc<Self>, lane: &Arc<Lane>) {
        let half_full = self.memory.retained.used() > self.config.retained_bytes / 2;
        let lost = lane.retained(|retain| retain.has_lost());
        if half_full || lost {
            lane.wake.notify_one();
        }
        if std::mem::replace(&mut *lane.stabiliser.lock(), true) {
            return;
        }
        let (weak, lane, env) = (Arc::downgrade(self), lane.clone(), self.env.clone());
        let after = self.config.stabilise_after;
        self.env.spawn("stabilise", async move {
            loop {
                let Some(oldest) = lane.retained(|retain| retain.oldest()) else {
                    let mut runs = lane.stabiliser.lock();
                    // What came in between found the stabiliser running.
                    if lane.retained(|retain| retain.is_idle()) {
                        *runs = false;
                        return;
                    }
                    continue;
                };
                let left = (oldest + after).since(env.clock.now());
                let _ = env.timeout(left, lane.wake.notified()).await;
                let Some(core) = weak.upgrade() else { return };
                let chunks = lane.retained(|retain| retain.chunks());
                if let Err(error) = core.sync_lane(&lane, &chunks, core.own_op()).await {
                    tracing::warn!(%error, "writes are not stable yet");
                    let _ = core.refresh_servers(core.own_op()).await;
                    drop(core);
                    env.sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        });
    }

    /// Syncs these chunks once. True if the server had not restarted since their last write; else what it lost was
    /// repeated and is to be synced again.
    pub async fn sync_lane(&self, lane: &Lane, chunks: &[ChunkId], op: Op) -> Result<bool> {
        if chunks.is_empty() {
            return Ok(true);
        }
        let (order, incarnation, had_lost) =
            lane.retained(|retain| (retain.order(), retain.incarnation(), retain.has_lost()));
        let message = SyncChunks { chunks: chunks.to_vec(), release: lane.take_released() };
        let mut is_the_same = false;
        match self.ask(lane, self.session.token(), message, Bytes::new(), op).await {
            Ok((answer, _)) => lane.retained(|retain| {
                // Else what another task repeats, or writes over what was lost, may have come after this sync.
                is_the_same = !had_lost && answer.incarnation == incarnation;
                retain.stable(answer.incarnation, answer.stable);
                retain.synced(chunks, order, answer.incarnation);
                lane.has_answered();
                if retain.has_proven() {
                    self.marks.notify_one();
                }
            }),
            Err(error) if error.code == Code::ChunkUnknown => {
                let [chunk] = chunks else {
                    let mut kept = true;
                    for &chunk in chunks {
                        kept &= Box::pin(self.sync_lane(lane, &[chunk], op)).await?;
                    }
                    return Ok(kept);
                };
                lane.retained(|retain| retain.forgotten_by_server(*chunk));
            }
            Err(error) => {
                // The chain may be another by now, and those that were asked know nothing of it.
                if let (Some(container), Retry::AfterRefresh) = (lane.container(), error.retry()) {
                    let _ = self.refresh_container(container, op).await;
                }
                return Err(error);
            }
        }
        if !lane.retained(|retain| retain.has_lost()) {
            return Ok(is_the_same);
        }
        self.repeat_lost(lane, op).await?;
        Ok(false)
    }

    /// Writes again what an earlier incarnation of the server had answered.
    async fn repeat_lost(&self, lane: &Lane, op: Op) -> Result<()> {
        let left = op.deadline.left(&self.env);
        let gate = self.env.timeout(left, lane.gate.write()).await;
        let _gate = gate.map_err(|_| timed_out(lane.name(), "writes on their way to it"))?;
        let _waiting = self.waits.enter(&self.env, "repetition of writes", lane.name()).at(lane.id);
        loop {
            let lost = lane.retained(|retain| retain.lost());
            if lost.is_empty() {
                return Ok(());
            }
            tracing::info!(server = lane.id.0, writes = lost.len(), "the server restarted, writes are repeated");
            for repeat in lost {
                if !lane.retained(|retain| retain.has(repeat.key.chunk)) {
                    continue;
                }
                match self.repeat(lane, &repeat, op).await {
                    Ok(()) => {}
                    Err(error) if error.code == Code::StaleTruncGen => {
                        if !self.refresh_cuts(repeat.key.inode, op).await? {
                            lane.retained(|retain| retain.forget(repeat.key.chunk));
                        }
                        break;
                    }
                    Err(error) => {
                        let _ = self.refresh_container(repeat.key.container, op).await;
                        return Err(error);
                    }
                }
            }
            if op.deadline.left(&self.env).is_zero() {
                return Err(timed_out("repetition of writes", lane.name()));
            }
        }
    }

    async fn repeat(&self, lane: &Lane, repeat: &Repeat, op: Op) -> Result<()> {
        let key = repeat.key;
        let mut make = self.make_of(&key);
        if make == Make::Yes {
            self.confirm_session(op).await?;
            make = self.make_of(&key);
        }
        loop {
            match self.try_repeat(lane, repeat, make, op).await {
                Err(error) if error.code == Code::ChunkUnknown && !op.deadline.left(&self.env).is_zero() => {}
                done => return done,
            }
            match self.make_again(lane, &key, op).await {
                Ok(Some(again)) => make = again,
                Ok(None) => {
                    self.give_up_chunk(lane, &key);
                    return Ok(());
                }
                Err(error) if error.code == Code::ChunkLost => {
                    self.lose_with_chunk(lane, &key, error);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn try_repeat(&self, lane: &Lane, repeat: &Repeat, make: Make, op: Op) -> Result<()> {
        let key = repeat.key;
        let chain_epoch = self.servers.epoch(key.container);
        // The session's before the look: what is there then was written under it, or under none that has ended, see `lost`.
        let session = self.session.token();
        let lease_gen = self.lease_token(key.inode)?;
        if !lane.retained(|retain| retain.minds(key.chunk)) {
            return Ok(());
        }
        let token = Token { trunc_gen: repeat.generation, chain_epoch, lease_gen, ..session };
        let message = WriteChunk {
            chunk: key.chunk,
            container: key.container,
            offset: repeat.offset,
            chunk_bytes: key.chunk_bytes,
            inode: key.inode,
            index: key.index,
            cuts: repeat.cuts.clone(),
            sync: false,
            make,
            kept_beside: false,
            // What is repeated late may be another's to read by then.
            alone: false,
            once: None,
        };
        let written = self.ask(lane, token, message, repeat.data.clone(), op).await;
        if written.as_ref().is_err_and(|error| error.code == Code::StaleLease) {
            self.refused_lease(key.inode, token);
        }
        let (answer, _) = written?;
        self.counters.writes_repeated.fetch_add(1, Relaxed);
        let receipt = Receipt { incarnation: answer.incarnation, sequence: answer.sequence, stable: answer.stable };
        lane.retained(|retain| retain.repeated(repeat, receipt));
        Ok(())
    }

    /// Everything answered of this file so far becomes stable.
    pub async fn sync_inode(&self, inode: &Inode, op: Op) -> Result<()> {
        self.sync_file(inode.id, op).await
    }

    /// The same for one that may not be open here any more.
    pub async fn sync_file(&self, id: InodeId, op: Op) -> Result<()> {
        let lanes = self.servers.lanes();
        let syncs = lanes.iter().map(|lane| self.sync_inode_at(lane, id, op)).collect();
        join_all(syncs).await.into_iter().collect()
    }

    async fn sync_inode_at(&self, lane: &Lane, id: InodeId, op: Op) -> Result<()> {
        let (order, chunks) = lane.retained(|retain| (retain.order(), retain.chunks_of(id, retain.order())));
        let (mut op, mut seen) = (op, lane.answered());
        let mut attempts = Attempts::until(op.deadline);
        let (mut chunks, mut waiting) = (chunks, None);
        // A chunk whose old bytes were overwritten meanwhile is synced all the same: until a sync found the server
        // as it was at the last write, nothing says that the old ones were stable.
        while !chunks.is_empty() {
            match self.sync_lane(lane, &chunks, op).await {
                Ok(true) => {
                    self.came_on(id);
                    chunks = lane.retained(|retain| retain.chunks_of(id, order));
                }
                Ok(false) => lane.retained(|retain| chunks.retain(|chunk| retain.minds(*chunk))),
                Err(error) => {
                    let enter = || {
                        let entered = self.waits.enter(&self.env, format_args!("sync of inode {id}"), &error);
                        entered.of(id).within(lane.container().unwrap_or_default())
                    };
                    waiting.get_or_insert_with(enter);
                    let _ = self.refresh_servers(op).await;
                    if let Err(error) = attempts.again(&self.env, named(error, id)).await {
                        // Much may be on its way to its copies, over a slow one.
                        let answered = lane.answered();
                        if error.retry() == Retry::No || std::mem::replace(&mut seen, answered) == answered {
                            return Err(error);
                        }
                        self.came_on(id);
                        op = self.op(op.trace);
                        attempts = Attempts::until(op.deadline);
                    }
                }
            }
        }
        Ok(())
    }

    /// Who waits for the file's turn is to know that what has it comes on.
    fn came_on(&self, id: InodeId) {
        if let Some(inode) = self.inodes.get(id) {
            inode.state.lock().answered += 1;
        }
    }

    /// Everything answered so far, of all files, becomes stable.
    pub async fn sync_all(&self, op: Op) -> Result<()> {
        for lane in self.servers.lanes() {
            let mut attempts = Attempts::until(op.deadline);
            let (order, mut chunks) = lane.retained(|retain| (retain.order(), retain.chunks()));
            while !chunks.is_empty() {
                match self.sync_lane(&lane, &chunks, op).await {
                    Ok(true) => chunks = lane.retained(|retain| retain.chunks_until(order)),
                    Ok(false) => lane.retained(|retain| chunks.retain(|chunk| retain.minds(*chunk))),
                    Err(error) => attempts.again(&self.env, error).await?,
                }
            }
        }
        Ok(())
    }
}

fn named(error: Error, id: InodeId) -> Error {
    Error::new(error.code, format!("sync of inode {id}: {}", error.subject()), error.cause())
}
