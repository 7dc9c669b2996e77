//! A metadata server over a database that serves beside others while it does not lead, and with them when it does
//! (docs/design/0027-several-that-serve.md).

use super::listen;
use super::metadata::LAST_ANSWERS;
use super::serving::Serving;
use crate::config::Config;
use crate::roles;
use anyhow::{Context, Result, anyhow};
use braid_api::meta::{Mark, MetaAnswer, MetaRequest};
use braid_api::{AnyPeers, Code, Context as CallContext, Error, Namespace};
use braid_env::Env;
use braid_meta_engine::AnyEngine;
use braid_meta_engine_sql::{SqlEngine, SqlOptions};
use braid_meta_server::{Backing, Lead, LeadLimits, MemberLimits, Membership, MetaConfig, MetaServer};
use braid_types::MemberId;
use braid_wire::{Endpoint, Identity, NamespaceService, WireMetaPeers, WirePeers, WireStats};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Before one that is no member any more, or cannot be one yet, begins anew.
const PAUSE: Duration = Duration::from_secs(1);

/// What is listened at, whoever answers there at the moment.
#[derive(Default)]
struct Door(Mutex<Behind>);

#[derive(Clone, Default)]
struct Behind {
    server: Option<Arc<MetaServer>>,
    /// It leads, and its server is about to begin: members need an answer before.
    membership: Option<Arc<Membership>>,
}

impl Door {
    fn set(&self, server: Option<Arc<MetaServer>>, membership: Option<Arc<Membership>>) {
        *self.0.lock() = Behind { server, membership };
    }
}

fn refuse() -> Error {
    Error::new(Code::NotServing, "the metadata server", "it is no member of those that serve, at the moment")
}

impl Namespace for Door {
    async fn execute(&self, cx: CallContext, request: MetaRequest) -> braid_api::Result<MetaAnswer> {
        let Behind { server, membership } = self.0.lock().clone();
        match (server, membership, request) {
            (Some(server), _, request) => server.execute(cx, request).await,
            (None, Some(membership), MetaRequest::AskToServe(m)) => {
                Ok(MetaAnswer::AskToServe(membership.asks(m.question)))
            }
            _ => Err(refuse()),
        }
    }

    async fn execute_early(&self, cx: CallContext, request: MetaRequest) -> braid_api::Result<(MetaAnswer, Mark)> {
        let Behind { server, membership } = self.0.lock().clone();
        match (server, membership, request) {
            (Some(server), _, request) => server.execute_early(cx, request).await,
            (None, Some(membership), MetaRequest::AskToServe(m)) => {
                Ok((MetaAnswer::AskToServe(membership.asks(m.question)), Mark::default()))
            }
            _ => Err(refuse()),
        }
    }
}

pub struct Together {
    env: Env,
    endpoint: Endpoint,
    options: SqlOptions,
    times: MetaConfig,
    row_copies_below: usize,
    /// For the rows of the election and of those that serve.
    rows: AnyEngine,
    way: Arc<WireMetaPeers>,
    door: Arc<Door>,
    addresses: Vec<String>,
    serving: Mutex<Option<Serving>>,
    /// While it does not lead.
    member: Mutex<Option<(Arc<Membership>, Arc<MetaServer>)>>,
}

impl Together {
    /// Listens; `None` where it is to serve only when it leads.
    pub async fn begin(
        env: &Env,
        endpoint: &Endpoint,
        config: &Config,
        options: &SqlOptions,
        rows: &AnyEngine,
    ) -> Result<Option<Together>> {
        let settings = &config.metadata;
        if settings.together_listen.is_empty() {
            return Ok(None);
        }
        let limits = MemberLimits::default().check(&LeadLimits::default());
        limits.map_err(|broken| anyhow!("the times of several metadata servers do not fit together: {broken}"))?;
        let listeners = listen(env, &roles::addresses(&settings.together_listen)?).await?;
        let addresses: Vec<String> = listeners.iter().map(|l| l.local().to_string()).collect();
        let door = Arc::new(Door::default());
        let stats = WireStats::new(MetaRequest::NAMES);
        let serving = Serving::begin(endpoint, listeners, NamespaceService(door.clone()), &stats);
        tracing::info!("this metadata server can serve beside others at {}", addresses.join(", "));
        Ok(Some(Together {
            env: env.clone(),
            endpoint: endpoint.clone(),
            options: options.clone(),
            times: settings.times(),
            row_copies_below: settings.database_copies,
            rows: rows.clone(),
            way: Arc::new(WireMetaPeers::new(endpoint)),
            door,
            addresses,
            serving: Mutex::new(Some(serving)),
            member: Mutex::default(),
        }))
    }

