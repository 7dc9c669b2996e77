//! A small cluster in memory whose rows and chunks can be damaged by hand.

use crate::admin::fsck::report::{Report, Verdict};
use crate::admin::fsck::{Fsck, Options};
use braid_api::data::*;
use braid_api::meta::*;
use braid_api::{Carries, Code, Context, DataNode, DataPeers, Error, Namespace, Result};
use braid_env::Env;
use braid_meta_engine::{Engine, EngineError, Key, Lock, MemEngine, MemStore, Operation, Row, Tx};
use braid_meta_namespace::rows::{Entry, IdRow, Inode, RowFormat, keys};
use braid_meta_server::{MetaConfig, MetaServer};
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub const ROOT: InodeId = InodeId::ROOT;

/// A data server's chunks.
#[derive(Default)]
pub struct FakeNode {
    pub chunks: Mutex<BTreeMap<ChunkId, ChunkStatus>>,
    /// Answers nothing.
    pub broken: Mutex<bool>,
    /// Offsets of damaged blocks.
    pub bad: Mutex<BTreeMap<ChunkId, Vec<u64>>>,
    /// Known to be damaged; of those whose header is, nothing else is said.
    pub damaged: Mutex<BTreeMap<ChunkId, DamagedChunk>>,
}

impl FakeNode {
    pub fn write(&self, chunk: ChunkId, len: u64, trunc_gen: TruncGen) {
        let mut chunks = self.chunks.lock();
        let status = chunks.entry(chunk).or_insert(ChunkStatus { chunk, ..ChunkStatus::default() });
        status.len = status.len.max(len);
        status.trunc_gen = trunc_gen;
    }

    pub fn cut(&self, chunk: ChunkId, len: u64, trunc_gen: TruncGen) {
        if let Some(status) = self.chunks.lock().get_mut(&chunk) {
            status.len = status.len.min(len);
            status.trunc_gen = trunc_gen;
        }
    }
}

impl DataNode for FakeNode {
    async fn execute(&self, _: Context, request: DataRequest, _: Bytes) -> Result<(DataAnswer, Bytes)> {
        // Lets others run in between, as a network does.
        tokio::task::yield_now().await;
        if *self.broken.lock() {
            return Err(Error::new(Code::Unreachable, "data server", "unplugged"));
        }
        let mut chunks = self.chunks.lock();
        let answer = match request {
            DataRequest::DeleteChunks(m) => {
                m.chunks.iter().for_each(|c| drop(chunks.remove(c)));
                DataAnswer::DeleteChunks(())
            }
            DataRequest::FenceSession(_) => DataAnswer::FenceSession(Default::default()),
            DataRequest::StatChunk(m) => match chunks.get(&m.chunk) {
                Some(found) => DataAnswer::StatChunk(found.clone()),
                None => return Err(Code::ChunkUnknown.into()),
            },
            DataRequest::ListChunks(m) => {
                // Small pages, so that the paging is tested.
                let limit = m.limit.min(7) as usize;
                let after = (std::ops::Bound::Excluded(m.after), std::ops::Bound::Unbounded);
                let page: Vec<ChunkStatus> = chunks.range(after).take(limit).map(|(_, s)| s.clone()).collect();
                let more = page.len() == limit;
                let all = self.damaged.lock();
                let damaged: Vec<DamagedChunk> = page.iter().filter_map(|c| all.get(&c.chunk)).cloned().collect();
                let told = |c: &ChunkStatus| all.get(&c.chunk).is_none_or(|d| !d.header);
                DataAnswer::ListChunks(ChunkList { chunks: page.into_iter().filter(told).collect(), damaged, more })
            }
            DataRequest::SetAside(m) => {
                for chunk in m.chunks.iter().filter(|c| self.damaged.lock().remove(c).is_some()) {
                    chunks.remove(chunk);
                }
                DataAnswer::SetAside(())
            }
            DataRequest::ScrubChunk(m) => {
                let bad = self.bad.lock().get(&m.chunk).cloned().unwrap_or_default();
                DataAnswer::ScrubChunk(ScrubAnswer { blocks: 1, bad })
            }
            other => return Err(Error::new(Code::NotSupported, other.name(), "not in this test")),
        };
        Ok((answer, Bytes::new()))
    }
}

#[derive(Clone, Default)]
pub struct Peers(pub Arc<Mutex<BTreeMap<ServerId, Arc<FakeNode>>>>);

impl Peers {
    pub fn get(&self, id: ServerId) -> Arc<FakeNode> {
        self.0.lock().entry(id).or_default().clone()
    }
}

impl DataPeers for Peers {
    type Node = FakeNode;
    fn node(&self, server: &ServerInfo) -> Arc<FakeNode> {
        self.get(server.id)
    }
}

