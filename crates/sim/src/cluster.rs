//! What a world's machines, its faults and its checkers share: the disks, and what can be seen from outside.

use crate::bug::Bug;
use crate::check::chains::{chains, is_settled};
use crate::check::instant::Answered;
use crate::check::unlinked::Moves;
use crate::coverage::Coverage;
use crate::env::{Hardware, SimSpawn, Skew, Surroundings, process_env};
use crate::failures::Invariant;
use crate::host::Words;
use crate::machine::Machine;
use crate::operator::Operator;
use crate::seed::stream;
use crate::settings::Settings;
use crate::witness::Witness;
use braid_client::Client;
use braid_data_server::DataServer;
use braid_data_store::ChunkStore;
use braid_env::Env;
use braid_env::simdisk::SimDisk;
use braid_meta_engine::{MemStore, PlantedBug};
use braid_meta_namespace::rows::ContainerRow;
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Arguments;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The longest time between the order of a metadata transaction and its durability.
const COMMIT_MS_MAX: u64 = 5;
/// The longest time that what was answered early waits for its commit: longer than a real server holds it, so that
/// crashes often come in between.
const HOLD_MS_MAX: u64 = 60;

pub struct Cluster {
    pub around: Surroundings,
    pub settings: Settings,
    pub coverage: Coverage,
    /// The metadata server's disk.
    pub meta_store: MemStore,
    /// What the servers' doors saw.
    pub witness: Witness,
    /// Who has answered changes of chunks with copies.
    pub answered: Answered,
    /// The same of chains.
    pub words: Words,
    /// Who drains data servers, if [`Settings::operator`] says that there is somebody.
    pub operator: Operator,
    /// What it has moved.
    pub moves: Moves,
    machines: BTreeMap<Machine, Hardware>,
    lives: Mutex<BTreeMap<Machine, u64>>,
    /// Data servers that run.
    servers: Mutex<BTreeMap<Machine, Arc<DataServer>>>,
    /// Data servers that stopped, and the chains they were in, until every one of these is whole again.
    unhealed: Mutex<BTreeMap<Machine, Wounds>>,
    /// Clients that have nothing left to do.
    pub left: Mutex<BTreeSet<Machine>>,
    /// Clients that may still live, and what of their counters has been told: writes repeated, sessions lost.
    clients: Mutex<Vec<(Weak<Client>, [u64; 3])>>,
    calm: AtomicBool,
    data_stops: AtomicU64,
}

/// Containers, with the epochs of their chains when it happened.
type Wounds = BTreeMap<ContainerId, ChainEpoch>;

/// One life of a machine's process.
#[derive(Clone)]
pub struct Process {
    pub cluster: Arc<Cluster>,
    pub machine: Machine,
    pub env: Env,
    /// Counts from 1.
    pub life: u64,
    pub spawner: Arc<SimSpawn>,
}

