//! A metadata server over the in-memory engine, with a data node that only remembers, and one session.
#![allow(dead_code, clippy::unwrap_used)]

pub mod ring;
pub mod rows;

use braid_api::admin::{AdminAnswer, AdminQuery, Pending};
use braid_api::data::*;
use braid_api::meta::*;
use braid_api::{Carries, Code, Context, DataNode, DataPeers, Error, Namespace, Result};
use braid_env::Env;
use braid_meta_engine::{AnyEngine, Engine, MemEngine, MemStore, StatsSnapshot};
use braid_meta_server::{MetaConfig, MetaServer};
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
pub use rows::Rows;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Remembers what was deleted and fenced; knows the chunks it was told of.
#[derive(Default)]
pub struct FakeNode {
    pub deleted: Mutex<BTreeSet<ChunkId>>,
    /// It does not answer who wants these deleted.
    pub keeps: Mutex<BTreeSet<ChunkId>>,
    pub fenced: Mutex<BTreeSet<SessionId>>,
    /// It does not answer who wants a session fenced.
    pub away: AtomicBool,
    pub written: Mutex<Vec<ChunkStatus>>,
    /// What a fenced session is said to have made longer.
    pub grown: Mutex<Vec<ChunkId>>,
}

impl DataNode for FakeNode {
    async fn execute(&self, _: Context, request: DataRequest, _: Bytes) -> Result<(DataAnswer, Bytes)> {
        let answer = match request {
            DataRequest::DeleteChunks(m) if m.chunks.iter().any(|c| self.keeps.lock().contains(c)) => {
                return Err(Error::new(Code::Unreachable, "data server", "unplugged"));
            }
            DataRequest::DeleteChunks(m) => {
                self.deleted.lock().extend(m.chunks);
                DataAnswer::DeleteChunks(())
            }
            DataRequest::FenceSession(_) if self.away.load(Ordering::Relaxed) => {
                return Err(Error::new(Code::Unreachable, "data server", "unplugged"));
            }
            DataRequest::FenceSession(m) => {
                self.fenced.lock().insert(m.session);
                DataAnswer::FenceSession(Fenced { grown: self.grown.lock().clone(), ..Fenced::default() })
            }
            DataRequest::StatChunk(m) => match self.written.lock().iter().find(|c| c.chunk == m.chunk) {
                Some(found) => DataAnswer::StatChunk(found.clone()),
                None => return Err(Code::ChunkUnknown.into()),
            },
            DataRequest::ListChunks(m) => {
                let mut chunks = self.written.lock().clone();
                chunks.retain(|c| c.chunk > m.after);
                chunks.sort_by_key(|c| c.chunk);
                let more = chunks.len() > m.limit as usize;
                chunks.truncate(m.limit as usize);
                DataAnswer::ListChunks(ChunkList { chunks, more, ..ChunkList::default() })
            }
            DataRequest::SyncChunks(_) => {
                DataAnswer::SyncChunks(SyncAnswer { incarnation: 1, stable: 0, deletions: 0 })
            }
            other => return Err(Error::new(Code::NotSupported, other.name(), "not in this test")),
        };
        Ok((answer, Bytes::new()))
    }
}

#[derive(Clone, Default)]
pub struct Peers(pub Arc<FakeNode>);

impl DataPeers for Peers {
    type Node = FakeNode;
    fn node(&self, _: &ServerInfo) -> Arc<FakeNode> {
        self.0.clone()
    }
}

pub struct World {
    pub store: MemStore,
    pub engine: AnyEngine,
    pub peers: Peers,
    pub server: Arc<MetaServer>,
    pub session: SessionReply,
    next_request: AtomicU64,
}

pub fn fast_config() -> MetaConfig {
    let (housekeeping, limits_known) = (Duration::from_millis(20), Duration::from_millis(200));
    MetaConfig { housekeeping, limits_known, ..MetaConfig::default() }
}

/// Reads the list of orphans, as clients do with their renewals, and holds these.
pub async fn disclaim(w: &World, held: &[InodeId]) {
    let renew = |seen| RenewSession { low_water: RequestId(0), orphans_seen: seen, orphans_held: held.to_vec() };
    let told = w.call(renew(0)).await.unwrap();
    w.call(renew(told.orphans_seen)).await.unwrap();
}

