use crate::DataServerConfig;
use crate::budget::Budget;
use crate::chain::{ChainLinks, Chains, Stands, of_bytes};
use crate::core::{Call, Core};
use crate::gate::Gate;
use crate::grown::Grown;
use crate::lane::Lanes;
use crate::late::Late;
use crate::local::{self, Local};
use crate::metadata::MetadataKeeper;
use crate::metrics;
use crate::newest::Newest;
use crate::once::Writes;
use crate::regions::Regions;
use crate::reservations::Reservations;
use crate::stats::{DataCounters, Stats, count};
use crate::syncs::Syncs;
use crate::work::Work;
use braid_api::data::{CopyState, DataAnswer, DataRequest};
use braid_api::{Context, DataNode, Result};
use braid_data_store::{ChunkStore, StoreIdentity, StoreUsage};
use braid_env::{Env, OpenMode, TaskHandle};
use braid_types::{ByteRange, ChunkId, ContainerId, ServerId};
use braid_wire::BufferPool;
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// A running data server. Its background tasks end soon after the last reference is gone.
pub struct DataServer(pub(crate) Arc<Core>);

impl DataServer {
    /// Serves `store`, which is `identity`'s, under a new incarnation.
    pub fn start(env: Env, store: Arc<dyn ChunkStore>, identity: StoreIdentity, config: DataServerConfig) -> Arc<Self> {
        let (stats, lanes) = (Arc::new(Stats::default()), Arc::new(Lanes::new(config.lanes_max)));
        let syncs = Syncs::new(env.clone(), store.clone(), lanes.clone(), stats.clone(), config.syncs_at_once);
        // 0 stands for "not known" in hellos and answers.
        let incarnation = env.random.u64().max(1);
        let limits = config.chain_limits.clone();
        let (once, regions) = (Arc::new(Writes::default()), Arc::new(Regions::default()));
        let (gate, newest) = (Gate::new(identity.server, env.clock.clone()), Arc::new(Newest::default()));
        let late = Late { gate: gate.clone(), newest: newest.clone() };
        let who = (identity.server, incarnation);
        let chains = Chains::new(env.clone(), store.clone(), who, limits, (once.clone(), late, regions.clone()));
        let core = Arc::new(Core {
            incarnation,
            chains,
            deletions: AtomicU64::new(0),
            started: env.clock.now(),
            id: identity.server,
            cluster: identity.cluster,
            gate,
            budget: Budget::new(config.memory_bytes),
            pool: BufferPool::new(config.pool_bytes),
            work: Work::new(env.clock.clone()),
            reservations: Reservations::default(),
            grown: Grown::default(),
            newest,
            once,
            regions,
            usage: Mutex::new(StoreUsage::default()),
            registered: AtomicBool::new(false),
            holdings: Default::default(),
            syncs,
            lanes,
            stats,
            metadata: OnceLock::new(),
            env,
            store,
            config,
        });
        core.keep_stable();
        core.keep_scrubbing();
        Arc::new(DataServer(core))
    }

    pub fn id(&self) -> ServerId {
        self.0.id
    }

    /// Of this start; answers carry it, so that a client notices a restart.
    pub fn incarnation(&self) -> u64 {
        self.0.incarnation
    }

    pub fn store(&self) -> &Arc<dyn ChunkStore> {
        &self.0.store
    }

    /// The metadata server knew this server at the last sign of life.
    pub fn is_registered(&self) -> bool {
        self.0.registered.load(Relaxed)
    }

    /// Takes part in chains from now on, until the server is dropped or the task ended. Without this it refuses every
    /// call to chunks with several copies.
    pub fn join_chains(&self, links: Arc<dyn ChainLinks>) -> TaskHandle {
        self.0.chains.join(links)
    }

    /// Keeps a copy of the metadata in `dir` when a metadata server asks for it. Without this it refuses. Blocks.
    pub fn keep_metadata(&self, dir: &Path) -> std::io::Result<()> {
        let keeper = MetadataKeeper::open(self.0.env.clone(), dir, self.0.id)?;
        keeper.keep_verifying();
        // A second call changes nothing.
        let _ = self.0.metadata.set(keeper);
        Ok(())
    }

