//! Several metadata servers over one store, who holds what as the test says it, three data servers, and clients that find their way.

use super::{CLUSTER, Messages, Peers, Storage, beat, count};
use braid_api::erased::{Meta, MetaPeers};
use braid_api::meta::*;
use braid_api::{Code, Context, Error, Namespace, Result};
use braid_client::{Client, ClientConfig, Ways};
use braid_env::Env;
use braid_members::{Question, Reply, Roster, Seat};
use braid_meta_engine::{AnyEngine, MemEngine, MemStore};
use braid_meta_server::{Backing, MetaConfig, MetaServer, Others};
use braid_types::*;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub const LEADER: MemberId = MemberId(1);

struct State {
    roster: Roster,
    servers: BTreeMap<MemberId, Arc<MetaServer>>,
}

/// All of them. The first leads.
pub struct Ring {
    state: Mutex<State>,
    store: MemStore,
    peers: Peers,
    policy: Policy,
    messages: Messages,
    /// Who does not answer a message of this name any more: it is carried out, and nothing is said.
    silent: Mutex<Option<(MemberId, &'static str)>>,
    /// So many were.
    unsaid: Mutex<u64>,
}

/// What one of them knows of the others.
struct Beside {
    ring: Weak<Ring>,
    me: MemberId,
}

impl Beside {
    fn with<T>(&self, look: impl FnOnce(&State) -> T) -> Option<T> {
        self.ring.upgrade().map(|ring| look(&ring.state.lock()))
    }
}

impl Others for Beside {
    fn me(&self) -> MemberId {
        self.me
    }

    fn is_member(&self) -> bool {
        self.with(|state| state.roster.has(self.me)).unwrap_or_default()
    }

    fn may_answer(&self, slot: Slot) -> bool {
        self.with(|state| state.roster.holder_of(slot) == Some(self.me)).unwrap_or_default()
    }

    fn roster(&self) -> Option<Roster> {
        self.with(|state| state.roster.clone())
    }

    fn asks(&self, _: Question) -> ServeReply {
        ServeReply { reply: Reply::Wait, fence: 0 }
    }

    fn stay_alone(&self, _: braid_env::Monotonic) {}

    fn is_outdated(&self) {}

    fn way(&self, to: MemberId) -> Option<Arc<dyn Meta>> {
        Some(Arc::new(Door { ring: self.ring.upgrade()?, to, messages: Messages::default() }))
    }
}

/// The way to one of them.
struct Door {
    ring: Arc<Ring>,
    to: MemberId,
    messages: Messages,
}

impl Namespace for Door {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        Ok(self.execute_early(cx, request).await?.0)
    }

    async fn execute_early(&self, cx: Context, request: MetaRequest) -> Result<(MetaAnswer, Mark)> {
        let name = request.name();
        count(&self.messages, name);
        let what = format!("metadata server {}", self.to.0);
        let find = || self.ring.state.lock().servers.get(&self.to).cloned();
        let server = find().ok_or_else(|| Error::new(Code::Unreachable, &what, "it is down"))?;
        let answer = async {
            let answer = server.execute_early(cx, request).await;
            if *self.ring.silent.lock() == Some((self.to, name)) {
                *self.ring.unsaid.lock() += 1;
                std::future::pending::<()>().await;
            }
            answer
        };
        // Connections break with the process, whatever it waits for.
        let stops = async {
            while find().is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            () = stops => Err(Error::new(Code::Disconnected, what, "it went down")),
        }
    }
}

struct Doors(Arc<Ring>);

impl MetaPeers for Doors {
    fn meta(&self, addresses: &[String]) -> Arc<dyn Meta> {
        let to = MemberId(addresses[0].parse().unwrap());
        Arc::new(Door { ring: self.0.clone(), to, messages: self.0.messages.clone() })
    }
}

impl Ring {
    pub async fn of(members: u64, policy: Policy) -> Arc<Ring> {
        let roster = Roster {
            epoch: MembershipEpoch(0),
            elected: LeaderEpoch(1),
            leader: LEADER,
            lease_ms: 9000,
            members: Vec::new(),
        };
        let ring = Arc::new(Ring {
            state: Mutex::new(State { roster, servers: BTreeMap::new() }),
            store: MemStore::new(),
            peers: Peers { nodes: Arc::default(), storage: Storage::Memory, messages: Messages::default() },
            policy,
            messages: Messages::default(),
            silent: Mutex::default(),
            unsaid: Mutex::default(),
        });
        for id in 1..=members {
            ring.start(MemberId(id)).await;
        }
        ring.turn((1..=members).map(MemberId).collect()).await;
        ring.start_data_servers().await;
        ring
    }

