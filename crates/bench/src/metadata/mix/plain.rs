//! Clients that keep nothing: each operation is one message with its path, resolved anew, and is durable when it returned.

use super::cluster::{Cluster, text};
use super::plan::{Op, SMALL_BYTES, Step, Tree};
use super::run::{Result, Target, Work};
use crate::report::Counters;
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::meta::*;
use braid_api::quota::ToSum;
use braid_api::{Carries, Context, Namespace};
use braid_types::*;
use braid_wire::RemoteNamespace;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Entries a message of a listing brings at the most, as many as of HDFS (`dfs.ls.limit`).
const PAGE: u32 = 1000;

/// What clients send beside their operations.
const BESIDE: &[&str] = &["OpenSession", "RenewSession"];

/// A session on a connection of its own, with one request under way at a time.
pub struct Connection {
    stub: RemoteNamespace,
    token: Token,
    requests: AtomicU64,
    /// Files that were made and are going to get a chunk.
    open: Mutex<HashMap<String, InodeRef>>,
}

impl Connection {
    pub async fn open(cluster: &Cluster, number: u64) -> Result<Arc<Connection>> {
        let stub = cluster.stub();
        let open = OpenSession {
            client: number + 1,
            former: None,
            since: SessionId(0),
            description: "benchmark".into(),
            host: "here".into(),
            caches: false,
        };
        let session = stub.call(Context::default(), open).await.map_err(text)?;
        let token = Token { session: session.session, session_epoch: session.epoch, ..Token::default() };
        let every = Duration::from_millis(u64::from(session.renew_ms.max(100)));
        let requests = AtomicU64::new(1);
        let connection = Arc::new(Connection { stub, token, requests, open: Mutex::default() });
        let (kept, control, env) = (Arc::downgrade(&connection), cluster.stub(), cluster.env.clone());
        // As every client does: its answered requests are forgotten by the server, and the session lives.
        tokio::spawn(async move {
            loop {
                env.sleep(every).await;
                let Some(connection) = kept.upgrade() else { return };
                let low_water = RequestId(connection.requests.load(Relaxed).saturating_sub(1));
                let renew = RenewSession { low_water, orphans_seen: 0, orphans_held: Vec::new() };
                let cx = Context { token: connection.token, ..Context::default() };
                // One that fails is made up for by the next, and a session that has ended fails the benchmark itself.
                let _ = control.call(cx, renew).await;
            }
        });
        Ok(connection)
    }

    async fn ask<M>(&self, message: M) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer> + Send,
        M::Answer: Send,
    {
        let cx = Context { token: self.token, ..Context::default() };
        self.stub.call(cx, message).await.map_err(text)
    }

    async fn change<M>(&self, message: M) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer> + Send,
        M::Answer: Send,
    {
        let request = RequestId(self.requests.fetch_add(1, Relaxed));
        let cx = Context { token: self.token, request, ..Context::default() };
        self.stub.call(cx, message).await.map_err(text)
    }

    /// What a path leads to, of which nothing else is asked.
    async fn resolve(&self, path: &str) -> Result<InodeRef> {
        let names = components(path)?;
        let found = self.ask(Resolve { from: InodeId::ROOT, path: names.clone() }).await?;
        if found.rest > 0 {
            return Err("it is not there".to_owned());
        }
        Ok(found.end(InodeId::ROOT, &names))
    }

    async fn ask_at<M: Carries<Then, ThenAnswer>>(&self, path: &str, message: M) -> Result<M::Answer> {
        self.ask(AtPath::new(components(path)?, message)).await?.of::<M>().map_err(text)
    }

    async fn change_at<M: Carries<Then, ThenAnswer>>(&self, path: &str, message: M) -> Result<M::Answer> {
        self.change(AtPath::new(components(path)?, message)).await?.of::<M>().map_err(text)
    }

    async fn create(&self, path: &str) -> Result<InodeRef> {
        let (dir, name) = place(path)?;
        let made = self.change_at(dir, new_file(InodeRef::default(), name)).await?;
        Ok(made.attr.id.into())
    }

    async fn create_in(&self, parent: InodeRef, name: Name) -> Result<InodeRef> {
        let place = (parent.id, name.clone());
        let made = self.change(new_file(parent, name)).await?;
        Ok(InodeRef { id: made.attr.id, hint: Some(place) })
    }

    /// A chunk for the file: allocated, and in its row.
    async fn add_chunk(&self, inode: InodeRef) -> Result<()> {
        let spares = self.take_spares(1).await?;
        self.commit_chunk(inode, spares[0]).await
    }

    async fn take_spares(&self, count: u32) -> Result<Vec<(ChunkId, ContainerId)>> {
        let take = TakeSpares { policy: Policy::PLAIN, count, beside: None, for_moves: false };
        let spares = self.change(take).await?.spares;
        if spares.len() < count as usize { Err("fewer chunks than asked for".to_owned()) } else { Ok(spares) }
    }

