//! Ways into a cluster: endpoints, stubs, a started client.

use crate::config::Config;
use anyhow::{Context, Result};
use braid_api::meta::MetaRequest;
use braid_client::{Client, ClientConfig};
use braid_env::Env;
use braid_types::{ClusterId, ServerId};
use braid_wire::{Endpoint, Identity, Limits, Remote, RemoteNamespace, Role, WirePeers};
use std::sync::Arc;

/// A runtime with a worker a core, at least two: one that is busy must not hold up leases.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get()).max(2);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// What a process says of itself before it knows its cluster.
pub fn endpoint(env: &Env, role: Role) -> Endpoint {
    let identity = Identity { role, cluster: ClusterId::default(), server: ServerId(0), incarnation: env.random.u64() };
    Endpoint::new(env.clone(), identity, Limits::default())
}

/// The metadata server of `config`, on a connection of its own.
pub fn namespace(endpoint: &Endpoint, config: &Config) -> RemoteNamespace {
    let addresses = config.metadata_addresses();
    RemoteNamespace(Remote::new(endpoint, Role::Metadata, ServerId(0), MetaRequest::NAMES, addresses))
}

/// A client of the cluster with a session. `pages_above`: see [`ClientConfig`].
pub async fn client(
    env: Env,
    config: &Config,
    description: String,
    pages_above: bool,
) -> Result<(Endpoint, Arc<Client>)> {
    let endpoint = endpoint(&env, Role::Client);
    let (calls, control) = (namespace(&endpoint, config), namespace(&endpoint, config));
    let settings = ClientConfig { pages_above, ..config.client.client(description, config.host()) };
    let client = Client::start(env, calls, control, WirePeers::new(&endpoint), settings)
        .await
        .with_context(|| format!("no session with the metadata server at {}", config.cluster.metadata.join(", ")))?;
    Ok((endpoint, client))
}
