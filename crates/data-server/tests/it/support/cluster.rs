//! Several data servers and a leader in one thread, over messages that take time and may be cut off.

use super::{Seeded, World, quiet};
use braid_api::data::*;
use braid_api::{Carries, Code, Context, DataNode, Error, Result};
use braid_chain::*;
use braid_data_server::{Arrival, ChainLinks, DataServer, DataServerConfig, Room};
use braid_data_store::{DiskStore, StoreIdentity, StoreOptions};
use braid_env::{Random, TaskHandle};
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

pub const C: ContainerId = ContainerId(9);
/// Larger than an extent of the activity log.
pub const CHUNK_BYTES: u64 = 8 << 20;
const LEADER: u64 = 0;

pub type Server = Arc<DataServer>;

pub struct Machine {
    pub world: World,
    pub server: Option<Server>,
    alive: Arc<AtomicBool>,
    task: Option<TaskHandle>,
    /// Every start so far, in order: the leader counts them.
    starts: Vec<u64>,
}

pub struct Cluster {
    pub machines: Mutex<Vec<Machine>>,
    leader: Mutex<Leader>,
    pub row: Mutex<ContainerRow>,
    /// Pairs that do not hear each other; 0 is the leader.
    pub cut: Mutex<BTreeSet<(u64, u64)>>,
    pub random: Seeded,
    pub content_bytes: AtomicU64,
    /// Content goes over a link of so many bytes a second, one message after the other; 0: at once.
    pub link_bytes_per_s: AtomicU64,
    /// When the link is free again.
    link: tokio::sync::Mutex<()>,
    pub config: DataServerConfig,
}

/// The first live server that is not in the chain.
struct FirstSpare;
impl Spares for FirstSpare {
    fn successor(&mut self, _: ContainerId, chain: &[ServerId], live: &[ServerId], _: u64) -> Option<ServerId> {
        live.iter().find(|server| !chain.contains(server)).copied()
    }
}

struct Links {
    from: ServerId,
    alive: Arc<AtomicBool>,
    cluster: Weak<Cluster>,
}

impl ChainLinks for Links {
    fn to_peer(&self, to: ServerId, message: PeerSays, payload: Bytes, room: Room, arrival: Arrival) {
        let Some(cluster) = self.cluster.upgrade().filter(|_| self.alive.load(SeqCst)) else { return };
        let from = self.from;
        cluster.content_bytes.fetch_add(payload.len() as u64, SeqCst);
        tokio::spawn(async move {
            let rate = cluster.link_bytes_per_s.load(SeqCst);
            if rate > 0 && !payload.is_empty() {
                let _turn = cluster.link.lock().await;
                tokio::time::sleep(Duration::from_secs_f64(payload.len() as f64 / rate as f64)).await;
            }
            cluster.travel().await;
            if let Some(server) = cluster.hears(from.0, to.0) {
                server.call(Context::default(), message, payload).await.unwrap();
            }
            drop((arrival, room));
        });
    }

    fn to_leader(&self, incarnation: u64, message: Vec<u8>) {
        let Some(cluster) = self.cluster.upgrade().filter(|_| self.alive.load(SeqCst)) else { return };
        let from = self.from;
        tokio::spawn(async move {
            cluster.travel().await;
            if cluster.is_cut(from.0, LEADER) {
                return;
            }
            let starts = cluster.machines.lock()[from.0 as usize - 1].starts.clone();
            let Some(start) = starts.iter().position(|known| *known == incarnation) else { return };
            let message = ToLeader::decode(&message).unwrap();
            cluster.leader_event(LeaderEvent::FromServer { server: from, incarnation: start as u64 + 1, message });
        });
    }
}