    async fn start_data_servers(self: &Arc<Ring>) {
        let (leader, mut ids) = (self.leader(), Vec::new());
        for host in ["one", "two", "three"] {
            let register = RegisterServer {
                id: ServerId(0),
                incarnation: 1,
                addresses: vec![format!("tcp:{host}:1")],
                host: host.into(),
                clean_stop: false,
                rack: String::new(),
            };
            let id = leader.call(Context::default(), register).await.unwrap().id;
            beat(&leader, id).await;
            self.peers.find(id);
            ids.push(id);
        }
        let ring = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(leader) = ring.upgrade().map(|ring| ring.leader()) {
                for id in &ids {
                    beat(&leader, *id).await;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
    }

    /// A server that holds nothing yet.
    pub async fn start(self: &Arc<Ring>, me: MemberId) {
        let engine = AnyEngine::new(Arc::new(MemEngine::new(self.store.clone())));
        let peers = braid_api::AnyPeers::new(self.peers.clone());
        let others: Arc<dyn Others> = Arc::new(Beside { ring: Arc::downgrade(self), me });
        let backing = Backing { others: Some(others), ..Backing::default() };
        let config = MetaConfig { housekeeping: Duration::from_millis(50), ..MetaConfig::default() };
        let env = Env::os();
        let server = match me == LEADER {
            true => MetaServer::start_with(env, engine, peers, config, CLUSTER, self.policy, backing).await,
            false => MetaServer::start_beside(env, engine, peers, config, backing).await,
        };
        self.state.lock().servers.insert(me, server.unwrap());
    }

    /// It answers nobody any more, without a word.
    pub fn kill(&self, id: MemberId) {
        if let Some(server) = self.state.lock().servers.remove(&id) {
            server.stop();
        }
    }

    /// These are the members from now on.
    pub async fn turn(&self, members: Vec<MemberId>) {
        let (before, roster, servers) = {
            let mut state = self.state.lock();
            let before = state.roster.clone();
            state.roster.epoch = before.epoch.next();
            state.roster.members =
                members.iter().map(|id| Seat { id: *id, addresses: vec![id.0.to_string()] }).collect();
            (before, state.roster.clone(), state.servers.clone())
        };
        let servers: Vec<_> = servers.into_iter().filter(|(id, _)| roster.has(*id)).collect();
        for (id, server) in &servers {
            let stays = before.slots_of(*id).both(&roster.slots_of(*id));
            server.follow(&roster, 0, &stays).await.unwrap();
        }
        for (id, server) in &servers {
            let (had, has) = (before.slots_of(*id), roster.slots_of(*id));
            server.gain(roster.epoch, has.without(&had)).await.unwrap();
        }
    }

    pub fn roster(&self) -> Roster {
        self.state.lock().roster.clone()
    }

    pub fn holder(&self, inode: InodeId) -> MemberId {
        self.roster().holder_of(inode.slot()).unwrap()
    }

    fn leader(&self) -> Arc<MetaServer> {
        self.state.lock().servers.get(&LEADER).cloned().unwrap()
    }

    /// From now on it carries these out and does not say so.
    pub fn silence(&self, id: MemberId, message: &'static str) {
        *self.silent.lock() = Some((id, message));
    }

    pub fn unsaid(&self) -> u64 {
        *self.unsaid.lock()
    }

    /// Messages of operations, to whichever of them, since the last call. Those beside operations are not all of them counted.
    pub fn take_messages(&self) -> BTreeMap<&'static str, u64> {
        let beside = ["Listen", "RenewTerm", "Acknowledge", "Reassert", "YieldFiles", "GetRoster", "RenewSession"];
        let mut messages = std::mem::take(&mut *self.messages.lock());
        messages.retain(|name, _| !beside.contains(name));
        messages
    }

    pub async fn client(self: &Arc<Ring>, config: ClientConfig) -> Arc<Client> {
        self.client_at(LEADER, config).await
    }

    /// One that knows of this server to begin with.
    pub async fn client_at(self: &Arc<Ring>, to: MemberId, config: ClientConfig) -> Arc<Client> {
        let door = |messages: &Messages| Door { ring: self.clone(), to, messages: messages.clone() };
        let each: Arc<dyn MetaPeers> = Arc::new(Doors(self.clone()));
        let ways = |any| Ways { any, each: Some(each.clone()) };
        let (any, control) = (door(&self.messages), door(&Messages::default()));
        let peers = Peers { messages: Messages::default(), ..self.peers.clone() };
        Client::start_among(Env::os(), ways(any), ways(control), peers, config).await.unwrap()
    }
}
