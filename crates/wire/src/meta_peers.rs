//! Ways to metadata servers that serve at once: a stub for each list of addresses, so that all calls there share a connection.

use crate::endpoint::Endpoint;
use crate::hello::Role;
use crate::remote::Remote;
use crate::stubs::RemoteNamespace;
use braid_api::erased::{Meta, MetaPeers};
use braid_api::meta::MetaRequest;
use braid_env::Address;
use braid_types::ServerId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Stubs that are kept though nobody has one of them: servers that begin anew are elsewhere each time.
const IDLE_MAX: usize = 64;

/// All metadata servers, as seen from one process.
pub struct WireMetaPeers {
    endpoint: Endpoint,
    known: Mutex<HashMap<Vec<String>, Arc<RemoteNamespace>>>,
}

impl WireMetaPeers {
    pub fn new(endpoint: &Endpoint) -> Self {
        WireMetaPeers { endpoint: endpoint.clone(), known: Mutex::default() }
    }
}

fn stub(endpoint: &Endpoint, addresses: &[String]) -> Arc<RemoteNamespace> {
    // An address that a newer version wrote and this one cannot read is left out.
    let at: Vec<Address> = addresses.iter().filter_map(|a| a.parse().ok()).collect();
    let remote = Remote::new(endpoint, Role::Metadata, ServerId(0), MetaRequest::NAMES, at);
    Arc::new(RemoteNamespace(remote))
}

impl MetaPeers for WireMetaPeers {
    fn meta(&self, addresses: &[String]) -> Arc<dyn Meta> {
        let mut known = self.known.lock();
        if let Some(known) = known.get(addresses) {
            return known.clone();
        }
        if known.len() >= IDLE_MAX {
            known.retain(|_, stub| Arc::strong_count(stub) > 1);
        }
        let stub = stub(&self.endpoint, addresses);
        known.insert(addresses.to_vec(), stub.clone());
        stub
    }
}
