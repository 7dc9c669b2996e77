use super::client::{endpoint, namespace};
use crate::cluster::Process;
use braid_api::erased::MetaPeers;
use braid_client::{Client, ClientConfig, Ways};
use braid_wire::{Role, WireMetaPeers, WirePeers};
use std::sync::Arc;
use std::time::Duration;

/// The real client, as a door sees it.
pub type Mount = Client;

/// Between two attempts to get a session.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts the real client, for as long as it takes.
pub async fn mount(process: &Process) -> Arc<Mount> {
    let (env, name) = (&process.env, process.machine.name());
    let endpoint = endpoint(process, Role::Client);
    loop {
        let each = || Arc::new(WireMetaPeers::new(&endpoint)) as Arc<dyn MetaPeers>;
        let is_several = process.cluster.settings.several;
        let ways = || Ways { any: namespace(process, &endpoint), each: is_several.then(each) };
        let config = ClientConfig {
            description: format!("life {} of {name}", process.life),
            host: process.cluster.host(process.machine).to_owned(),
            ..process.cluster.settings.client.clone()
        };
        match Client::start_among(env.clone(), ways(), ways(), WirePeers::new(&endpoint), config).await {
            Ok(client) => {
                process.cluster.client_started(&client);
                return client;
            }
            Err(error) => {
                tracing::debug!("{name} has no session yet: {error}");
                env.sleep(PAUSE).await;
            }
        }
    }
}
