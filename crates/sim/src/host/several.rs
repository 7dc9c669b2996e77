//! One of several metadata servers that serve at once, over a database that never goes (docs/design/0027-several-that-serve.md).

use super::meta_door::MetaDoor;
use super::{PORT, endpoint};
use crate::bug::Bug;
use crate::cluster::Process;
use braid_api::meta::{Mark, MetaAnswer, MetaRequest, Namespace};
use braid_api::{AnyPeers, Code, Context, Error, Result};
use braid_env::Address;
use braid_meta_engine::{AnyEngine, MemEngine};
use braid_meta_server::{Backing, Lead, LeadLimits, MemberLimits, Membership, MetaConfig, MetaServer, PlantedBug};
use braid_types::{ClusterId, MemberId};
use braid_wire::{Endpoint, Identity, NamespaceService, Role, WireMetaPeers, WirePeers, WireStats, serve};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Where each of them is asked for its part.
const MEMBERS_PORT: u16 = PORT + 1;
/// Before one that is no member any more, or cannot be one yet, begins anew.
const PAUSE: Duration = Duration::from_millis(200);

/// As `braid-election` and `braid-members` have them, divided by about ten in the first and four in the second, which allows a second for the
/// database whatever the rest is.
fn limits() -> (LeadLimits, MemberLimits) {
    let ms = Duration::from_millis;
    let lead = LeadLimits { lease_min: ms(400), lease_max: ms(6000), ..LeadLimits::default() };
    let members = MemberLimits { lease: ms(2100), gather: ms(100), ..MemberLimits::default() };
    members.check(&lead).expect("these times fit together");
    (lead, members)
}

/// Who answers at an address at the moment; and who leads and is about to.
#[derive(Clone, Default)]
struct Behind {
    door: Option<Arc<MetaDoor>>,
    leading: Option<Arc<Membership>>,
}

#[derive(Default)]
struct Door(Mutex<Behind>);

/// One that does not lead.
type Member = Mutex<Option<(Arc<Membership>, Arc<MetaServer>)>>;

impl Namespace for Door {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        let Behind { door, leading } = self.0.lock().clone();
        match (door, leading, request) {
            (Some(door), _, request) => door.execute(cx, request).await,
            (None, Some(leading), MetaRequest::AskToServe(m)) => Ok(MetaAnswer::AskToServe(leading.asks(m.question))),
            _ => Err(Error::new(Code::NotServing, "the metadata server", "it is no member")),
        }
    }

    async fn execute_early(&self, cx: Context, request: MetaRequest) -> Result<(MetaAnswer, Mark)> {
        let Behind { door, leading } = self.0.lock().clone();
        match (door, leading, request) {
            (Some(door), _, request) => door.execute_early(cx, request).await,
            (None, Some(leading), MetaRequest::AskToServe(m)) => {
                Ok((MetaAnswer::AskToServe(leading.asks(m.question)), Mark::default()))
            }
            _ => Err(Error::new(Code::NotServing, "the metadata server", "it is no member")),
        }
    }
}

struct Host {
    process: Process,
    endpoint: Endpoint,
    /// At the address of its own.
    members: Arc<Door>,
    /// Of the election and of the roster.
    rows: AnyEngine,
}

impl Host {
    fn engine(&self) -> AnyEngine {
        AnyEngine::new(Arc::new(MemEngine::of_several(self.process.cluster.meta_store.clone())))
    }

    fn config(&self) -> MetaConfig {
        let settings = &self.process.cluster.settings;
        let planted = match settings.bug {
            Some(Bug::NotStill) => Some(PlantedBug::NotStill),
            Some(Bug::OthersNotAsked) => Some(PlantedBug::OthersNotAsked),
            Some(Bug::GainedAtOnce) => Some(PlantedBug::GainedAtOnce),
            _ => None,
        };
        MetaConfig { planted, ..settings.meta.clone() }
    }

    fn membership(&self) -> Arc<Membership> {
        let me = MemberId(self.process.env.random.u64());
        let at = format!("tcp:{}:{MEMBERS_PORT}", self.process.machine.name());
        let way = Arc::new(WireMetaPeers::new(&self.endpoint));
        Membership::new(self.process.env.clone(), self.rows.clone(), me, vec![at], way, limits().1)
    }

