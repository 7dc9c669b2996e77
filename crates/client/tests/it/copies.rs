//! Files with several copies: the client over real data servers and their leader, while servers are lost.
#![allow(clippy::unwrap_used)]

use braid_api::data::*;
use braid_api::meta::*;
use braid_api::{Caller, Code, Context, DataNode, DataPeers, Error, FileSystem, Manner, Namespace, OpenFlags, Result};
use braid_client::{Client, ClientConfig};
use braid_data_server::{Announcement, DataServer, DataServerConfig, SharedLinks, WireLinks};
use braid_data_store::{DiskStore, StoreIdentity, StoreOptions};
use braid_env::simdisk::SimDisk;
use braid_env::*;
use braid_meta_engine::{MemEngine, MemStore};
use braid_meta_server::{MetaConfig, MetaServer};
use braid_model::stream::Weights;
use braid_model::{Model, compare_stream};
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

mod nearer;
mod slow_links;

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

type Server = Arc<DataServer>;
type Meta = MetaServer;

/// Who can be reached.
#[derive(Default)]
struct Net {
    servers: Mutex<BTreeMap<ServerId, Server>>,
    meta: Mutex<Option<Arc<Meta>>>,
    away: Mutex<BTreeSet<ServerId>>,
    /// Of these, who takes messages and says nothing, instead of refusing them.
    still: Mutex<BTreeSet<ServerId>>,
    /// Calls of data servers: who called which, and what. Clients and the metadata server are 0.
    calls: Mutex<Vec<(ServerId, ServerId, &'static str)>>,
    /// The next answers to these are lost on their way from the metadata server.
    lost: Mutex<Vec<&'static str>>,
    /// So long these take on their way to a data server, and answers to these from the metadata server.
    slow: Mutex<BTreeMap<&'static str, Duration>>,
    /// Content goes to each data server from the others over a link of so many bytes a second, one message after the other; 0: at once.
    link_bytes_per_s: AtomicU64,
    links: Mutex<BTreeMap<ServerId, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Clone)]
struct Peers(Arc<Net>, ServerId);

struct Node(Arc<Net>, ServerId, ServerId);

impl DataPeers for Peers {
    type Node = Node;
    fn node(&self, server: &ServerInfo) -> Arc<Node> {
        Arc::new(Node(self.0.clone(), server.id, self.1))
    }
}

impl DataNode for Node {
    async fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        self.0.calls.lock().push((self.2, self.1, request.name()));
        let takes = self.0.slow.lock().get(request.name()).copied();
        tokio::time::sleep(takes.unwrap_or(Duration::from_millis(1))).await;
        let rate = self.0.link_bytes_per_s.load(SeqCst);
        if rate > 0 && self.2.0 != 0 && !payload.is_empty() {
            let link = self.0.links.lock().entry(self.1).or_default().clone();
            let _turn = link.lock().await;
            tokio::time::sleep(Duration::from_secs_f64(payload.len() as f64 / rate as f64)).await;
        }
        let server = self.0.servers.lock().get(&self.1).cloned();
        match server.filter(|_| !self.0.away.lock().contains(&self.1)) {
            Some(server) => server.execute(cx, request, payload).await,
            None => {
                // As a stub does.
                let is_still = self.0.still.lock().contains(&self.1);
                if cx.manner != Manner::Once || is_still {
                    tokio::time::sleep(cx.deadline).await;
                }
                Err(Error::bare(Code::Unreachable))
            }
        }
    }
}

/// The metadata server that runs now, as one data server sees it.
struct Front(Arc<Net>, ServerId);

impl Namespace for Front {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let meta = self.0.meta.lock().clone();
        match meta.filter(|_| !self.0.away.lock().contains(&self.1)) {
            Some(meta) => {
                let name = request.name();
                let answer = meta.execute(cx, request).await;
                let slow = self.0.slow.lock().get(name).copied();
                if let Some(takes) = slow {
                    tokio::time::sleep(takes).await;
                }
                let mut lost = self.0.lost.lock();
                match lost.iter().position(|other| *other == name) {
                    Some(at) => {
                        lost.swap_remove(at);
                        Err(Error::bare(Code::Disconnected))
                    }
                    None => answer,
                }
            }
            None => Err(Error::bare(Code::Unreachable)),
        }
    }
}

