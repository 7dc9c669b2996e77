//! A data server on a directory.

use super::listen;
use super::ready::ReadyFile;
use super::serving::Serving;
use super::signals::Asked;
use crate::config::Config;
use crate::http::{self, Pages};
use crate::metrics::Metrics;
use crate::{connect, roles};
use anyhow::{Context, Result};
use braid_api::admin::AdminQuery;
use braid_api::data::DataRequest;
use braid_api::meta::GetServers;
use braid_api::{Code, Context as CallContext, Namespace};
use braid_data_server::{Announcement, DataServer, SharedLinks, WireLinks, enrol};
use braid_data_store::{DiskStore, StoreIdentity, StoreOptions};
use braid_env::TaskHandle;
use braid_types::ServerId;
use braid_wire::{DataNodeService, Identity, Role, WirePeers, WireStats};
use std::sync::Arc;
use std::time::Duration;

/// Below the data directory: a copy of the metadata's rows.
const METADATA_DIR: &str = "metadata";

/// Where files are handed out, and what says that a process did.
const HANDING_SOCKET: &str = "local";
const HANDING_MARK: &str = "handing";

/// How long a start waits for the metadata server's word on whether the directory is of its cluster.
const FIRST_ASK: Duration = Duration::from_secs(1);

pub async fn serve(config: Config, ready: ReadyFile) -> Result<()> {
    let settings = &config.data;
    let env = braid_env::os::env_with(settings.io_threads);
    let endpoint = connect::endpoint(&env, Role::Data);
    // A directory of another role or of a newer version is refused before anybody is asked for anything.
    super::place::for_data(&settings.dir)?;
    let known = StoreIdentity::read(&*env.disk, &settings.dir)?;
    if let Some(known) = known {
        let identity = Identity { cluster: known.cluster, server: known.server, ..endpoint.identity() };
        endpoint.set_identity(identity);
    }

    let listeners = listen(&env, &roles::addresses(&settings.listen)?).await?;
    let local: Vec<String> = listeners.iter().map(|l| l.local().to_string()).collect();
    let addresses = if settings.advertise.is_empty() { local.clone() } else { settings.advertise.clone() };
    let (rack, disk) = (settings.rack.clone(), settings.disk.clone());
    let announcement = Announcement { addresses, host: config.host(), rack, disk, clean_stop: false };
    let control = Arc::new(connect::namespace(&endpoint, &config));
    if let Some(known) = known
        && let Some(refusal) = refused(&*control, known.server).await
    {
        let (dir, what) = (settings.dir.display(), "is of another cluster: check data.dir and cluster.metadata");
        let is_gone = refusal.code == Code::Decommissioned;
        let what = if is_gone { "is of a data server that was decommissioned" } else { what };
        return Err(refusal).with_context(|| format!("{dir} {what}"));
    }
    let identity = enrol(&env, &*control, known, &announcement).await?;

    let (disk, dir) = (env.disk.clone(), settings.dir.clone());
    #[cfg(feature = "planted")]
    let disk = crate::planted::data(disk);
    let opened = env.blocking(move || DiskStore::open_or_create(disk, &dir, identity, StoreOptions::default())).await;
    let store = opened.context("cannot open the data directory")?;
    let server = DataServer::start(env.clone(), Arc::new(store), identity, settings.server());
    let (keeper, keeps) = (server.clone(), settings.dir.join(METADATA_DIR));
    env.blocking(move || keeper.keep_metadata(&keeps)).await.context("cannot open the copy of the metadata")?;
    endpoint.set_identity(Identity {
        cluster: identity.cluster,
        server: identity.server,
        incarnation: server.incarnation(),
        ..endpoint.identity()
    });

    // What is handed out to clients on this host goes by a socket of its own; without it they ask for each read.
    let handing = match settings.local_reads {
        true => hand_out(&server, &settings.dir).await,
        false => None,
    };
    let stats = WireStats::new(DataRequest::NAMES);
    let pages = Arc::new(DataPages { server: server.clone(), stats: stats.clone() });
    ready.write_pages(http::serve("data.http", &settings.http, pages).await?)?;
    // Before the first request: what ended while this server was away is not known here yet.
    let heartbeats = server.report_to(control, announcement);
    let serving = Serving::begin(&endpoint, listeners, DataNodeService(server.clone()), &stats);
    // Of its own, as that of the heartbeats is: leases are never behind anything.
    let leader = Arc::new(connect::namespace(&endpoint, &config));
    let (words, content) = (WirePeers::new(&endpoint), WirePeers::new(&endpoint));
    let links = WireLinks::new(env.clone(), identity.server, words, content, leader);
    let chains = server.join_chains(Arc::new(SharedLinks(links)));
    tracing::info!(server = identity.server.0, "data server serves at {}", local.join(", "));
    ready.write(&local.join(" "))?;
    Asked::listen()?.wait().await;
    ready.withdraw();
    tracing::info!("data server stops: everything is synced");
    heartbeats.abort();
    chains.abort();
    let stopped = server.stop().await;
    serving.end().await;
    if let Some(handing) = handing.filter(|_| stopped.is_ok()) {
        handing.abort();
        let _ = std::fs::remove_file(settings.dir.join(HANDING_MARK));
    }
    stopped.context("the stop was not clean; the next start checks what was being written")
}

/// Hands the files of chunks to clients on this host, if that can be.
async fn hand_out(server: &Arc<DataServer>, dir: &std::path::Path) -> Option<TaskHandle> {
    match server.hand_out(&dir.join(HANDING_MARK), &dir.join(HANDING_SOCKET)).await {
        Ok(handing) => Some(handing),
        Err(error) => {
            tracing::warn!(%error, "clients on this host ask for each read: no files are handed out");
            None
        }
    }
}

/// Does the metadata server say now that this server is none of its cluster, or none any more? One that is down or slow says
/// nothing, and is no reason not to serve: then the heartbeats tell it later, in the log.
async fn refused(control: &impl Namespace, server: ServerId) -> Option<braid_api::Error> {
    let cx = || CallContext { deadline: FIRST_ASK, ..CallContext::default() };
    let refusal = |error: &braid_api::Error| matches!(error.code, Code::WrongCluster | Code::Decommissioned);
    match control.call(cx(), GetServers {}).await {
        Ok(all) if all.servers.iter().any(|info| info.id == server) => None,
        Ok(_) => control.call(cx(), AdminQuery::Drain { server }).await.err().filter(refusal),
        Err(error) => Some(error).filter(refusal),
    }
}

struct DataPages {
    server: Arc<DataServer>,
    stats: Arc<WireStats>,
}

impl Pages for DataPages {
    fn health(&self) -> (bool, String) {
        let registered = self.server.is_registered();
        let state = if registered { "in touch with" } else { "without" };
        (registered, format!("data server {}: {state} a metadata server", self.server.id()))
    }

    fn metrics(&self) -> String {
        let mut metrics = Metrics(self.server.metrics_text());
        metrics.wire("braid_data", &self.stats);
        metrics.0
    }
}