    async fn commit_chunk(&self, inode: InodeRef, spare: (ChunkId, ContainerId)) -> Result<()> {
        let (chunk, container) = spare;
        let chunks = vec![ChunkRef { index: ChunkIndex(0), chunk, container, stable: false, frozen: false }];
        self.change(commit(inode, 1, CommitContent::Chunks(chunks))).await.map(drop)
    }

    pub async fn step(&self, step: &Step) -> Result<()> {
        let path = step.path.as_str();
        match step.op {
            Op::Read => {
                let opened = self.ask_at(path, OpenFile::default()).await?;
                match opened.map.content {
                    Content::Chunked(page) if !page.chunks.is_empty() && !page.containers.is_empty() => Ok(()),
                    _ => Err("nobody has its chunk".to_owned()),
                }
            }
            Op::Stat => self.resolve(path).await.map(drop),
            Op::List => {
                let page = self.ask_at(path, page_of(InodeId(0), None)).await?;
                if page.more { self.list(self.resolve(path).await?.id).await } else { Ok(()) }
            }
            Op::AddBlock => {
                let inode = self.opened()?.remove(path).ok_or("it is not open")?;
                self.add_chunk(inode).await
            }
            Op::Move => {
                let ((from_dir, from_name), (to_dir, to_name)) = (place(path)?, place(&step.to)?);
                let (from, to, mode) = (InodeRef::default(), InodeRef::default(), RenameKind::NoReplace);
                let rename = Rename { from, from_name, to, to_name, mode, open_here: false };
                let moved = AtPath::two(components(from_dir)?, components(to_dir)?, rename);
                self.change(moved).await?.of::<Rename>().map(drop).map_err(text)
            }
            Op::Create => self.create(path).await.map(drop),
            Op::Delete => {
                let (dir, name) = place(path)?;
                let unlink = Unlink { parent: InodeRef::default(), name, open_here: false };
                self.change_at(dir, unlink).await.map(drop)
            }
            Op::SetOwner => {
                let change = ChangeAttr { uid: Some(1000), gid: Some(1000), ..no_change() };
                self.change_at(path, change).await.map(drop)
            }
            Op::SetPermission => {
                self.change_at(path, ChangeAttr { mode: Some(Mode(0o640)), ..no_change() }).await.map(drop)
            }
            Op::SetReplication => {
                let (name, value) = (Bytes::from_static(b"user.replication"), Bytes::from_static(b"2"));
                let inode = InodeRef::default();
                self.change_at(path, SetXattr { inode, name, value, mode: XattrKind::Any, clear_setgid: false }).await
            }
            Op::Mkdirs => {
                let (dir, name) = place(path)?;
                let make = MakeNode { parent: InodeRef::default(), name, spec: spec(FileKind::Directory) };
                self.change_at(dir, make).await.map(drop)
            }
            Op::Summary => {
                let dir = self.resolve(path).await?.id;
                let (mut waiting, mut bytes) = (vec![ToSum { dir, after: None }], 0);
                while !waiting.is_empty() {
                    let AdminAnswer::Summary(sum) = self.ask(AdminQuery::Summary { waiting }).await? else {
                        return Err("it answered something else".to_owned());
                    };
                    (waiting, bytes) = (sum.waiting, bytes + sum.weight.bytes);
                }
                if bytes == 0 { Err("no file has bytes".to_owned()) } else { Ok(()) }
            }
            Op::PutSmall => {
                let ((dir, name), parent) = (place(path)?, InodeRef::default());
                let data = Bytes::from(vec![7; SMALL_BYTES]);
                let put = PutFile { parent, name, spec: spec(FileKind::File), data, replace: false, open_here: false };
                self.change_at(dir, put).await.map(drop)
            }
            Op::GetSmall => match self.ask_at(path, OpenFile::default()).await?.map.content {
                Content::Inline(bytes) if bytes.len() == SMALL_BYTES => Ok(()),
                _ => Err("its bytes are not beside its row".to_owned()),
            },
        }
    }

    async fn list(&self, inode: InodeId) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.ask(page_of(inode, after)).await?;
            after = page.entries.last().map(|(name, ..)| name.clone());
            if !page.more {
                return Ok(());
            }
        }
    }

    fn opened(&self) -> Result<std::sync::MutexGuard<'_, HashMap<String, InodeRef>>> {
        self.open.lock().map_err(text)
    }

    pub async fn prepare(&self, step: &Step) -> Result<()> {
        match step.op {
            Op::AddBlock => {
                let inode = self.create(&step.path).await?;
                self.opened()?.insert(step.path.clone(), inode);
                Ok(())
            }
            _ => self.step(step).await,
        }
    }

    pub async fn clear(&self, step: &Step) -> Result<()> {
        match step.op {
            Op::Mkdirs => {
                let (dir, name) = place(&step.path)?;
                let remove = RemoveDir { parent: InodeRef::default(), name, tree: false };
                self.change_at(dir, remove).await.map(drop)
            }
            _ => self.step(step).await,
        }
    }

    pub fn messages(&self) -> u64 {
        let sent = self.stub.0.stats().sent;
        sent.iter().filter(|(name, _)| !BESIDE.contains(name)).map(|(_, count)| count).sum()
    }
}

