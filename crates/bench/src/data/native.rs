//! A native client, a metadata server and a data server in this process, over Unix sockets.

use super::{Kind, Settings};
use crate::metadata::name;
use crate::report::Counters;
use crate::turns::{Outcome, Workload, anyhow_free::Result};
use braid_api::data::DataRequest;
use braid_api::meta::MetaRequest;
use braid_api::{Caller, FileSystem, HandleId, OpenFlags};
use braid_client::{Client, ClientConfig};
use braid_data_server::{Announcement, DataServer, DataServerConfig, enrol};
use braid_data_store::{DiskStore, StoreOptions};
use braid_env::{Address, Env};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use braid_meta_server::{MetaConfig, MetaServer};
use braid_types::{ClusterId, InodeId, Mode, Policy, ServerId};
use braid_wire::{
    DataNodeService, Endpoint, Identity, Limits, NamespaceService, Remote, RemoteNamespace, Role, WirePeers, WireStats,
    serve,
};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Native {
    client: Arc<Client>,
    server: Arc<DataServer>,
    handle: HandleId,
    settings: Settings,
    _heartbeats: braid_env::TaskHandle,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The ways to the metadata server.
struct Meta {
    endpoint: Endpoint,
    address: Address,
}

impl Meta {
    fn stub(&self) -> RemoteNamespace {
        let to = vec![self.address.clone()];
        RemoteNamespace(Remote::new(&self.endpoint, Role::Metadata, ServerId(0), MetaRequest::NAMES, to))
    }
}

impl Native {
    pub async fn start(dir: &Path, settings: Settings) -> Result<Native> {
        let env = Env::os();
        let cluster = ClusterId([1; 16]);
        let identity = |role, server, incarnation| Identity { role, cluster, server, incarnation };
        let engine = EmbeddedEngine::open(&dir.join("rows"), EmbeddedOptions::default()).map_err(text)?;
        let endpoint = Endpoint::new(env.clone(), identity(Role::Metadata, ServerId(0), 1), Limits::default());
        let peers = WirePeers::new(&endpoint);
        let started =
            MetaServer::start(env.clone(), Arc::new(engine), peers, MetaConfig::default(), cluster, Policy::PLAIN);
        let server = started.await.map_err(text)?;
        let address = Address::Unix(dir.join("meta.sock"));
        let listener = env.transport.listen(&address).await.map_err(text)?;
        let (service, stats) = (Arc::new(NamespaceService(server)), WireStats::new(MetaRequest::NAMES));
        tokio::spawn(serve(endpoint, listener, service, stats, std::future::pending()));
        let endpoint = Endpoint::new(env.clone(), identity(Role::Client, ServerId(0), 0), Limits::default());
        let meta = Meta { endpoint, address };

        let (server, heartbeats) = data_server(&env, dir, cluster, meta.stub()).await?;
        let peers = WirePeers::new(&meta.endpoint);
        let config = ClientConfig { description: "benchmark".into(), host: "here".into(), ..ClientConfig::default() };
        let client = Client::start(env, meta.stub(), meta.stub(), peers, config).await.map_err(text)?;
        let flags = OpenFlags { read: true, write: true, exclusive: true, ..OpenFlags::default() };
        // Reads ask for what they want and nothing ahead, as a caller with a cache of its own would.
        let flags = OpenFlags { direct: true, ..flags };
        let made = client.create(&Caller::default(), InodeId::ROOT, &name(0)?, Mode(0o644), flags).await;
        let handle = made.map_err(text)?.1.handle;
        let native = Native { client, server, handle, settings, _heartbeats: heartbeats };
        let block = Bytes::from(vec![1; 1 << 20]);
        for at in (0..settings.file_bytes).step_by(block.len()) {
            native.client.write(handle, at, block.clone()).await.map_err(text)?;
        }
        native.client.fsync(handle, false).await.map_err(text)?;
        Ok(native)
    }

    pub async fn stop(&self) -> Result<()> {
        self.client.release(self.handle).await;
        self.client.shutdown().await.map_err(text)?;
        self.server.stop().await.map_err(text)
    }

    pub fn workload(&self, kind: Kind) -> NativeWorkload<'_> {
        NativeWorkload { native: self, kind, state: 1, next: 0 }
    }

    fn counters(&self) -> Counters {
        let (client, server) = (self.client.stats(), self.server.counters());
        Counters {
            messages: client.messages.values().sum::<u64>() as f64,
            payload_bytes: (server.bytes_read + server.bytes_written) as f64,
            syncs: server.syncs as f64,
            ..Counters::default()
        }
    }
}

