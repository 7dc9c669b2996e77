//! A cluster in one process: a metadata server over the in-memory engine, three data servers, and clients that
//! reach them directly. Servers can be taken down, brought back, slowed, and lose their power.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part")]

pub mod ring;

use braid_api::data::{DataAnswer, DataRequest, ListChunks};
use braid_api::meta::*;
use braid_api::{
    Caller, Code, Context, DataNode, DataPeers, Error, FileSystem, HandleId, Namespace, OpenFlags, Result,
};
use braid_client::{Client, ClientConfig};
use braid_data_server::{DataServer, DataServerConfig};
use braid_data_store::{DiskStore, MemoryStore, StoreIdentity, StoreOptions};
use braid_env::Env;
use braid_env::simdisk::SimDisk;
use braid_meta_engine::{AnyEngine, MemEngine, MemStore};
use braid_meta_server::{MetaConfig, MetaServer};
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const CHUNK: u64 = 1 << 20;
pub const INLINE: u32 = 4 << 10;
const CLUSTER: ClusterId = ClusterId([7; 16]);

/// Small chunks, so that streams cross borders.
pub const SMALL: Policy = Policy { inline_bytes: INLINE, chunk_bytes: CHUNK, ..Policy::PLAIN };

/// Where data servers keep their chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Stable at once.
    Memory,
    /// A simulated disk, which loses what was not synced when the power goes.
    Disk,
}

type Messages = Arc<Mutex<BTreeMap<&'static str, u64>>>;

fn count(messages: &Messages, name: &'static str) {
    *messages.lock().entry(name).or_default() += 1;
}

/// The metadata server, whatever start of it runs at the moment.
type Serving = Arc<Mutex<Arc<MetaServer>>>;

/// The metadata server as one client sees it; counts what comes.
pub struct Meta {
    server: Serving,
    messages: Messages,
    late: Late,
    answered_late: Late,
}

/// Messages that take their time, by name.
type Late = Arc<Mutex<BTreeMap<&'static str, Duration>>>;

impl Namespace for Meta {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        count(&self.messages, request.name());
        let late = self.late.lock().get(request.name()).copied();
        if let Some(late) = late {
            tokio::time::sleep(late).await;
        }
        let answered_late = self.answered_late.lock().get(request.name()).copied();
        let server = self.server.lock().clone();
        let answer = server.execute(cx, request).await;
        if let Some(late) = answered_late {
            tokio::time::sleep(late).await;
        }
        answer
    }

    async fn execute_early(&self, cx: Context, request: MetaRequest) -> Result<(MetaAnswer, Mark)> {
        count(&self.messages, request.name());
        let late = self.late.lock().get(request.name()).copied();
        let answered_late = self.answered_late.lock().get(request.name()).copied();
        let server = self.server.clone();
        let Some(late) = late else {
            let server = server.lock().clone();
            let answer = server.execute_early(cx, request).await;
            if let Some(late) = answered_late {
                tokio::time::sleep(late).await;
            }
            return answer;
        };
        // It arrives, however long whoever sent it waits for an answer.
        let sent = tokio::spawn(async move {
            tokio::time::sleep(late).await;
            let server = server.lock().clone();
            server.execute_early(cx, request).await
        });
        sent.await.map_err(|_| Error::bare(Code::Disconnected))?
    }
}

enum Running {
    Memory(Arc<DataServer>),
    Disk(Arc<DataServer>),
    Down,
}

/// One data server, whatever start of it runs at the moment.
pub struct Node {
    pub id: ServerId,
    env: Env,
    pub disk: SimDisk,
    memory: Arc<MemoryStore>,
    storage: Storage,
    running: Mutex<Arc<Running>>,
    delay: Mutex<Duration>,
}

impl Node {
    fn new(id: ServerId, storage: Storage) -> Node {
        let disk = SimDisk::new();
        let env = Env { disk: Arc::new(disk.clone()), ..Env::os() };
        let memory = Arc::new(MemoryStore::new(4 << 30));
        let (running, delay) = (Mutex::new(Arc::new(Running::Down)), Mutex::default());
        let node = Node { id, env, disk, memory, storage, running, delay };
        node.up();
        node
    }

