//! One metadata server over an engine, and one data server that gets no bytes, in this process.

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
use std::path::Path;
use std::sync::Arc;

pub struct Cluster {
    pub env: Env,
    pub clients: Endpoint,
    address: Address,
    stats: Box<dyn Fn() -> StatsSnapshot + Send + Sync>,
    _heartbeats: braid_env::TaskHandle,
}

pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Cluster {
    /// `dir` is the data server's, and has the sockets; `tcp` has clients reach the metadata server over the loopback device.
    pub async fn start<E: Engine>(engine: Arc<E>, dir: &Path, tcp: bool) -> Result<Cluster> {
        let env = Env::os();
        let mut id = ClusterId::default();
        env.random.fill(&mut id.0);
        let identity = |role| Identity { role, cluster: ClusterId::default(), server: ServerId(0), incarnation: 1 };
        let endpoint = Endpoint::new(env.clone(), identity(Role::Metadata), Limits::default());
        let peers = WirePeers::new(&endpoint);
        let config = MetaConfig::default();
        let started = MetaServer::start(env.clone(), engine.clone(), peers, config, id, Policy::PLAIN).await;
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
        let clients = Endpoint::new(env.clone(), Identity { cluster, ..identity(Role::Client) }, Limits::default());
        let stub = stub(&clients, &address);
        let (_, heartbeats) = data_server(&env, dir, cluster, stub).await?;
        let stats = Box::new(move || engine.stats().snapshot());
        Ok(Cluster { env, clients, address, stats, _heartbeats: heartbeats })
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
