//! Data servers, containers, and the way to them.

use crate::config::ClientConfig;
use crate::copies::{Copies, CopiesNode, Servers};
use crate::core::{Core, Op};
use crate::inode::FileState;
use crate::layout::Placement;
use crate::lru::Lru;
use crate::memory::Memory;
use crate::retain::Retain;
use crate::wait::Attempts;
use braid_api::data::{DataAnswer, DataRequest};
use braid_api::erased::{Node, Peers};
use braid_api::meta::{ContainerInfo, GetContainers, GetServers, ServerInfo, ServerState};
use braid_api::{Carries, Code, Context, Error, Manner, Result, Retry};
use braid_env::Env;
use braid_lease::{Generation, Seen};
use braid_types::{ChainEpoch, ChunkId, ContainerId, InodeId, LeaseGen, Policy, RequestId, ServerId, Token};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Notify, RwLock, Semaphore};

/// Containers remembered: 4 Mi chunks of 64 MiB, 256 TiB.
const CONTAINERS_MAX: usize = 16 << 10;

/// A call to copies that takes this long is worth a look at whether their chain is still the same.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Everything about one data server, or about those that have the copies of a container.
pub struct Lane {
    pub id: ServerId,
    /// It is the servers of this container's copies, together.
    copies: Option<(ContainerId, Arc<Copies>)>,
    peer: Mutex<(ServerInfo, Arc<dyn Node>)>,
    /// Writes hold it for reading while they are on their way, a repetition after a restart for writing: so
    /// nothing newer can be overtaken by what is repeated.
    pub gate: RwLock<()>,
    /// Writes on their way.
    pub window: Semaphore,
    retain: Mutex<Retain>,
    /// Raised whenever its servers have taken a write or made some stable, or copies there have more than before: who has done so is not gone.
    answered: AtomicU64,
    memory: Arc<Memory>,
    /// Wakes the stabiliser.
    pub wake: Notify,
    pub stabiliser: Mutex<bool>,
    /// Chunks whose reserved room is not needed any more: told with the next sync.
    release: Mutex<Vec<ChunkId>>,
    changes: Mutex<Changes>,
}

/// Changes on their way to the lane's servers, numbered in the order in which they are sent.
#[derive(Default)]
struct Changes {
    last: u64,
    open: BTreeSet<u64>,
    /// Changes before this one are waited for no more. One that was given up may still be on its way, and is sent again under another number:
    /// what is older and has not arrived yet is refused with it, and sent again too.
    from: u64,
}

impl Changes {
    fn ended(&mut self, number: u64, answered: bool) {
        self.open.remove(&number);
        if !answered {
            self.from = self.from.max(number + 1);
        }
    }

    /// Of a request that stands at `place` among them, the first change that is waited for.
    fn first_before(&self, place: u64) -> u64 {
        self.open.first().copied().unwrap_or(place).max(self.from).min(place)
    }
}

/// A change that is waited for, until dropped.
struct Numbered<'a> {
    lane: &'a Lane,
    number: u64,
    answered: bool,
}

impl Numbered<'_> {
    /// The server has said what became of it: nothing of it is on its way any more.
    fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        self.lane.changes.lock().ended(self.number, self.answered);
    }
}

/// Not what a client says to itself about a message that it waits for no more.
fn is_said_by_a_server(error: &Error) -> bool {
    !matches!(error.code, Code::Unreachable | Code::Disconnected | Code::DeadlineExceeded | Code::StaleEpoch)
}

