//! The metadata server on the embedded engine.

use super::anew::End;
use super::handover::Keeper;
use super::listen;
use super::metadata_pages::MetadataPages;
use super::queries::QueryRunner;
use super::ready::ReadyFile;
use super::serving::Serving;
use super::signals::Asked;
use crate::config::Config;
use crate::http;
use crate::{connect, roles};
use anyhow::{Context, Result, bail};
use braid_api::meta::{Mark, MetaAnswer, MetaRequest};
use braid_api::{AnyPeers, Code, Context as CallContext, Error, Namespace};
use braid_client::{ClientConfig, Ways};
use braid_env::Env;
use braid_meta_engine::{AnyEngine, Copied, Engine, HeldEngine};
use braid_meta_engine_embedded::EmbeddedEngine;
use braid_meta_namespace::FormatCluster;
use braid_meta_server::{Backing, CopyConfig, CopyLimits, CopySet, Handovers, MetaServer, Queries, Registrations};
use braid_types::ClusterId;
use braid_wire::{Endpoint, Identity, NamespaceService, Role, WireMetaPeers, WirePeers, WireStats};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;

pub async fn serve(config: Config, ready: ReadyFile, is_anew: bool) -> Result<End> {
    match config.metadata.database.is_empty() {
        true => serve_embedded(config, ready).await.map(|()| End::Asked),
        false => super::metadata_sql::serve(config, ready, is_anew).await,
    }
}

async fn serve_embedded(config: Config, ready: ReadyFile) -> Result<()> {
    let env = Env::os();
    let settings = &config.metadata;
    let policy = settings.policy().map_err(anyhow::Error::msg)?;
    super::place::for_metadata(&settings.dir)?;
    std::fs::create_dir_all(&settings.dir)
        .with_context(|| format!("cannot make the metadata directory {}", settings.dir.display()))?;
    let options = settings.engine();
    #[cfg(feature = "planted")]
    let options = crate::planted::metadata(options);
    let engine = EmbeddedEngine::open(&settings.dir, options)
        .with_context(|| format!("cannot open the metadata in {}", settings.dir.display()))?;
    let endpoint = connect::endpoint(&env, Role::Metadata);
    let peers = WirePeers::new(&endpoint);
    let mut fresh = ClusterId::default();
    env.random.fill(&mut fresh.0);
    let engine = Arc::new(engine);
    let format = FormatCluster { cluster: fresh, policy, now: env.clock.wall() };
    // Who connects from now on is told which cluster this is, if there is one already.
    let known = engine.read(0, format).await.ok();
    if let Some(cluster) = known {
        endpoint.set_identity(Identity { cluster, ..endpoint.identity() });
    }
    let door = Arc::new(Door::default());
    let rows = AnyEngine::new(engine.clone());
    let queries = Arc::new(QueryRunner::new(&env, &rows));
    let held = HeldEngine::over(rows.clone());
    let keeper = Keeper::new(&env, held.clone(), rows);
    let begin = async |told: Option<String>| -> Result<_> {
        let tell = || told.map_or(Ok(()), |local| ready.write(&local));
        let copies = lead(&env, &endpoint, &engine, &config, &door, tell).await?;
        let (own, times) = (env.clone(), settings.times());
        let queries = Some(queries.clone() as Arc<dyn Queries>);
        let handovers = Some(keeper.clone() as Arc<dyn Handovers>);
        let backing = Backing { copies: copies.clone(), queries, handovers, ..Backing::default() };
        let start = MetaServer::start_with(own, held.engine(), AnyPeers::new(peers), times, fresh, policy, backing);
        let server = tokio::select! {
            server = start => server?,
            () = engine.ended() => {
                bail!("the metadata in {} cannot be started, the log says why above", settings.dir.display())
            }
        };
        endpoint.set_identity(Identity { cluster: server.cluster(), ..endpoint.identity() });
        door.open(server.clone());
        Ok((server, copies))
    };
    let mut begin = Some(begin);
    let mut begun = None;
    // Where there is nothing to wait for, nobody connects before everything is there.
    if (known.is_none() || (settings.copies == 0 && engine.stored_set()?.is_none()))
        && let Some(begin) = begin.take()
    {
        begun = Some(begin(None).await?);
    }
    let addresses = roles::addresses(&settings.listen)?;
    let listeners = listen(&env, &addresses).await?;
    let local: Vec<String> = listeners.iter().map(|l| l.local().to_string()).collect();
    let stats = WireStats::new(MetaRequest::NAMES);
    let serving = Serving::begin(&endpoint, listeners, NamespaceService(door.clone()), &stats);
    let mut asked = Asked::listen()?;
    if let Some(begin) = begin {
        begun = tokio::select! {
            done = begin(Some(local.join(" "))) => Some(done?),
            () = asked.wait() => None,
        };
    }
    let Some((server, copies)) = begun else {
        shut(&env, &engine).await;
        return Ok(());
    };
    let pages = MetadataPages { server: server.clone(), stats: stats.clone(), copies: copies.clone() };
    ready.write_pages(http::serve("metadata.http", &settings.http, Arc::new(pages)).await?)?;
    let moves = move_chunks(&env, &endpoint, &door);
    tracing::info!(cluster = %server.cluster(), "metadata server serves at {}", local.join(", "));
    ready.write(&local.join(" "))?;
    tokio::select! {
        () = asked.wait() => {}
        // Only a start can go on from here: clients wait for it, keep what they were answered for, and send it again.
        () = engine.ended() => bail!(
            "the metadata in {} takes no more changes, the log says why above: start the metadata server again",
            settings.dir.display()
        ),
        to = keeper.gone() => {
            ready.withdraw();
            // Whoever moved them gets its answer; others wait for more than this.
            queries.stop().await;
            let _ = env.timeout(LAST_ANSWERS, serving.end()).await;
            bail!("the metadata in {} is served from {to} now", settings.dir.display());
        }
    }
    ready.withdraw();
    tracing::info!("metadata server stops");
    moves.abort();
    queries.stop().await;
    serving.end().await;
    // What was answered early becomes durable, and the next start waits for nobody.
    match copies {
        None => server.close().await?,
        Some(copies) => {
            // Data servers may be down already: then the next start waits for what clients keep.
            if env.timeout(CLOSE, server.close()).await.is_err() {
                tracing::warn!("the copies of the metadata do not confirm the last changes; they are on this disk");
            }
            copies.stop();
        }
    }
    shut(&env, &engine).await;
    Ok(())
}