/// With its files and its socket in `dir`, known to the metadata server behind `control`.
pub(crate) async fn data_server(
    env: &Env,
    dir: &Path,
    cluster: ClusterId,
    control: RemoteNamespace,
) -> Result<(Arc<DataServer>, braid_env::TaskHandle)> {
    let address = Address::Unix(dir.join("data.sock"));
    let addresses = vec![address.to_string()];
    let announcement = Announcement { addresses, host: "here".to_owned(), ..Announcement::default() };
    let control = Arc::new(control);
    let identity = enrol(env, &*control, None, &announcement).await.map_err(text)?;
    let (disk, place) = (env.disk.clone(), dir.join("chunks"));
    let opened = env.blocking(move || DiskStore::open_or_create(disk, &place, identity, StoreOptions::default())).await;
    let store = opened.map_err(text)?;
    let server = DataServer::start(env.clone(), Arc::new(store), identity, DataServerConfig::default());
    let incarnation = server.incarnation();
    let who = Identity { role: Role::Data, cluster, server: identity.server, incarnation };
    let endpoint = Endpoint::new(env.clone(), who, Limits::default());
    let listener = env.transport.listen(&address).await.map_err(text)?;
    let (service, stats) = (Arc::new(DataNodeService(server.clone())), WireStats::new(DataRequest::NAMES));
    let heartbeats = server.report_to(control, announcement);
    tokio::spawn(serve(endpoint, listener, service, stats, std::future::pending()));
    let begun = Instant::now();
    while !server.is_registered() {
        if begun.elapsed() > Duration::from_secs(10) {
            return Err("the data server was not registered within 10 s".to_owned());
        }
        env.sleep(Duration::from_millis(5)).await;
    }
    Ok((server, heartbeats))
}

pub struct NativeWorkload<'n> {
    native: &'n Native,
    kind: Kind,
    state: u64,
    next: u64,
}

impl Workload for NativeWorkload<'_> {
    fn target(&self) -> String {
        "native".to_owned()
    }

    fn conditions(&self) -> String {
        format!("Unix sockets, checksums made or verified; {}", self.kind.conditions())
    }

    async fn turn(&mut self, span: Duration) -> Result<Outcome> {
        let (native, kind) = (self.native, self.kind);
        let block = Bytes::from(vec![2; kind.bytes() as usize]);
        let before = native.counters();
        let (mut outcome, begun) = (Outcome::default(), Instant::now());
        while begun.elapsed() < span {
            let offset = kind.offset(self.next, &mut self.state, native.settings.file_bytes);
            self.next += 1;
            let at = Instant::now();
            if kind.is_write() {
                native.client.write(native.handle, offset, block.clone()).await.map_err(text)?;
            } else {
                let pieces = native.client.read(native.handle, offset, kind.bytes() as u32).await.map_err(text)?;
                if pieces.iter().map(|piece| piece.len() as u64).sum::<u64>() != kind.bytes() {
                    return Err("a read came back short".to_owned());
                }
            }
            outcome.operations += 1;
            outcome.latencies.push(at.elapsed());
        }
        if kind.is_write() {
            native.client.fsync(native.handle, false).await.map_err(text)?;
        }
        outcome.took = begun.elapsed();
        let after = native.counters();
        outcome.counters = Counters {
            messages: after.messages - before.messages,
            payload_bytes: after.payload_bytes - before.payload_bytes,
            syncs: after.syncs - before.syncs,
            ..Counters::default()
        };
        Ok(outcome)
    }
}
