//! Native clients: messages over Unix sockets to a metadata server in this process.

use super::{Kind, SAMPLE_EVERY, STATS_A_MESSAGE, Settings, choose};
use crate::report::Counters;
use crate::turns::{Outcome, Workload, anyhow_free::Result};
use braid_api::meta::*;
use braid_api::{Context, Namespace};
use braid_env::{Address, Env};
use braid_meta_engine::Engine;
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use braid_meta_server::{MetaConfig, MetaServer};
use braid_types::*;
use braid_wire::{
    Endpoint, Identity, Limits, NamespaceService, Remote, RemoteNamespace, Role, WirePeers, WireStats, serve,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub struct Native {
    engine: Arc<EmbeddedEngine>,
    connections: Vec<Arc<Connection>>,
    files_dir: InodeId,
    /// One for each connection to create in.
    dirs: Vec<InodeId>,
    settings: Settings,
    next: Arc<AtomicU64>,
}

struct Connection {
    stub: RemoteNamespace,
    token: Token,
    requests: Arc<AtomicU64>,
}

impl Connection {
    fn cx(&self) -> Context {
        let request = RequestId(self.requests.fetch_add(1, Ordering::Relaxed));
        Context { token: self.token, request, ..Context::default() }
    }
}

/// Files made before the server is told that their answers have arrived.
const GROW_STEP: u64 = 2_000;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

pub fn name(n: u64) -> Result<Name> {
    Name::new(format!("file{n}").as_bytes()).map_err(text)
}

fn spec(kind: FileKind) -> NodeSpec {
    NodeSpec { kind, mode: Mode(0o755), umask: 0, uid: 0, gid: 0, rdev: DeviceId(0), target: Default::default() }
}

impl Native {
    pub async fn start(dir: &Path, settings: Settings) -> Result<Native> {
        let env = Env::os();
        let engine = Arc::new(EmbeddedEngine::open(dir, EmbeddedOptions::default()).map_err(text)?);
        let identity =
            Identity { role: Role::Metadata, cluster: ClusterId([1; 16]), server: ServerId(0), incarnation: 1 };
        let endpoint = Endpoint::new(env.clone(), identity, Limits::default());
        let peers = WirePeers::new(&endpoint);
        let config = MetaConfig { session_expiry: Duration::from_secs(24 * 3600), ..MetaConfig::default() };
        let server = MetaServer::start(env.clone(), engine.clone(), peers, config, identity.cluster, Policy::PLAIN)
            .await
            .map_err(text)?;
        let address = Address::Unix(dir.join("bench.sock"));
        let listener = env.transport.listen(&address).await.map_err(text)?;
        let service = Arc::new(NamespaceService(server));
        let stats = WireStats::new(MetaRequest::NAMES);
        tokio::spawn(serve(endpoint, listener, service, stats, std::future::pending()));

        let client = Endpoint::new(env, Identity { role: Role::Client, ..identity }, Limits::default());
        let requests = Arc::new(AtomicU64::new(1));
        let mut connections = Vec::new();
        let mut token = Token::default();
        for _ in 0..settings.connections {
            let remote = Remote::new(&client, Role::Metadata, ServerId(0), MetaRequest::NAMES, vec![address.clone()]);
            let stub = RemoteNamespace(remote);
            if connections.is_empty() {
                let open = OpenSession {
                    client: 1,
                    former: None,
                    since: SessionId(0),
                    description: "benchmark".into(),
                    host: "here".into(),
                    caches: false,
                };
                let session = stub.call(Context::default(), open).await.map_err(text)?;
                token = Token { session: session.session, session_epoch: session.epoch, ..token };
            }
            connections.push(Arc::new(Connection { stub, token, requests: requests.clone() }));
        }
        let mut native = Native {
            engine,
            connections,
            files_dir: InodeId::ROOT,
            dirs: Vec::new(),
            settings,
            next: Arc::new(AtomicU64::new(0)),
        };
        native.fill().await?;
        Ok(native)
    }

    async fn mkdir(&self, label: &str) -> Result<InodeId> {
        let c = &self.connections[0];
        let message = MakeNode {
            parent: InodeId::ROOT.into(),
            name: label.parse().map_err(text)?,
            spec: spec(FileKind::Directory),
        };
        Ok(c.stub.call(c.cx(), message).await.map_err(text)?.attr.id)
    }

    async fn fill(&mut self) -> Result<()> {
        self.files_dir = self.mkdir("files").await?;
        for n in 0..self.settings.connections {
            self.dirs.push(self.mkdir(&format!("new{n}")).await?);
        }
        self.create_from(0).await
    }

    /// From here on there are so many files.
    pub async fn grow_to(&mut self, files: u64) -> Result<()> {
        // As clients do while they work: answers that have arrived need not be remembered. Some at a time, or their rows would be most of the
        // store.
        while self.settings.files < files {
            let from = self.settings.files;
            self.settings.files = files.min(from + GROW_STEP);
            self.create_from(from).await?;
            let c = &self.connections[0];
            let low_water = RequestId(c.requests.load(Ordering::Relaxed));
            let renew = RenewSession { low_water, orphans_seen: 0, orphans_held: Vec::new() };
            c.stub.call(Context { request: RequestId(0), ..c.cx() }, renew).await.map_err(text)?;
        }
        Ok(())
    }

    async fn create_from(&self, from: u64) -> Result<()> {
        let mut tasks = Vec::new();
        let next = Arc::new(AtomicU64::new(from));
        for c in self.connections.iter().cycle().take(64) {
            let c = c.clone();
            let (next, files, dir) = (next.clone(), self.settings.files, self.files_dir);
            tasks.push(tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= files {
                        return Ok::<_, String>(());
                    }
                    create(&c, dir, n).await?;
                }
            }));
        }
        for task in tasks {
            task.await.map_err(text)??;
        }
        Ok(())
    }

    pub fn workload(&self, kind: Kind) -> NativeWorkload<'_> {
        NativeWorkload { native: self, kind, turns: 0 }
    }

    pub fn store_bytes(&self) -> u64 {
        self.engine.bytes().unwrap_or(0)
    }

    fn messages(&self) -> u64 {
        self.connections.iter().map(|c| c.stub.0.stats().sent.values().sum::<u64>()).sum()
    }
}