struct World {
    net: Arc<Net>,
    disks: BTreeMap<ServerId, SimDisk>,
}

const CLUSTER: ClusterId = ClusterId([7; 16]);
const CHUNK: u64 = 1 << 20;

fn env_of(disk: &SimDisk) -> Env {
    Env {
        clock: Arc::new(TestClock(tokio::time::Instant::now())),
        random: Env::os().random,
        disk: Arc::new(disk.clone()),
        transport: Arc::new(os::OsTransport),
        spawner: Arc::new(InPlace),
    }
}

impl World {
    /// All files under the policy.
    async fn new(servers: u64, policy: &str) -> World {
        let disks = (1..=servers).map(|id| (ServerId(id), SimDisk::new())).collect();
        let world = World { net: Arc::default(), disks };
        let engine = Arc::new(MemEngine::new(MemStore::new()));
        let (env, peers) = (env_of(&SimDisk::new()), Peers(world.net.clone(), ServerId(0)));
        let policy = Policy { chunk_bytes: CHUNK, ..policy.parse().unwrap() };
        let meta = MetaServer::start(env, engine, peers, MetaConfig::default(), CLUSTER, policy).await.unwrap();
        *world.net.meta.lock() = Some(meta);
        for id in 1..=servers {
            world.start(id, true).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        world
    }

    async fn start(&self, id: u64, first: bool) {
        let id = ServerId(id);
        let env = env_of(&self.disks[&id]);
        let front = Arc::new(Front(self.net.clone(), id));
        let addresses = vec![format!("unix:/{id}")];
        let announcement = Announcement { addresses, host: format!("host{id}"), ..Announcement::default() };
        let identity = StoreIdentity { cluster: CLUSTER, server: id };
        if first {
            let made = braid_data_server::enrol(&env, &*front, None, &announcement).await.unwrap();
            assert_eq!(made, identity);
        }
        let store = DiskStore::open_or_create(env.disk.clone(), Path::new("/s"), identity, StoreOptions::default());
        let server = DataServer::start(env.clone(), Arc::new(store.unwrap()), identity, DataServerConfig::default());
        server.report_to(front.clone(), announcement);
        let peers = Peers(self.net.clone(), id);
        let links = WireLinks::new(env, id, peers.clone(), peers, front);
        server.join_chains(Arc::new(SharedLinks(links)));
        self.net.servers.lock().insert(id, server);
    }

    fn power_cut(&self, id: u64, seed: u64) {
        self.net.servers.lock().remove(&ServerId(id));
        self.disks[&ServerId(id)].crash(seed);
    }

    /// A copy of this length.
    async fn any_server_has(&self, len: u64) -> bool {
        let servers: Vec<Server> = self.net.servers.lock().values().cloned().collect();
        for server in servers {
            let list = GetCopies::after(ChunkId(0), 100);
            for copy in server.call(Context::default(), list, Bytes::new()).await.unwrap().0 {
                if server.store().stat(copy.chunk).is_ok_and(|stat| stat.length == len) {
                    return true;
                }
            }
        }
        false
    }

    async fn client(&self) -> Arc<Client> {
        self.client_at(0).await
    }

    /// One that can be cut off, under this number.
    async fn client_at(&self, number: u64) -> Arc<Client> {
        self.client_of(number, ClientConfig { host: "host1".to_owned(), ..ClientConfig::default() }).await
    }

    async fn client_of(&self, number: u64, config: ClientConfig) -> Arc<Client> {
        let front = || Front(self.net.clone(), ServerId(number));
        let (env, peers) = (env_of(&SimDisk::new()), Peers(self.net.clone(), ServerId(0)));
        Client::start(env, front(), front(), peers, config).await.unwrap()
    }
}

const READ_WRITE: OpenFlags = OpenFlags::READ_WRITE;

fn cx() -> Caller {
    Caller { uid: 1000, gid: 1000, umask: 0o022, ..Caller::default() }
}

async fn create(client: &Client, text: &str) -> (InodeId, braid_api::HandleId) {
    let name = text.parse().unwrap();
    let (entry, opened) = client.create(&cx(), InodeId::ROOT, &name, Mode(0o644), READ_WRITE).await.unwrap();
    (entry.attr.id, opened.handle)
}

/// What another mount sees.
async fn seen(world: &World, id: InodeId, len: u32) -> Vec<u8> {
    let other = world.client().await;
    let handle = other.open(&cx(), id, OpenFlags { write: false, ..READ_WRITE }).await.unwrap().handle;
    let bytes = other.read(handle, 0, len).await.unwrap().concat();
    other.release(handle).await;
    other.shutdown().await.unwrap();
    bytes
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(31).wrapping_add(at >> 8).wrapping_add(seed * 97) % 251) as u8 + 1)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_file_with_three_copies_outlives_any_server() {
    for lost in 1..=3 {
        let world = World::new(3, "replica:3").await;
        let client = world.client().await;
        let (id, handle) = create(&client, "f").await;
        let first = pattern(1, 2_500_000);
        client.write(handle, 0, Bytes::from(first.clone())).await.unwrap();
        client.fsync(handle, false).await.unwrap();
        world.power_cut(lost, lost);
        let begun = tokio::time::Instant::now();
        assert!(seen(&world, id, 2_500_000).await == first, "without {lost}");
        // Whoever has it open goes on writing.
        let second = pattern(2, 700_000);
        client.write(handle, 600_000, Bytes::from(second.clone())).await.unwrap();
        client.fsync(handle, false).await.unwrap();
        // The lost server's lease (4 s), 2 s until others go on without it, and no wait for the server itself.
        assert!(begun.elapsed() < Duration::from_millis(7_500), "without {lost} for {:?}", begun.elapsed());
        let mut expected = first;
        expected[600_000..1_300_000].copy_from_slice(&second);
        assert!(seen(&world, id, 2_500_000).await == expected, "written without {lost}");
        world.start(lost, false).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        // It has all of it again: now the two others may go, one after the other.
        for other in (1..=3).filter(|id| *id != lost) {
            world.power_cut(other, other);
            assert!(seen(&world, id, 2_500_000).await == expected, "{lost} was back, without {other}");
            world.start(other, false).await;
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        client.release(handle).await;
        client.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn writes_truncates_and_holes_go_on_while_servers_come_and_go() {
    for seed in 0..6u64 {
        let world = World::new(4, "replica:3").await;
        let client = world.client().await;
        let (id, handle) = create(&client, "f").await;
        let mut state = seed;
        let mut below = move |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let mut model: Vec<u8> = Vec::new();
        let mut down = None;
        for step in 0..50u64 {
            match below(10) {
                0..5 => {
                    let (at, len) = (below(2_000_000) as usize, 1 + below(200_000) as usize);
                    let bytes = pattern(step, len);
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].copy_from_slice(&bytes);
                    client.write(handle, at as u64, Bytes::from(bytes)).await.unwrap();
                }
                5 => {
                    let size = below(2_000_000);
                    model.resize(size as usize, 0);
                    let set = braid_api::SetAttr { size: Some(size), ..Default::default() };
                    client.set_attr(&cx(), id, Some(handle), set).await.unwrap();
                }
                6 => client.fsync(handle, false).await.unwrap(),
                7 => tokio::time::sleep(Duration::from_millis(below(4_000))).await,
                _ => match down.take() {
                    // Only when the last one has caught up: two lost disks are more than two copies promise.
                    None if step % 2 == 0 => {
                        tokio::time::sleep(Duration::from_secs(15)).await;
                        let id = 1 + below(4);
                        world.power_cut(id, seed * 1000 + step);
                        down = Some(id);
                    }
                    None => {}
                    Some(id) => world.start(id, false).await,
                },
            }
        }
        if let Some(id) = down {
            world.start(id, false).await;
        }
        client.fsync(handle, false).await.unwrap();
        let found = seen(&world, id, 3_000_000).await;
        let differs = found.iter().zip(&model).position(|(a, b)| a != b);
        assert_eq!((differs, found.len()), (None, model.len()), "seed {seed}");
        client.release(handle).await;
        client.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_client_does_with_copies_what_the_model_does() {
    let weights = Weights {
        names: 6,
        attributes: 10,
        handles: 12,
        data: 60,
        listings: 1,
        xattrs: 0,
        seals: 1,
        trees: 0,
        policies: false,
        locks: 1,
        syncs: 9,
    };
    for seed in 0..8 {
        let world = World::new(3, "replica:2").await;
        let client = world.client().await;
        let summary = compare_stream(&Model::default(), &*client, seed, weights, 300).await;
        let summary = summary.unwrap_or_else(|report| panic!("{report}"));
        assert!(summary.succeeded * 3 > summary.steps);
        client.shutdown().await.unwrap();
    }
}

/// What each server says of the file's first bytes; none where it refuses.
async fn at_every_server(world: &World, len: u32) -> Vec<Vec<u8>> {
    let servers: Vec<Server> = world.net.servers.lock().values().cloned().collect();
    let mut all = Vec::new();
    for server in servers {
        let list = GetCopies::after(ChunkId(0), 100);
        for CopyState { chunk, container, .. } in server.call(Context::default(), list, Bytes::new()).await.unwrap().0 {
            let (cuts, at_least) = (Vec::new(), Version::default());
            let read = ReadCopy {
                chunk,
                container,
                offset: 0,
                len,
                cuts,
                at_least,
                kept_beside: false,
                ordered: false,
                hold: None,
            };
            if let Ok((_, bytes)) = server.call(Context::default(), read, Bytes::new()).await {
                all.push(bytes.to_vec());
            }
        }
    }
    all
}

/// A mount that has a file to itself writes to the owner alone: nobody else may see that the other copies are older.
#[tokio::test(start_paused = true)]
async fn whoever_takes_a_file_over_reads_what_was_written_from_every_copy() {
    let world = World::new(3, "replica:3").await;
    let client = world.client().await;
    let (id, handle) = create(&client, "f").await;
    let mut unlike = 0;
    for round in 1..20 {
        let bytes = pattern(round, 100_000);
        client.write(handle, 0, Bytes::from(bytes.clone())).await.unwrap();
        match round % 2 {
            0 => client.fsync(handle, false).await.unwrap(),
            _ => {
                client.flush(handle).await.unwrap();
                unlike += usize::from(at_every_server(&world, 100_000).await.iter().any(|read| *read != bytes));
                assert!(seen(&world, id, 100_000).await == bytes, "round {round}");
            }
        }
        let served = at_every_server(&world, 100_000).await;
        assert!(served.len() >= 2, "round {round}: {} copies can be read", served.len());
        assert!(served.iter().all(|read| *read == bytes), "round {round}: a copy serves what was before");
    }
    assert!(unlike > 3, "{unlike} times only did the copies differ before: this shows little");
}

/// After an fsync its client keeps nothing that it could show over what an older copy says.
#[tokio::test(start_paused = true)]
async fn no_copy_serves_anything_older_than_what_an_fsync_answered_for() {
    for away in 1..=3 {
        let world = World::new(4, "replica:3").await;
        let client = world.client().await;
        let (_, handle) = create(&client, "f").await;
        for round in 1..4 {
            let bytes = pattern(round, 100_000);
            client.write(handle, 0, Bytes::from(bytes.clone())).await.unwrap();
            if round == 2 {
                world.net.away.lock().insert(ServerId(away));
            }
            client.fsync(handle, false).await.unwrap();
            let served = at_every_server(&world, 100_000).await;
            assert!(served.len() >= 2, "{} copies can be read", served.len());
            assert!(served.iter().all(|read| *read == bytes), "without {away}, round {round}: a copy is older");
        }
    }
}

/// A client and data server 1 are on one host: a chunk's owner is beside who makes it, and a copy beside a reader is read.
#[tokio::test(start_paused = true)]
async fn a_write_whose_owner_is_beside_and_a_read_of_a_copy_beside_send_nothing_between_hosts() {
    let world = World::new(4, "replica:3").await;
    let client = world.client().await;
    let (id, handle) = create(&client, "f").await;
    let bytes = pattern(1, 400_000);
    client.write(handle, 0, Bytes::from(bytes.clone())).await.unwrap();
    client.fsync(handle, false).await.unwrap();
    // Leases of servers are renewed, and what was written before has come to all.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let since = || std::mem::take(&mut *world.net.calls.lock());
    since();
    client.write(handle, 4096, Bytes::from(pattern(2, 4096))).await.unwrap();
    assert_eq!(since(), [], "a write is buffered");
    let begun = tokio::time::Instant::now();
    client.flush(handle).await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    assert_eq!(since(), [(ServerId(0), ServerId(1), "WriteCopies")], "and sent to the owner alone");
    // The owner tells the others in its own time, and the content goes to one of them.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told: BTreeSet<ServerId> =
        since().into_iter().filter(|(from, _, name)| (from.0, *name) == (1, "PeerSays")).map(|(_, to, _)| to).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    client.fsync(handle, false).await.unwrap();
    client.release(handle).await;
    let other = world.client().await;
    let opened = other.open(&cx(), id, OpenFlags { write: false, ..READ_WRITE }).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    since();
    let read = other.read(opened.handle, 0, 400_000).await.unwrap().concat();
    assert!(read[..4096] == bytes[..4096] && read[8192..] == bytes[8192..]);
    let calls = since();
    let is_beside = |call: &(ServerId, ServerId, &str)| {
        (call.0, call.1) == (ServerId(0), ServerId(1)) && matches!(call.2, "ReadCopy" | "OpenLocal")
    };
    assert!(!calls.is_empty() && calls.iter().all(is_beside), "{calls:?}");
}

/// The servers of the one chunk there is, and who owns it.
fn chain_of(world: &World) -> (Vec<ServerId>, Vec<ServerId>) {
    let servers: Vec<(ServerId, Server)> =
        world.net.servers.lock().iter().map(|(id, server)| (*id, server.clone())).collect();
    let copies =
        servers.iter().flat_map(|(id, server)| server.copies(ChunkId(0), 9).into_iter().map(|copy| (*id, copy)));
    let (mut members, mut owners) = (Vec::new(), Vec::new());
    for (id, copy) in copies.filter(|(_, copy)| copy.told > Version::default()) {
        members.push(id);
        owners.extend(copy.is_owner.then_some(id));
    }
    (members, owners)
}

/// A file is made on one host and written again on another that has a copy: from the first write on its chunk is owned there, and what
/// is written then needs nobody else until it is synced. Not with `local_write` off, and the first writer gets it back.
#[tokio::test(start_paused = true)]
async fn a_chunk_is_owned_on_the_host_that_writes_it() {
    for local_write in [true, false] {
        let world = World::new(4, "replica:3").await;
        let first = world.client().await;
        let (id, handle) = create(&first, "f").await;
        let mut bytes = pattern(1, 400_000);
        first.write(handle, 0, Bytes::from(bytes.clone())).await.unwrap();
        first.fsync(handle, false).await.unwrap();
        first.release(handle).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (members, owners) = chain_of(&world);
        assert_eq!((members.len(), owners), (3, vec![ServerId(1)]));
        let there = members[2];
        let config = ClientConfig { host: format!("host{there}"), local_write, ..ClientConfig::default() };
        let second = world.client_of(0, config).await;
        let handle = second.open(&cx(), id, READ_WRITE).await.unwrap().handle;
        let since = || std::mem::take(&mut *world.net.calls.lock());
        let mut write = async |client: &Arc<Client>, handle, seed: u8| {
            let at = usize::from(seed) * 4096;
            bytes[at..at + 4096].copy_from_slice(&pattern(seed.into(), 4096));
            since();
            client.write(handle, at as u64, Bytes::from(bytes[at..at + 4096].to_vec())).await.unwrap();
            client.flush(handle).await.unwrap();
            since()
        };
        let calls = write(&second, handle, 2).await;
        let wants = calls.contains(&(ServerId(0), there, "WantChunk"));
        assert!(wants == local_write && calls.contains(&(ServerId(0), ServerId(1), "WriteCopies")), "{calls:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let owner = if local_write { there } else { ServerId(1) };
        assert_eq!(chain_of(&world).1, [owner]);
        // Who owns it is found out once: the one that does not says who does.
        let found_out: Vec<ServerId> = {
            let calls = write(&second, handle, 3).await;
            calls.into_iter().filter(|(_, _, name)| *name == "WriteCopies").map(|(_, at, _)| at).collect()
        };
        let asked = [ServerId(1), there];
        assert_eq!(found_out, if local_write { &asked[..] } else { &asked[..1] });
        assert_eq!(write(&second, handle, 4).await, [(ServerId(0), owner, "WriteCopies")]);
        second.fsync(handle, false).await.unwrap();
        second.release(handle).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let handle = first.open(&cx(), id, READ_WRITE).await.unwrap().handle;
        write(&first, handle, 5).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(chain_of(&world).1, [ServerId(1)]);
        first.fsync(handle, false).await.unwrap();
        let read = first.read(handle, 0, 400_000).await.unwrap().concat();
        assert!(read == bytes);
    }
}

/// What the owner alone had and took with it is written again before another mount sees the file.
#[tokio::test(start_paused = true)]
async fn what_only_a_lost_owner_had_is_repeated_before_another_mount_reads() {
    for late in [0, 1, 5] {
        let world = World::new(4, "replica:3").await;
        let client = world.client().await;
        let (id, handle) = create(&client, "f").await;
        let (before, after) = (pattern(1, 100_000), pattern(2, 150_000));
        client.write(handle, 0, Bytes::from(before)).await.unwrap();
        client.fsync(handle, false).await.unwrap();
        client.write(handle, 0, Bytes::from(after.clone())).await.unwrap();
        client.flush(handle).await.unwrap();
        assert!(world.any_server_has(150_000).await);
        let owner = {
            let servers: Vec<(ServerId, Server)> =
                world.net.servers.lock().iter().map(|(id, server)| (*id, server.clone())).collect();
            let owns = |server: &Server| server.copies(ChunkId(0), 9).iter().any(|copy| copy.is_owner);
            servers.into_iter().find(|(_, server)| owns(server)).unwrap().0
        };
        world.power_cut(owner.0, 7);
        tokio::time::sleep(Duration::from_secs(late)).await;
        assert!(seen(&world, id, 200_000).await == after, "{late} s later");
    }
}

#[tokio::test(start_paused = true)]
async fn without_enough_servers_an_fsync_fails_and_names_them() {
    let world = World::new(3, "replica:3").await;
    let client = world.client().await;
    let (_, handle) = create(&client, "f").await;
    client.write(handle, 0, Bytes::from(pattern(1, 100_000))).await.unwrap();
    client.fsync(handle, false).await.unwrap();
    world.power_cut(2, 1);
    world.power_cut(3, 1);
    client.write(handle, 0, Bytes::from(pattern(2, 100_000))).await.unwrap();
    let error = client.fsync(handle, false).await.unwrap_err();
    let said = error.to_string();
    let unreachable = |id| said.contains(&format!("data server {id}: the server cannot be reached"));
    assert!(said.contains("data server 1, chunk 1") && (unreachable(2) || unreachable(3)), "{said}");
    world.start(2, false).await;
    world.start(3, false).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    client.fsync(handle, false).await.unwrap();
}

/// Design.md §8: a write that reached its owner survives the loss of its client; and so does the size that speaks of it,
/// also if the servers forget meanwhile whose write it was.
#[tokio::test(start_paused = true)]
async fn a_lost_client_leaves_the_size_of_what_it_appended_to_copies() {
    for restart in [false, true] {
        let world = World::new(4, "replica:3").await;
        let client = world.client_at(99).await;
        let (id, handle) = create(&client, "f").await;
        let bytes = pattern(3, 150_000);
        client.write(handle, 0, Bytes::copy_from_slice(&bytes[..100_000])).await.unwrap();
        client.fsync(handle, false).await.unwrap();
        client.write(handle, 100_000, Bytes::copy_from_slice(&bytes[100_000..])).await.unwrap();
        // The moment between its arrival at a server and the word of its size.
        while !world.any_server_has(150_000).await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        world.net.away.lock().insert(ServerId(99));
        let meta = world.net.meta.lock().clone().unwrap();
        let size = async || {
            let get = GetAttr { inode: id.into() };
            meta.call(Context::default(), get).await.unwrap().attr.size
        };
        assert_eq!(size().await, 100_000);
        drop(client);
        if restart {
            // The owner alone had it at first; the others hear of it, and all sync, without being asked.
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!(size().await, 100_000);
            for server in 1..=4 {
                world.power_cut(server, server);
            }
            for server in 1..=4 {
                world.start(server, false).await;
            }
        }
        // Within its lease of 10 s, its expiry of a minute, and a moment.
        let begun = tokio::time::Instant::now();
        while size().await != 150_000 {
            assert!(begun.elapsed() < Duration::from_secs(90), "{} bytes, restart: {restart}", size().await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!(seen(&world, id, 200_000).await == bytes, "restart: {restart}");
    }
}

/// A server that stands still answers nothing; its clients go on as soon as others have taken over.
#[tokio::test(start_paused = true)]
async fn a_server_that_stands_still_holds_writes_up_for_no_longer_than_a_dead_one() {
    let world = World::new(4, "replica:3").await;
    let client = world.client().await;
    let (id, handle) = create(&client, "f").await;
    client.write(handle, 0, Bytes::from(pattern(1, 100_000))).await.unwrap();
    client.fsync(handle, false).await.unwrap();
    for still in 1..=4 {
        world.net.still.lock().insert(ServerId(still));
        world.net.away.lock().insert(ServerId(still));
        let begun = tokio::time::Instant::now();
        client.write(handle, 0, Bytes::from(pattern(still, 100_000))).await.unwrap();
        client.fsync(handle, false).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(9), "without {still} for {:?}", begun.elapsed());
        assert!(seen(&world, id, 100_000).await == pattern(still, 100_000));
        world.net.still.lock().clear();
        world.net.away.lock().clear();
        tokio::time::sleep(Duration::from_secs(40)).await;
    }
    client.release(handle).await;
    client.shutdown().await.unwrap();
}

/// A file of a client that is lost as soon as it has written, and closed if it is to be, and of servers that lose their power in the
/// same moment; `away` of them do not come back. Is all of it there?
async fn survives(policy: &str, servers: u64, away: &[u64], closed: bool, seed: u64) -> bool {
    let world = World::new(servers, policy).await;
    let client = world.client_at(99).await;
    let (id, handle) = create(&client, "f").await;
    let data = pattern(seed, CHUNK as usize + 300_000);
    client.write(handle, 0, Bytes::from(data.clone())).await.unwrap();
    if closed {
        client.flush(handle).await.unwrap();
    }
    world.net.away.lock().insert(ServerId(99));
    drop(client);
    (1..=servers).for_each(|id| world.power_cut(id, seed * 10 + id));
    for id in (1..=servers).filter(|id| !away.contains(id)) {
        world.start(id, false).await;
    }
    // The session's end: its lease of 10 s and its expiry of a minute, and what the servers have to settle then.
    tokio::time::sleep(Duration::from_secs(90)).await;
    let other = world.client().await;
    let read = async || {
        let opened = other.open(&cx(), id, OpenFlags { write: false, ..READ_WRITE }).await?;
        other.read(opened.handle, 0, data.len() as u32 + 1).await
    };
    read().await.is_ok_and(|read| read.concat() == data)
}

#[tokio::test(start_paused = true)]
async fn what_close_or_write_returned_for_is_on_the_stable_storage_of_copies_if_the_policy_says_so() {
    for away in 0..=3 {
        for (durability, closed) in [("close", true), ("write", false)] {
            let policy = format!("replica:3,durability={durability}");
            assert!(survives(&policy, 3, &[away], closed, away).await, "{policy}, without server {away}");
        }
    }
    // The default promises less; were nothing lost here, this would show nothing.
    let mut lost = 0;
    for seed in 0..6 {
        lost += u32::from(!survives("replica:3", 3, &[1], true, seed).await);
    }
    assert!(lost > 0, "no power cut lost anything");
}

#[tokio::test(start_paused = true)]
async fn min_copies_says_how_many_disks_may_be_lost_for_good() {
    let mut lost = [0, 0];
    for (one, other) in (1..=5).flat_map(|one| (one + 1..=5).map(move |other| (one, other))) {
        for min_copies in [2, 3] {
            let policy = format!("replica:3,min_copies={min_copies},durability=close");
            lost[min_copies - 2] += u32::from(!survives(&policy, 5, &[one, other], true, one).await);
        }
    }
    assert!(
        lost[0] > 0 && lost[1] == 0,
        "of ten pairs of servers so many were all that had it, by min_copies: {lost:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn eight_copies_outlive_the_loss_of_one_server() {
    for lost in 1..=8 {
        assert!(survives("replica:8,durability=close", 8, &[lost], true, lost).await, "without {lost}");
    }
}
