//! Copies of the rows on data servers (`docs/design/0008-metadata-copies.md`): this server's part of `braid-copyset`.
//!
//! A [`CopySet`] is there before the metadata server is: it gets a term, then the [`Leader`] decides and tasks carry out, three
//! for each data server: one that asks for its word (and so holds the lease), one that sends groups or the rows themselves, one
//! that asks it to sync. Every message is a question that may be lost and asked again.

mod link;
mod recover;
mod start;

pub use recover::{RecoverError, Recovered, recover};
pub use start::{CopyConfig, CopyError, Registrations};

use braid_api::admin::CopyHealth;
use braid_api::meta::{ServerInfo, ServerState};
use braid_api::{Code, Error, Result};
use braid_copyset::{Leader, Limits};
use braid_env::Env;
use braid_meta_engine::{Copied, Kept, Outgoing, Outlet};
use braid_types::{CopySet as Set, MetaTerm, ServerId, Voter};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;

/// Groups that are remembered for copies that are behind.
const REMEMBERED_BYTES: usize = 64 << 20;
/// Between two looks at who is silent.
const TICK: Duration = Duration::from_millis(200);
/// How long an answer waits for the lease before its caller is told to ask again.
const LEASE_WAIT: Duration = Duration::from_secs(5);

/// Exact counters since the start.
#[derive(Debug, Default)]
pub struct CopyCounters {
    pub groups: AtomicU64,
    pub group_messages: AtomicU64,
    pub sync_messages: AtomicU64,
    pub base_messages: AtomicU64,
    pub control_messages: AtomicU64,
}

impl CopyCounters {
    /// By their names in the metrics.
    pub fn list(&self) -> [(&'static str, u64); 5] {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        [
            ("groups", load(&self.groups)),
            ("group_messages", load(&self.group_messages)),
            ("sync_messages", load(&self.sync_messages)),
            ("base_messages", load(&self.base_messages)),
            ("control_messages", load(&self.control_messages)),
        ]
    }
}

#[derive(Default)]
struct Groups {
    changes: BTreeMap<u64, Arc<Vec<u8>>>,
    bytes: usize,
}

/// The copies of a metadata server that leads.
pub struct CopySet {
    env: Env,
    limits: Limits,
    wanted: usize,
    leader: Mutex<Leader>,
    groups: Mutex<Groups>,
    outlet: Arc<Outlet>,
    /// The newest set that is on this server's own disk: no other is told to anybody.
    stored: Mutex<Set>,
    /// Data servers whose tasks run.
    linked: Mutex<BTreeSet<ServerId>>,
    /// Raised whenever something happened that somebody may wait for.
    news: watch::Sender<u64>,
    /// Stable storage is wanted up to here.
    sync_wanted: AtomicU64,
    spawn: SpawnLink,
    pub counters: CopyCounters,
}

/// Starts the tasks of a data server; holds what they need and this type does not name.
type SpawnLink = Box<dyn Fn(&Arc<CopySet>, ServerId) + Send + Sync>;

/// The set as it is stored: version, then its content.
fn encode_set(set: &Set) -> Vec<u8> {
    let mut bytes = vec![1];
    // A set has nothing that cannot be written.
    bytes.extend(postcard::to_stdvec(set).unwrap_or_default());
    bytes
}

fn decode_set(bytes: &[u8]) -> std::result::Result<Set, String> {
    match bytes.split_first() {
        Some((1, rest)) => postcard::from_bytes(rest).map_err(|error| format!("the stored copy set: {error}")),
        Some((version, _)) => Err(format!("the stored copy set has format {version}, this program knows 1")),
        None => Err("the stored copy set is empty".to_owned()),
    }
}

/// How a data server is reached.
fn info(voter: &Voter) -> ServerInfo {
    ServerInfo {
        id: voter.id,
        addresses: voter.addresses.clone(),
        host: voter.host.clone(),
        state: ServerState::Up,
        bytes_total: 0,
        bytes_free: 0,
        chunks: 0,
        silent_ms: 0,
        rack: String::new(),
        disk: 0,
        duty: braid_api::meta::Duty::Serves,
    }
}

impl CopySet {
    fn new(env: Env, config: &CopyConfig, leader: Leader, outlet: Arc<Outlet>, spawn: SpawnLink) -> Arc<CopySet> {
        Arc::new(CopySet {
            env,
            limits: config.limits,
            wanted: config.wanted,
            stored: Mutex::new(leader.set().clone()),
            leader: Mutex::new(leader),
            groups: Mutex::default(),
            outlet,
            linked: Mutex::default(),
            news: watch::channel(0).0,
            sync_wanted: AtomicU64::new(0),
            spawn,
            counters: CopyCounters::default(),
        })
    }

    pub fn term(&self) -> MetaTerm {
        self.leader.lock().term()
    }

    /// A data server and where it is now.
    pub fn learn(self: &Arc<Self>, voter: Voter) {
        let id = voter.id;
        self.leader.lock().learn(voter);
        if self.linked.lock().insert(id) {
            (self.spawn)(self, id);
        }
        self.tell();
    }

    /// Who is to keep no copy, and of those who is to have no vote.
    pub fn leaves(&self, leaving: BTreeSet<ServerId>, gone: BTreeSet<ServerId>) {
        self.leader.lock().leaves(leaving, gone);
    }

    /// It has a say in who leads.
    pub fn is_voter(&self, id: ServerId) -> bool {
        let leader = self.leader.lock();
        leader.counting().voter(id).is_some() || leader.set().voter(id).is_some()
    }