async fn create(c: &Connection, dir: InodeId, n: u64) -> Result<()> {
    let message = CreateFile {
        parent: InodeRef { id: dir, hint: None },
        name: name(n)?,
        spec: spec(FileKind::File),
        exclusive: true,
        truncate: false,
        write: true,
    };
    c.stub.call(c.cx(), message).await.map(drop).map_err(text)
}

pub struct NativeWorkload<'n> {
    native: &'n Native,
    kind: Kind,
    /// Turns before this one: each looks at other names.
    turns: u64,
}

impl Workload for NativeWorkload<'_> {
    fn target(&self) -> String {
        "native".to_owned()
    }

    fn conditions(&self) -> String {
        match self.kind {
            Kind::Stat => "Unix socket, one message each, no client cache; rows in the page cache".to_owned(),
            Kind::Stats => format!("as stat, {STATS_A_MESSAGE} names in a message"),
            Kind::Create => "Unix socket, one message each; durable when it returned".to_owned(),
        }
    }

    async fn turn(&mut self, span: Duration) -> Result<Outcome> {
        let (native, turns) = (self.native, self.turns);
        self.turns += 1;
        let (before, messages) = (native.engine.stats().snapshot(), native.messages());
        let begun = Instant::now();
        let mut tasks = Vec::new();
        for (i, c) in native.connections.iter().enumerate() {
            for lane in 0..native.settings.in_flight {
                let (c, next, kind) = (c.clone(), native.next.clone(), self.kind);
                let (files, dir, own) = (native.settings.files, native.files_dir, native.dirs[i]);
                tasks.push(tokio::spawn(async move {
                    let begin = turns << 32 | (i * 64 + lane) as u64;
                    let (mut state, mut done, mut latencies) = (begin, 0u64, Vec::new());
                    while begun.elapsed() < span {
                        let at = Instant::now();
                        let mut more = 1;
                        match kind {
                            Kind::Stats => {
                                more = STATS_A_MESSAGE as u64;
                                let names = (0..more).map(|_| name(choose(&mut state, files)));
                                let message = StatNames { parent: dir, names: names.collect::<Result<_>>()? };
                                let cx = Context { request: RequestId(0), ..c.cx() };
                                let found = c.stub.call(cx, message).await.map_err(text)?;
                                if found.iter().any(Option::is_none) {
                                    return Err("a file is missing".to_owned());
                                }
                            }
                            Kind::Stat => {
                                let message = Lookup { parent: dir, name: name(choose(&mut state, files))? };
                                let cx = Context { request: RequestId(0), ..c.cx() };
                                let found = c.stub.call(cx, message).await.map_err(text)?;
                                found.attr.ok_or("a file is missing")?;
                            }
                            Kind::Create => create(&c, own, next.fetch_add(1, Ordering::Relaxed)).await?,
                        }
                        done += more;
                        if done.is_multiple_of(SAMPLE_EVERY) {
                            latencies.push(at.elapsed());
                        }
                    }
                    Ok::<_, String>((done, latencies))
                }));
            }
        }
        let mut outcome = Outcome::default();
        for task in tasks {
            let (done, latencies) = task.await.map_err(text)??;
            outcome.operations += done;
            outcome.latencies.extend(latencies);
        }
        outcome.took = begun.elapsed();
        let after = native.engine.stats().snapshot();
        outcome.counters = Counters {
            engine_round_trips: (after.round_trips - before.round_trips) as f64,
            messages: (native.messages() - messages) as f64,
            syncs: (after.syncs - before.syncs) as f64,
            payload_bytes: 0.0,
        };
        Ok(outcome)
    }
}
