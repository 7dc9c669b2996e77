//! The metadata server on the embedded engine.

use super::ready::ReadyFile;
use super::{listen, signals};
use crate::config::Config;
use crate::http::{self, Pages};
use crate::{connect, roles};
use anyhow::{Context, Result};
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::meta::MetaRequest;
use braid_api::{Context as CallContext, Namespace};
use braid_env::Env;
use braid_meta_engine_embedded::EmbeddedEngine;
use braid_meta_server::MetaServer;
use braid_types::ClusterId;
use braid_wire::{Identity, NamespaceService, Role, WirePeers, WireStats, serve as serve_wire};
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::sync::watch;

type Server = MetaServer<EmbeddedEngine, WirePeers>;

pub async fn serve(config: Config, ready: ReadyFile) -> Result<()> {
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
    let server = MetaServer::start(env.clone(), engine.clone(), peers, settings.times(), fresh, policy).await?;
    endpoint.set_identity(Identity { cluster: server.cluster(), ..endpoint.identity() });

    let addresses = roles::addresses(&settings.listen)?;
    let listeners = listen(&env, &addresses).await?;
    let local: Vec<String> = listeners.iter().map(|l| l.local().to_string()).collect();
    let stats = WireStats::new(MetaRequest::NAMES);
    let pages = MetadataPages { server: server.clone(), stats: stats.clone() };
    http::serve(&settings.http, Arc::new(pages)).await?;

    let (stop, stopped) = watch::channel(false);
    let mut serving = Vec::new();
    for listener in listeners {
        let mut stopped = stopped.clone();
        let until = async move {
            let _ = stopped.wait_for(|s| *s).await;
        };
        let service = Arc::new(NamespaceService(server.clone()));
        serving.push(tokio::spawn(serve_wire(endpoint.clone(), listener, service, stats.clone(), until)));
    }
    tracing::info!(cluster = %server.cluster(), "metadata server serves at {}", local.join(", "));
    ready.write(&local.join(" "))?;
    tokio::select! {
        asked = signals::terminated() => asked?,
        // Only a start can go on from here: clients wait for it, keep what they were answered for, and send it again.
        () = engine.ended() => anyhow::bail!(
            "the metadata in {} takes no more changes, the log says why above: start the metadata server again",
            settings.dir.display()
        ),
    }
    tracing::info!("metadata server stops");
    let _ = stop.send(true);
    for task in serving {
        let _ = task.await;
    }
    // What was answered early becomes durable, and the next start waits for nobody.
    server.close().await?;
    Ok(())
}

struct MetadataPages {
    server: Arc<Server>,
    stats: Arc<WireStats>,
}

impl MetadataPages {
    fn status(&self) -> Option<braid_api::admin::Status> {
        // Answered from memory, so it is ready at once.
        let answer = futures_ready(self.server.call(CallContext::default(), AdminQuery::Status))?;
        match answer {
            Ok(AdminAnswer::Status(status)) => Some(status),
            _ => None,
        }
    }
}

/// The output of a future that does not wait, `None` if it would.
fn futures_ready<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

impl Pages for MetadataPages {
    fn health(&self) -> (bool, String) {
        match self.status() {
            Some(s) => (
                s.servers_up > 0,
                format!(
                    "cluster {}: {} data servers up, {} down, {} sessions",
                    s.cluster, s.servers_up, s.servers_down, s.sessions
                ),
            ),
            None => (false, "the metadata server does not answer".to_owned()),
        }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        if let Some(s) = self.status() {
            let rows: [(&str, &str, u64); 11] = [
                ("braid_meta_sessions", "gauge", s.sessions.into()),
                ("braid_meta_data_servers_up", "gauge", s.servers_up.into()),
                ("braid_meta_data_servers_down", "gauge", s.servers_down.into()),
                ("braid_meta_containers_short_of_copies", "gauge", s.chains.short),
                ("braid_meta_containers_changing", "gauge", s.chains.unsettled),
                ("braid_meta_inodes", "gauge", s.inodes),
                ("braid_meta_bytes", "gauge", s.metadata_bytes),
                ("braid_meta_engine_round_trips_total", "counter", s.round_trips),
                ("braid_meta_engine_transactions_total", "counter", s.transactions),
                ("braid_meta_engine_reads_total", "counter", s.reads),
                ("braid_meta_engine_syncs_total", "counter", s.syncs),
            ];
            for (name, kind, value) in rows {
                let _ = write!(text, "# TYPE {name} {kind}\n{name} {value}\n");
            }
        }
        crate::roles::wire_metrics(&mut text, "braid_meta", &self.stats);
        text
    }
}
