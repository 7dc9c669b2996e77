//! What every operation needs: store, lanes, gate, budget, counters.

use crate::budget::Budget;
use crate::chain::Chains;
use crate::error;
use crate::gate::Gate;
use crate::grown::Grown;
use crate::lane::{Lane, Lanes, Seen, Turn};
use crate::metadata::MetadataKeeper;
use crate::newest::Newest;
use crate::once::Writes;
use crate::regions::Regions;
use crate::reservations::Reservations;
use crate::stats::Stats;
use crate::syncs::{Pending, Syncs};
use crate::work::{Work, WorkGuard};
use crate::{DataServerConfig, versions};
use braid_api::data::Make;
use braid_api::{Code, Context, Error, Result};
use braid_data_store::{ChunkStore, Cuts, StoreError, StoreUsage, WriteInfo};
use braid_env::{Env, Monotonic};
use braid_report::Holdings;
use braid_types::{
    ByteRange, ChunkId, ChunkIndex, ClusterId, ContainerId, InodeId, ServerId, Token, TraceId, TruncGen, Version,
};
use braid_wire::{BufferPool, CALL_DEADLINE_DEFAULT};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

/// Under which changes of chunks with one copy are numbered, whatever their container.
pub(crate) const ONE_COPY: ContainerId = ContainerId(0);

pub(crate) struct Core {
    pub env: Env,
    pub store: Arc<dyn ChunkStore>,
    pub id: ServerId,
    pub cluster: ClusterId,
    pub incarnation: u64,
    /// Deletions of chunks since the start.
    pub deletions: AtomicU64,
    pub started: Monotonic,
    pub config: DataServerConfig,
    pub gate: Arc<Gate>,
    pub lanes: Arc<Lanes>,
    pub budget: Budget,
    pub pool: Arc<BufferPool>,
    pub syncs: Arc<Syncs>,
    pub reservations: Reservations,
    pub grown: Grown,
    pub newest: Arc<Newest>,
    pub once: Arc<Writes>,
    pub regions: Arc<Regions>,
    pub work: Arc<Work>,
    pub chains: Arc<Chains>,
    pub stats: Arc<Stats>,
    /// A copy of the metadata, where this server may keep one.
    pub metadata: OnceLock<MetadataKeeper>,
    /// As of the last look, at most a second old while the server is in touch.
    pub usage: Mutex<StoreUsage>,
    pub registered: AtomicBool,
    /// The chunks that were here when they were last looked for.
    pub holdings: tokio::sync::Mutex<Holdings>,
}

/// One request, apart from its message.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub token: Token,
    /// Its place among the changes of its session here, and the first of those that are waited for; 0 is not used.
    pub place: u64,
    pub settled: u64,
    pub what: &'static str,
    /// The file operation for which it is asked.
    pub trace: TraceId,
    pub until: Monotonic,
}

impl Call {
    pub fn new(cx: &Context, what: &'static str, now: Monotonic) -> Call {
        let deadline = if cx.deadline.is_zero() { CALL_DEADLINE_DEFAULT } else { cx.deadline };
        let (token, place) = (cx.token, cx.request.0);
        let settled = place.saturating_sub(cx.behind.into());
        Call { token, place, settled, what, trace: cx.trace, until: now + deadline }
    }

    /// Asked by a metadata server, which speaks for no session and need not know the file's generation.
    pub fn any_trunc_gen(&self) -> bool {
        self.token.session.0 == 0 && self.token.trunc_gen == TruncGen(0)
    }

    /// Asked of a snapshot: the chunk may have been cut since for a file that is not that one, and shows what it has.
    pub fn is_before(&self, seen: TruncGen) -> bool {
        self.token.snapshot != 0 && self.token.trunc_gen < seen
    }

    /// The chunk is known to have seen this call's generation, so that nothing is to be cut.
    pub fn has_nothing_to_cut(&self, seen: Seen) -> bool {
        seen.trunc_gen == self.token.trunc_gen || self.any_trunc_gen() || self.is_before(seen.trunc_gen)
    }
}

/// What a change says beside what it does.
pub(crate) struct Change<'a> {
    pub container: ContainerId,
    /// Whose data it is; inode 0 if the request does not say.
    pub file: (InodeId, ChunkIndex),
    /// 0 if the chunk must exist.
    pub chunk_bytes: u64,
    pub cuts: &'a [(TruncGen, u64)],
    /// What it touches.
    pub range: ByteRange,
    /// As in [`WriteInfo`].
    pub kept_beside: bool,
}

impl Core {
    pub fn error(&self, chunk: ChunkId, error: &StoreError) -> Error {
        error::of_store(self.id, chunk, error)
    }