/// Whoever still has the engine can only read.
async fn shut(env: &Env, engine: &Arc<EmbeddedEngine>) {
    let engine = engine.clone();
    let shut = tokio::task::spawn_blocking(move || engine.shut());
    if env.timeout(CLOSE, shut).await.is_err() {
        tracing::warn!("the metadata store is not closed in order: the next start applies its log");
    }
}

/// Begins to lead the copies of the metadata, if there are any or are to be any. That may take until data servers are back: so
/// whoever waits for this process is told meanwhile that it is there.
async fn lead(
    env: &Env,
    endpoint: &Endpoint,
    engine: &Arc<EmbeddedEngine>,
    config: &Config,
    door: &Door,
    tell: impl FnOnce() -> Result<()>,
) -> Result<Option<Arc<CopySet>>> {
    let wanted = config.metadata.copies;
    if wanted == 0 && engine.stored_set()?.is_none() {
        return Ok(None);
    }
    let copies = CopyConfig { wanted, host: config.host(), limits: CopyLimits::default() };
    let way = || AnyPeers::new(WirePeers::new(endpoint));
    let start = CopySet::start(env.clone(), engine.clone(), way(), way(), copies, &door.registrations);
    let mut start = std::pin::pin!(start);
    let begun = match env.timeout(SOON, &mut start).await {
        Ok(begun) => begun,
        Err(_) => {
            tell()?;
            start.await
        }
    };
    Ok(Some(begun?))
}

/// Who moves chunks with one copy needs little: it reads and writes a few at a time. `door`: the metadata server in this process.
pub(super) fn move_chunks<N: Namespace>(env: &Env, endpoint: &Endpoint, door: &Arc<N>) -> JoinHandle<()> {
    let config = ClientConfig { local_reads: false, atime: false, ..ClientConfig::default() };
    let endpoint = endpoint.clone();
    // Others may serve beside this one.
    let ways = Ways { any: door.clone(), each: Some(Arc::new(WireMetaPeers::new(&endpoint))) };
    let peers = move || WirePeers::new(&endpoint);
    tokio::spawn(braid_client::keep_moving_among(env.clone(), ways, peers, config))
}

/// For making everything durable at a stop, where that needs data servers.
const CLOSE: Duration = Duration::from_secs(5);

/// For answers under way, where nothing is to be made durable any more.
pub(super) const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// A start that takes no longer is not announced before it is done.
const SOON: Duration = Duration::from_millis(500);

/// What is listened at before the metadata server may answer.
#[derive(Default)]
struct Door {
    server: OnceLock<Arc<MetaServer>>,
    registrations: Registrations,
}

impl Door {
    fn open(&self, server: Arc<MetaServer>) {
        let _ = self.server.set(server);
    }

    fn refuse(&self, request: &MetaRequest) -> Error {
        // Data servers that have moved are found by this.
        if let MetaRequest::RegisterServer(m) = request {
            self.registrations.note(m);
        }
        let cause = "it waits for the data servers that keep copies of the metadata";
        Error::new(Code::NotServing, "the metadata server", cause)
    }
}

impl Namespace for Door {
    async fn execute(&self, cx: CallContext, request: MetaRequest) -> braid_api::Result<MetaAnswer> {
        match self.server.get() {
            Some(server) => server.execute(cx, request).await,
            None => Err(self.refuse(&request)),
        }
    }

    async fn execute_early(&self, cx: CallContext, request: MetaRequest) -> braid_api::Result<(MetaAnswer, Mark)> {
        match self.server.get() {
            Some(server) => server.execute_early(cx, request).await,
            None => Err(self.refuse(&request)),
        }
    }
}
