use crate::awake::AwakeClock;
use crate::beside::{Beside, Others};
use crate::chains::Chains;
use crate::config::{MetaConfig, PlantedBug};
use crate::containers::Containers;
use crate::copies::CopySet;
use crate::data_servers::DataServers;
use crate::freeing::ReclaimFrom;
use crate::growing::Growing;
use crate::handover::Handovers;
use crate::hints::HintCache;
use crate::ids::InodeIds;
use crate::lead::Lead;
use crate::leases::Leases;
use crate::orphans::Orphans;
use crate::queries::Queries;
use crate::quotas::Quotas;
use crate::rebalancing::Rebalancing;
use crate::recovery::Recovery;
use crate::reports::Reports;
use crate::sessions::{SessionState, Sessions};
use crate::sizes::SizesToCheck;
use crate::snapshots::Snapshots;
use crate::strays::ReadBack;
use crate::subtree_ops::SubtreeOps;
use crate::trees::Trees;
use braid_api::meta::Duty;
use braid_api::{AnyPeers, Code, DataPeers, Error};
use braid_env::{Env, Monotonic};
use braid_members::{Limits as MemberLimits, Roster};
use braid_meta_engine::{AnyEngine, Engine};
use braid_meta_namespace::ops::policy::check_served;
use braid_meta_namespace::ops::roster::{ReadRoster, WriteRoster};
use braid_meta_namespace::ops::{ids, reclaim, restored, servers, session, spares};
use braid_meta_namespace::rows::RosterRow;
use braid_meta_namespace::rows::ServerRow;
use braid_meta_namespace::{FormatCluster, ReadFormat};
use braid_placement::{Placement, Spread};
use braid_types::{ClusterId, LeaderEpoch, MemberId, MembershipEpoch, Policy, ServerId, Timestamp, Voter};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A metadata server over any engine and any way to data servers.
pub struct MetaServer {
    /// For what goes on in the background.
    pub(crate) this: Weak<MetaServer>,
    /// Where others serve as well.
    pub(crate) beside: Option<Beside>,
    pub(crate) env: Env,
    pub(crate) engine: AnyEngine,
    pub(crate) peers: AnyPeers,
    pub(crate) config: MetaConfig,
    pub(crate) cluster: ClusterId,
    pub(crate) started: Monotonic,
    pub(crate) ids: InodeIds,
    pub(crate) hints: HintCache,
    pub(crate) sessions: Sessions,
    pub(crate) leases: Arc<Leases>,
    pub(crate) servers: DataServers,
    pub(crate) containers: Containers,
    pub(crate) placement: Mutex<Box<dyn Placement>>,
    pub(crate) orphans: Orphans,
    pub(crate) reclaim_from: ReclaimFrom,
    pub(crate) trees: Trees,
    pub(crate) quotas: Quotas,
    pub(crate) subtree_ops: SubtreeOps,
    pub(crate) read_back: ReadBack,
    pub(crate) sizes: SizesToCheck,
    pub(crate) snapshots: Snapshots,
    pub(crate) recovery: Recovery,
    pub(crate) reports: Reports,
    /// Drawn at this start; the numbers of early answers belong to it.
    pub(crate) incarnation: u64,
    pub(crate) chains: Chains,
    pub(crate) growing: Growing,
    pub(crate) rebalancing: Rebalancing,
    /// Copies of the rows on data servers.
    pub(crate) copies: Option<Arc<CopySet>>,
    /// Among those that reach the same rows.
    lead: Option<Arc<Lead>>,
    row_copies_below: usize,
    /// Who runs queries in SQL, where there is one.
    pub(crate) queries: Option<Arc<dyn Queries>>,
    /// Who holds changes back, where somebody can.
    pub(crate) handovers: Option<Arc<dyn Handovers>>,
    /// The rows come from a backup of then, and nobody has confirmed yet that they are the right ones.
    pub(crate) restored: Mutex<Option<Timestamp>>,
    pub(crate) stopping: AtomicBool,
    /// Names data servers that housekeeping waits for, for `braid admin why`.
    pub(crate) waiting: Mutex<crate::why::Rounds>,
}

