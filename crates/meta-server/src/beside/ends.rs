//! Ends of sessions, which take place at every server: the leader tells the others, and they tell it who is silent.

use super::WORD;
use crate::background::Leaves;
use crate::server::MetaServer;
use braid_api::meta::{Ends, EndsAt, HasOrphan, IsSilent};
use braid_api::{Code, Error, Result};
use braid_types::{InodeId, MemberId, SessionId};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// For the end of a session: every data server is told, and its term may have to pass (0005, *Time*).
const END_MAX: Duration = Duration::from_secs(40);
/// Before the leader is told of an orphan again.
const TELL_AGAIN: Duration = Duration::from_millis(500);

impl MetaServer {
    /// At a member: the leader says how far the session's end is.
    pub(super) fn ends_here(&self, m: EndsAt) -> u64 {
        match m.ends {
            Ends::Gone => self.leases.gone(m.session),
            Ends::Begins => return self.leases.ending(m.session).as_millis() as u64 + 1,
            Ends::Over => {
                self.leases.ending(m.session);
                self.sessions.remove(m.session);
                self.leases.ended(m.session);
            }
        }
        0
    }

    /// All others are told, and have heard it. Gives for how long the session may show something there.
    pub(crate) async fn ends_elsewhere(&self, session: SessionId, ends: Ends) -> Result<Duration> {
        let Some(beside) = self.beside.as_ref().filter(|beside| beside.leads) else { return Ok(Duration::ZERO) };
        let mut longest = Duration::ZERO;
        for to in beside.others.roster().into_iter().flat_map(|roster| roster.members) {
            if to.id == beside.others.me() {
                continue;
            }
            match self.say_to(to.id, EndsAt { session, ends }, WORD).await {
                Ok(ms) => longest = longest.max(Duration::from_millis(ms)),
                // Who is no member any more answers nobody, and what it granted is over before its slots are another's.
                Err(_) if beside.others.roster().is_some_and(|roster| !roster.has(to.id)) => {}
                Err(error) => {
                    let cause = format!("it is not told that session {session} ends: {error}");
                    return Err(Error::new(Code::Unreachable, format_args!("metadata server {}", to.id), cause));
                }
            }
        }
        Ok(longest)
    }

    /// Who was a member when the session began to end, and who has come since, renew it no more. Returns when it shows nothing anywhere.
    pub(crate) async fn until_over_everywhere(&self, session: SessionId) -> Result<()> {
        self.leases.until_over(session).await;
        loop {
            let epoch = self.leases.epoch();
            let left = self.ends_elsewhere(session, Ends::Begins).await?;
            self.env.sleep(left).await;
            if self.leases.epoch() == epoch {
                return Ok(());
            }
        }
    }

    /// The leader is told by a member of a session that others wait for.
    pub(super) async fn is_said_to_be_silent(&self, session: SessionId) -> Result<()> {
        self.end_or_try_again(session, Leaves::Silently).await
    }

    fn leader(&self) -> Option<MemberId> {
        Some(self.beside.as_ref()?.others.roster()?.leader)
    }

    /// A session that is silent is ended by who leads.
    pub(crate) async fn end_at_leader(&self, session: SessionId) -> Result<()> {
        let leader = self.leader().ok_or(Error::bare(Code::NotServing))?;
        self.say_to(leader, IsSilent { session }, END_MAX).await
    }

    /// A file has lost its last name here. Who leads finds its row at its next start, and is told now.
    pub(crate) fn tell_of_orphan(&self, inode: InodeId, held: Option<SessionId>) {
        let Some(server) = self.this.upgrade() else { return };
        self.env.spawn("word of an orphan", async move {
            while !server.stopping.load(Relaxed) {
                let Some(leader) = server.leader() else { return };
                match server.say_to(leader, HasOrphan { inode, held }, WORD).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(%error, inode = inode.0, "the leader was not told of an orphan"),
                }
                server.env.sleep(TELL_AGAIN).await;
            }
        });
    }
}