impl Cluster {
    /// `servers` machines, the first `copies` of them in the chain of container [`C`].
    pub fn new(seed: u64, servers: u64, copies: u8, min_copies: u8) -> Arc<Cluster> {
        let members = (1..=u64::from(copies)).map(ServerId).collect();
        let row = ContainerRow::new(C, members, copies, min_copies);
        let config = DataServerConfig { sync_every: Duration::from_secs(1), ..quiet() };
        let machines: Vec<Machine> = (1..=servers)
            .map(|id| Machine {
                world: World::new(seed * 100 + id),
                server: None,
                alive: Arc::default(),
                task: None,
                starts: Vec::new(),
            })
            .collect();
        let now = machines[0].world.env.clock.now().0;
        let cluster = Arc::new(Cluster {
            machines: Mutex::new(machines),
            leader: Mutex::new(Leader::new(now, LeaderEpoch(1), Limits::default(), [])),
            row: Mutex::new(row.clone()),
            cut: Mutex::default(),
            random: Seeded(AtomicU64::new(seed)),
            content_bytes: AtomicU64::new(0),
            link_bytes_per_s: AtomicU64::new(0),
            link: Default::default(),
            config,
        });
        (1..=servers).for_each(|id| cluster.start(id));
        cluster.leader_event(LeaderEvent::Made { container: C, row });
        let weak = Arc::downgrade(&cluster);
        tokio::spawn(async move {
            while let Some(cluster) = weak.upgrade() {
                cluster.leader_event(LeaderEvent::Tick);
                drop(cluster);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        cluster
    }

    async fn travel(&self) {
        tokio::time::sleep(Duration::from_micros(100 + self.random.below(2_000))).await;
    }

    pub fn is_cut(&self, a: u64, b: u64) -> bool {
        self.cut.lock().contains(&(a.min(b), a.max(b)))
    }

    /// Cuts a machine off from all others and the leader, or joins it again.
    pub fn cut_off(&self, id: u64, off: bool) {
        let mut cut = self.cut.lock();
        for other in (LEADER..=self.machines.lock().len() as u64).filter(|other| *other != id) {
            let pair = (id.min(other), id.max(other));
            let _ = if off { cut.insert(pair) } else { cut.remove(&pair) };
        }
    }

    fn hears(&self, from: u64, to: u64) -> Option<Server> {
        if self.is_cut(from, to) { None } else { self.server(to) }
    }

    pub fn server(&self, id: u64) -> Option<Server> {
        self.machines.lock()[id as usize - 1].server.clone()
    }

    pub fn start(self: &Arc<Self>, id: u64) {
        let mut machines = self.machines.lock();
        let machine = &mut machines[id as usize - 1];
        let identity = StoreIdentity { cluster: ClusterId([7; 16]), server: ServerId(id) };
        let options = StoreOptions::default();
        let disk = machine.world.env.disk.clone();
        let store = DiskStore::open_or_create(disk, Path::new("/store"), identity, options).unwrap();
        let server = DataServer::start(machine.world.env.clone(), Arc::new(store), identity, self.config.clone());
        machine.starts.push(server.incarnation());
        machine.alive = Arc::new(AtomicBool::new(true));
        let (from, alive, cluster) = (ServerId(id), machine.alive.clone(), Arc::downgrade(self));
        machine.task = Some(server.join_chains(Arc::new(Links { from, alive, cluster })));
        machine.server = Some(server);
    }

    /// Ends the process; with it the power, if there is a seed for what that does to the disk.
    pub fn kill(&self, id: u64, power: Option<u64>) {
        let mut machines = self.machines.lock();
        let machine = &mut machines[id as usize - 1];
        machine.alive.store(false, SeqCst);
        if let Some(task) = machine.task.take() {
            task.abort();
        }
        machine.server = None;
        match power {
            Some(seed) => machine.world.disk.crash(seed),
            None => machine.world.disk.kill_process(),
        }
    }

    fn leader_event(self: &Arc<Self>, event: LeaderEvent) {
        let now = self.machines.lock()[0].world.env.clock.now().0;
        let commands = self.leader.lock().on(now, event, &mut FirstSpare);
        for command in commands {
            let cluster = self.clone();
            match command {
                LeaderCommand::Send { to, incarnation, message } => drop(tokio::spawn(async move {
                    cluster.travel().await;
                    let Some(server) = cluster.hears(LEADER, to.0) else { return };
                    let start =
                        cluster.machines.lock()[to.0 as usize - 1].starts.get(incarnation as usize - 1).copied();
                    let says = LeaderSays { incarnation: start.unwrap_or_default(), sync_floor: Default::default() };
                    server.call(Context::default(), says, message.encode().into()).await.unwrap();
                })),
                LeaderCommand::Commit { container, number, row } => drop(tokio::spawn(async move {
                    cluster.travel().await;
                    *cluster.row.lock() = row;
                    cluster.leader_event(LeaderEvent::Committed { container, number });
                })),
                LeaderCommand::Decided { .. } => {}
            }
        }
    }

    /// The leader was told that copies are lost.
    pub fn lost(self: &Arc<Self>) {
        self.leader_event(LeaderEvent::Lost { container: C });
    }

    pub fn is_settled(&self) -> bool {
        self.leader.lock().is_settled(C)
    }

    /// Copies on live servers, and copies there should be.
    pub fn live_copies(&self) -> (u8, u8) {
        let now = self.machines.lock()[0].world.env.clock.now().0;
        self.leader.lock().live_copies(C, now).unwrap()
    }

    /// How a server's copy of the chunk stands.
    pub async fn copy(&self, id: u64, chunk: u64) -> Option<CopyState> {
        let server = self.server(id)?;
        let get = GetCopies::of(vec![ChunkId(chunk)]);
        server.call(Context::default(), get, Bytes::new()).await.unwrap().0.pop()
    }

    /// Waits until every member has everything on stable storage and nothing is being changed.
    pub async fn settled(&self, chunk: u64) {
        for _ in 0..1200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let row = self.row.lock().clone();
            let running = self.machines.lock().iter().filter(|machine| machine.server.is_some()).count();
            if !self.is_settled() || row.members().len() < running.min(row.copies.into()) {
                continue;
            }
            let members = row.members().to_vec();
            let mut states = Vec::new();
            for member in &members {
                states.push(self.copy(member.0, chunk).await);
            }
            let Some(states) = states.into_iter().collect::<Option<Vec<CopyState>>>() else { continue };
            let told = states.iter().map(|state| state.told).max().unwrap_or_default();
            let is_whole = |state: &CopyState| (state.stable, state.complete, state.invalid_blocks) == (told, told, 0);
            if states.iter().all(is_whole) && states.iter().any(|state| state.is_open) {
                return;
            }
        }
        let servers = self.machines.lock().len() as u64;
        for id in 1..=servers {
            println!("{id}: {:?}", self.copy(id, chunk).await);
        }
        panic!("chunk {chunk} did not settle: {:?}", self.row.lock());
    }
}

pub fn write_of(chunk: u64, offset: u64) -> WriteCopies {
    let write = WriteChunk { container: C, chunk_bytes: CHUNK_BYTES, alone: true, ..super::write_of(chunk, offset) };
    WriteCopies { write, durability: Durability::Fsync }
}

/// Others read and write too.
pub fn shared_write_of(chunk: u64, offset: u64) -> WriteCopies {
    let message = write_of(chunk, offset);
    WriteCopies { write: WriteChunk { alone: false, ..message.write }, ..message }
}

pub fn read_of(chunk: u64, offset: u64, len: u32) -> ReadCopy {
    ReadCopy {
        chunk: ChunkId(chunk),
        container: C,
        offset,
        len,
        cuts: Vec::new(),
        at_least: Version::default(),
        kept_beside: false,
        ordered: false,
        hold: None,
    }
}

pub fn wait_of(chunk: u64, wait: WaitFor) -> WaitCopies {
    let (held, durability) = (Held::Exclusive, Durability::Fsync);
    WaitCopies { container: C, chunks: vec![ChunkId(chunk)], wait, held, durability }
}

/// A client with a file lease: it keeps what is not on enough servers, repeats it to a new owner, and tries until it works.
pub struct Client {
    pub cluster: Arc<Cluster>,
    pub trunc_gen: u32,
    pub cuts: Cuts,
    /// What is kept: chunk, its version, offset, bytes.
    kept: Vec<(u64, Version, u64, Bytes)>,
    /// Chunks of which a write has been answered.
    written: BTreeSet<u64>,
    epochs: BTreeMap<u64, ChainEpoch>,
    pub repeated: u64,
}

type Cuts = Vec<(TruncGen, u64)>;

impl Client {
    pub fn new(cluster: &Arc<Cluster>) -> Client {
        let (cuts, kept, epochs) = (Vec::new(), Vec::new(), BTreeMap::new());
        Client { cluster: cluster.clone(), trunc_gen: 0, cuts, kept, written: BTreeSet::new(), epochs, repeated: 0 }
    }

    /// Asks the members in turn until one answers.
    pub async fn ask<M>(&self, message: M, payload: Bytes) -> Result<(M::Answer, Bytes)>
    where
        M: Carries<DataRequest, DataAnswer> + Clone + Send,
        M::Answer: Send,
    {
        let mut last = Error::bare(Code::NoServers);
        // Long enough for a take-over, then a copy of everything.
        for _ in 0..100 {
            let members = self.cluster.row.lock().members().to_vec();
            for member in members {
                let Some(server) = self.cluster.server(member.0) else { continue };
                let cx = Context { deadline: Duration::from_secs(5), ..super::cx_of(1, 1, self.trunc_gen) };
                match server.call(cx, message.clone(), payload.clone()).await {
                    Err(error) => last = error,
                    answer => return answer,
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(last)
    }

    /// True if it is of a new owner, which has not seen what was only at the old one.
    fn answered(&mut self, chunk: u64, answer: &CopiesAnswer) -> bool {
        let epoch = answer.version.chain_epoch;
        let is_new = self.epochs.insert(chunk, epoch).is_some_and(|old| old != epoch);
        if is_new {
            // Also what this says is kept is repeated, after what is older: else that would cover it.
            return true;
        }
        let is_kept =
            |kept: &(u64, Version, u64, Bytes)| kept.0 == chunk && kept.1.chain_epoch == epoch && kept.1 <= answer.kept;
        self.kept.retain(|kept| !is_kept(kept));
        false
    }

    /// All that is kept, in the order in which it was written, under one epoch: an old write must not cover a new one.
    async fn repeat(&mut self, chunk: u64) {
        loop {
            let all: Vec<(u64, Bytes)> =
                self.kept.iter().filter(|kept| kept.0 == chunk).map(|kept| (kept.2, kept.3.clone())).collect();
            self.kept.retain(|kept| kept.0 != chunk);
            let mut epochs = BTreeSet::new();
            let mut last = None;
            for (offset, bytes) in all {
                self.repeated += 1;
                let answer = self.ask(self.message(chunk, offset), bytes.clone()).await.unwrap().0;
                self.kept.push((chunk, answer.version, offset, bytes));
                epochs.insert(answer.version.chain_epoch);
                last = Some(answer);
            }
            let Some(last) = last else { return };
            if epochs.len() == 1 {
                self.epochs.extend(epochs.pop_first().map(|epoch| (chunk, epoch)));
                self.answered(chunk, &last);
                return;
            }
        }
    }

    fn message(&self, chunk: u64, offset: u64) -> WriteCopies {
        let message = write_of(chunk, offset);
        WriteCopies { write: WriteChunk { cuts: self.cuts.clone(), ..message.write }, ..message }
    }

    pub async fn write(&mut self, chunk: u64, offset: u64, bytes: Bytes) -> CopiesAnswer {
        let answer = self.ask(self.message(chunk, offset), bytes.clone()).await.unwrap().0;
        self.written.insert(chunk);
        self.kept.push((chunk, answer.version, offset, bytes));
        if self.answered(chunk, &answer) {
            self.repeat(chunk).await;
        }
        answer
    }

    pub async fn fsync(&mut self, chunk: u64) {
        loop {
            let answers = self.ask(wait_of(chunk, WaitFor::Fsync), Bytes::new()).await.unwrap().0;
            if !self.answered(chunk, &answers[0]) {
                return;
            }
            self.repeat(chunk).await;
        }
    }

    pub async fn cut(&mut self, chunk: u64, len: u64) {
        // What is kept was written before the cut.
        self.fsync(chunk).await;
        self.kept.retain(|(of, ..)| *of != chunk);
        self.trunc_gen += 1;
        self.cuts.push((TruncGen(self.trunc_gen), len));
        let cut = CutCopies { chunk: ChunkId(chunk), container: C, cuts: self.cuts.clone() };
        match self.ask(cut, Bytes::new()).await {
            // Nothing was ever written to it, and nothing makes it but a write.
            Err(error) if error.code == Code::ChunkUnknown && !self.written.contains(&chunk) => {}
            cut => drop(cut.unwrap()),
        }
    }

    pub async fn read(&self, chunk: u64, offset: u64, len: u32) -> Result<Bytes> {
        let message = ReadCopy { cuts: self.cuts.clone(), ..read_of(chunk, offset, len) };
        Ok(self.ask(message, Bytes::new()).await?.1)
    }

    /// From one server, at once.
    pub async fn read_at(&self, server: u64, chunk: u64, offset: u64, len: u32) -> Result<Bytes> {
        let server = self.cluster.server(server).ok_or(Error::bare(Code::Unreachable))?;
        let cx = super::cx_of(1, 1, self.trunc_gen);
        let message = ReadCopy { cuts: self.cuts.clone(), ..read_of(chunk, offset, len) };
        Ok(server.call(cx, message, Bytes::new()).await?.1)
    }
}