/// What stands behind the rows, and who has a say in whether they may be told.
pub struct Backing {
    /// Groups of changes go to copies on data servers.
    pub copies: Option<Arc<CopySet>>,
    /// Others could serve the same rows.
    pub lead: Option<Arc<Lead>>,
    /// On how many disks the engine itself keeps a row.
    pub row_copies_below: usize,
    /// Runs queries in SQL over the same rows.
    pub queries: Option<Arc<dyn Queries>>,
    /// Holds changes of the same rows back.
    pub handovers: Option<Arc<dyn Handovers>>,
    /// Others serve the same rows at the same time.
    pub others: Option<Arc<dyn Others>>,
}

impl Default for Backing {
    fn default() -> Self {
        Backing { copies: None, lead: None, row_copies_below: 1, queries: None, handovers: None, others: None }
    }
}

/// Why a metadata server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the times of the metadata server do not fit together: {0}")]
    Config(String),
    #[error(transparent)]
    Namespace(#[from] Error),
}

/// The epoch of a server that serves alone from now on: each start is a new membership. Where several served before, on the same rows, it is above
/// theirs, and whoever of them does not know yet that it serves no more has had the time for that.
async fn after_others(env: &Env, engine: &AnyEngine, leader: LeaderEpoch) -> Result<MembershipEpoch, Error> {
    let own = MembershipEpoch(leader.0);
    let Some(found) = engine.read(0, ReadRoster).await.map_err(Error::from)? else { return Ok(own) };
    if !found.roster.members.is_empty() {
        let members = found.roster.members.len();
        tracing::info!(members, "metadata servers served beside each other here: waiting until none of them does");
        env.sleep(MemberLimits::default().believed(found.roster.lease())).await;
    }
    let epoch = own.max(found.roster.epoch.next());
    let (elected, lease_ms) = (LeaderEpoch(0), found.roster.lease_ms);
    let roster = Roster { epoch, elected, leader: MemberId(0), lease_ms, members: Vec::new() };
    let write = WriteRoster { expects: Some(found.roster), row: RosterRow { roster, fence: found.fence } };
    match engine.transact(0, write).await.map_err(Error::from)? {
        Ok(()) => Ok(epoch),
        Err(_) => Err(Error::new(Code::NotServing, "the metadata server", "others serve beside each other by now")),
    }
}

/// All rows of a table that is read whole at start.
const ALL: usize = usize::MAX >> 1;

/// Unlinked files read at once at a start.
const ORPHANS_A_PAGE: usize = 1 << 16;

impl MetaServer {
    /// Opens the namespace, making an empty one for `cluster` under `policy` if the engine has none, rebuilds
    /// soft state from rows and starts housekeeping.
    pub fn start(
        env: Env,
        engine: Arc<impl Engine>,
        peers: impl DataPeers,
        config: MetaConfig,
        cluster: ClusterId,
        policy: Policy,
    ) -> impl Future<Output = Result<Arc<Self>, StartError>> + Send {
        let (engine, peers) = (AnyEngine::new(engine), AnyPeers::new(peers));
        MetaServer::start_with(env, engine, peers, config, cluster, policy, Backing::default())
    }

    /// The same where nothing is answered without the word of others.
    pub async fn start_with(
        env: Env,
        engine: AnyEngine,
        peers: AnyPeers,
        config: MetaConfig,
        cluster: ClusterId,
        policy: Policy,
        backing: Backing,
    ) -> Result<Arc<Self>, StartError> {
        config.check().map_err(StartError::Config)?;
        check_served(&policy).map_err(Error::from)?;
        let format = FormatCluster { cluster, policy, now: env.clock.wall() };
        let cluster = engine.transact(0, format).await.map_err(Error::from)?;
        // Before any row is read: what an older leader still writes is refused from now on.
        let next = ids::TakeIds { counter: ids::Counter::Leaders, count: 1 };
        let leader = LeaderEpoch(engine.transact(0, next).await.map_err(Error::from)?);
        let epoch = match backing.others {
            None => after_others(&env, &engine, leader).await?,
            Some(_) => MembershipEpoch(leader.0),
        };
        let server = MetaServer::new(env, engine, peers, config, (cluster, leader, epoch), backing, true);
        server.rebuild().await?;
        if !server.recovery.is_open() {
            server.clone().recover();
        }
        server.keep_leases();
        server.clone().keep_house();
        server.clone().empty_trees();
        server.clone().look_through_trees();
        server.clone().keep_trash();
        server.clone().sweep_snapshots();
        server.clone().lead_chains();
        server.clone().keep_moving();
        server.clone().keep_removing_strays();
        server.clone().keep_comparing();
        Ok(server)
    }