pub struct World {
    pub env: Env,
    pub engine: Arc<MemEngine>,
    pub peers: Peers,
    pub server: Arc<MetaServer>,
    pub session: SessionReply,
    next_request: AtomicU64,
}

/// Writes and deletes rows as they are.
struct Raw(Vec<(Key, Option<Row>)>);

impl Operation for Raw {
    type Output = ();
    type Error = EngineError;
    async fn run(&self, tx: &mut dyn Tx) -> std::result::Result<(), EngineError> {
        for (key, row) in &self.0 {
            match row {
                Some(row) => tx.put(key.clone(), row.clone()),
                None => tx.delete(key.clone()),
            }
        }
        Ok(())
    }
}

struct RawGet(Key);

impl Operation for RawGet {
    type Output = Option<Row>;
    type Error = EngineError;
    async fn run(&self, tx: &mut dyn Tx) -> std::result::Result<Option<Row>, EngineError> {
        Ok(tx.get(std::slice::from_ref(&self.0), Lock::None).await?.into_iter().next().flatten())
    }
}

impl World {
    /// With two data servers, a few directories and files, one of them with two names, one unlinked and open.
    pub async fn new() -> World {
        let (env, peers) = (Env::os(), Peers::default());
        let engine = Arc::new(MemEngine::new(MemStore::new()));
        // Housekeeping would mend orphans by itself: it comes when a test is long over.
        let config = MetaConfig { housekeeping: Duration::from_secs(600), ..MetaConfig::default() };
        let (cluster, policy) = (ClusterId([7; 16]), Policy::PLAIN);
        let server =
            MetaServer::start(env.clone(), engine.clone(), peers.clone(), config, cluster, policy).await.unwrap();
        let open = OpenSession {
            client: 1,
            former: None,
            since: SessionId(0),
            description: "test".into(),
            host: "h".into(),
            caches: false,
        };
        let session = server.call(Context::default(), open).await.unwrap();
        let w = World { env, engine, peers, server, session, next_request: AtomicU64::new(1) };
        for _ in 0..2 {
            w.add_data_server().await;
        }
        let a = w.mkdir(ROOT, "a").await;
        let b = w.mkdir(a, "b").await;
        w.file(b, "data", 3).await;
        let two = w.create(a, "one").await.id;
        w.call(Link { inode: two.into(), parent: b.into(), name: name("two") }).await.unwrap();
        let open = w.create(a, "open").await;
        w.call(Unlink { parent: a.into(), name: name("open"), open_here: true }).await.unwrap();
        assert_eq!(w.attr(open.id).await.unwrap().nlink, 0);
        w
    }

    async fn add_data_server(&self) {
        let register = RegisterServer {
            id: ServerId(0),
            incarnation: 1,
            addresses: vec!["tcp:nowhere:1".into()],
            host: "h".into(),
            clean_stop: false,
            rack: String::new(),
        };
        let id = self.call(register).await.unwrap().id;
        let (bytes_total, bytes_free) = (100 << 30, 100 << 30);
        let beat = Heartbeat {
            id,
            incarnation: 1,
            disk: 0,
            filesystem: 0,
            bytes_total,
            bytes_free,
            chunks: 0,
            bad_blocks: 0,
            sealed_blocks: 0,
        };
        self.call(beat).await.unwrap();
    }

    pub async fn call<M>(&self, message: M) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer> + Send,
        M::Answer: Send,
    {
        let session = &self.session;
        let token = Token { session: session.session, session_epoch: session.epoch, ..Token::default() };
        let request = RequestId(self.next_request.fetch_add(1, Ordering::Relaxed));
        self.server.call(Context { token, request, ..Context::default() }, message).await
    }

    pub async fn mkdir(&self, parent: InodeId, text: &str) -> InodeId {
        let make = MakeNode { parent: parent.into(), name: name(text), spec: spec(FileKind::Directory) };
        self.call(make).await.unwrap().attr.id
    }

    pub async fn create(&self, parent: InodeId, text: &str) -> Attr {
        let spec = spec(FileKind::File);
        let parent = parent.into();
        let create = CreateFile { parent, name: name(text), spec, exclusive: true, truncate: false, write: true };
        self.call(create).await.unwrap().attr
    }

    pub async fn attr(&self, id: InodeId) -> Result<Attr> {
        Ok(self.call(GetAttr { inode: id.into() }).await?.attr)
    }

    pub async fn lookup(&self, parent: InodeId, text: &str) -> InodeId {
        self.call(Lookup { parent, name: name(text) }).await.unwrap().attr.unwrap().id
    }

    /// A file with this many chunks of 100 bytes.
    pub async fn file(&self, parent: InodeId, text: &str, chunks: u32) -> InodeId {
        let attr = self.create(parent, text).await;
        self.extend(&attr, 0, chunks).await.unwrap();
        attr.id
    }

