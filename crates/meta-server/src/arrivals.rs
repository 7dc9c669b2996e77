//! Clients and data servers come, and say that they are still there.

use crate::server::MetaServer;
use crate::sessions::SessionState;
use braid_api::meta::*;
use braid_api::{Code, Error, Result};
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::{servers, session};
use braid_meta_namespace::rows::ServerRow;
use braid_types::SessionId;

impl MetaServer {
    pub(crate) async fn open_session(&self, m: OpenSession) -> Result<SessionReply> {
        let now = self.env.clock.now();
        let begin = session::BeginSession {
            client: m.client,
            former: m.former,
            since: m.since,
            description: m.description.clone(),
            host: m.host.clone(),
            now: self.env.clock.wall(),
            caches: m.caches,
        };
        let (id, epoch) = self.engine.transact(0, begin).await.map_err(Error::from)?;
        self.sessions.insert(id, SessionState::new(epoch, m.description, m.host, now));
        let term = m.caches.then(|| self.leases.opened(id));
        Ok(SessionReply {
            term,
            session: id,
            epoch,
            cluster: self.cluster,
            lease_ms: self.config.session_lease.as_millis() as u32,
            renew_ms: self.config.session_renew.as_millis() as u32,
            servers: self.servers.infos(now),
        })
    }

    pub(crate) fn renew_session(&self, id: SessionId, m: &RenewSession) -> Result<RenewReply> {
        let (orphans, orphans_seen) = self.orphans.after(m.orphans_seen);
        let known = self.sessions.with(id, |s| {
            s.low_water = s.low_water.max(m.low_water);
            s.orphans_seen = m.orphans_seen;
            s.orphans_held = m.orphans_held.iter().copied().collect();
        });
        if known.is_none() {
            return Err(Error::new(Code::SessionUnknown, format_args!("session {id}"), "it was ended or never began"));
        }
        Ok(RenewReply {
            term: self.leases.renewed(id),
            lease_ms: self.config.session_lease.as_millis() as u32,
            orphans,
            orphans_seen,
            servers_version: self.servers.version(),
        })
    }

    pub(crate) async fn register_server(&self, m: RegisterServer) -> Result<RegisterAnswer> {
        let row = ServerRow { addresses: m.addresses, host: m.host, rack: m.rack, ..ServerRow::default() };
        let enrol = servers::EnrolServer { id: m.id, row };
        let (id, row) = self.engine.transact(0, enrol).await.map_err(Error::from)?;
        self.copy_to(id, &row);
        if self.servers.registered(id, row, m.incarnation, self.env.clock.now()) {
            self.sizes.look_through(id);
        }
        self.met(id, m.incarnation);
        tracing::info!(server = id.0, "data server registered");
        let sessions = self.live_sessions().await?;
        let heartbeat_ms = self.config.heartbeat.as_millis() as u32;
        let lease_ms = self.config.server_lease.as_millis() as u32;
        let sync_floor = self.new_sync_floor().await?;
        let epoch = self.leases.epoch();
        let (cluster, leads_for_ms) = (self.cluster, self.leads_for_ms());
        Ok(RegisterAnswer { id, cluster, heartbeat_ms, sessions, sync_floor, lease_ms, epoch, leads_for_ms })
    }
}
