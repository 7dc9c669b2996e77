//! What a world's machines, its faults and its checkers share: the disks, and what can be seen from outside.

use crate::coverage::Coverage;
use crate::env::{Hardware, SimSpawn, Skew, Surroundings, process_env};
use crate::machine::Machine;
use crate::seed::stream;
use crate::settings::{Bug, Settings};
use crate::witness::Witness;
use braid_client::Client;
use braid_data_store::DiskStore;
use braid_env::Env;
use braid_env::simdisk::SimDisk;
use braid_meta_engine::{MemStore, PlantedBug};
use braid_types::ServerId;
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeMap;
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
    machines: BTreeMap<Machine, Hardware>,
    lives: Mutex<BTreeMap<Machine, u64>>,
    /// Of data servers that run.
    stores: Mutex<BTreeMap<Machine, (ServerId, Arc<DiskStore>)>>,
    /// Clients that may still live, and what of their counters has been told: writes repeated, sessions lost.
    clients: Mutex<Vec<(Weak<Client>, [u64; 2])>>,
    calm: AtomicBool,
    data_stops: AtomicU64,
}

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
            let skew = Skew::draw(&mut stream(around.seed, "skew", n as u64));
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
        Arc::new(Cluster {
            around,
            settings,
            coverage: Coverage::default(),
            meta_store,
            witness: Witness::default(),
            machines,
            lives: Mutex::default(),
            stores: Mutex::default(),
            clients: Mutex::default(),
            calm: AtomicBool::new(false),
            data_stops: AtomicU64::new(0),
        })
    }

    /// Plants the bugs that disks can have. Not before the cluster has formed, which would find the wrong one.
    pub fn plant(&self) {
        for machine in Machine::DATA {
            self.hardware(machine).disk.skip_syncs(self.settings.bug == Some(Bug::SkippedDataSync));
        }
        if self.settings.bug == Some(Bug::SkippedMetaSync) {
            self.meta_store.plant(PlantedBug::SkippedSync);
        }
    }

    pub fn note(&self, machine: &str, what: Arguments<'_>) {
        self.around.history.note(machine, what);
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

    pub fn store_opened(&self, machine: Machine, server: ServerId, store: Arc<DiskStore>) {
        self.stores.lock().insert(machine, (server, store));
    }

    pub fn store_lost(&self, machine: Machine) {
        self.stores.lock().remove(&machine);
    }

    pub fn stores(&self) -> Vec<(ServerId, Arc<DiskStore>)> {
        self.stores.lock().values().cloned().collect()
    }

    pub fn client_started(&self, client: &Arc<Client>) {
        self.clients.lock().push((Arc::downgrade(client), [0; 2]));
    }

    /// Counts what clients have done since the last look.
    pub fn look_at_clients(&self) {
        self.clients.lock().retain_mut(|(client, told)| {
            let Some(client) = client.upgrade() else { return false };
            let stats = client.stats();
            let now = [stats.writes_repeated, stats.sessions_lost];
            self.coverage.add("write repeated to a server that had lost it", now[0] - told[0]);
            self.coverage.add("living client went on in a new session", now[1] - told[1]);
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
