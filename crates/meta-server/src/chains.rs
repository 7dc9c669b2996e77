//! The leader of chains: `braid_chain::Leader` between rows and data servers.
//!
//! Nothing is sent that is not in a row. What it says goes out from one task, so that whoever brings a message waits for
//! nothing. A row that is not as this leader left it, or another leader, ends its leading: it says nothing any more,
//! leases run out, and calls wait for the one that leads.

use crate::server::MetaServer;
use braid_api::admin::ChainsStatus;
use braid_api::copies::{Joiner, LeaderSays, ServerSays};
use braid_api::meta::ContainerInfo;
use braid_api::{Code, Context, DataNode, DataPeers, Error, Result};
use braid_chain::{
    ChainRow, ContainerRow as Row, FromLeader, Leader, LeaderCommand, LeaderEvent, LeaderWaits, Limits, Message,
    Moment, Place, Spares, ToLeader,
};
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::chains::{ChainCommit, ChainPart, CommitChain};
use braid_meta_namespace::ops::spares;
use braid_meta_namespace::rows::{ContainerRow, CopiesRow};
use braid_placement::{Candidate, apart, apart_at_best, successor};
use braid_types::{ChainEpoch, ChunkId, ContainerId, LeaderEpoch, ServerId};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;

/// Between two looks at what is to be done by the clock.
const TICK: Duration = Duration::from_millis(50);
/// The same while there is no container with copies.
const IDLE_TICK: Duration = Duration::from_secs(1);
/// A message that takes longer has been repeated already.
const SAY_DEADLINE: Duration = Duration::from_secs(2);
/// Before a commit that failed is tried again.
const COMMIT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Chains {
    epoch: LeaderEpoch,
    limits: Limits,
    state: Mutex<State>,
    news: Notify,
}

struct State {
    leader: Leader,
    deposed: bool,
    /// Servers that may have copies of chunks they are no member for, see `strays.rs`, and how often that was found.
    may_have_strays: BTreeMap<ServerId, u64>,
    /// The last epoch of each container for which servers that act in it were told where `sync` ended.
    installed: BTreeMap<ContainerId, ChainEpoch>,
    /// Rows that were read at start, until all are.
    rows: Vec<(ContainerId, Row)>,
    starts: BTreeMap<ServerId, Start>,
    /// To be carried out by the one task.
    commands: Vec<LeaderCommand>,
}

/// A process of a data server. Incarnations are drawn at random; here they are counted in the order of registration, so
/// that a newer one is known from an older.
#[derive(Default)]
struct Start {
    incarnation: u64,
    number: u64,
    pieces: Joiner,
}

/// Chosen from those that are live.
struct Successors {
    candidates: Vec<Candidate>,
    bytes_needed: u64,
}

impl Spares for Successors {
    fn successor(&mut self, _: ContainerId, chain: &[ServerId], live: &[ServerId], bytes: u64) -> Option<ServerId> {
        let usable = |candidate: &&Candidate| live.contains(&candidate.id) || chain.contains(&candidate.id);
        let candidates: Vec<Candidate> = self.candidates.iter().filter(usable).cloned().collect();
        successor(chain, &candidates, bytes.max(self.bytes_needed))
    }
}

impl Chains {
    pub fn new(now: Moment, epoch: LeaderEpoch, limits: Limits) -> Chains {
        let state = State {
            leader: Leader::new(now, epoch, limits.clone(), []),
            deposed: false,
            may_have_strays: BTreeMap::new(),
            installed: BTreeMap::new(),
            rows: Vec::new(),
            starts: BTreeMap::new(),
            commands: Vec::new(),
        };
        Chains { epoch, limits, state: Mutex::new(state), news: Notify::new() }
    }

    /// A row that was read at start.
    pub fn learn(&self, id: ContainerId, row: &ContainerRow) {
        if let Some(part) = ChainPart::of(row) {
            self.state.lock().rows.push((id, from_part(id, &part)));
        }
    }

    /// All rows have been read.
    pub fn begin(&self, now: Moment) {
        let mut state = self.state.lock();
        let rows = std::mem::take(&mut state.rows);
        state.leader = Leader::new(now, self.epoch, self.limits.clone(), rows);
    }

    /// A data server has registered. True if it has begun anew.
    pub fn registered(&self, server: ServerId, incarnation: u64) -> bool {
        let mut state = self.state.lock();
        let start = state.starts.entry(server).or_default();
        let is_new = start.incarnation != incarnation;
        if is_new {
            *start = Start { incarnation, number: start.number + 1, pieces: Joiner::default() };
            *state.may_have_strays.entry(server).or_default() += 1;
        }
        is_new
    }

