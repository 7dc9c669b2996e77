use super::meta_door::MetaDoor;
use super::{PORT, endpoint, snapshots};
use crate::bug::Bug;
use crate::cluster::Process;
use crate::operator;
use braid_api::meta::MetaRequest;
use braid_env::Address;
use braid_meta_engine::MemEngine;
use braid_meta_server::{MetaConfig, MetaServer, PlantedBug};
use braid_types::ClusterId;
use braid_wire::{Identity, NamespaceService, Role, WirePeers, WireStats, serve};
use std::sync::Arc;

/// The real metadata server over an engine whose disk survives it.
pub async fn run(process: Process) {
    let settings = &process.cluster.settings;
    let endpoint = endpoint(&process, Role::Metadata);
    let engine = Arc::new(MemEngine::new(process.cluster.meta_store.clone()));
    let mut fresh = ClusterId::default();
    process.env.random.fill(&mut fresh.0);
    let peers = WirePeers::new(&endpoint);
    let planted = match settings.bug {
        Some(Bug::NotStill) => Some(PlantedBug::NotStill),
        Some(Bug::NotKept) => Some(PlantedBug::NotKept),
        Some(Bug::AloneNotWaitedFor) => Some(PlantedBug::AloneNotWaitedFor),
        Some(Bug::AloneTooEarly) => Some(PlantedBug::AloneTooEarly),
        _ => None,
    };
    let config = MetaConfig { planted, ..settings.meta.clone() };
    let started = MetaServer::start(process.env.clone(), engine, peers, config, fresh, settings.policy).await;
    let server = started.expect("the metadata server starts on what its predecessor left");
    endpoint.set_identity(Identity { cluster: server.cluster(), ..endpoint.identity() });
    let at = Address::Tcp(format!("{}:{PORT}", process.machine.name()));
    let listener = process.env.transport.listen(&at).await.expect("the port is free");
    if settings.operator {
        let (process, server) = (process.clone(), server.clone());
        process.env.clone().spawn("operator", async move { operator::run(process, server).await });
    }
    if settings.snapshots {
        let made = snapshots::make_and_let_go(process.clone(), server.clone());
        process.env.clone().spawn("snapshots", made);
    }
    let door = Arc::new(MetaDoor::new(server, process.cluster.clone()));
    if settings.operator && !settings.has_copies() {
        let (env, door, config, endpoint) =
            (process.env.clone(), door.clone(), settings.client.clone(), endpoint.clone());
        let peers = move || WirePeers::new(&endpoint);
        process.env.spawn("mover", async move { braid_client::keep_moving(env, door, peers, config).await });
    }
    let service = Arc::new(NamespaceService(door));
    serve(endpoint, listener, service, WireStats::new(MetaRequest::NAMES), std::future::pending()).await;
}