    fn tell(&self) {
        self.news.send_modify(|number| *number += 1);
    }

    /// Something has happened since it was subscribed to, or `most` has passed.
    async fn news(&self, news: &mut watch::Receiver<u64>, most: Duration) {
        let _ = self.env.timeout(most, news.changed()).await;
    }

    /// For how long from now no other leads, if nothing more is heard.
    pub fn leads_for(&self) -> Duration {
        self.leader.lock().progress().lease.saturating_sub(self.env.clock.now().0)
    }

    /// Waits until this server may answer: what it says is not outdated by another one.
    pub async fn may_answer(&self) -> Result<()> {
        let mut news = self.news.subscribe();
        let end = self.env.clock.now() + LEASE_WAIT;
        loop {
            let now = self.env.clock.now();
            if !self.leads_for().is_zero() {
                return Ok(());
            }
            let left = end.since(now);
            if left.is_zero() || self.outlet.is_closed() {
                return Err(Error::new(Code::NotServing, "the metadata server", self.why()));
            }
            self.news(&mut news, left).await;
        }
    }

    /// Why it may not answer.
    fn why(&self) -> String {
        let (leader, now) = (self.leader.lock(), self.env.clock.now().0);
        if let Some(term) = leader.fenced() {
            return format!("another metadata server has taken over with term {term}");
        }
        let silent: Vec<String> = leader
            .health(now)
            .iter()
            .filter(|health| health.silent >= self.limits.silent)
            .map(|health| format!("data server {} on {}", health.id, health.host))
            .collect();
        match silent.is_empty() {
            true => "the data servers that keep its copies have not confirmed it yet".to_owned(),
            false => format!("it needs the word of data servers that keep its copies; silent: {}", silent.join(", ")),
        }
    }

    /// For `status`: the copies there are to be, and each data server that is a member or silent.
    pub fn health(&self) -> (usize, Vec<CopyHealth>) {
        let now = self.env.clock.now().0;
        let all = self.leader.lock().health(now).into_iter().map(|health| CopyHealth {
            server: health.id,
            host: health.host,
            is_member: health.is_member,
            lag: health.lag,
            silent_ms: health.silent.as_millis() as u64,
        });
        (self.wanted, all.collect())
    }

    /// Rows are kept there, or are to be.
    pub fn is_member(&self, id: ServerId) -> bool {
        let leader = self.leader.lock();
        leader.counting().members.contains(&id) || leader.set().members.contains(&id)
    }

    /// How many data servers have every row that is durable.
    pub fn kept_by(&self) -> usize {
        self.leader.lock().kept_by()
    }

    /// Takes what the engine gives, and tells it how far the copies are.
    async fn pump(self: Arc<Self>) {
        loop {
            self.outlet.filled().await;
            let (outgoing, sync_wanted) = self.outlet.take();
            self.sync_wanted.fetch_max(sync_wanted, Relaxed);
            {
                let (mut leader, mut groups) = (self.leader.lock(), self.groups.lock());
                for out in outgoing {
                    match out {
                        Outgoing::Group { number, changes } => {
                            self.counters.groups.fetch_add(1, Relaxed);
                            leader.push(number);
                            groups.bytes += changes.len();
                            groups.changes.insert(number, changes);
                        }
                        Outgoing::Retract { number } => {
                            leader.retract(number);
                            if let Some(changes) = groups.changes.remove(&number) {
                                groups.bytes -= changes.len();
                            }
                        }
                    }
                }
                while groups.bytes > REMEMBERED_BYTES
                    && let Some(oldest) = groups.changes.keys().next().copied()
                    && leader.forget(oldest)
                    && let Some(changes) = groups.changes.remove(&oldest)
                {
                    groups.bytes -= changes.len();
                }
            }
            self.show_progress();
            if self.outlet.is_closed() {
                return;
            }
        }
    }

    fn show_progress(&self) {
        let (progress, fenced) = {
            let mut leader = self.leader.lock();
            (leader.progress(), leader.fenced())
        };
        if let Some(term) = fenced {
            let cause = format!("another metadata server has taken over with term {term}");
            tracing::error!("{cause}: this one ends");
            self.outlet.close(&cause);
        }
        self.outlet.keep(Kept { received: progress.received, synced: progress.synced });
        self.tell();
    }

    /// Looks at who is silent and who may join; what changes is on this server's disk before anybody is told.
    async fn watch(self: Arc<Self>, engine: Arc<dyn Copied>) {
        while !self.outlet.is_closed() {
            let now = self.env.clock.now().0;
            let next = {
                let mut leader = self.leader.lock();
                leader.tick(now).then(|| leader.set().clone())
            };
            if let Some(set) = next {
                let (bytes, engine) = (encode_set(&set), engine.clone());
                if let Err(error) = self.env.blocking(move || engine.store_set(&bytes)).await {
                    tracing::error!(%error, "the copy set cannot be stored");
                    self.outlet.close(&format!("its set cannot be stored: {error}"));
                    return;
                }
                let members: Vec<u64> = set.members.iter().map(|id| id.0).collect();
                tracing::info!(?members, voters = set.voters.len(), "a new copy set of the metadata");
                *self.stored.lock() = set;
            }
            self.show_progress();
            self.env.sleep(TICK).await;
        }
    }

    /// Ends the tasks.
    pub fn stop(&self) {
        self.outlet.close("the metadata server stops");
        self.tell();
    }
}