    /// The epoch is about to be installed for the first time.
    fn begins(&self, container: ContainerId, epoch: ChainEpoch) -> bool {
        let mut state = self.state.lock();
        let known = state.installed.entry(container).or_default();
        let is_new = epoch > *known;
        *known = epoch.max(*known);
        is_new
    }

    pub fn may_have_strays(&self) -> Vec<(ServerId, u64)> {
        self.state.lock().may_have_strays.iter().map(|(server, times)| (*server, *times)).collect()
    }

    /// To be looked through.
    pub fn may_have_a_stray(&self, server: ServerId) {
        *self.state.lock().may_have_strays.entry(server).or_default() += 1;
    }

    /// Unless it was removed from another chain while it was looked through.
    pub fn has_no_strays(&self, server: ServerId, times: u64) {
        let mut state = self.state.lock();
        if state.may_have_strays.get(&server) == Some(&times) {
            state.may_have_strays.remove(&server);
        }
    }

    /// The container's row as the leader has it.
    pub fn row(&self, container: ContainerId) -> Option<Row> {
        self.state.lock().leader.row(container).cloned()
    }

    fn leads_nothing(&self) -> bool {
        self.state.lock().leader.containers().next().is_none()
    }

    /// How the chains stand, for status.
    pub fn look(&self, now: Moment, servers: &[Candidate]) -> ChainsStatus {
        let state = self.state.lock();
        let with_strays = state.may_have_strays.len() as u64;
        let mut seen = ChainsStatus { with_strays, ..ChainsStatus::default() };
        for id in state.leader.containers() {
            seen.containers += 1;
            seen.unsettled += u64::from(!state.leader.is_settled(id));
            let members = state.leader.row(id).map_or(&[][..], |row| row.members());
            seen.too_near += u64::from(apart(members, servers) < apart_at_best(members.len(), servers));
            if let Some((live, _)) = state.leader.live_copies(id, now).filter(|(live, copies)| live < copies) {
                seen.short += 1;
                seen.live_min = Some(seen.live_min.map_or(live, |least| least.min(live)));
            }
        }
        seen
    }

    /// Chains with more members than they should have, with the epoch in which all of them act, if they do.
    pub fn grown(&self) -> Vec<(ContainerId, Option<ChainEpoch>, Vec<ServerId>)> {
        let state = self.state.lock();
        let members = |id| state.leader.row(id).map(|row| row.members().to_vec()).unwrap_or_default();
        state.leader.grown().map(|(id, epoch)| (id, epoch, members(id))).collect()
    }

    /// Containers with several copies that count the server.
    pub fn places(&self, server: ServerId) -> BTreeMap<ContainerId, Place> {
        self.state.lock().leader.places(server).collect()
    }

    pub fn may_have_strays_at(&self, server: ServerId) -> bool {
        self.state.lock().may_have_strays.contains_key(&server)
    }

    /// May what this silent server was told, and told nobody, be seen no more? If not, its chains go on without it soon.
    pub fn goes_on_without(&self, server: ServerId, now: Moment) -> bool {
        self.state.lock().leader.goes_on_without(server, now)
    }

    /// Has this server started again, and are chains that it is a member of not decided since?
    pub fn has_begun_anew(&self, server: ServerId, now: Moment) -> bool {
        let state = self.state.lock();
        let number = state.starts.get(&server).map_or(0, |start| start.number);
        state.leader.has_begun_anew(server, number, now)
    }

    /// Containers whose chain is being changed, has chunks that answer no writes, or too few servers.
    pub fn waits(&self, now: Moment) -> Vec<LeaderWaits> {
        self.state.lock().leader.waits(now)
    }
}

impl MetaServer {
    /// A data server has registered. What one that has begun anew had under way beside others is decided before anything new is.
    pub(crate) fn met(&self, server: ServerId, incarnation: u64) {
        if self.chains.registered(server, incarnation) {
            self.end_sync();
        }
    }