    /// Hands the files of chunks to readers on this host, at the Unix socket `socket`, for as long as the server is there. To be called before the
    /// first request comes: it waits until nobody believes any more what a process of before handed out, which left `mark` there if it
    /// was killed.
    pub async fn hand_out(&self, mark: &Path, socket: &Path) -> std::io::Result<TaskHandle> {
        let core = &self.0;
        let (env, mark) = (core.env.clone(), mark.to_owned());
        let disk = env.disk.clone();
        let was_there = env.blocking(move || match disk.open(&mark, OpenMode::CreateNew) {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(true),
            Err(error) => Err(error),
        });
        if was_there.await? {
            env.sleep(local::UNTIL).await;
        }
        let local = Arc::new(Local::new(env.clone(), socket.to_owned())?);
        let serving = env.transport.hand_out(socket, local.clone()).await?;
        core.chains.hands_out(local.clone());
        let ends = Arc::downgrade(core);
        core.store.tell_of_renewals(Box::new(move |chunk| {
            if let Some(core) = ends.upgrade() {
                core.chains.end_local(chunk);
            }
        }));
        let weak = Arc::downgrade(core);
        let extending = {
            let env = env.clone();
            async move {
                while let Some(until) = weak.upgrade().map(|core| core.chains.serves_until()) {
                    if let Err(error) = local.extend(until) {
                        tracing::error!(%error, "the board for readers on this host cannot be written");
                        return;
                    }
                    env.sleep(local::EXTENDED_EVERY).await;
                }
            }
        };
        Ok(env.spawn("readers on this host", async move {
            tokio::select! {
                () = extending => {}
                () = serving => {}
            }
        }))
    }

    /// How up to `limit` copies after `after` stand here, by id.
    pub fn copies(&self, after: ChunkId, limit: usize) -> Vec<CopyState> {
        self.0.chains.list(after, limit)
    }

    /// What it would do with calls for these bytes of a chunk with several copies at this moment: for checks.
    pub fn stands(&self, container: ContainerId, chunk: ChunkId, bytes: ByteRange) -> Stands {
        self.0.chains.stands(container, chunk, &of_bytes(bytes))
    }

    pub fn counters(&self) -> DataCounters {
        self.0.stats.snapshot()
    }

    /// The metrics as Prometheus reads them. Waits for nothing: what the store occupies is as of the last second.
    pub fn metrics_text(&self) -> String {
        let core = &self.0;
        let gauges = metrics::Gauges {
            usage: *core.usage.lock(),
            in_process: core.work.count(),
            memory_held_bytes: core.budget.bytes_held(),
            mended_blocks: core.chains.mended(),
            moves: core.chains.moves(),
            checkpoints: core.chains.agreed(),
            copied_bytes: core.chains.copied_bytes(),
            lacks: core.chains.lacks(),
            lacking_ms: core.chains.behind().as_millis() as u64,
            registered: self.is_registered(),
            write_seq: core.store.write_seq(),
            stable_seq: core.store.stable_seq(),
            regions: core.regions.counts(),
        };
        let mut text = metrics::text(&core.stats.snapshot(), &gauges);
        if let Some(keeper) = core.metadata.get() {
            metrics::metadata(&mut text, keeper);
        }
        text
    }

    /// Refuses what comes from now on, lets what is being applied end, makes everything stable and closes the store. An error means that
    /// the stop was not clean.
    pub async fn stop(&self) -> Result<()> {
        let core = &self.0;
        core.gate.close().await;
        if let Some(local) = core.chains.local.get() {
            local.close();
        }
        core.sync_all().await?;
        let store = core.store.clone();
        let closed = core.env.blocking(move || store.close()).await;
        closed.map_err(|error| core.error(ChunkId(0), &error))
    }
}

impl DataNode for DataServer {
    async fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        let core = &self.0;
        let now = core.env.clock.now();
        let call = Call::new(&cx, request.name(), now);
        // A request takes its place in the order when it is first polled, so that must not end without a look at
        // it because the task that reads the connection has used up what tokio lets a task do at a time.
        let work = core.env.timeout(call.until.since(now), core.dispatch(&call, request, payload));
        let done = tokio::task::unconstrained(work).await;
        let done = done.unwrap_or_else(|_| Err(core.too_late(&call)));
        if done.is_err() {
            count(&core.stats.errors, 1);
        }
        done
    }
}
