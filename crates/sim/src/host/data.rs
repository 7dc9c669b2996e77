use super::data_door::DataDoor;
use super::{PORT, endpoint, namespace};
use crate::cluster::Process;
use braid_api::data::DataRequest;
use braid_data_server::{Announcement, DataServer, SharedLinks, WireLinks, enrol};
use braid_data_store::{ChunkStore, DiskStore, StoreIdentity, StoreOptions};
use braid_env::Address;
use braid_wire::{DataNodeService, Identity, Role, WirePeers, WireStats, serve};
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/data";

/// The real data server over the machine's simulated disk.
pub async fn run(process: Process) {
    let Process { cluster, machine, env, .. } = &process;
    let endpoint = endpoint(&process, Role::Data);
    let namespace = Arc::new(namespace(&process, &endpoint));
    let name = machine.name().to_owned();
    let at = Address::Tcp(format!("{name}:{PORT}"));
    let announcement = Announcement { addresses: vec![at.to_string()], host: name, ..Announcement::default() };
    let known = StoreIdentity::read(env.disk.as_ref(), Path::new(DIR)).expect("the identity can be read");
    let identity = enrol(env, &*namespace, known, &announcement).await.expect("the metadata server gives an id");
    let options = StoreOptions::default();
    let store = DiskStore::open_or_create(env.disk.clone(), Path::new(DIR), identity, options);
    let store = Arc::new(store.expect("the store opens after any crash"));
    if let Ok(usage) = store.usage() {
        cluster.coverage.add("torn blocks sealed after a crash", usage.sealed_blocks);
    }
    let server = DataServer::start(env.clone(), store, identity, cluster.settings.data.clone());
    cluster.server_started(*machine, server.clone());
    let (cluster_id, incarnation) = (identity.cluster, server.incarnation());
    endpoint.set_identity(Identity {
        cluster: cluster_id,
        server: identity.server,
        incarnation,
        ..endpoint.identity()
    });
    let _handing = match cluster.settings.local_reads {
        true => {
            let socket = format!("/{}", machine.name());
            Some(
                server.hand_out(Path::new("/data/handing"), Path::new(&socket)).await.expect("files can be handed out"),
            )
        }
        false => None,
    };
    let listener = env.transport.listen(&at).await.expect("the port is free");
    let _heartbeats = server.report_to(namespace, announcement);
    let _chains = cluster.settings.has_copies().then(|| {
        // Each on connections of its own, as the program has them.
        let leader = Arc::new(super::namespace(&process, &endpoint));
        let (words, content) = (WirePeers::new(&endpoint), WirePeers::new(&endpoint));
        let links = WireLinks::new(env.clone(), identity.server, words, content, leader);
        server.join_chains(Arc::new(SharedLinks(links)))
    });
    let service = Arc::new(DataNodeService(Arc::new(DataDoor::new(server, cluster.clone(), env.clone()))));
    serve(endpoint, listener, service, WireStats::new(DataRequest::NAMES), std::future::pending()).await;
}