    fn peers(&self) -> AnyPeers {
        AnyPeers::new(WirePeers::new(&self.endpoint))
    }

    fn has_begun(&self, server: &Arc<MetaServer>) -> Arc<MetaDoor> {
        self.endpoint.set_identity(Identity { cluster: server.cluster(), ..self.endpoint.identity() });
        Arc::new(MetaDoor::new(server.clone(), self.process.cluster.clone()))
    }

    /// Until it is a member no more.
    async fn beside(&self, former: &Member) {
        let membership = self.membership();
        let backing = Backing { others: Some(membership.clone()), ..Backing::default() };
        let (env, config) = (self.process.env.clone(), self.config());
        let Ok(server) = MetaServer::start_beside(env, self.engine(), self.peers(), config, backing).await else {
            return;
        };
        *self.members.0.lock() = Behind { door: Some(self.has_begun(&server)), leading: None };
        *former.lock() = Some((membership.clone(), server.clone()));
        self.process.cluster.coverage.count("metadata server served beside the one that leads");
        membership.run(server).await;
    }

    fn end(&self, former: &Member) -> Option<MemberId> {
        *self.members.0.lock() = Default::default();
        let (membership, server) = former.lock().take()?;
        membership.ends();
        server.stop();
        Some(membership.me())
    }

    /// As a member, until it leads.
    async fn stands_by(&self) -> Option<(Arc<Lead>, Option<MemberId>)> {
        let former = Member::default();
        let beside = async {
            loop {
                self.beside(&former).await;
                self.end(&former);
                self.process.env.sleep(PAUSE).await;
            }
        };
        let lead = tokio::select! {
            biased;
            lead = Lead::win(self.process.env.clone(), self.rows.clone(), limits().0) => lead,
            () = beside => return None,
        };
        let id = self.end(&former);
        Some((lead.ok()?, id))
    }

    async fn leads(&self, lead: Arc<Lead>, former: Option<MemberId>) {
        let membership = self.membership();
        membership.leads(lead.clone());
        former.into_iter().for_each(|former| membership.has_left(former));
        *self.members.0.lock() = Behind { door: None, leading: Some(membership.clone()) };
        let Process { env, cluster, .. } = &self.process;
        let mut fresh = ClusterId::default();
        env.random.fill(&mut fresh.0);
        let engine = self.engine().led_by(self.rows.clone());
        let backing = Backing { others: Some(membership.clone()), lead: Some(lead.clone()), ..Backing::default() };
        let (config, policy) = (self.config(), cluster.settings.policy);
        let started = MetaServer::start_with(env.clone(), engine, self.peers(), config, fresh, policy, backing).await;
        let Ok(server) = started else { return };
        let door = self.has_begun(&server);
        *self.members.0.lock() = Behind { door: Some(door.clone()), leading: None };
        cluster.coverage.count("metadata server led several");
        // Only who leads listens there: whoever looks for that one goes on to the next address.
        tokio::select! {
            biased;
            () = membership.clone().run(server.clone()) => {}
            () = lead.ended() => {}
            () = listens(&self.process, &self.endpoint, PORT, door) => {}
        }
        *self.members.0.lock() = Default::default();
        membership.ends();
        server.stop();
    }
}

async fn listens(process: &Process, endpoint: &Endpoint, port: u16, door: Arc<impl Namespace + 'static>) {
    let at = Address::Tcp(format!("{}:{port}", process.machine.name()));
    let listener = process.env.transport.listen(&at).await.expect("the port is free");
    let (service, stats) = (Arc::new(NamespaceService(door)), WireStats::new(MetaRequest::NAMES));
    serve(endpoint.clone(), listener, service, stats, std::future::pending()).await;
}

/// Until it is killed.
pub async fn run(process: Process) {
    let endpoint = endpoint(&process, Role::Metadata);
    let rows = AnyEngine::new(Arc::new(MemEngine::of_several(process.cluster.meta_store.clone())));
    let members = Arc::new(Door::default());
    let (own, at, door) = (process.clone(), endpoint.clone(), members.clone());
    process.env.spawn("members' door", async move { listens(&own, &at, MEMBERS_PORT, door).await });
    let host = Host { process: process.clone(), endpoint, members, rows };
    loop {
        if let Some((lead, former)) = host.stands_by().await {
            host.leads(lead, former).await;
        }
        process.env.sleep(PAUSE).await;
    }
}