/// For 50 ms.
pub async fn until_it_stays(count: impl Fn() -> u64) {
    let mut before = None;
    while before != Some(count()) {
        before = Some(count());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whose round trips would be counted too.
pub fn without_housekeeping() -> MetaConfig {
    let long = Duration::from_secs(3600);
    MetaConfig { housekeeping: long, limits_known: long, ..fast_config() }
}

impl World {
    pub async fn new() -> World {
        World::on(MemStore::new(), Peers::default()).await
    }

    /// A server started on what `store` holds: also how a restart is made.
    pub async fn on(store: MemStore, peers: Peers) -> World {
        World::with(store, peers, fast_config(), 1).await
    }

    pub async fn with(store: MemStore, peers: Peers, config: MetaConfig, client: u64) -> World {
        let engine = AnyEngine::new(Arc::new(MemEngine::new(store.clone())));
        World::over(engine, store, peers, config, client).await
    }

    /// Over rows of any kind; those of a `MemStore` are in `store`.
    pub async fn over(engine: AnyEngine, store: MemStore, peers: Peers, config: MetaConfig, client: u64) -> World {
        let (cluster, policy) = (ClusterId([7; 16]), Policy::PLAIN);
        let server = MetaServer::start(Env::os(), Arc::new(engine.clone()), peers.clone(), config, cluster, policy)
            .await
            .unwrap();
        let session = open_session(&server, client).await;
        // A restarted server meets a client that goes on counting where it was.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let next_request = AtomicU64::new(NEXT.fetch_add(1 << 32, Ordering::Relaxed));
        World { store, engine, peers, server, session, next_request }
    }

    pub fn cx(&self) -> Context {
        self.cx_of(&self.session)
    }

    pub fn cx_of(&self, session: &SessionReply) -> Context {
        let token = Token { session: session.session, session_epoch: session.epoch, ..Token::default() };
        let request = RequestId(self.next_request.fetch_add(1, Ordering::Relaxed));
        Context { token, request, ..Context::default() }
    }

    pub async fn call<M>(&self, message: M) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer> + Send,
        M::Answer: Send,
    {
        self.server.call(self.cx(), message).await
    }

    /// What the server does behind its answers has come to an end.
    pub async fn until_nothing_is_asked(&self) {
        until_it_stays(|| self.engine.stats().snapshot().round_trips).await;
    }

    /// Engine round trips of one call, with its answer.
    pub async fn counted<M>(&self, message: M) -> (u64, M::Answer)
    where
        M: Carries<MetaRequest, MetaAnswer> + Send,
        M::Answer: Send,
    {
        let before: StatsSnapshot = self.engine.stats().snapshot();
        let answer = self.call(message).await.unwrap();
        (self.engine.stats().snapshot().round_trips - before.round_trips, answer)
    }

    pub async fn mkdir(&self, parent: InodeId, text: &str) -> Attr {
        self.call(MakeNode { parent: parent.into(), name: name(text), spec: spec(FileKind::Directory) })
            .await
            .unwrap()
            .attr
    }

    pub async fn create(&self, parent: InodeId, text: &str) -> OpenAnswer {
        self.call(create(parent, text)).await.unwrap()
    }

    pub async fn lookup(&self, parent: InodeId, text: &str) -> Option<Attr> {
        self.call(Lookup { parent, name: name(text) }).await.unwrap().attr
    }

    pub async fn attr(&self, id: InodeId) -> Result<Attr> {
        Ok(self.call(GetAttr { inode: id.into() }).await?.attr)
    }

    pub async fn unlink(&self, parent: InodeId, text: &str, open_here: bool) -> Result<Attr> {
        Ok(self.call(Unlink { parent: parent.into(), name: name(text), open_here }).await?.attr)
    }

    pub async fn rename(&self, from: (InodeId, &str), to: (InodeId, &str), mode: RenameKind) -> Result<RenameAnswer> {
        self.call(rename(from, to, mode)).await
    }

    /// A registered data server that is up and has room.
    pub async fn add_data_server(&self) -> ServerId {
        self.data_server(ServerId(0)).await
    }

    /// The same of one that has an id from before.
    pub async fn data_server(&self, id: ServerId) -> ServerId {
        let id = self.call(registers(id)).await.unwrap().id;
        assert!(!self.call(beat(id)).await.unwrap().register_again);
        id
    }

    pub async fn spares(&self, count: u32) -> Spares {
        self.call(TakeSpares { policy: Policy::PLAIN, count, beside: None, for_moves: false }).await.unwrap()
    }

    /// All that waits to be freed and all spares, asked for in pages.
    pub async fn pending(&self, limit: u32) -> Vec<Pending> {
        let mut all: Vec<Pending> = Vec::new();
        loop {
            let after = all.last().copied();
            let AdminAnswer::Pending(page) = self.call(AdminQuery::Pending { after, limit }).await.unwrap() else {
                panic!("another answer")
            };
            assert!(page.len() <= limit as usize);
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    pub async fn commit(&self, attr: &Attr, size: u64, content: CommitContent) -> Result<CommitAnswer> {
        self.call(commit(attr, size, content)).await
    }
}

pub fn commit(attr: &Attr, size: u64, content: CommitContent) -> CommitFile {
    CommitFile {
        inode: attr.id.into(),
        trunc_gen: attr.trunc_gen,
        size,
        mtime: None,
        atime: None,
        content,
        cuts_applied: TruncGen(0),
        kill_privileges: false,
        unused: Vec::new(),
    }
}

pub fn create(parent: InodeId, text: &str) -> CreateFile {
    CreateFile {
        parent: parent.into(),
        name: name(text),
        spec: spec(FileKind::File),
        exclusive: true,
        truncate: false,
        write: true,
    }
}

pub fn rename(from: (InodeId, &str), to: (InodeId, &str), mode: RenameKind) -> Rename {
    Rename {
        from: from.0.into(),
        from_name: name(from.1),
        to: to.0.into(),
        to_name: name(to.1),
        mode,
        open_here: false,
    }
}

pub async fn open_session(server: &MetaServer, client: u64) -> SessionReply {
    open_session_after(server, client, None).await
}

/// As a client that had another number before.
pub async fn open_session_after(server: &MetaServer, client: u64, former: Option<u64>) -> SessionReply {
    let open = OpenSession {
        client,
        former,
        since: SessionId(0),
        description: format!("client {client}"),
        host: "h".into(),
        caches: false,
    };
    server.call(Context::default(), open).await.unwrap()
}

pub fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub fn spec(kind: FileKind) -> NodeSpec {
    NodeSpec {
        kind,
        mode: Mode(if kind == FileKind::Directory { 0o755 } else { 0o644 }),
        umask: 0,
        uid: 1000,
        gid: 1000,
        rdev: DeviceId(0),
        target: if kind == FileKind::Symlink { Bytes::from_static(b"target") } else { Bytes::new() },
    }
}

/// A data server that is nowhere.
pub fn registers(id: ServerId) -> RegisterServer {
    RegisterServer {
        id,
        incarnation: 1,
        addresses: vec!["tcp:nowhere:1".into()],
        host: "h".into(),
        clean_stop: false,
        rack: String::new(),
    }
}

/// Its sign of life.
pub fn beat(id: ServerId) -> Heartbeat {
    Heartbeat {
        id,
        incarnation: 1,
        disk: 0,
        filesystem: 0,
        bytes_total: 100 << 30,
        bytes_free: 100 << 30,
        chunks: 0,
        bad_blocks: 0,
        sealed_blocks: 0,
    }
}

pub fn chmod(id: InodeId, mode: u32) -> ChangeAttr {
    ChangeAttr { mode: Some(Mode(mode)), ..no_change(id) }
}

pub fn truncate(id: InodeId, size: u64) -> ChangeAttr {
    ChangeAttr { size: Some(size), ..no_change(id) }
}

pub fn no_change(id: InodeId) -> ChangeAttr {
    ChangeAttr {
        inode: id.into(),
        mode: None,
        uid: None,
        gid: None,
        size: None,
        atime: None,
        mtime: None,
        kill_privileges: false,
        cuts_applied: TruncGen(0),
    }
}

pub fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.expect_err("must fail").code
}

/// Waits until `done`, for at most 5 s.
pub async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if done().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen within 5 s");
}