    /// One that does not lead, beside others that serve the same rows: it answers for the slots that it is told to hold
    /// ([`MetaServer::follow`], [`MetaServer::gain`]). The rows have a namespace already.
    pub async fn start_beside(
        env: Env,
        engine: AnyEngine,
        peers: AnyPeers,
        config: MetaConfig,
        backing: Backing,
    ) -> Result<Arc<Self>, StartError> {
        config.check().map_err(StartError::Config)?;
        let cluster = engine.read(0, ReadFormat).await.map_err(Error::from)?;
        let cluster = cluster.ok_or_else(|| Error::new(Code::NotServing, "the namespace", "nobody has made it yet"))?;
        let server =
            MetaServer::new(env, engine, peers, config, (cluster, LeaderEpoch(0), MembershipEpoch(0)), backing, false);
        server.keep_for_snapshots().await?;
        server.recovery.begin(BTreeMap::new(), server.started);
        server.keep_leases();
        Ok(server)
    }

    fn new(
        env: Env,
        engine: AnyEngine,
        peers: AnyPeers,
        config: MetaConfig,
        (cluster, leader, epoch): (ClusterId, LeaderEpoch, MembershipEpoch),
        Backing { copies, lead, row_copies_below, queries, handovers, others }: Backing,
        leads: bool,
    ) -> Arc<Self> {
        let clock = AwakeClock::over(env.clock.clone());
        clock.keep_looking(&env);
        let quotas = Quotas::new(env.clock.clone());
        let env = Env { clock, ..env };
        let now = env.clock.now();
        let snapshots = Snapshots::new(config.planted);
        let engine = snapshots.watch(engine);
        let mut leases = Leases::new(env.clone(), epoch, config.limits(), config.leases_max, others.clone());
        leases.asks_nobody = config.planted == Some(PlantedBug::OthersNotAsked);
        Arc::new_cyclic(|this| MetaServer {
            this: this.clone(),
            beside: others.map(|others| Beside::new(others, leads, now)),
            ids: InodeIds::new(),
            hints: HintCache::new(config.hints_max),
            sessions: Sessions::default(),
            leases: Arc::new(leases),
            servers: DataServers::default(),
            containers: Containers::default(),
            placement: Mutex::new(Box::new(Spread::new())),
            orphans: Orphans::new(epoch),
            reclaim_from: ReclaimFrom::default(),
            trees: Trees::default(),
            quotas,
            subtree_ops: SubtreeOps::default(),
            read_back: ReadBack::default(),
            sizes: SizesToCheck::default(),
            snapshots,
            recovery: Recovery::default(),
            reports: Reports::new(env.random.u64()),
            incarnation: env.random.u64().max(1),
            growing: Growing::new(config.move_bytes_per_s),
            rebalancing: Rebalancing::default(),
            chains: Chains::new(now.0, leader, config.chain_limits.clone()),
            copies,
            lead,
            row_copies_below,
            queries,
            handovers,
            restored: Mutex::default(),
            stopping: AtomicBool::new(false),
            waiting: Mutex::default(),
            started: now,
            env,
            engine,
            peers,
            config,
            cluster,
        })
    }

    fn keep_leases(self: &Arc<Self>) {
        self.leases.clone().keep_time();
        self.leases.clone().tell_others();
        self.end_silent_sessions();
    }

