//! Ways to data servers: one stub each, kept for ever, moved when the server's addresses change.

use crate::endpoint::Endpoint;
use crate::hello::Role;
use crate::remote::Remote;
use crate::stubs::RemoteDataNode;
use braid_api::DataPeers;
use braid_api::data::DataRequest;
use braid_api::meta::ServerInfo;
use braid_env::Address;
use braid_types::ServerId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// All data servers, as seen from one process.
pub struct WirePeers {
    endpoint: Endpoint,
    nodes: Mutex<HashMap<ServerId, Arc<RemoteDataNode>>>,
}

impl WirePeers {
    pub fn new(endpoint: &Endpoint) -> Self {
        WirePeers { endpoint: endpoint.clone(), nodes: Mutex::default() }
    }
}

impl DataPeers for WirePeers {
    type Node = RemoteDataNode;

    fn node(&self, server: &ServerInfo) -> Arc<RemoteDataNode> {
        // An address that a newer version wrote and this one cannot read is left out.
        let addresses: Vec<Address> = server.addresses.iter().filter_map(|a| a.parse().ok()).collect();
        let mut nodes = self.nodes.lock();
        let node = nodes.entry(server.id).or_insert_with(|| {
            let names = DataRequest::NAMES;
            Arc::new(RemoteDataNode(Remote::new(&self.endpoint, Role::Data, server.id, names, addresses.clone())))
        });
        node.0.set_addresses(addresses);
        node.clone()
    }
}