    /// Requests find nobody from now on; those on their way are not answered.
    pub fn down(&self) {
        *self.running.lock() = Arc::new(Running::Down);
    }

    /// A new start, with a new incarnation, on what the store holds.
    pub fn up(&self) {
        let identity = StoreIdentity { cluster: CLUSTER, server: self.id };
        // Nothing is synced but by those who ask.
        let config = DataServerConfig { sync_every: Duration::ZERO, scrub_bytes_per_s: 0, ..Default::default() };
        let env = self.env.clone();
        let running = match self.storage {
            Storage::Memory => Running::Memory(DataServer::start(env, self.memory.clone(), identity, config)),
            Storage::Disk => {
                let disk = self.env.disk.clone();
                let store = DiskStore::open_or_create(disk, Path::new("/store"), identity, StoreOptions::default());
                Running::Disk(DataServer::start(env, Arc::new(store.unwrap()), identity, config))
            }
        };
        *self.running.lock() = Arc::new(running);
    }

    /// The power goes and comes back: what was not synced is lost, or not, as `seed` says.
    pub fn lose_power(&self, seed: u64) {
        self.down();
        self.disk.crash(seed);
        self.up();
    }

    /// What a hand or a broken disk does: the chunk's files are not there any more.
    pub fn lose_chunk(&self, chunk: ChunkId) {
        match &**self.running.lock() {
            Running::Memory(server) => server.store().delete(&[chunk]).unwrap(),
            Running::Disk(server) => server.store().delete(&[chunk]).unwrap(),
            Running::Down => panic!("it is down"),
        }
    }

    /// Every answer takes this much longer.
    pub fn slow(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }
}

impl DataNode for Node {
    async fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        let delay = *self.delay.lock();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let running = self.running.lock().clone();
        let answer = async {
            match &*running {
                Running::Memory(server) => server.execute(cx, request, payload).await,
                Running::Disk(server) => server.execute(cx, request, payload).await,
                Running::Down => Err(Error::new(Code::Unreachable, format!("data server {}", self.id), "it is down")),
            }
        };
        let is_up = || Arc::ptr_eq(&running, &self.running.lock());
        // Connections break with the process, whatever it waits for.
        let stops = async {
            while is_up() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            biased;
            answer = answer => if is_up() || matches!(&*running, Running::Down) { return answer },
            () = stops => {}
        }
        Err(Error::new(Code::Disconnected, format!("data server {}", self.id), "it went down"))
    }
}

/// The data servers, as clients reach them or as the metadata server does.
#[derive(Clone)]
pub struct Peers {
    nodes: Arc<Mutex<BTreeMap<ServerId, Arc<Node>>>>,
    storage: Storage,
    messages: Messages,
}

impl Peers {
    fn find(&self, id: ServerId) -> Arc<Node> {
        self.nodes.lock().entry(id).or_insert_with(|| Arc::new(Node::new(id, self.storage))).clone()
    }
}

/// The way of one peer to a data server.
pub struct Way {
    node: Arc<Node>,
    messages: Messages,
}

impl DataNode for Way {
    async fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        let name = match &request {
            DataRequest::ReadChunk(read) if read.kept_beside => match self.node.id {
                ServerId(1) => "ReadChunk, kept on host one",
                _ => "ReadChunk, kept elsewhere",
            },
            DataRequest::WriteChunk(write) if write.kept_beside => match self.node.id {
                ServerId(1) => "WriteChunk, kept on host one",
                _ => "WriteChunk, kept elsewhere",
            },
            _ => request.name(),
        };
        count(&self.messages, name);
        self.node.execute(cx, request, payload).await
    }
}

impl DataPeers for Peers {
    type Node = Way;
    fn node(&self, server: &ServerInfo) -> Arc<Way> {
        Arc::new(Way { node: self.find(server.id), messages: self.messages.clone() })
    }
}