impl Lane {
    fn numbered(&self) -> Numbered<'_> {
        let mut changes = self.changes.lock();
        changes.last += 1;
        let number = changes.last;
        changes.open.insert(number);
        Numbered { lane: self, number, answered: false }
    }

    /// Where a request stands among the changes, and how far back the first one is that is waited for. Of one that is further
    /// back than can be said the server believes that nobody waits for it, and it is sent anew.
    fn place(&self, numbered: Option<&Numbered<'_>>) -> (RequestId, u16) {
        let changes = self.changes.lock();
        let place = numbered.map_or(changes.last + 1, |numbered| numbered.number);
        let first = changes.first_before(place);
        (RequestId(place), (place - first).try_into().unwrap_or(u16::MAX))
    }

    pub fn node(&self) -> Arc<dyn Node> {
        self.peer.lock().1.clone()
    }

    pub fn host(&self) -> String {
        self.peer.lock().0.host.clone()
    }

    /// It is on this machine, or stands for several copies, of which one may be.
    pub fn may_be_beside(&self, host: &str) -> bool {
        self.container().is_some() || self.is_beside(host)
    }

    /// It is on this machine.
    pub fn is_beside(&self, host: &str) -> bool {
        !host.is_empty() && self.peer.lock().0.host == host
    }

    pub fn name(&self) -> String {
        if let Some((id, copies)) = &self.copies {
            return format!("{}, the copies of container {id}", copies.servers_name());
        }
        let peer = self.peer.lock();
        let at = peer.0.addresses.first().map_or("", String::as_str);
        format!("data server {} at {at}", self.id)
    }

    /// Whose copies it leads to, if it does.
    pub fn container(&self) -> Option<ContainerId> {
        self.copies.as_ref().map(|(id, _)| *id)
    }

    pub fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    pub fn has_answered(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    pub fn take_released(&self) -> Vec<ChunkId> {
        std::mem::take(&mut *self.release.lock())
    }

    /// Looks at or changes what is retained for this server, and keeps the accounts.
    pub fn retained<T>(&self, change: impl FnOnce(&mut Retain) -> T) -> T {
        let mut retain = self.retain.lock();
        let before = retain.bytes();
        let value = change(&mut retain);
        self.memory.retained.settle(before, retain.bytes());
        value
    }
}

/// The copies of a container, and the lane that leads to them.
type CopiesLane = (Arc<Copies>, Arc<Lane>);

pub struct Directory {
    peers: Box<dyn Peers>,
    lanes: Servers,
    /// Containers with several copies that are in use.
    copies: Mutex<BTreeMap<ContainerId, CopiesLane>>,
    containers: Mutex<Lru<ContainerId, Arc<ContainerInfo>>>,
    memory: Arc<Memory>,
    writes_max: usize,
}

impl Directory {
    pub fn new(peers: Box<dyn Peers>, memory: Arc<Memory>, writes_max: usize) -> Self {
        let containers = Mutex::new(Lru::new(CONTAINERS_MAX));
        Directory { peers, lanes: Servers::default(), copies: Mutex::default(), containers, memory, writes_max }
    }

    /// Learns of servers. A changed address brings a new stub; what is retained stays.
    pub fn adopt(&self, servers: &[ServerInfo]) {
        let mut lanes = self.lanes.lock();
        for info in servers {
            match lanes.get(&info.id) {
                Some(lane) => {
                    let mut peer = lane.peer.lock();
                    if peer.0.addresses != info.addresses {
                        peer.1 = self.peers.node(info);
                    }
                    peer.0 = info.clone();
                }
                None => drop(lanes.insert(info.id, Arc::new(self.lane(info.clone(), None, self.peers.node(info))))),
            }
        }
    }

    fn lane(&self, info: ServerInfo, copies: Option<(ContainerId, Arc<Copies>)>, node: Arc<dyn Node>) -> Lane {
        Lane {
            id: info.id,
            copies,
            peer: Mutex::new((info, node)),
            gate: RwLock::new(()),
            window: Semaphore::new(self.writes_max),
            retain: Mutex::default(),
            answered: AtomicU64::new(0),
            memory: self.memory.clone(),
            wake: Notify::new(),
            stabiliser: Mutex::new(false),
            release: Mutex::default(),
            changes: Mutex::default(),
        }
    }

    pub fn learn(&self, containers: &[ContainerInfo]) {
        let mut known = self.containers.lock();
        for info in containers {
            // An answer that is given again, or was overtaken, may be of an epoch that has passed.
            if known.get(&info.id).is_none_or(|known| known.epoch <= info.epoch) {
                known.insert(info.id, Arc::new(info.clone()));
            }
        }
        drop(known);
        let copies = self.copies.lock();
        for info in containers {
            if let Some((known, _)) = copies.get(&info.id) {
                known.learn(info);
            }
        }
    }