impl Cluster {
    pub fn new(around: Surroundings, settings: Settings) -> Arc<Self> {
        let mut machines = BTreeMap::new();
        for (n, machine) in Machine::ALL.into_iter().enumerate() {
            // Of one host, one clock.
            let beside = if settings.is_beside() { machine.beside() } else { None };
            let clock = beside.and_then(|beside| Machine::ALL.iter().position(|other| *other == beside)).unwrap_or(n);
            let skew = Skew::draw(&mut stream(around.seed, "skew", clock as u64));
            let disk = SimDisk::new();
            machines.insert(machine, Hardware { name: machine.name(), skew, disk, pause: Arc::default() });
        }
        let meta_store = MemStore::new();
        let delays = Mutex::new(stream(around.seed, "commits", 0));
        meta_store.set_commit_delay(move || {
            let ms = delays.lock().random_range(0..=COMMIT_MS_MAX);
            Box::pin(tokio::time::sleep(Duration::from_millis(ms)))
        });
        let holds = Mutex::new(stream(around.seed, "holds", 0));
        meta_store.set_hold(move |sync| {
            let ms = holds.lock().random_range(0..=HOLD_MS_MAX);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                sync.await;
            });
        });
        let operator = if settings.operator { Operator::of_seed(around.seed) } else { Operator::default() };
        Arc::new(Cluster {
            operator,
            moves: Moves::default(),
            around,
            settings,
            coverage: Coverage::default(),
            meta_store,
            witness: Witness::default(),
            answered: Answered::default(),
            words: Words::default(),
            machines,
            lives: Mutex::default(),
            servers: Mutex::default(),
            unhealed: Mutex::default(),
            left: Mutex::default(),
            clients: Mutex::default(),
            calm: AtomicBool::new(false),
            data_stops: AtomicU64::new(0),
        })
    }

    /// Plants the bugs that disks can have. Not before the cluster has formed, which would find the wrong one.
    pub fn plant(&self) {
        for machine in self.settings.data() {
            let disk = &self.hardware(machine).disk;
            disk.keep_words(self.settings.bug == Some(Bug::WordsKept));
            disk.keep_times(self.settings.bug == Some(Bug::TimesKept));
            disk.skip_syncs(self.settings.bug == Some(Bug::SkippedDataSync));
        }
        if self.settings.bug == Some(Bug::SkippedMetaSync) {
            self.meta_store.plant(PlantedBug::SkippedSync);
        }
    }

    pub fn note(&self, machine: &str, what: Arguments<'_>) {
        self.around.history.note(machine, what);
    }

    /// What a process on the machine calls its host.
    pub fn host(&self, machine: Machine) -> &'static str {
        let beside = if self.settings.is_beside() { machine.beside() } else { None };
        beside.unwrap_or(machine).name()
    }

    pub fn hardware(&self, machine: Machine) -> &Hardware {
        &self.machines[&machine]
    }

    /// Starts the next life of a machine.
    pub fn boot(self: &Arc<Self>, machine: Machine) -> Process {
        let life = {
            let mut lives = self.lives.lock();
            let life = lives.entry(machine).or_default();
            *life += 1;
            *life
        };
        let (env, spawner) = process_env(&self.around, self.hardware(machine), life);
        self.note(machine.name(), format_args!("starts, life {life}"));
        Process { cluster: self.clone(), machine, env, life, spawner }
    }

    pub fn server_started(&self, machine: Machine, server: Arc<DataServer>) {
        self.servers.lock().insert(machine, server);
    }

    pub fn server_lost(&self, machine: Machine) {
        self.servers.lock().remove(&machine);
    }

    pub fn servers(&self) -> Vec<(Machine, Arc<DataServer>)> {
        self.servers.lock().iter().map(|(machine, server)| (*machine, server.clone())).collect()
    }

    pub fn stores(&self) -> Vec<(ServerId, Arc<dyn ChunkStore>)> {
        self.servers().into_iter().map(|(_, server)| (server.id(), server.store().clone())).collect()
    }

    /// Data servers that own a chunk now.
    pub fn owners(&self) -> Vec<Machine> {
        let owns = |server: &DataServer| server.copies(ChunkId(0), usize::MAX).iter().any(|c| c.is_owner);
        self.servers().into_iter().filter(|(_, server)| owns(server)).map(|(machine, _)| machine).collect()
    }

    /// How often any metadata server has started.
    pub fn meta_starts(&self) -> u64 {
        Machine::METAS.iter().map(|machine| self.starts(*machine)).sum()
    }

    /// How often it has started.
    pub fn starts(&self, machine: Machine) -> u64 {
        self.lives.lock().get(&machine).copied().unwrap_or(0)
    }

    pub fn lives(&self, server: ServerId) -> u64 {
        self.machine_of(server).map_or(0, |machine| self.starts(machine))
    }

    /// Where it runs.
    pub fn machine_of(&self, server: ServerId) -> Option<Machine> {
        self.servers().into_iter().find(|(_, known)| known.id() == server).map(|(machine, _)| machine)
    }

    /// A data server stops, and forgets what it was told and has not written down. True if another has before, and not
    /// every chain has been taken over since: then what nobody has synced may be in no copy any more.
    pub fn forgets(&self, machine: Machine, server: Option<ServerId>) -> bool {
        let in_chain = |row: &ContainerRow| server.is_none_or(|server| row.chain.contains(&server));
        let wounds = chains(self).into_iter().filter(|(_, row)| in_chain(row)).map(|(id, row)| (id, row.epoch));
        let mut unhealed = self.unhealed.lock();
        let others = unhealed.keys().any(|other| *other != machine);
        unhealed.insert(machine, wounds.collect());
        others
    }

    /// Another data server has stopped, and not every chain has been taken over since.
    pub fn heals_another(&self, machine: Machine) -> bool {
        self.unhealed.lock().keys().any(|other| *other != machine)
    }

    /// Forgets wounds that are healed.
    pub fn look_at_wounds(&self) {
        let mut unhealed = self.unhealed.lock();
        if unhealed.is_empty() {
            return;
        }
        let rows: BTreeMap<ContainerId, ContainerRow> = chains(self).into_iter().collect();
        let is_healed = |(container, epoch): (&ContainerId, &ChainEpoch)| {
            rows.get(container).is_none_or(|row| row.epoch > *epoch && is_settled(row))
        };
        if rows.values().all(is_settled) {
            unhealed.retain(|_, wounds| !wounds.iter().all(is_healed));
        }
    }

    pub fn client_started(&self, client: &Arc<Client>) {
        self.clients.lock().push((Arc::downgrade(client), [0; 3]));
    }

    /// Counts what clients have done since the last look.
    pub fn look_at_clients(&self) {
        self.clients.lock().retain_mut(|(client, told)| {
            let Some(client) = client.upgrade() else { return false };
            let stats = client.stats();
            let now = [stats.writes_repeated, stats.sessions_lost, stats.local_reads];
            self.coverage.add("write repeated to a server that had lost it", now[0] - told[0]);
            self.coverage.add("living client went on in a new session", now[1] - told[1]);
            self.coverage.add("read of a server's files on its host", now[2] - told[2]);
            if self.settings.sessions_last && now[1] > told[1] {
                self.around.failures.add(Invariant::SessionsLast, "a living client lost its session".to_owned());
            }
            *told = now;
            true
        });
    }

    pub fn data_server_stopped(&self) {
        self.data_stops.fetch_add(1, Relaxed);
    }

    /// Kills and power cuts of data servers so far.
    pub fn data_stops(&self) -> u64 {
        self.data_stops.load(Relaxed)
    }

    /// No more faults come.
    pub fn calm_down(&self) {
        self.calm.store(true, Relaxed);
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Relaxed)
    }
}

impl Process {
    pub fn note(&self, what: Arguments<'_>) {
        self.cluster.note(self.machine.name(), what);
    }

    /// Random numbers for the workload of this life, apart from those of the product.
    pub fn stream(&self, label: &str) -> crate::seed::Stream {
        stream(self.cluster.around.seed, &format!("{label} of {}", self.machine.name()), self.life)
    }
}