    /// Soft state from rows. Sessions count as just seen: they get a whole expiry to come back.
    async fn rebuild(&self) -> Result<(), Error> {
        let now = self.env.clock.now();
        let (mut keeping, mut caching) = (BTreeMap::new(), Vec::new());
        for (id, row) in self.engine.read(0, session::ListSessions).await.map_err(Error::from)? {
            if row.has_ended() {
                self.sessions.remember(id, now);
                continue;
            }
            if row.keeps {
                keeping.insert(id, row.description.clone());
            }
            if row.caches {
                caching.push(id);
            }
            self.sessions.insert(id, SessionState::new(row.epoch, row.description, row.host, now));
        }
        if self.beside.is_none() {
            self.leases.begin(caching);
        }
        for (id, row) in self.engine.read(0, servers::ListServers).await.map_err(Error::from)? {
            // Its row stays, so that it is refused when it comes back.
            if row.duty == Duty::Decommissioned {
                self.servers.set_duty(id, row.duty);
                continue;
            }
            self.copy_to(id, &row);
            self.servers.learn(id, row);
        }
        if let Some(moves) = self.engine.read(0, servers::ReadMoves).await.map_err(Error::from)? {
            self.growing.set_rate(moves.rate);
        }
        let all = spares::ListContainers { after: None, limit: ALL };
        for (id, row) in self.engine.read(0, all).await.map_err(Error::from)? {
            self.containers.learn(id, &row);
            self.chains.learn(id, &row);
        }
        self.chains.begin(now.0);
        *self.restored.lock() = self.engine.read(0, restored::ReadRestored).await.map_err(Error::from)?;
        self.read_rebalance().await?;
        self.begin_quotas().await?;
        self.read_snapshots().await?;
        self.tell_who_leaves();
        self.read_orphans().await?;
        self.recovery.begin(keeping, now);
        Ok(())
    }

    /// Those that are listed already are asked for once more.
    pub(crate) async fn read_orphans(&self) -> Result<(), Error> {
        let mut after = None;
        loop {
            let page = reclaim::ListOrphans { after, limit: ORPHANS_A_PAGE };
            let page = self.engine.read(0, page).await.map_err(Error::from)?;
            page.iter().for_each(|id| self.orphans.add(*id));
            match page.last() {
                Some(last) => after = Some(*last),
                None => return Ok(()),
            }
        }
    }

    /// Leases on names and attributes that are out.
    pub fn leases(&self) -> usize {
        self.leases.count().0
    }

    /// Leases on files.
    pub fn file_leases(&self) -> usize {
        self.leases.count().1
    }

    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// A data server that may keep a copy of the rows.
    pub(crate) fn copy_to(&self, id: ServerId, row: &ServerRow) {
        if let Some(copies) = &self.copies {
            copies.learn(Voter { id, host: row.host.clone(), addresses: row.addresses.clone() });
        }
    }

    /// On how many disks rows are: the engine's own and those of the data servers that keep a copy now.
    pub(crate) fn row_copies(&self) -> usize {
        self.row_copies_below + self.copies.as_ref().map_or(0, |copies| copies.kept_by())
    }

    /// Waits until what was found may be told: no other metadata server has made it outdated.
    pub(crate) async fn may_answer(&self) -> Result<(), Error> {
        match (&self.lead, &self.beside) {
            (Some(lead), _) => lead.may_answer()?,
            (None, Some(beside)) if !beside.others.is_member() => {
                let cause = "it is no member of those that serve, at the moment";
                return Err(Error::new(Code::NotServing, "the metadata server", cause));
            }
            _ => {}
        }
        if self.handovers.as_ref().is_some_and(|handovers| handovers.may_have_gone()) {
            return Err(Error::new(Code::NotServing, "the metadata server", "its rows have gone to another store"));
        }
        match &self.copies {
            Some(copies) => copies.may_answer().await,
            None => Ok(()),
        }
    }

    /// For how long from now no other leads, as far as is known: what data servers are to count from when they asked.
    pub(crate) fn leads_for_ms(&self) -> u32 {
        // By their own clocks, and not by that of this server, which stands still where the process does.
        let left = match (&self.lead, &self.copies) {
            (Some(lead), _) => lead.leads_for(),
            (None, Some(copies)) => copies.leads_for(),
            _ if !self.leads() || self.handovers.as_ref().is_some_and(|rows| rows.may_have_gone()) => Duration::ZERO,
            (None, None) => return u32::MAX,
        };
        left.as_millis().min(u128::from(u32::MAX - 1)) as u32
    }

    /// Ends housekeeping; what is being answered is answered.
    pub fn stop(&self) {
        self.stopping.store(true, std::sync::atomic::Ordering::Relaxed);
        self.trees.stop();
        self.subtree_ops.look();
        self.snapshots.stop();
        self.leases.stop();
    }
}
