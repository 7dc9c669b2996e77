//! Several metadata servers over one store, and who holds what as the test says it.

use super::{Peers, fast_config, open_session, until_it_stays};
use braid_api::erased::Meta;
use braid_api::meta::*;
use braid_api::{Carries, Code, Context, Namespace, Result};
use braid_env::Env;
use braid_members::{Question, Reply, Roster, Seat};
use braid_meta_engine::{AnyEngine, Engine, MemEngine, MemStore};
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
    /// Of all that were started.
    engines: Vec<AnyEngine>,
}

/// All of them. The first leads.
pub struct Ring {
    state: Mutex<State>,
    store: MemStore,
    pub peers: Peers,
    config: MetaConfig,
}

/// What one of them knows of the others.
struct Place {
    ring: Weak<Ring>,
    me: MemberId,
}

impl Place {
    fn with<T>(&self, look: impl FnOnce(&State) -> T) -> Option<T> {
        self.ring.upgrade().map(|ring| look(&ring.state.lock()))
    }
}

impl Others for Place {
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
        let server = self.with(|state| state.servers.get(&to).cloned()).flatten()?;
        Some(Arc::new(Way(server)))
    }
}

struct Way(Arc<MetaServer>);

impl Namespace for Way {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        Namespace::execute(&*self.0, cx, request).await
    }
}

impl Ring {
    pub async fn of(count: u64) -> Arc<Ring> {
        Ring::with(count, fast_config()).await
    }

    pub async fn with(count: u64, config: MetaConfig) -> Arc<Ring> {
        let roster = Roster {
            epoch: MembershipEpoch(0),
            elected: LeaderEpoch(1),
            leader: LEADER,
            lease_ms: 9000,
            members: Vec::new(),
        };
        let state = Mutex::new(State { roster, servers: BTreeMap::new(), engines: Vec::new() });
        let ring = Arc::new(Ring { state, store: MemStore::new(), peers: Peers::default(), config });
        for id in 1..=count {
            ring.start(MemberId(id)).await;
        }
        ring.turn((1..=count).map(MemberId).collect()).await;
        ring
    }

    /// A server that holds nothing yet.
    pub async fn start(self: &Arc<Ring>, me: MemberId) {
        let engine = AnyEngine::new(Arc::new(MemEngine::new(self.store.clone())));
        let peers = braid_api::AnyPeers::new(self.peers.clone());
        let others: Arc<dyn Others> = Arc::new(Place { ring: Arc::downgrade(self), me });
        let backing = Backing { others: Some(others), ..Backing::default() };
        self.state.lock().engines.push(engine.clone());
        let (env, config) = (Env::os(), self.config.clone());
        let leads = me == self.roster().leader;
        let server = match leads {
            true => {
                let (cluster, policy) = (ClusterId([7; 16]), Policy::PLAIN);
                MetaServer::start_with(env, engine, peers, config, cluster, policy, backing).await
            }
            false => MetaServer::start_beside(env, engine, peers, config, backing).await,
        };
        self.state.lock().servers.insert(me, server.unwrap());
    }

    /// The one that leads dies, and another start leads from now on.
    pub async fn lead_anew(self: &Arc<Ring>, me: MemberId) {
        let former = self.roster().leader;
        self.kill(former);
        self.state.lock().roster.leader = me;
        self.start(me).await;
        let others = self.roster().members.into_iter().map(|seat| seat.id).filter(|id| *id != former);
        self.turn(others.chain([me]).collect()).await;
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
            state.roster.members = members.iter().map(|id| Seat { id: *id, addresses: Vec::new() }).collect();
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

    /// Of all engines together.
    pub fn round_trips(&self) -> u64 {
        self.state.lock().engines.iter().map(|engine| engine.stats().snapshot().round_trips).sum()
    }

    pub async fn until_nothing_is_asked(&self) {
        until_it_stays(|| self.round_trips()).await;
    }

    pub fn roster(&self) -> Roster {
        self.state.lock().roster.clone()
    }

    pub fn server(&self, id: MemberId) -> Arc<MetaServer> {
        self.state.lock().servers.get(&id).cloned().unwrap()
    }

    pub fn server_if_there(&self, id: MemberId) -> Option<Arc<MetaServer>> {
        self.state.lock().servers.get(&id).cloned()
    }

    pub fn holder_if_there(&self, inode: InodeId) -> Option<Arc<MetaServer>> {
        self.server_if_there(self.roster().holder_of(inode.slot())?)
    }

    pub fn leader(&self) -> Arc<MetaServer> {
        self.server(self.roster().leader)
    }

    pub fn holder(&self, inode: InodeId) -> Arc<MetaServer> {
        self.server(self.roster().holder_of(inode.slot()).unwrap())
    }

    pub async fn session(&self, client: u64) -> SessionReply {
        open_session(&self.leader(), client).await
    }
}

/// A client that caches: says what a mount says, where it has to be said.
pub struct Mount {
    pub ring: Arc<Ring>,
    pub session: SessionReply,
    next: Mutex<u64>,
}

impl Mount {
    pub async fn open(ring: &Arc<Ring>, client: u64) -> Mount {
        let open = OpenSession {
            client,
            former: None,
            since: SessionId(0),
            description: format!("mount {client}"),
            host: "h".into(),
            caches: true,
        };
        let session = ring.leader().call(Context::default(), open).await.unwrap();
        let mount = Mount { ring: ring.clone(), session, next: Mutex::new(0) };
        mount.renew().await;
        mount
    }