    pub fn invalid(&self, chunk: ChunkId, cause: impl std::fmt::Display) -> Error {
        Error::new(Code::Invalid, format_args!("data server {}, chunk {chunk}", self.id), cause)
    }

    pub fn too_late(&self, call: &Call) -> Error {
        let subject = format_args!("{} at data server {}", call.what, self.id);
        Error::new(Code::DeadlineExceeded, subject, "it was not done in time")
    }

    /// May a chunk that is not here be made? To be asked by the holder of its turn: a deletion counts before it gives
    /// the turn on.
    pub fn may_make(&self, make: Make) -> bool {
        match make {
            Make::Yes => true,
            Make::No => false,
            Make::Lost { incarnation, deletions } => {
                (incarnation, deletions) == (self.incarnation, self.deletions.load(SeqCst))
            }
        }
    }

    pub fn working(&self, call: &Call, chunk: ChunkId, stage: &'static str) -> WorkGuard {
        self.work.enter(call, chunk, stage)
    }

    /// The chunk's turn. Must be called before the first await of a request: that makes the order of arrival.
    pub async fn turn(&self, call: &Call, lane: &Arc<Lane>) -> Turn {
        match lane.try_turn() {
            Some(turn) => turn,
            None => {
                let _working = self.working(call, lane.chunk, "earlier changes of the chunk");
                lane.turn().await
            }
        }
    }

    /// Runs `work`, which may wait for the disk, on an I/O thread; not at all if the call's time is over by then.
    pub async fn on_disk<T: Send + 'static>(
        self: &Arc<Self>,
        call: &Call,
        work: impl FnOnce(&Core) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (core, call) = (self.clone(), *call);
        let run = move || if core.env.clock.now() >= call.until { Err(core.too_late(&call)) } else { work(&core) };
        self.env.blocking(run).await
    }

    /// Lets `change` work on the store with the next version, and remembers what it says. Waits for the disk unless
    /// the lane knows the chunk.
    pub fn apply(
        &self,
        turn: &mut Turn,
        token: &Token,
        change: &Change,
        apply: impl FnOnce(&dyn ChunkStore, &WriteInfo) -> braid_data_store::Result<braid_data_store::Written>,
    ) -> Result<braid_data_store::Written> {
        let chunk = turn.lane.chunk;
        // Before the write: if a sync begins during it, this does not count as prepared.
        let mark = self.lanes.mark(&turn.lane);
        // As far as is known: one that is handed out for nothing is handed out again.
        let is_cut = turn.lane.seen().is_none_or(|seen| seen.trunc_gen != token.trunc_gen);
        let last = match turn.lane.seen() {
            Some(seen) => seen.version,
            None => match self.store.stat(chunk) {
                Ok(stat) => stat.version,
                Err(StoreError::NoSuchChunk(_)) => Version::default(),
                Err(error) => return Err(self.error(chunk, &error)),
            },
        };
        let info = WriteInfo {
            container: change.container,
            chunk_bytes: change.chunk_bytes,
            version: versions::next(last, token),
            inode: change.file.0,
            index: change.file.1,
            cuts: Cuts { trunc_gen: token.trunc_gen, list: change.cuts },
            kept_beside: change.kept_beside,
        };
        let written = apply(&*self.store, &info).map_err(|error| {
            turn.lane.forget();
            self.error(chunk, &error)
        })?;
        if is_cut {
            self.chains.end_local(chunk);
        }
        turn.lane.saw(written.version, token.trunc_gen);
        turn.prepared.add(mark, change.range);
        Ok(written)
    }

    /// Applies cuts the chunk may not have seen.
    pub fn cut(&self, chunk: ChunkId, call: &Call, cuts: &[(TruncGen, u64)]) -> Result<()> {
        if call.any_trunc_gen() {
            return Ok(());
        }
        let cuts = Cuts { trunc_gen: call.token.trunc_gen, list: cuts };
        let before = self.store.stat(chunk).map(|stat| stat.trunc_gen).ok();
        if before.is_some_and(|seen| call.is_before(seen)) {
            return Ok(());
        }
        self.store.apply_cuts(chunk, &cuts).map_err(|error| self.error(chunk, &error))?;
        if before != Some(cuts.trunc_gen) {
            self.chains.end_local(chunk);
        }
        Ok(())
    }

    pub async fn synced(&self, chunk: ChunkId, pending: Pending) -> Result<()> {
        match pending.done().await {
            Some(outcome) => outcome.map_err(|error| self.error(chunk, &error)),
            None => Err(Error::new(Code::NotServing, format_args!("data server {}", self.id), "it is stopping")),
        }
    }
}