    /// Until the server stops.
    pub(crate) fn lead_chains(self: Arc<Self>) {
        let env = self.env.clone();
        env.spawn("leader of chains", async move {
            let mut ticked = self.env.clock.now();
            while !self.stopping.load(Ordering::Relaxed) {
                let tick = if self.chains.leads_nothing() { IDLE_TICK } else { TICK };
                let _ = self.env.timeout(tick, self.chains.news.notified()).await;
                let now = self.env.clock.now();
                if now.since(ticked) >= tick {
                    ticked = now;
                    self.leader_event(LeaderEvent::Tick);
                }
                let commands = std::mem::take(&mut self.chains.state.lock().commands);
                commands.into_iter().for_each(|command| self.clone().carry_out(command));
            }
        });
    }

    pub(crate) fn leader_event(&self, event: LeaderEvent) {
        let (candidates, bytes_needed) = (self.servers.places(), self.config.chunk_reserve_bytes);
        let mut successors = Successors { candidates, bytes_needed };
        let mut state = self.chains.state.lock();
        if !state.deposed {
            let commands = state.leader.on(self.env.clock.now().0, event, &mut successors);
            state.commands.extend(commands);
            self.chains.news.notify_one();
        }
    }

    /// A piece of what a data server says. What an older process says late is not heard.
    pub(crate) fn server_says(&self, piece: ServerSays) -> Result<()> {
        let (server, incarnation) = (piece.server, piece.incarnation);
        let (number, message) = {
            let mut state = self.chains.state.lock();
            let known = state.starts.get_mut(&server).filter(|start| start.incarnation == incarnation);
            // One this server has not met registers with its next heartbeat.
            let Some(start) = known else { return Ok(()) };
            match start.pieces.add(piece) {
                Some(message) => (start.number, message),
                None => return Ok(()),
            }
        };
        let message = ToLeader::decode(&message)
            .map_err(|e| Error::new(Code::BadMessage, format_args!("data server {server}"), e))?;
        self.leader_event(LeaderEvent::FromServer { server, incarnation: number, message });
        Ok(())
    }

    /// Containers that may have been made just now.
    pub(crate) async fn lead_new(&self, containers: &[ContainerInfo]) -> Result<()> {
        let new: Vec<ContainerId> = {
            let state = self.chains.state.lock();
            let is_new = |info: &&ContainerInfo| info.chain.len() > 1 && state.leader.row(info.id).is_none();
            containers.iter().filter(is_new).map(|info| info.id).collect()
        };
        if new.is_empty() {
            return Ok(());
        }
        for (id, row) in self.engine.read(0, spares::ReadContainers(new)).await.map_err(Error::from)? {
            let Some(part) = ChainPart::of(&row) else { continue };
            // Two requests may have read it.
            if self.chains.state.lock().leader.row(id).is_none() {
                self.leader_event(LeaderEvent::Made { container: id, row: from_part(id, &part) });
            }
        }
        Ok(())
    }

    /// The chain of a container in which every member acts in the newest epoch, and that epoch.
    pub(crate) fn acting_chain(&self, container: ContainerId) -> Option<(ChainEpoch, Vec<ServerId>)> {
        let state = self.chains.state.lock();
        let epoch = state.leader.acts_in(container).filter(|_| !state.deposed)?;
        Some((epoch, state.leader.row(container)?.members().to_vec()))
    }

    /// At every member of its chain, while that was [`Self::acting_chain`].
    pub(crate) fn chunk_deleted(&self, container: ContainerId, chunk: ChunkId) {
        self.leader_event(LeaderEvent::Deleted { container, chunk });
    }

    fn carry_out(self: Arc<Self>, command: LeaderCommand) {
        match command {
            LeaderCommand::Send { to, incarnation, message } => self.say(to, incarnation, message),
            LeaderCommand::Commit { container, number, row } => {
                let env = self.env.clone();
                env.spawn("commit of a chain", async move { self.commit_chain(container, number, row).await });
            }
            LeaderCommand::Decided { container, decision } => {
                let (chunk, owner, lost) = (decision.chunk, decision.owner, decision.lost);
                tracing::info!(container = container.0, chunk = chunk.0, owner = owner.0, "goes on in a new epoch");
                if lost > 0 || decision.sealed > 0 {
                    let sealed = decision.sealed;
                    tracing::warn!(chunk = chunk.0, lost, sealed, "blocks that nobody had stay as they were");
                }
            }
        }
    }