    pub fn cx(&self) -> Context {
        let mut next = self.next.lock();
        *next += 1;
        let token = Token { session: self.session.session, session_epoch: self.session.epoch, ..Token::default() };
        Context { token, request: RequestId(*next), ..Context::default() }
    }

    pub async fn at<M>(&self, server: &MetaServer, message: M) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer> + Send,
        M::Answer: Send,
    {
        server.call(self.cx(), message).await
    }

    /// Of whoever holds the inode.
    pub async fn of<M>(&self, inode: InodeId, message: M) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer> + Send,
        M::Answer: Send,
    {
        self.at(&self.ring.holder(inode), message).await
    }

    /// At all of them; says that nothing is held, where that is asked.
    pub async fn renew(&self) {
        for seat in self.ring.roster().members {
            let server = self.ring.server(seat.id);
            let term = self.at(&server, RenewTerm {}).await.unwrap().term.unwrap();
            assert_eq!((term.member, term.alone), (seat.id, false));
            if let Some(round) = term.reassert {
                self.reassert(&server, term, round, Vec::new()).await;
            }
        }
    }

    pub async fn reassert(&self, server: &MetaServer, term: Term, round: u64, files: Vec<(InodeId, LeaseState)>) {
        let (locks, sealed) = (Vec::new(), Vec::new());
        let said = Reassert { member: term.member, round, files, locks, locks_done: 0, sealed };
        self.at(server, said).await.unwrap();
    }

    /// As a client that routes: to whoever holds the inode, until it is answered, under one number.
    pub async fn sends<M>(&self, inode: InodeId, message: M) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer> + Send + Clone,
        M::Answer: Send,
    {
        let (cx, begun) = (self.cx(), std::time::Instant::now());
        loop {
            let server = self.ring.holder_if_there(inode);
            let failed = match server {
                Some(server) => match server.call(cx, message.clone()).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                },
                None => Code::HeldElsewhere.into(),
            };
            let again = [Code::HeldElsewhere, Code::NotServing, Code::Busy].contains(&failed.code);
            if !again || begun.elapsed() > Duration::from_secs(30) {
                return Err(failed);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What a mount does at one of them all the time: drops what is revoked, and says what it has (nothing) when it is asked.
    pub async fn obeys(&self, id: MemberId, wait: Duration) {
        let (Some(server), epoch) = (self.ring.server_if_there(id), self.ring.roster().epoch) else { return };
        if let Ok(TermReply { term: Some(term), .. }) = self.at(&server, RenewTerm {}).await
            && let Some(round) = term.reassert
        {
            let (files, locks, sealed) = (Vec::new(), Vec::new(), Vec::new());
            let said = Reassert { member: id, round, files, locks, locks_done: 0, sealed };
            let _ = self.at(&server, said).await;
        }
        let listen = Listen { member: id, epoch, wait_ms: wait.as_millis() as u32, revocations: Vec::new() };
        let Ok(heard) = self.at(&server, listen).await else { return };
        for order in heard.orders {
            if let braid_api::lease::Order::Revoke { revocation, .. } = order {
                let _ = self.at(&server, Acknowledge { member: id, revocations: vec![revocation] }).await;
            }
        }
    }

    /// Takes what one of them says within the time, and carries out what is revoked.
    pub async fn listens(&self, id: MemberId, wait: Duration) -> Vec<braid_api::lease::Order> {
        let (server, epoch) = (self.ring.server(id), self.ring.roster().epoch);
        let listen = Listen { member: id, epoch, wait_ms: wait.as_millis() as u32, revocations: Vec::new() };
        let orders = self.at(&server, listen).await.unwrap().orders;
        for order in &orders {
            if let braid_api::lease::Order::Revoke { revocation, .. } = order {
                let done = Acknowledge { member: id, revocations: vec![*revocation] };
                self.at(&server, done).await.unwrap();
            }
        }
        orders
    }
}