pub struct World {
    pub env: Env,
    pub meta: Arc<MetaServer>,
    serving: Serving,
    pub store: MemStore,
    config: MetaConfig,
    policy: Policy,
    pub nodes: Vec<Arc<Node>>,
    /// Counted from the last [`World::take_messages`] on.
    meta_messages: Messages,
    data_messages: Messages,
    /// Messages to the metadata server that arrive late.
    pub late: Late,
    /// The same for their answers.
    pub answered_late: Late,
    peers: Peers,
    _beats: tokio::task::JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self._beats.abort();
    }
}

impl World {
    pub async fn new(storage: Storage, policy: Policy) -> World {
        World::with(storage, policy, MetaConfig::default()).await
    }

    pub async fn with(storage: Storage, policy: Policy, config: MetaConfig) -> World {
        let store = MemStore::new();
        let engine = AnyEngine::new(Arc::new(MemEngine::new(store.clone())));
        World::over((store, engine), storage, policy, config).await
    }

    /// Over an engine, whose rows are this store's or lie elsewhere.
    pub async fn over(
        (store, engine): (MemStore, AnyEngine),
        storage: Storage,
        policy: Policy,
        config: MetaConfig,
    ) -> World {
        let env = Env::os();
        let peers = Peers { nodes: Arc::default(), storage, messages: Messages::default() };
        let config = MetaConfig { housekeeping: Duration::from_millis(50), ..config };
        let meta = MetaServer::start(env.clone(), Arc::new(engine), peers.clone(), config.clone(), CLUSTER, policy)
            .await
            .unwrap();
        let serving = Arc::new(Mutex::new(meta.clone()));
        let mut nodes = Vec::new();
        for host in ["one", "two", "three"] {
            let register = RegisterServer {
                id: ServerId(0),
                incarnation: 1,
                addresses: vec![format!("tcp:{host}:1")],
                host: host.into(),
                clean_stop: false,
                rack: String::new(),
            };
            let id = meta.call(Context::default(), register).await.unwrap().id;
            beat(&meta, id).await;
            nodes.push(peers.find(id));
        }
        let (server, ids) = (serving.clone(), nodes.iter().map(|node| node.id).collect::<Vec<_>>());
        let beats = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                for &id in &ids {
                    let server = server.lock().clone();
                    beat(&server, id).await;
                }
            }
        });
        let (meta_messages, data_messages, late) = (Messages::default(), Messages::default(), Late::default());
        World {
            env,
            meta,
            serving,
            store,
            config,
            policy,
            nodes,
            meta_messages,
            data_messages,
            late,
            answered_late: Late::default(),
            peers,
            _beats: beats,
        }
    }

    pub async fn client(&self) -> Arc<Client> {
        self.client_with(ClientConfig::default()).await
    }

    pub async fn client_with(&self, config: ClientConfig) -> Arc<Client> {
        let meta = |messages: &Messages| {
            let (server, messages, late) = (self.serving.clone(), messages.clone(), self.late.clone());
            Meta { server, messages, late, answered_late: self.answered_late.clone() }
        };
        let (namespace, control) = (meta(&self.meta_messages), meta(&Messages::default()));
        let peers = Peers { messages: self.data_messages.clone(), ..self.peers.clone() };
        Client::start(self.env.clone(), namespace, control, peers, config).await.unwrap()
    }

    /// Who moves chunks with one copy off drained servers, as in the metadata server's process; until it is aborted.
    pub fn mover(&self) -> tokio::task::JoinHandle<()> {
        let (server, messages, late) = (self.serving.clone(), Messages::default(), self.late.clone());
        let door = Arc::new(Meta { server, messages, late, answered_late: self.answered_late.clone() });
        let peers = Peers { messages: Messages::default(), ..self.peers.clone() };
        let config = ClientConfig { local_reads: false, ..ClientConfig::default() };
        tokio::spawn(braid_client::keep_moving(self.env.clone(), door, move || peers.clone(), config))
    }

    pub async fn set_duty(&self, server: ServerId, duty: Duty) {
        let set = AdminQuery::SetDuty { server, duty, move_rate: Some(1 << 30) };
        self.meta.call(Context::default(), set).await.unwrap();
    }

    pub async fn drain_of(&self, server: ServerId) -> braid_api::admin::Drain {
        match self.meta.call(Context::default(), AdminQuery::Drain { server }).await.unwrap() {
            braid_api::admin::AdminAnswer::Drain(drain) => *drain,
            other => panic!("{other:?}"),
        }
    }

    /// Nothing of it is needed any more, and nothing is there.
    /// Asked until it is heard.
    pub async fn rebalance(&self, query: AdminQuery) -> braid_api::admin::Rebalance {
        use braid_api::admin::AdminAnswer;
        loop {
            match self.meta.call(Context::default(), query.clone()).await {
                Ok(AdminAnswer::Rebalance(seen) | AdminAnswer::SetRebalance(seen)) => return *seen,
                Ok(other) => panic!("{other:?}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    pub async fn until_drained(&self, server: ServerId) {
        let begun = std::time::Instant::now();
        while self.drain_of(server).await.duty != Duty::Drained {
            assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", self.drain_of(server).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let node = self.nodes.iter().find(|node| node.id == server).unwrap();
        let list = ListChunks { after: ChunkId(0), limit: 1000 };
        let (list, _) = node.call(Context::default(), list, Bytes::new()).await.unwrap();
        assert!(list.chunks.is_empty(), "{:?}", list.chunks);
    }

    /// The metadata server crashes and starts again. Of what is not durable only the oldest `kept` changes are left.
    pub async fn restart_meta(&mut self, kept: usize) {
        let mut left = kept;
        self.meta.stop();
        self.store.crash(|| {
            left = left.wrapping_sub(1);
            left < kept
        });
        let engine = Arc::new(MemEngine::new(self.store.clone()));
        let (env, peers, config) = (self.env.clone(), self.peers.clone(), self.config.clone());
        self.meta = MetaServer::start(env, engine, peers, config, CLUSTER, self.policy).await.unwrap();
        *self.serving.lock() = self.meta.clone();
        // Data servers come again within a heartbeat.
        for node in &self.nodes {
            let register = RegisterServer {
                id: node.id,
                incarnation: 1,
                addresses: vec!["tcp:nowhere:1".into()],
                host: "one".into(),
                clean_stop: false,
                rack: String::new(),
            };
            self.meta.call(Context::default(), register).await.unwrap();
            beat(&self.meta, node.id).await;
        }
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Where the chunk of this index lies; there is one file.
    pub async fn server_of(&self, index: u64) -> ServerId {
        for node in &self.nodes {
            let list = ListChunks { after: ChunkId(0), limit: 1000 };
            let (list, _) = node.call(Context::default(), list, Bytes::new()).await.unwrap();
            if list.chunks.iter().any(|status| status.inode.0 != 0 && status.index.0 == index) {
                return node.id;
            }
        }
        panic!("no server has chunk {index}");
    }

    /// All chunks there are, on any data server.
    pub async fn chunks(&self) -> Vec<ChunkId> {
        let mut chunks = Vec::new();
        for node in &self.nodes {
            let list = ListChunks { after: ChunkId(0), limit: 1000 };
            let (list, _) = node.call(Context::default(), list, Bytes::new()).await.unwrap();
            chunks.extend(list.chunks.iter().map(|status| status.chunk));
        }
        chunks
    }

    pub async fn sessions(&self) -> Vec<SessionId> {
        match self.meta.call(Context::default(), AdminQuery::Sessions).await.unwrap() {
            braid_api::admin::AdminAnswer::Sessions(all) => all.iter().map(|status| status.session).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// How often all leases of a session ran out.
    pub async fn leases_run_out(&self) -> u64 {
        match self.meta.call(Context::default(), AdminQuery::Status).await.unwrap() {
            braid_api::admin::AdminAnswer::Status(status) => status.leases_run_out,
            other => panic!("{other:?}"),
        }
    }

    /// As when the session's client has been silent for too long.
    pub async fn end_session(&self, session: SessionId) {
        let cx = Context { token: Token { session, ..Token::default() }, ..Context::default() };
        self.meta.call(cx, EndSession {}).await.unwrap();
    }

    /// Messages of clients to the metadata server and to data servers since the last call, by name; renewals are not counted.
    pub fn take_messages(&self) -> (BTreeMap<&'static str, u64>, BTreeMap<&'static str, u64>) {
        (std::mem::take(&mut self.meta_messages.lock()), std::mem::take(&mut self.data_messages.lock()))
    }

    /// How often the metadata server has asked data servers this; its housekeeping does when it likes.
    pub fn asked_by_meta(&self, message: &str) -> u64 {
        self.peers.messages.lock().get(message).copied().unwrap_or_default()
    }
}

async fn beat(meta: &MetaServer, id: ServerId) {
    let bytes = 100 << 30;
    let beat = Heartbeat {
        id,
        incarnation: 1,
        disk: 0,
        filesystem: 0,
        bytes_total: bytes,
        bytes_free: bytes,
        chunks: 0,
        bad_blocks: 0,
        sealed_blocks: 0,
    };
    let _ = meta.call(Context::default(), beat).await;
}

pub fn cx() -> Caller {
    Caller { uid: 1000, gid: 1000, umask: 0o022, ..Caller::default() }
}

pub fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub const READ_WRITE: OpenFlags = OpenFlags::READ_WRITE;
pub const READ: OpenFlags = OpenFlags::READ;

/// Makes or opens a file in the root.
pub async fn create(client: &Client, text: &str) -> (InodeId, HandleId) {
    let (entry, opened) = client.create(&cx(), InodeId::ROOT, &name(text), Mode(0o644), READ_WRITE).await.unwrap();
    (entry.attr.id, opened.handle)
}

pub async fn open(client: &Client, id: InodeId, flags: OpenFlags) -> HandleId {
    client.open(&cx(), id, flags).await.unwrap().handle
}

/// What close(2) does.
pub async fn close(client: &Client, handle: HandleId) -> Result<()> {
    let flushed = client.flush(handle).await;
    client.release(handle).await;
    flushed
}

pub async fn read(client: &Client, handle: HandleId, offset: u64, len: u32) -> Vec<u8> {
    client.read(handle, offset, len).await.unwrap().concat()
}

/// Bytes that tell where they belong.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(31).wrapping_add(at >> 8).wrapping_add(seed * 97) % 251) as u8 + 1)
        .collect()
}

/// A file in the root that is written and closed.
pub async fn put(client: &Client, text: &str, bytes: &[u8]) -> InodeId {
    let (id, handle) = create(client, text).await;
    client.write(handle, 0, Bytes::copy_from_slice(bytes)).await.unwrap();
    close(client, handle).await.unwrap();
    id
}

/// Of a file that is put as a whole.
pub fn file_spec() -> NodeSpec {
    NodeSpec {
        kind: FileKind::File,
        mode: Mode(0o644),
        umask: 0,
        uid: 0,
        gid: 0,
        rdev: DeviceId(0),
        target: Bytes::new(),
    }
}

/// As `cat` does it: opened, read, closed.
pub async fn cat(client: &Client, id: InodeId) -> Vec<u8> {
    let handle = open(client, id, READ).await;
    let bytes = read(client, handle, 0, 1 << 20).await;
    close(client, handle).await.unwrap();
    bytes
}

/// Messages to the metadata server of what is done.
pub async fn asked(world: &World, what: impl Future<Output = ()>) -> BTreeMap<&'static str, u64> {
    world.take_messages();
    what.await;
    world.take_messages().0
}

/// The first difference, short enough to read.
#[track_caller]
pub fn assert_same(got: &[u8], expected: &[u8], context: impl std::fmt::Display) {
    if got != expected {
        let at = got.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(got.len().min(expected.len()));
        let near = |bytes: &[u8]| bytes[at..(at + 8).min(bytes.len())].to_vec();
        panic!(
            "{context}: {} bytes for {} differ at {at}: {:?}, expected {:?}",
            got.len(),
            expected.len(),
            near(got),
            near(expected)
        );
    }
}
