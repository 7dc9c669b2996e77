//! One metadata server over an engine, and one data server that gets no bytes: in this process, on threads of their own, so that clients, which
//! may have all that they ask for at hand and go on without ever waiting, keep none of them.

use super::run::Result;
use crate::data::data_server;
use braid_api::meta::MetaRequest;
use braid_env::{Address, Env};
use braid_meta_engine::{Engine, StatsSnapshot};
use braid_meta_server::{MetaConfig, MetaServer};
use braid_types::{ClusterId, Policy, ServerId};
use braid_wire::{
    Endpoint, Identity, Limits, NamespaceService, Remote, RemoteNamespace, Role, WirePeers, WireStats, serve,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Runtime;

pub struct Cluster {
    pub env: Env,
    pub clients: Endpoint,
    address: Address,
    stats: Box<dyn Fn() -> StatsSnapshot + Send + Sync>,
    _servers: Servers,
}

/// Threads of one cluster's servers, beside those of its metadata's engine.
const SERVER_THREADS: usize = 2;

struct Servers {
    /// Until it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        // Not as a runtime is dropped otherwise, which waits for its threads, and may not where others are not to be held up.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn identity(role: Role, cluster: ClusterId) -> Identity {
    Identity { role, cluster, server: ServerId(0), incarnation: 1 }
}

impl Cluster {
    /// `dir` is the data server's, and has the sockets; `tcp` has clients reach the metadata server over the loopback device.
    pub async fn start<E: Engine>(engine: Arc<E>, dir: &Path, tcp: bool) -> Result<Cluster> {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        let runtime =
            threads.worker_threads(SERVER_THREADS).thread_name("server").enable_all().build().map_err(text)?;
        let started = runtime.spawn(start_servers(engine.clone(), dir.to_owned(), tcp));
        let servers = Servers { runtime: Some(runtime) };
        let (cluster, address) = started.await.map_err(text)??;
        let env = Env::os();
        let clients = Endpoint::new(env.clone(), identity(Role::Client, cluster), Limits::default());
        let stats = Box::new(move || engine.stats().snapshot());
        Ok(Cluster { env, clients, address, stats, _servers: servers })
    }

    /// A connection of its own.
    pub fn stub(&self) -> RemoteNamespace {
        stub(&self.clients, &self.address)
    }

    pub fn stats(&self) -> StatsSnapshot {
        (self.stats)()
    }

    pub fn way(&self) -> &'static str {
        match self.address {
            Address::Tcp(_) => "TCP over loopback",
            Address::Unix(_) => "Unix sockets",
        }
    }
}

fn stub(endpoint: &Endpoint, address: &Address) -> RemoteNamespace {
    let to = vec![address.clone()];
    RemoteNamespace(Remote::new(endpoint, Role::Metadata, ServerId(0), MetaRequest::NAMES, to))
}

/// They run as long as their runtime.
async fn start_servers<E: Engine>(engine: Arc<E>, dir: PathBuf, tcp: bool) -> Result<(ClusterId, Address)> {
    let env = Env::os();
    let mut id = ClusterId::default();
    env.random.fill(&mut id.0);
    let endpoint = Endpoint::new(env.clone(), identity(Role::Metadata, ClusterId::default()), Limits::default());
    let peers = WirePeers::new(&endpoint);
    let started = MetaServer::start(env.clone(), engine, peers, MetaConfig::default(), id, Policy::PLAIN).await;
    let server = started.map_err(text)?;
    let cluster = server.cluster();
    endpoint.set_identity(Identity { cluster, ..endpoint.identity() });
    let wanted = match tcp {
        true => Address::Tcp("127.0.0.1:0".to_owned()),
        false => Address::Unix(dir.join("meta.sock")),
    };
    let listener = env.transport.listen(&wanted).await.map_err(text)?;
    let address = listener.local();
    let (service, wire) = (Arc::new(NamespaceService(server)), WireStats::new(MetaRequest::NAMES));
    tokio::spawn(serve(endpoint, listener, service, wire, std::future::pending()));
    let own = Endpoint::new(env.clone(), identity(Role::Client, cluster), Limits::default());
    let (_, heartbeats) = data_server(&env, &dir, cluster, stub(&own, &address)).await?;
    tokio::spawn(async move {
        let _heartbeats = heartbeats;
        std::future::pending::<()>().await;
    });
    Ok((cluster, address))
}