pub fn components(path: &str) -> Result<Vec<Name>> {
    path.split('/').filter(|name| !name.is_empty()).map(|name| name.parse().map_err(text)).collect()
}

fn spec(kind: FileKind) -> NodeSpec {
    NodeSpec { kind, mode: Mode(0o755), umask: 0, uid: 0, gid: 0, rdev: DeviceId(0), target: Bytes::new() }
}

fn new_file(parent: InodeRef, name: Name) -> CreateFile {
    CreateFile { parent, name, spec: spec(FileKind::File), exclusive: true, truncate: false, write: true }
}

fn page_of(inode: InodeId, after: Option<Name>) -> ReadDir {
    ReadDir { inode, after, limit: PAGE, plus: true, knows: Vec::new() }
}

/// The directory something is in, and its name there.
fn place(path: &str) -> Result<(&str, Name)> {
    let (dir, name) = path.rsplit_once('/').ok_or("a path begins with /")?;
    Ok((dir, name.parse().map_err(text)?))
}

fn no_change() -> ChangeAttr {
    ChangeAttr {
        inode: InodeRef::default(),
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

fn commit(inode: InodeRef, size: u64, content: CommitContent) -> CommitFile {
    CommitFile {
        inode,
        trunc_gen: TruncGen(0),
        size,
        mtime: None,
        atime: None,
        content,
        cuts_applied: TruncGen(0),
        kill_privileges: false,
        unused: Vec::new(),
    }
}

pub struct Plain {
    name: &'static str,
    cluster: Arc<Cluster>,
    pub connections: Vec<Arc<Connection>>,
}

impl Plain {
    pub async fn start(name: &'static str, cluster: Arc<Cluster>, clients: usize) -> Result<Plain> {
        let mut connections = Vec::new();
        for number in 0..clients as u64 {
            connections.push(Connection::open(&cluster, number).await?);
        }
        Ok(Plain { name, cluster, connections })
    }

    /// Makes the namespace: every file has one chunk, of which one byte counts as written, so that there is a place to tell.
    pub async fn fill(&self, tree: &Tree) -> Result<()> {
        let mut dirs: Vec<InodeRef> = Vec::new();
        for dir in 0..tree.dirs() {
            let path = tree.dir(dir);
            self.connections[0].step(&Step { op: Op::Mkdirs, path: path.clone(), to: String::new() }).await?;
            dirs.push(self.connections[0].resolve(&path).await?);
        }
        let (dirs, next, mut tasks) = (Arc::new(dirs), Arc::new(AtomicU64::new(0)), Vec::new());
        // Several at a time on each connection: what waits for a sync at the same moment shares it.
        for connection in self.connections.iter().cycle().take(64) {
            let (c, dirs, next, tree) = (connection.clone(), dirs.clone(), next.clone(), tree.clone());
            tasks.push(tokio::spawn(async move {
                let mut spares = Vec::new();
                loop {
                    let file = next.fetch_add(1, Relaxed);
                    if file >= tree.files {
                        return Ok::<_, String>(());
                    }
                    if spares.is_empty() {
                        spares = c.take_spares(16).await?;
                    }
                    let path = tree.file(file);
                    let name = path.rsplit('/').next().unwrap_or_default().parse().map_err(text)?;
                    let inode = c.create_in(dirs[tree.dir_of(file) as usize].clone(), name).await?;
                    c.commit_chunk(inode, spares.pop().ok_or("no chunk")?).await?;
                }
            }));
        }
        for task in tasks {
            task.await.map_err(text)??;
        }
        Ok(())
    }
}

impl Target for Plain {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn conditions(&self) -> String {
        format!("{}, nothing cached at clients, rows in memory; durable when it returned", self.cluster.way())
    }

    fn step<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a> {
        Box::pin(self.connections[client].step(step))
    }

    fn prepare<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a> {
        Box::pin(self.connections[client].prepare(step))
    }

    fn clear<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a> {
        Box::pin(self.connections[client].clear(step))
    }

    fn counters(&self) -> Counters {
        let stats = self.cluster.stats();
        Counters {
            engine_round_trips: stats.round_trips as f64,
            messages: self.connections.iter().map(|c| c.messages()).sum::<u64>() as f64,
            payload_bytes: 0.0,
            syncs: stats.syncs as f64,
        }
    }
}
