//! Containers with several copies: real data servers, the leader in the metadata server, rows in an engine.
#![allow(clippy::unwrap_used)]

use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::data::*;
use braid_api::meta::*;
use braid_api::{Carries, Code, Context, DataNode, DataPeers, Error, Namespace, Result};
use braid_data_server::{Announcement, DataServer, DataServerConfig, SharedLinks, WireLinks};
use braid_data_store::{DiskStore, StoreIdentity, StoreOptions};
use braid_env::simdisk::SimDisk;
use braid_env::*;
use braid_meta_engine::{Engine, MemEngine, MemStore};
use braid_meta_namespace::ops::spares::ReadContainers;
use braid_meta_namespace::rows::ContainerRow;
use braid_meta_server::{MetaConfig, MetaServer};
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

struct TestClock(tokio::time::Instant);

impl Clock for TestClock {
    fn now(&self) -> Monotonic {
        Monotonic(Duration::from_secs(1000) + self.0.elapsed())
    }
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move { tokio::time::sleep(duration).await })
    }
}

struct InPlace;

impl Spawn for InPlace {
    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        TaskHandle(tokio::spawn(task))
    }
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

pub type Server = Arc<DataServer>;
pub type Meta = MetaServer;

/// Who can be reached.
#[derive(Default)]
pub struct Net {
    pub servers: Mutex<BTreeMap<ServerId, Server>>,
    pub meta: Mutex<Option<Arc<Meta>>>,
    pub away: Mutex<BTreeSet<ServerId>>,
}

#[derive(Clone)]
pub struct Peers(pub Arc<Net>);

pub struct Node(pub Arc<Net>, pub ServerId);

impl DataPeers for Peers {
    type Node = Node;
    fn node(&self, server: &ServerInfo) -> Arc<Node> {
        Arc::new(Node(self.0.clone(), server.id))
    }
}

impl DataNode for Node {
    async fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let server = self.0.servers.lock().get(&self.1).cloned();
        match server.filter(|_| !self.0.away.lock().contains(&self.1)) {
            Some(server) => server.execute(cx, request, payload).await,
            None => Err(Error::bare(Code::Unreachable)),
        }
    }
}

/// Others as one data server reaches them; who is away reaches nobody.
#[derive(Clone)]
struct PeersOf(Arc<Net>, ServerId);

struct NodeOf(Node, ServerId);

impl DataPeers for PeersOf {
    type Node = NodeOf;
    fn node(&self, server: &ServerInfo) -> Arc<NodeOf> {
        Arc::new(NodeOf(Node(self.0.clone(), server.id), self.1))
    }
}

impl DataNode for NodeOf {
    async fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        let is_away = self.0.0.away.lock().contains(&self.1);
        if is_away {
            return Err(Error::bare(Code::Unreachable));
        }
        self.0.execute(cx, request, payload).await
    }
}

/// The metadata server that runs now, as one data server sees it.
struct Front(Arc<Net>, ServerId);

impl Namespace for Front {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let meta = self.0.meta.lock().clone();
        match meta.filter(|_| !self.0.away.lock().contains(&self.1)) {
            Some(meta) => meta.execute(cx, request).await,
            None => Err(Error::bare(Code::Unreachable)),
        }
    }
}

pub struct World {
    pub net: Arc<Net>,
    pub store: MemStore,
    pub disks: BTreeMap<ServerId, SimDisk>,
    session: Mutex<Option<SessionReply>>,
    request: AtomicU64,
    /// Servers stand in so many, in turns; 0: nobody says where.
    pub racks: u64,
    pub moves: MovesConfig,
}

/// Of the metadata server.
pub struct MovesConfig {
    pub rate: u64,
    pub at_once: usize,
    /// Between rounds of block reports.
    pub report_every: Duration,
}

const CLUSTER: ClusterId = ClusterId([7; 16]);