    /// Writes 100 bytes into each chunk from `first` on and commits.
    pub async fn extend(&self, attr: &Attr, first: u64, chunks: u32) -> Result<Attr> {
        let spares =
            self.call(TakeSpares { policy: Policy::PLAIN, count: chunks, beside: None, for_moves: false }).await?;
        let refs: Vec<ChunkRef> = (first..)
            .zip(&spares.spares)
            .map(|(i, (chunk, container))| ChunkRef {
                index: ChunkIndex(i),
                chunk: *chunk,
                container: *container,
                stable: false,
                frozen: false,
            })
            .collect();
        for chunk in &refs {
            let container = spares.containers.iter().find(|c| c.id == chunk.container).unwrap();
            self.peers.get(container.chain[0]).write(chunk.chunk, 100, attr.trunc_gen);
        }
        let size = refs.last().map_or(0, |c| c.index.0 * CHUNK_BYTES_DEFAULT + 100);
        self.commit(attr, size, CommitContent::Chunks(refs)).await
    }

    pub async fn commit(&self, attr: &Attr, size: u64, content: CommitContent) -> Result<Attr> {
        let commit = CommitFile {
            inode: attr.id.into(),
            trunc_gen: attr.trunc_gen,
            size,
            mtime: None,
            atime: None,
            content,
            cuts_applied: attr.trunc_gen,
            kill_privileges: false,
            unused: Vec::new(),
        };
        Ok(self.call(commit).await?.attr)
    }

    pub async fn put<R: RowFormat>(&self, key: Key, row: &R) {
        self.engine.transact(0, Raw(vec![(key, Some(row.encode()))])).await.unwrap();
    }

    pub async fn put_row(&self, key: Key, row: Row) {
        self.engine.transact(0, Raw(vec![(key, Some(row))])).await.unwrap();
    }

    pub async fn delete(&self, key: Key) {
        self.engine.transact(0, Raw(vec![(key, None)])).await.unwrap();
    }

    pub async fn get<R: RowFormat>(&self, key: &Key) -> Option<R> {
        let row = self.engine.read(0, RawGet(key.clone())).await.unwrap()?;
        Some(R::decode(key, &row).unwrap())
    }

    /// Changes an inode's row where it lies, and nothing else.
    pub async fn damage(&self, id: InodeId, change: impl FnOnce(&mut Inode)) {
        let key = match self.get::<IdRow>(&keys::inode_id(id)).await {
            Some(IdRow::Attributes(mut inode)) => {
                change(&mut inode);
                return self.put(keys::inode_id(id), &IdRow::Attributes(inode)).await;
            }
            Some(IdRow::At { parent, name }) => keys::entry(parent, &Name::new(&name).unwrap()),
            None => keys::root_entry(),
        };
        let Some(Entry::Here(mut inode)) = self.get::<Entry>(&key).await else { panic!("no inode {id}") };
        change(&mut inode);
        self.put(key, &Entry::Here(inode)).await;
    }

    pub async fn entry(&self, parent: InodeId, text: &str) -> Entry {
        self.get(&keys::entry(parent, &name(text))).await.unwrap()
    }

    pub async fn check(&self, repair: bool) -> Report {
        self.check_as(repair, true).await
    }

    pub async fn check_rows(&self) -> Report {
        self.check_as(false, false).await
    }

    async fn check_as(&self, repair: bool, data: bool) -> Report {
        let options = Options { repair, data, settle: Duration::from_millis(100) };
        let progress = |_: &'static str, _: u64| {};
        let (env, namespace, peers) = (&self.env, &*self.server, &self.peers);
        Fsck { env, namespace, peers, options, progress: &progress }.run().await.unwrap()
    }

    /// Exactly these faults are found.
    pub async fn finds(&self, codes: &[&str]) -> Report {
        let report = self.check(false).await;
        let found: Vec<&str> = report.findings.iter().map(|f| f.fault.code()).collect();
        assert_eq!(found, codes, "{}", report.text());
        report
    }

    /// Exactly these faults are found, a repair mends them, and all is well afterwards.
    pub async fn mends(&self, codes: &[&str]) -> Report {
        let found = self.finds(codes).await;
        let repaired = self.check(true).await;
        assert_eq!(repaired.verdict(), Verdict::Clean, "{}", repaired.text());
        self.finds(&[]).await;
        found
    }
}

pub fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub fn spec(kind: FileKind) -> NodeSpec {
    let mode = Mode(if kind == FileKind::Directory { 0o755 } else { 0o644 });
    NodeSpec { kind, mode, umask: 0, uid: 1000, gid: 1000, rdev: DeviceId(0), target: Bytes::new() }
}
