//! A world in one thread: tokio's clock, a simulated disk, I/O threads that can be held up.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part")]

pub mod cluster;

use braid_api::data::*;
use braid_api::{Carries, Code, Context, DataNode, Result};
use braid_data_server::{DataServer, DataServerConfig};
use braid_data_store::{ChunkStore, DiskStore, StoreIdentity, StoreOptions};
use braid_env::simdisk::SimDisk;
use braid_env::*;
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

pub const CHUNK: u64 = 1 << 20;
pub const DIR: &str = "/store";

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

/// Splitmix64.
pub struct Seeded(pub AtomicU64);

impl Random for Seeded {
    fn u64(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Blocking work is done at once, in place, or kept until [`IoThreads::release`].
#[derive(Default)]
pub struct IoThreads {
    held: Mutex<Option<Vec<Job>>>,
}

impl IoThreads {
    pub fn hold(&self) {
        self.held.lock().get_or_insert_default();
    }
    pub fn waiting(&self) -> usize {
        self.held.lock().as_ref().map_or(0, Vec::len)
    }
    /// Does what was kept, and goes on keeping or not.
    pub fn release(&self, hold: bool) {
        let jobs = std::mem::replace(&mut *self.held.lock(), hold.then(Vec::new));
        jobs.into_iter().flatten().for_each(|job| job());
    }
}

impl Spawn for IoThreads {
    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        TaskHandle(tokio::spawn(task))
    }
    fn run_blocking(&self, work: Job) {
        let work = match &mut *self.held.lock() {
            Some(held) => return held.push(work),
            None => work,
        };
        work();
    }
}

#[derive(Clone)]
pub struct World {
    pub env: Env,
    pub io: Arc<IoThreads>,
    pub disk: SimDisk,
}

impl World {
    pub fn new(seed: u64) -> World {
        let (io, disk) = (Arc::new(IoThreads::default()), SimDisk::new());
        let env = Env {
            clock: Arc::new(TestClock(tokio::time::Instant::now())),
            random: Arc::new(Seeded(AtomicU64::new(seed))),
            disk: Arc::new(disk.clone()),
            transport: Arc::new(os::OsTransport),
            spawner: io.clone(),
        };
        World { env, io, disk }
    }

    pub fn open(&self) -> Arc<DiskStore> {
        let disk = self.env.disk.clone();
        let opened = DiskStore::open_or_create(disk, Path::new(DIR), identity(), StoreOptions::default());
        Arc::new(opened.unwrap())
    }

    pub fn serve(&self, store: Arc<dyn ChunkStore>, config: DataServerConfig) -> Arc<DataServer> {
        DataServer::start(self.env.clone(), store, identity(), config)
    }
}

pub fn identity() -> StoreIdentity {
    StoreIdentity { cluster: ClusterId([7; 16]), server: ServerId(3) }
}

/// Nothing happens by itself.
pub fn quiet() -> DataServerConfig {
    DataServerConfig { sync_every: Duration::ZERO, scrub_bytes_per_s: 0, ..DataServerConfig::default() }
}

/// As a client of session 1 with generation 0.
pub fn cx() -> Context {
    cx_of(1, 1, 0)
}

pub fn cx_of(session: u64, epoch: u32, trunc_gen: u32) -> Context {
    let (session, session_epoch, trunc_gen) = (SessionId(session), SessionEpoch(epoch), TruncGen(trunc_gen));
    Context { token: Token { session, session_epoch, trunc_gen, ..Token::default() }, ..Context::default() }
}

pub fn write_of(chunk: u64, offset: u64) -> WriteChunk {
    WriteChunk {
        chunk: ChunkId(chunk),
        container: ContainerId(9),
        offset,
        chunk_bytes: CHUNK,
        inode: InodeId(chunk << 12),
        index: ChunkIndex(0),
        cuts: Vec::new(),
        sync: false,
        make: Make::Yes,
        kept_beside: false,
        alone: false,
        once: None,
    }
}

pub fn read_of(chunk: u64, offset: u64, len: u32) -> ReadChunk {
    ReadChunk {
        chunk: ChunkId(chunk),
        container: ContainerId(9),
        offset,
        len,
        cuts: Vec::new(),
        kept_beside: false,
        ordered: false,
        hold: None,
    }
}

pub async fn ask<D: DataNode, M>(node: &D, message: M) -> Result<M::Answer>
where
    M: Carries<DataRequest, DataAnswer> + Send,
    M::Answer: Send,
{
    Ok(node.call(cx(), message, Bytes::new()).await?.0)
}

pub async fn write<D: DataNode>(node: &D, chunk: u64, offset: u64, bytes: &[u8]) -> Result<WriteAnswer> {
    Ok(node.call(cx(), write_of(chunk, offset), Bytes::copy_from_slice(bytes)).await?.0)
}

pub async fn read<D: DataNode>(node: &D, chunk: u64, offset: u64, len: u32) -> Result<Bytes> {
    Ok(node.call(cx(), read_of(chunk, offset, len), Bytes::new()).await?.1)
}

pub fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code
}

/// Lets every task run until all of them wait.
pub async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
