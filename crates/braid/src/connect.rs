//! Ways into a cluster: endpoints, stubs, a started client.

use crate::config::Config;
use crate::local::{Layout, metadata};
use crate::output::brief;
use anyhow::{Context, Result, anyhow};
use braid_api::meta::MetaRequest;
use braid_client::{Client, ClientConfig, Ways};
use braid_env::Env;
use braid_types::{ClusterId, ServerId};
use braid_wire::{Endpoint, Identity, Limits, Remote, RemoteNamespace, Role, WireMetaPeers, WirePeers};
use std::path::Path;
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

/// Whether the metadata server is one that `braid up` starts, and does not run: nothing comes of waiting for it. `dir`: where
/// the configuration lies.
pub fn is_stopped(config: &Config, dir: Option<&Path>) -> bool {
    let Some(layout) = dir.and_then(|dir| Layout::at(dir, false).ok()) else { return false };
    let first = metadata::address(&layout, &metadata::name(1));
    config.cluster.metadata.contains(&first) && !metadata::any_runs(&layout, config)
}

/// The complaint about a metadata server that does not answer, with what to do about it.
pub fn unanswered(config: &Config, error: &braid_api::Error, dir: Option<&Path>) -> anyhow::Error {
    let addresses = config.cluster.metadata.join(", ");
    let hint = match dir {
        Some(dir) if is_stopped(config, Some(dir)) => {
            format!("; it does not run, start it: braid up {}", dir.display())
        }
        Some(_) => String::new(),
        None => "; no cluster was named: --cluster DIR is one of braid up, --config FILE any".to_owned(),
    };
    anyhow!("the metadata server at {addresses} does not answer: {}{hint}", brief(error))
}

/// A client of the cluster with a session. `pages_above`: see [`ClientConfig`]; `dir`: [`unanswered`].
pub async fn client(
    env: Env,
    config: &Config,
    description: String,
    pages_above: bool,
    dir: Option<&Path>,
) -> Result<(Endpoint, Arc<Client>)> {
    let endpoint = endpoint(&env, Role::Client);
    let ways = || Ways { any: namespace(&endpoint, config), each: Some(Arc::new(WireMetaPeers::new(&endpoint))) };
    let settings = ClientConfig { pages_above, ..config.client.client(description, config.host()) };
    let client = Client::start_among(env, ways(), ways(), WirePeers::new(&endpoint), settings)
        .await
        .map_err(|error| unanswered(config, &error, dir))?;
    Ok((endpoint, client))
}