    fn membership(&self) -> Arc<Membership> {
        let (me, limits) = (MemberId(self.env.random.u64()), MemberLimits::default());
        Membership::new(self.env.clone(), self.rows.clone(), me, self.addresses.clone(), self.way.clone(), limits)
    }

    /// What a server changes rows through: in an epoch of its own, apart from that of the election.
    async fn engine(&self) -> Result<AnyEngine> {
        let engine = SqlEngine::open(self.options.clone()).await.context("cannot open the metadata in the database")?;
        Ok(AnyEngine::new(Arc::new(engine)))
    }

    /// As one that does not lead: a member, and another one when it is none any more.
    pub async fn serve_beside(&self) -> Infallible {
        loop {
            match self.begin_beside().await {
                Ok((membership, server)) => {
                    membership.run(server).await;
                    tracing::warn!("this metadata server is no member of those that serve any more: it begins anew");
                    self.end_beside();
                }
                Err(error) => tracing::debug!("this metadata server cannot serve beside others yet: {error:#}"),
            }
            self.env.sleep(PAUSE).await;
        }
    }

    async fn begin_beside(&self) -> Result<(Arc<Membership>, Arc<MetaServer>)> {
        let (membership, engine) = (self.membership(), self.engine().await?);
        let backing =
            Backing { others: Some(membership.clone()), row_copies_below: self.row_copies_below, ..Backing::default() };
        let peers = AnyPeers::new(WirePeers::new(&self.endpoint));
        let (env, times) = (self.env.clone(), self.times.clone());
        let server = MetaServer::start_beside(env, engine, peers, times, backing).await?;
        self.endpoint.set_identity(Identity { cluster: server.cluster(), ..self.endpoint.identity() });
        *self.member.lock() = Some((membership.clone(), server.clone()));
        self.door.set(Some(server.clone()), None);
        Ok((membership, server))
    }

    /// It answers nothing any more; which member that was.
    fn end_beside(&self) -> Option<MemberId> {
        let (membership, server) = self.member.lock().take()?;
        self.door.set(None, None);
        membership.ends();
        server.stop();
        Some(membership.me())
    }

    /// Ends in order while it does not lead: what is being answered is answered, and nobody waits for it.
    pub async fn stop_beside(&self) {
        let _ = self.env.timeout(LAST_ANSWERS, self.stop_listening()).await;
        let member = self.member.lock().take();
        if let Some((membership, server)) = member {
            membership.stop().await;
            server.stop();
        }
    }

    /// It leads from now on: what was held here as by any other is let go of, and the row says who serves. What the server that leads changes rows
    /// through comes with it.
    pub async fn leads(&self, lead: &Arc<Lead>) -> Result<(Arc<Membership>, AnyEngine)> {
        let former = self.end_beside();
        let membership = self.membership();
        membership.leads(lead.clone());
        if let Some(former) = former {
            membership.has_left(former);
        }
        self.door.set(None, Some(membership.clone()));
        let engine = self.engine().await?.led_by(self.rows.clone());
        Ok((membership, engine))
    }

    /// The server that leads has begun.
    pub fn open(&self, membership: &Arc<Membership>, server: &Arc<MetaServer>) {
        self.door.set(Some(server.clone()), None);
        self.env.spawn("member", membership.clone().run(server.clone()));
    }

    /// Takes nothing new, and returns when what runs is answered.
    pub async fn stop_listening(&self) {
        let serving = self.serving.lock().take();
        if let Some(serving) = serving {
            serving.end().await;
        }
    }
}