    /// The lane to the servers of a container's copies.
    fn copies_lane(&self, env: &Env, info: &ContainerInfo, config: &ClientConfig) -> Arc<Lane> {
        let beside = self.beside(&config.host);
        let mut all = self.copies.lock();
        let (copies, lane) = all.entry(info.id).or_insert_with(|| {
            let copies = Arc::new(Copies::new(env.clone(), self.lanes.clone(), beside, config.local_write, info));
            let nobody = ServerInfo {
                id: ServerId(0),
                addresses: Vec::new(),
                host: String::new(),
                state: ServerState::Up,
                bytes_total: 0,
                bytes_free: 0,
                chunks: 0,
                silent_ms: 0,
                rack: String::new(),
                disk: 0,
                duty: braid_api::meta::Duty::Serves,
            };
            let lane = self.lane(nobody, Some((info.id, copies.clone())), Arc::new(CopiesNode(copies.clone())));
            (copies, Arc::new(lane))
        });
        copies.learn(info);
        lane.clone()
    }

    /// The chain epoch known of a container.
    pub fn epoch(&self, id: ContainerId) -> ChainEpoch {
        self.container(id).map(|info| info.epoch).unwrap_or_default()
    }

    pub fn lanes(&self) -> Vec<Arc<Lane>> {
        let mut lanes: Vec<Arc<Lane>> = self.lanes.lock().values().cloned().collect();
        lanes.extend(self.copies.lock().values().map(|(_, lane)| lane.clone()));
        lanes
    }

    fn known_lane(&self, id: ServerId) -> Option<Arc<Lane>> {
        self.lanes.lock().get(&id).cloned()
    }

    fn container(&self, id: ContainerId) -> Option<Arc<ContainerInfo>> {
        self.containers.lock().get(&id).cloned()
    }

    /// What is reserved for the chunk goes back with the next sync of its server.
    pub fn release_room(&self, chunk: ChunkId, id: ContainerId) {
        let Some(container) = self.container(id) else { return };
        let lane = match container.chain.as_slice() {
            [server] => self.known_lane(*server),
            _ => self.copies.lock().get(&id).map(|(_, lane)| lane.clone()),
        };
        if let Some(lane) = lane {
            lane.release.lock().push(chunk);
        }
    }

    /// The chunk, of several copies, is about to be written from here.
    pub fn want(&self, id: ContainerId, chunk: ChunkId, token: Token) {
        let copies = self.copies.lock().get(&id).map(|(copies, _)| copies.clone());
        if let Some(copies) = copies {
            copies.want(Context { token, ..Context::default() }, chunk);
        }
    }

    /// The server on this machine.
    pub fn beside(&self, host: &str) -> Option<ServerId> {
        let lanes = self.lanes.lock();
        lanes.values().filter(|lane| lane.is_beside(host)).map(|lane| lane.id).min()
    }

    /// A copy of this container's chunks is on the host.
    pub fn is_on(&self, host: &str, id: ContainerId) -> bool {
        let Some(container) = self.container(id) else { return false };
        container.chain.iter().filter_map(|id| self.known_lane(*id)).any(|lane| lane.is_beside(host))
    }

    /// A server on the host takes new chunks.
    pub fn has_room_on(&self, host: &str) -> bool {
        self.lanes.lock().values().any(|lane| lane.is_beside(host) && lane.peer.lock().0.duty.takes_new())
    }

    /// Some data server is to be emptied, or has been.
    pub fn any_leaves(&self) -> bool {
        self.lanes.lock().values().any(|lane| !lane.peer.lock().0.duty.takes_new())
    }

    /// The one copy of this container's chunks is at such a server.
    pub fn is_leaving(&self, id: ContainerId) -> bool {
        let Some(container) = self.container(id) else { return false };
        let [server] = container.chain.as_slice() else { return false };
        self.known_lane(*server).is_some_and(|lane| !lane.peer.lock().0.duty.takes_new())
    }

    /// What was written to a chunk of several copies, and never synced, is nobody's.
    pub fn forget_copy(&self, id: ContainerId, chunk: ChunkId) {
        let copies = self.copies.lock().get(&id).map(|(copies, _)| copies.clone());
        if let Some(copies) = copies {
            copies.forget(chunk);
        }
    }

    /// The chunk is no longer part of any file.
    pub fn forget_chunk(&self, chunk: ChunkId) {
        self.lanes().iter().for_each(|lane| lane.retained(|retain| retain.forget(chunk)));
    }
}

/// Where a request goes, and under which chain epoch.
#[derive(Clone)]
pub struct Route {
    pub lane: Arc<Lane>,
    pub container: Arc<ContainerInfo>,
}

impl Core {
    pub async fn refresh_servers(&self, op: Op) -> Result<()> {
        let answer = self.call(GetServers {}, op).await?;
        self.servers.adopt(&answer.servers);
        Ok(())
    }