    fn say(self: Arc<Self>, to: ServerId, number: u64, message: FromLeader) {
        // Those of before have stopped: what nobody but its writer knows of is decided before anything new begins.
        if let FromLeader::Install { container, install } = &message
            && self.chains.begins(*container, install.epoch)
        {
            self.end_sync();
        }
        let is_new = matches!(message, FromLeader::Install { .. });
        let incarnation = {
            let state = self.chains.state.lock();
            state.starts.get(&to).filter(|start| start.number == number).map(|start| start.incarnation)
        };
        let info = self.servers.info(to, self.env.clock.now());
        let (Some(incarnation), Some(info)) = (incarnation, info) else { return };
        let env = self.env.clone();
        env.spawn("a word to a data server", async move {
            let cx = Context { deadline: SAY_DEADLINE, ..Context::default() };
            let payload = Bytes::from(message.encode());
            // What is lost is said again, as is what cannot be said yet.
            let sync_floor = match is_new {
                true => self.new_sync_floor().await,
                false => Ok(self.sync_floor()),
            };
            let Ok(sync_floor) = sync_floor else { return };
            let _ = self.peers.node(&info).call(cx, LeaderSays { incarnation, sync_floor }, payload).await;
        });
    }

    async fn commit_chain(&self, container: ContainerId, number: u64, row: Row) {
        let was = self.chains.state.lock().leader.row(container).map(to_part);
        let Some(was) = was else { return };
        let now = to_part(&row);
        let info = ContainerInfo { id: container, epoch: now.epoch, chain: now.chain.clone() };
        while !self.stopping.load(Ordering::Relaxed) {
            let leader = self.chains.epoch;
            let commit = CommitChain { leader, container, was: was.clone(), now: now.clone() };
            match self.engine.transact(0, commit).await.map_err(Error::from) {
                Ok(ChainCommit::Done) => {
                    tracing::info!(container = container.0, epoch = info.epoch.0, chain = ?info.chain, "chain");
                    self.containers.chain_changed(info);
                    let known = |part: &ChainPart| -> BTreeSet<ServerId> {
                        let older = part.older.iter().flat_map(|(_, members)| members.iter().copied());
                        older.chain(part.chain.iter().copied()).collect()
                    };
                    let removed: Vec<ServerId> = known(&was).difference(&known(&now)).copied().collect();
                    for server in removed {
                        *self.chains.state.lock().may_have_strays.entry(server).or_default() += 1;
                    }
                    return self.leader_event(LeaderEvent::Committed { container, number });
                }
                Ok(ChainCommit::Gone) => return self.leader_event(LeaderEvent::Gone { container }),
                Ok(ChainCommit::Deposed) => {
                    tracing::error!(leader = leader.0, container = container.0, "another leads: this one says no more");
                    self.chains.state.lock().deposed = true;
                    return;
                }
                Err(error) => {
                    tracing::warn!(container = container.0, "its chain is changed later: {error}");
                    self.env.sleep(COMMIT_PAUSE).await;
                }
            }
        }
    }
}

fn from_part(id: ContainerId, part: &ChainPart) -> Row {
    let ChainPart { epoch, chain, older, copies } = part.clone();
    let older = older.into_iter().map(|(epoch, members)| ChainRow { epoch, members });
    let chains = older.chain([ChainRow { epoch, members: chain }]).collect();
    let CopiesRow { copies, min_copies, settled, last_open, default_open } = copies;
    Row { id, copies, min_copies, chains, settled, last_open: last_open.into_iter().collect(), default_open }
}

fn to_part(row: &Row) -> ChainPart {
    let (epoch, chain) = (row.epoch(), row.members().to_vec());
    let older = row.chains.iter().take(row.chains.len().saturating_sub(1));
    ChainPart {
        epoch,
        chain,
        older: older.map(|chain| (chain.epoch, chain.members.clone())).collect(),
        copies: CopiesRow {
            copies: row.copies,
            min_copies: row.min_copies,
            settled: row.settled,
            last_open: row.last_open.iter().map(|(chunk, epoch)| (*chunk, *epoch)).collect(),
            default_open: row.default_open,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_goes_to_the_leader_and_back() {
        let ids = |servers: &[u64]| servers.iter().copied().map(ServerId).collect::<Vec<_>>();
        let first = Row::new(ContainerId(7), ids(&[1, 2, 3]), 3, 2);
        let raised = first.raised(ids(&[2, 3, 4]));
        let decided = raised.decided([ChunkId(5), ChunkId(6)].into_iter());
        for row in [first, raised, decided.clone(), decided.opened([ChunkId(5)].iter())] {
            assert_eq!(from_part(row.id, &to_part(&row)), row);
        }
        assert_eq!(to_part(&decided).older, [(ChainEpoch(1), ids(&[1, 2, 3]))]);
    }
}
