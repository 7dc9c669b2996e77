//! What other servers ask of this one, and clients of one that does not lead.

use super::telling::key_of;
use crate::leases::Leases;
use crate::mailbox::told;
use crate::server::MetaServer;
use braid_api::lease::LeaseKey;
use braid_api::meta::*;
use braid_api::{Code, Error, Result};
use braid_lease::{AnnouncementId, Command, Event, Generation, Key};
use braid_types::{LeaseGen, SessionId};
use std::time::Duration;
use tokio::sync::oneshot;

/// An announcement waits here for so long, less than whoever asked waits ([`super::WORD`]); then it is asked again.
pub(super) const NOT_YET: Duration = Duration::from_millis(1500);

impl Leases {
    /// Returns when nobody but the session shows what the keys cover, or is to be asked again.
    async fn announced_by(&self, m: AnnounceAt) -> Announced {
        let announcement = AnnouncementId { server: m.from, number: m.number };
        let (tell, told) = oneshot::channel();
        {
            let mut state = self.state.lock();
            let epoch = state.holder.epoch();
            if epoch != m.epoch || state.stopped {
                // One that is behind is asked again by whoever is not.
                return Announced::Refused { epoch };
            }
            let waiting = state.announcing.of_others.entry(announcement).or_default();
            waiting.retain(|waiter| !waiter.is_closed());
            waiting.push(tell);
            let keys: Vec<Key> = m.keys.into_iter().map(key_of).collect();
            self.on(&mut state, Event::Announce { announcement, session: m.session, keys, unlinks: None });
        }
        match self.env.timeout(NOT_YET, told).await {
            Ok(Ok(said)) => said,
            _ => Announced::NotYet,
        }
    }

    fn released_by(&self, m: ReleaseAt) -> Vec<LeaseKey> {
        let announcement = AnnouncementId { server: m.from, number: m.number };
        let keep = m.keep.into_iter().map(key_of).collect();
        let mut state = self.state.lock();
        state.announcing.of_others.remove(&announcement);
        let commands = self.on(&mut state, Event::Release { announcement, keep });
        let granted = commands.into_iter().find_map(|command| match command {
            Command::Kept { announcement: of, granted, .. } if of == announcement => Some(granted),
            _ => None,
        });
        granted.unwrap_or_default().iter().map(told).collect()
    }

    /// See [`Event::EndSync`] and [`Event::Above`].
    fn sync_ends(&self, m: EndSyncAt) -> LeaseGen {
        let mut state = self.state.lock();
        let event = m.above.map_or(Event::EndSync, |floor| Event::Above { floor: Generation(floor.0) });
        self.on(&mut state, event);
        LeaseGen(state.holder.last_number().0)
    }
}

impl MetaServer {
    pub(crate) async fn beside(&self, session: SessionId, request: MetaRequest) -> Result<MetaAnswer> {
        Ok(match request {
            MetaRequest::GetRoster(_) => {
                MetaAnswer::GetRoster(self.beside.as_ref().and_then(|beside| beside.others.roster()))
            }
            MetaRequest::RenewTerm(_) => MetaAnswer::RenewTerm(self.renew_term(session)?),
            MetaRequest::AskToServe(m) => {
                let beside = self.beside.as_ref().filter(|beside| beside.leads);
                let beside =
                    beside.ok_or_else(|| super::elsewhere("AskToServe", "one metadata server serves alone here"))?;
                MetaAnswer::AskToServe(beside.asked(m.question, self.env.clock.now()))
            }
            MetaRequest::AnnounceAt(AnnounceAt { to, .. })
            | MetaRequest::ReleaseAt(ReleaseAt { to, .. })
            | MetaRequest::SettleFileAt(SettleFileAt { to, .. })
            | MetaRequest::EndsAt(EndsAt { to, .. })
            | MetaRequest::EndSyncAt(EndSyncAt { to, .. })
            | MetaRequest::StillAt(StillAt { to, .. })
                if to != self.leases.member =>
            {
                return Err(super::elsewhere("a word between metadata servers", "it is for another"));
            }
            MetaRequest::AnnounceAt(m) => MetaAnswer::AnnounceAt(self.leases.announced_by(m).await),
            MetaRequest::ReleaseAt(m) => MetaAnswer::ReleaseAt(self.leases.released_by(m)),
            MetaRequest::SettleFileAt(m) => MetaAnswer::SettleFileAt(self.settle_here(m).await?),
            MetaRequest::EndsAt(m) => MetaAnswer::EndsAt(self.ends_here(m)?),
            MetaRequest::IsSilent(m) => MetaAnswer::IsSilent(self.is_said_to_be_silent(m.session).await?),
            MetaRequest::EndSyncAt(m) => MetaAnswer::EndSyncAt(self.leases.sync_ends(m)),
            MetaRequest::StillAt(m) => MetaAnswer::StillAt(self.still_here(m).await?),
            MetaRequest::HasOrphan(m) => {
                match m.held {
                    Some(session) => self.hold_orphan(session, m.inode),
                    None => self.orphans.add(m.inode),
                }
                MetaAnswer::HasOrphan(())
            }
            other => return Err(Error::new(Code::BadMessage, other.name(), "is not about other metadata servers")),
        })
    }

    fn renew_term(&self, session: SessionId) -> Result<TermReply> {
        if !self.sessions.is_known(session) {
            return Err(Error::new(
                Code::SessionUnknown,
                format_args!("session {session}"),
                "it was ended or never began",
            ));
        }
        if self.leases.is_ending(session) {
            return Err(Error::new(Code::SessionUnknown, format_args!("session {session}"), "it is being ended"));
        }
        let lease_ms = self.config.session_lease.as_millis() as u32;
        Ok(TermReply { lease_ms, term: self.leases.renewed(session) })
    }
}
