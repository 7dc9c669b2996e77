//! Files whose slot another server holds: that one sees to it that the row says what writers know.

use crate::server::MetaServer;
use braid_api::meta::SettleFileAt;
use braid_api::{Code, Error, Result};
use braid_types::{InodeId, MemberId, SessionId};
use std::time::Duration;

/// Before the holder is asked again, which is about to be another.
const ASK_AGAIN: Duration = Duration::from_millis(20);

impl MetaServer {
    /// Returns when the row says what others know of size and times.
    pub(crate) async fn refresh_file(&self, session: SessionId, inode: InodeId) -> Result<()> {
        match self.foreign(inode) {
            Some(holder) => self.settle_at(holder, SettleFileAt { to: holder, session, inode, takes: false }).await,
            None => self.leases.refresh_file(session, inode).await,
        }
    }

    /// The file's bytes are to be changed for the session, see [`crate::leases::Leases::take_to_change`].
    pub(crate) async fn take_to_change(&self, session: SessionId, inode: InodeId) -> Result<()> {
        match self.foreign(inode) {
            Some(holder) => self.settle_at(holder, SettleFileAt { to: holder, session, inode, takes: true }).await,
            None => self.leases.take_to_change(session, inode).await,
        }
    }

    async fn settle_at(&self, mut holder: MemberId, mut m: SettleFileAt) -> Result<()> {
        let patience = self.leases.limits.longest_wait_for_a_file() + self.leases.limits.session_lease;
        let end = self.env.clock.now() + patience;
        loop {
            let left = end.since(self.env.clock.now());
            let still = || self.foreign(m.inode) == Some(holder);
            match self.say_while(holder, m, left, still).await {
                Err(error) if error.code == Code::HeldElsewhere && !left.is_zero() => {
                    if let Some(beside) = &self.beside {
                        beside.others.is_outdated();
                    }
                    self.env.sleep(ASK_AGAIN).await;
                    match self.foreign(m.inode) {
                        Some(other) => (holder, m.to) = (other, other),
                        None => return Box::pin(self.settle_here(m)).await,
                    }
                }
                answer => return answer,
            }
        }
    }

    /// For another server.
    pub(super) async fn settle_here(&self, m: SettleFileAt) -> Result<()> {
        if !self.leases.holds(m.inode.slot()) {
            return Err(Error::new(
                Code::HeldElsewhere,
                format_args!("inode {}", m.inode),
                "another metadata server holds its slot",
            ));
        }
        self.meet(m.session).await?;
        if m.takes {
            // It works elsewhere, and may not have been heard of here for a term.
            self.leases.renewed(m.session);
        }
        match m.takes {
            true => self.leases.take_to_change(m.session, m.inode).await,
            false => self.leases.refresh_file(m.session, m.inode).await,
        }
    }
}