fn env_of(disk: &SimDisk) -> Env {
    Env {
        clock: Arc::new(TestClock(tokio::time::Instant::now())),
        random: Env::os().random,
        disk: Arc::new(disk.clone()),
        transport: Arc::new(os::OsTransport),
        spawner: Arc::new(InPlace),
    }
}

pub fn copies() -> Policy {
    "replica:3".parse().unwrap()
}

/// From the chunk's begin on.
pub fn write_of(info: &ContainerInfo, chunk: ChunkId, sync: bool) -> WriteCopies {
    let write = WriteChunk {
        chunk,
        container: info.id,
        offset: 0,
        chunk_bytes: copies().chunk_bytes,
        inode: InodeId(1 << 12),
        index: ChunkIndex(0),
        cuts: Vec::new(),
        sync,
        make: Make::Yes,
        kept_beside: false,
        alone: true,
        once: None,
    };
    WriteCopies { write, durability: Durability::Fsync }
}

pub fn read_of(info: &ContainerInfo, chunk: ChunkId, len: u32) -> ReadCopy {
    ReadCopy {
        chunk,
        container: info.id,
        offset: 0,
        len,
        cuts: Vec::new(),
        at_least: Version::default(),
        kept_beside: false,
        ordered: false,
        hold: None,
    }
}

/// Of a client that caches nothing.
pub fn open_of(client: u64, description: &str) -> OpenSession {
    let (description, host) = (description.to_owned(), "here".to_owned());
    OpenSession { client, former: None, since: SessionId(0), description, host, caches: false }
}

impl World {
    pub async fn new(servers: u64) -> World {
        World::in_racks(servers, 0).await
    }