    pub async fn refresh_container(&self, id: ContainerId, op: Op) -> Result<()> {
        let answer = self.call(GetContainers { ids: vec![id] }, op).await?;
        self.servers.learn(&answer);
        Ok(())
    }

    pub async fn lane_of(&self, server: ServerId, op: Op) -> Result<Arc<Lane>> {
        if self.servers.known_lane(server).is_none() {
            self.refresh_servers(op).await?;
        }
        let unknown = || Error::new(Code::NoServers, format!("data server {server}"), "it is not registered");
        self.servers.known_lane(server).ok_or_else(unknown)
    }

    /// The owner of a container's chunks.
    pub async fn route(&self, policy: &Policy, id: ContainerId, op: Op) -> Result<Route> {
        let placement = Placement::of(policy)?;
        if self.servers.container(id).is_none() {
            self.refresh_container(id, op).await?;
        }
        let container = self.servers.container(id);
        let container = container.ok_or_else(|| Error::new(Code::NotFound, format!("container {id}"), ""))?;
        if container.chain.len() > 1 {
            if container.chain.iter().any(|server| self.servers.known_lane(*server).is_none()) {
                self.refresh_servers(op).await?;
            }
            let lane = self.servers.copies_lane(&self.env, &container, &self.config);
            return Ok(Route { lane, container });
        }
        let lane = self.lane_of(placement.owner(&container)?, op).await?;
        Ok(Route { lane, container })
    }

    /// What a request about this file's chunks carries.
    pub fn data_token(&self, state: &FileState, route: &Route) -> Token {
        Token {
            layout_gen: state.layout_gen,
            trunc_gen: state.attr.trunc_gen,
            chain_epoch: route.container.epoch,
            // Its chunks may have been cut since, or been told of cuts.
            snapshot: u64::from(state.attr.id.is_in_snapshot()),
            ..self.session.token()
        }
    }

    /// What a change of this file's chunks carries.
    pub fn change_token(&self, state: &FileState, route: &Route) -> Result<Token> {
        let lease_gen = self.lease_token(state.attr.id)?;
        Ok(Token { lease_gen, ..self.data_token(state, route) })
    }

    /// An error while no change of the file may be sent: it is asked for again.
    pub fn lease_token(&self, id: InodeId) -> Result<LeaseGen> {
        match self.cache.may_send(id, self.now()) {
            Some(token) => Ok(LeaseGen(token.0)),
            None => {
                self.hear(Seen::Need { inode: id, want: self.want_to_send(id) });
                Err(Error::new(Code::StaleLease, format!("inode {id}"), "its lease is not held at the moment"))
            }
        }
    }

    /// A data server has heard of a newer right to write than this: what is held here may be as good, under another token.
    pub fn refused_lease(&self, id: InodeId, token: Token) {
        let token = Generation(token.lease_gen.0);
        self.hear(Seen::Stale { inode: id, token, want: self.want_to_send(id) });
    }

    /// One attempt at one message to a data server.
    pub async fn ask<M>(
        &self,
        lane: &Lane,
        token: Token,
        message: M,
        payload: Bytes,
        op: Op,
    ) -> Result<(M::Answer, Bytes)>
    where
        M: Carries<DataRequest, DataAnswer>,
    {
        let request = message.wrap();
        let name = request.name();
        self.counters.message(name);
        let left = op.deadline.left(&self.env).min(self.config.attempt);
        let is_change =
            matches!(request, DataRequest::WriteChunk(_) | DataRequest::PunchChunk(_) | DataRequest::ReserveChunk(_));
        // What was sent before and is not waited for any more is not carried out after this.
        let numbered = is_change.then(|| lane.numbered());
        let (place, behind) = lane.place(numbered.as_ref());
        // Whether it was carried out must be known: it is not sent again without a word.
        let is_once = matches!(&request, DataRequest::WriteChunk(write) if write.once.is_some());
        // A change is sent again under another number: a copy of it that is still on its way would else be as good as what has been answered,
        // for as long as something older is waited for.
        let manner = if is_change { Manner::Once } else { Manner::default() };
        let trace = op.trace;
        let mut about = request.about();
        if let Some(container) = lane.container() {
            (about.container, about.epoch) = (container, self.servers.epoch(container));
        }
        let cx = Context { token, request: place, behind, trace, deadline: left, manner, about, ..Context::default() };
        let node = lane.node();
        let call = node.execute(cx, request, payload);
        let answer = match lane.container() {
            Some(id) => {
                // A sync names none: it is of whatever chain is known now, and not one of the past.
                let known = self.servers.epoch(id);
                let epoch = if token.chain_epoch.0 == 0 { known } else { token.chain_epoch };
                let gone = if is_once { Code::Disconnected } else { Code::StaleEpoch };
                self.env.timeout(left, self.while_its_chain_stays(lane, (epoch, gone), cx, op, call)).await
            }
            None => self.env.timeout(left, call).await,
        };
        let is_answer = answer.as_ref().is_ok_and(|answer| answer.as_ref().err().is_none_or(is_said_by_a_server));
        if let Some(numbered) = numbered.filter(|_| is_answer) {
            numbered.answered();
        }
        let named = |error: Error| Error::new(error.code, format!("{name} at {}", lane.name()), error.cause());
        let (answer, payload) = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                if matches!(error.code, Code::SessionUnknown | Code::SessionFenced) {
                    // Whoever asked tries again, then with the new session.
                    self.register_again(token, error.code, op).await?;
                }
                return Err(named(error));
            }
            Err(_) => {
                return Err(Error::new(Code::DeadlineExceeded, format!("{name} at {}", lane.name()), "no answer"));
            }
        };
        Ok((M::unwrap(answer).ok_or(Error::bare(Code::BadMessage))?, payload))
    }

    /// A call to the copies of a container. A server that stands still answers nothing, so who goes on without it is asked
    /// for elsewhere when a call takes long; and while its copies come on they are not gone, and no call to them is given up.
    async fn while_its_chain_stays<T>(
        &self,
        lane: &Lane,
        (epoch, gone): (ChainEpoch, Code),
        cx: Context,
        op: Op,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let id = cx.about.container;
        let mut call = std::pin::pin!(call);
        loop {
            if let Ok(answer) = self.env.timeout(LOOK_AGAIN, call.as_mut()).await {
                return answer;
            }
            // A metadata server that does not answer either is no reason to leave this one.
            let looked = self.env.timeout(LOOK_AGAIN, self.refresh_container(id, op));
            tokio::select! {
                biased;
                answer = call.as_mut() => return answer,
                _ = looked => {}
            }
            if self.servers.epoch(id) > epoch {
                let subject = format_args!("copies of container {id}");
                return Err(Error::new(gone, subject, "its chain has changed meanwhile"));
            }
            let copies = self.servers.copies.lock().get(&id).map(|(copies, _)| copies.clone());
            let Some(copies) = copies else { continue };
            tokio::select! {
                biased;
                answer = call.as_mut() => return answer,
                come_on = copies.come_on(cx, cx.about.chunk) => if come_on { lane.has_answered() }
            }
        }
    }

    /// Learns again what a failed data request was based on, then pauses; the error itself when there is no
    /// sense in another attempt. A stale truncate generation is the caller's to refresh.
    pub async fn recover(&self, attempts: &mut Attempts, error: Error, container: ContainerId, op: Op) -> Result<()> {
        let refreshed = match (error.code, error.retry()) {
            (Code::StaleTruncGen, _) => Ok(()),
            (Code::SessionUnknown | Code::SessionFenced | Code::StaleLease, _) => Ok(()),
            (_, Retry::AfterRefresh) => self.refresh_container(container, op).await,
            (Code::Unreachable | Code::Disconnected | Code::DeadlineExceeded, _) => self.refresh_servers(op).await,
            _ => Ok(()),
        };
        if let Err(cause) = refreshed {
            tracing::debug!(%error, %cause, "what the request was based on could not be learnt again");
        }
        attempts.again(&self.env, error).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_not_waited_for_though_something_older_is() {
        let mut changes = Changes { last: 5, open: BTreeSet::from([2, 3, 4, 5]), from: 0 };
        assert_eq!((changes.first_before(5), changes.first_before(6)), (2, 2));
        changes.ended(3, true);
        assert_eq!(changes.first_before(5), 2, "an answer leaves nothing on its way");
        changes.ended(4, false);
        assert_eq!(changes.first_before(6), 5, "the second comes again too, if it has not arrived");
        assert_eq!(changes.first_before(2), 2, "what is sent says nothing of itself");
        changes.ended(5, true);
        changes.ended(2, true);
        assert_eq!(changes.first_before(6), 6);
    }
}