    pub async fn in_racks(servers: u64, racks: u64) -> World {
        let disks = (1..=servers).map(|id| (ServerId(id), SimDisk::new())).collect();
        let (session, request) = (Mutex::default(), AtomicU64::new(1));
        let moves = MovesConfig {
            rate: MetaConfig::default().move_bytes_per_s,
            at_once: 4,
            report_every: MetaConfig::default().report_every,
        };
        let world = World { net: Arc::default(), store: MemStore::new(), disks, session, request, racks, moves };
        world.start_meta().await;
        for id in 1..=servers {
            world.start(id, true).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        world
    }

    pub async fn start_meta(&self) {
        let engine = Arc::new(MemEngine::new(self.store.clone()));
        let (env, peers) = (env_of(&SimDisk::new()), Peers(self.net.clone()));
        let MovesConfig { rate: move_bytes_per_s, at_once: moves_at_once, report_every } = self.moves;
        let config = MetaConfig { move_bytes_per_s, moves_at_once, report_every, ..MetaConfig::default() };
        let meta = MetaServer::start(env, engine, peers, config, CLUSTER, Policy::PLAIN).await.unwrap();
        *self.net.meta.lock() = Some(meta.clone());
        let open = open_of(1, "test");
        *self.session.lock() = Some(meta.call(Context::default(), open).await.unwrap());
    }

    pub async fn start(&self, id: u64, first: bool) {
        let id = ServerId(id);
        let env = env_of(&self.disks[&id]);
        let front = Arc::new(Front(self.net.clone(), id));
        let addresses = vec![format!("unix:/{id}")];
        let rack = if self.racks == 0 { String::new() } else { format!("rack{}", id.0 % self.racks) };
        let announcement = Announcement { addresses, host: format!("host{id}"), rack, ..Announcement::default() };
        let identity = StoreIdentity { cluster: CLUSTER, server: id };
        if first {
            let made = braid_data_server::enrol(&env, &*front, None, &announcement).await.unwrap();
            assert_eq!(made, identity);
        }
        let store = DiskStore::open_or_create(env.disk.clone(), Path::new("/s"), identity, StoreOptions::default());
        let server = DataServer::start(env.clone(), Arc::new(store.unwrap()), identity, DataServerConfig::default());
        server.report_to(front.clone(), announcement);
        let peers = PeersOf(self.net.clone(), id);
        let links = WireLinks::new(env, id, peers.clone(), peers, front);
        server.join_chains(Arc::new(SharedLinks(links)));
        self.net.servers.lock().insert(id, server);
    }

    pub fn power_cut(&self, id: u64, seed: u64) {
        self.net.servers.lock().remove(&ServerId(id));
        self.disks[&ServerId(id)].crash(seed);
    }

    pub async fn ask<M>(&self, message: M) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer> + Send,
        M::Answer: Send,
    {
        let session = self.session.lock().clone().unwrap();
        let token = Token { session: session.session, session_epoch: session.epoch, ..Token::default() };
        let request = RequestId(self.request.fetch_add(1, SeqCst));
        let meta = self.net.meta.lock().clone().unwrap();
        meta.call(Context { token, request, ..Context::default() }, message).await
    }

    /// A spare chunk with three copies.
    pub async fn spare(&self) -> (ChunkId, ContainerInfo) {
        let beside = Some(ServerId(1));
        let given = self.ask(TakeSpares { policy: copies(), count: 1, beside, for_moves: false }).await.unwrap();
        (given.spares[0].0, given.containers[0].clone())
    }

    pub async fn sessions(&self) -> Vec<SessionId> {
        match self.ask(AdminQuery::Sessions).await.unwrap() {
            AdminAnswer::Sessions(all) => all.iter().map(|status| status.session).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub async fn row(&self, id: ContainerId) -> ContainerRow {
        let rows = MemEngine::new(self.store.clone()).read(0, ReadContainers(vec![id])).await.unwrap();
        rows.into_iter().next().unwrap().1
    }

    /// Asks the members of the chain, as the metadata server says it is, until one does it.
    pub async fn at_a_member<M>(&self, id: ContainerId, message: M, payload: Bytes) -> (ServerId, M::Answer, Bytes)
    where
        M: Carries<DataRequest, DataAnswer> + Clone + Send,
        M::Answer: Send,
    {
        let mut last = None;
        for _ in 0..300 {
            let info = self.ask(GetContainers { ids: vec![id] }).await.unwrap().remove(0);
            for member in info.chain {
                let node = Node(self.net.clone(), member);
                let token = Token { session: SessionId(1), session_epoch: SessionEpoch(1), ..Token::default() };
                let cx = Context { token, deadline: Duration::from_secs(5), ..Context::default() };
                match node.call(cx, message.clone(), payload.clone()).await {
                    Ok((answer, bytes)) => return (member, answer, bytes),
                    Err(error) => last = Some(error),
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("nobody did it: {last:?}, {:?}", self.row(id).await);
    }

    pub async fn write(&self, info: &ContainerInfo, chunk: ChunkId, value: u8) -> ServerId {
        self.write_long(info, chunk, value, 100_000).await
    }

    pub async fn write_long(&self, info: &ContainerInfo, chunk: ChunkId, value: u8, len: usize) -> ServerId {
        let message = write_of(info, chunk, true);
        self.at_a_member(info.id, message, Bytes::from(vec![value; len])).await.0
    }

    pub async fn read(&self, info: &ContainerInfo, chunk: ChunkId) -> Bytes {
        let read = read_of(info, chunk, 100_000);
        self.at_a_member(info.id, read, Bytes::new()).await.2
    }

    /// Until the row says that every chunk is open in the newest epoch, with three members.
    pub async fn settled(&self, id: ContainerId) -> ContainerRow {
        for _ in 0..600 {
            let row = self.row(id).await;
            let copies = row.copies.clone().unwrap();
            if copies.settled && copies.last_open.is_empty() && row.older.is_empty() && row.chain.len() == 3 {
                return row;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{:?}", self.row(id).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_gets_a_successor_for_a_server_that_is_gone() {
    let world = World::new(4).await;
    let (chunk, info) = world.spare().await;
    assert_eq!((info.chain.len(), info.chain[0], info.epoch), (3, ServerId(1), ChainEpoch(1)));
    assert_eq!(world.write(&info, chunk, 7).await, ServerId(1), "the writer's own is the owner");
    let begun = tokio::time::Instant::now();
    world.power_cut(1, 5);
    assert!(world.read(&info, chunk).await.iter().all(|b| *b == 7));
    let owner = world.write(&info, chunk, 8).await;
    assert!(owner != ServerId(1) && begun.elapsed() < Duration::from_secs(10), "{owner}, {:?}", begun.elapsed());
    let row = world.settled(info.id).await;
    assert!(row.epoch > ChainEpoch(1) && !row.chain.contains(&ServerId(1)), "{row:?}");
    assert!(world.read(&info, chunk).await.iter().all(|b| *b == 8));
    // It is back, and the chain has no need of it.
    world.start(1, false).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.row(info.id).await, row);
}

/// An answer that was lost is given again as it was, with the chains of then. Whoever asks for a chain after that is told the one of now, or would
/// be refused by all of its servers for ever.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_repeated_takes_no_chain_back() {
    let world = World::new(4).await;
    let (chunk, info) = world.spare().await;
    let repeated = RequestId(world.request.load(SeqCst) - 1);
    world.write(&info, chunk, 7).await;
    world.power_cut(1, 5);
    world.write(&info, chunk, 8).await;
    let now = world.settled(info.id).await.info(info.id);
    assert!(now.epoch > info.epoch);
    let chain = async || world.ask(GetContainers { ids: vec![info.id] }).await.unwrap();
    assert_eq!(chain().await, std::slice::from_ref(&now));
    world.request.store(repeated.0, SeqCst);
    let (again, told) = world.spare().await;
    assert_eq!((again, &told), (chunk, &info), "as it was answered first");
    world.request.store(repeated.0 + 1000, SeqCst);
    assert_eq!(chain().await, [now]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_returns_takes_its_place_when_there_is_no_other() {
    let world = World::new(3).await;
    let (chunk, info) = world.spare().await;
    world.write(&info, chunk, 1).await;
    world.power_cut(2, 9);
    world.write(&info, chunk, 2).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.row(info.id).await.chain.len(), 2, "two of three are left");
    world.start(2, false).await;
    world.settled(info.id).await;
    // Also the two that never went may go now.
    for id in [1, 3] {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.power_cut(id, id);
        assert!(world.read(&info, chunk).await.iter().all(|b| *b == 2), "without {id}");
        world.start(id, false).await;
        world.settled(info.id).await;
    }
}

impl World {
    /// Copies of the chunk at this server, as it says.
    pub async fn held(&self, server: u64, chunk: ChunkId) -> bool {
        let node = Node(self.net.clone(), ServerId(server));
        let listed = node.call(Context::default(), ListChunks { after: ChunkId(0), limit: 100 }, Bytes::new()).await;
        listed.unwrap().0.chunks.iter().any(|held| held.chunk == chunk)
    }

    /// The session leaves: its spare chunks are freed.
    pub async fn leave(&self) {
        self.ask(CloseSession {}).await.unwrap();
        self.go_on_as_another().await;
    }

    /// What is asked from now on is another client's.
    pub async fn go_on_as_another(&self) {
        let meta = self.net.meta.lock().clone().unwrap();
        let open = open_of(2, "other");
        *self.session.lock() = Some(meta.call(Context::default(), open).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_server_deletes_its_copies_and_not_before_the_others_have_all() {
    let world = World::new(4).await;
    let (chunk, info) = world.spare().await;
    world.write(&info, chunk, 7).await;
    world.power_cut(1, 5);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!world.settled(info.id).await.chain.contains(&ServerId(1)));
    // Another is away: the chain is not complete, and what the removed server has may still be needed.
    let away = world.row(info.id).await.chain[2];
    world.power_cut(away.0, 6);
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.net.away.lock().insert(ServerId(1));
    world.start(1, false).await;
    assert!(world.net.servers.lock()[&ServerId(1)].copies(ChunkId(0), 10).len() == 1);
    world.net.away.lock().clear();
    world.start(away.0, false).await;
    let row = world.settled(info.id).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    for server in 1..=4 {
        let is_member = row.chain.contains(&ServerId(server));
        assert_eq!(world.held(server, chunk).await, is_member, "data server {server}, {row:?}");
    }
    assert!(world.read(&info, chunk).await.iter().all(|b| *b == 7));
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_was_deleted_while_a_member_was_away_does_not_come_back_with_it() {
    let world = World::new(4).await;
    let (chunk, info) = world.spare().await;
    world.write(&info, chunk, 7).await;
    let away = info.chain[1];
    world.power_cut(away.0, 5);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let row = world.settled(info.id).await;
    assert!(!row.chain.contains(&away), "{row:?}");
    world.leave().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The one that was away is needed again before anybody has told it.
    let gone = row.chain[2];
    world.power_cut(gone.0, 6);
    world.start(away.0, false).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(world.row(info.id).await.chain.contains(&away));
    world.start(gone.0, false).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    for server in 1..=4 {
        assert!(!world.held(server, chunk).await, "data server {server} has the deleted chunk");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_metadata_server_leads_on_from_the_rows() {
    let world = World::new(4).await;
    let (chunk, info) = world.spare().await;
    world.write(&info, chunk, 1).await;
    let old = world.net.meta.lock().take().unwrap();
    // With the leader away a server goes as well.
    world.power_cut(1, 3);
    tokio::time::sleep(Duration::from_secs(8)).await;
    let alone = Node(world.net.clone(), ServerId(2));
    let (container, at_least) = (info.id, Version::default());
    let read = ReadCopy {
        chunk,
        container,
        offset: 0,
        len: 10,
        cuts: Vec::new(),
        at_least,
        kept_beside: false,
        ordered: false,
        hold: None,
    };
    let refused = alone.call(Context::default(), read, Bytes::new()).await.unwrap_err();
    assert_eq!(refused.code, Code::StaleEpoch, "without a leader nobody has a lease: {refused}");
    world.start_meta().await;
    assert!(world.read(&info, chunk).await.iter().all(|b| *b == 1));
    world.write(&info, chunk, 2).await;
    let row = world.settled(info.id).await;
    assert!(row.epoch > ChainEpoch(1), "{row:?}");
    assert!(world.read(&info, chunk).await.iter().all(|b| *b == 2));
    // What the old one would still like to write is refused, or it would undo what the new one did.
    *world.net.meta.lock() = Some(old);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.row(info.id).await, row, "the old leader changed the chain");
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_client_wrote_into_copies_comes_into_its_file() {
    let world = World::new(3).await;
    let spec = NodeSpec {
        kind: FileKind::File,
        mode: Mode(0o644),
        umask: 0,
        uid: 0,
        gid: 0,
        rdev: DeviceId(0),
        target: Bytes::new(),
    };
    let name: Name = Name::new(b"f").unwrap();
    let made = world.ask(MakeNode { parent: InodeId::ROOT.into(), name, spec }).await.unwrap().attr;
    let (chunk, info) = world.spare().await;
    let write = WriteChunk {
        chunk,
        container: info.id,
        offset: 0,
        chunk_bytes: copies().chunk_bytes,
        inode: made.id,
        index: ChunkIndex(0),
        cuts: Vec::new(),
        sync: false,
        make: Make::Yes,
        kept_beside: false,
        alone: true,
        once: None,
    };
    let message = WriteCopies { write, durability: Durability::Fsync };
    world.at_a_member(info.id, message, Bytes::from(vec![3; 70_000])).await;
    // It says nothing more.
    tokio::time::sleep(Duration::from_secs(90)).await;
    world.go_on_as_another().await;
    let attr = world.ask(GetAttr { inode: made.id.into() }).await.unwrap().attr;
    assert_eq!(attr.size, 70_000);
}
