//! Ends of sessions, which take place at every server: the leader tells the others, and they tell it who is silent.

use super::WORD;
use crate::background::Leaves;
use crate::server::MetaServer;
use braid_api::meta::{Ends, EndsAt, HasOrphan, IsSilent};
use braid_api::{Code, Error, Result};
use braid_env::Monotonic;
use braid_types::{InodeId, MemberId, SessionId};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// For the end of a session: every data server is told, and its term may have to pass (0005, *Time*).
const END_MAX: Duration = Duration::from_secs(40);
/// Before the leader is told of an orphan again.
const TELL_AGAIN: Duration = Duration::from_millis(500);

impl MetaServer {
    /// At a member: the leader says how far the session's end is.
    pub(super) fn ends_here(&self, m: EndsAt) -> Result<u64> {
        if self.leader() != Some(m.from) {
            return Err(super::elsewhere("the end of a session", "another leads by now"));
        }
        match m.ends {
            Ends::Gone => self.leases.gone(m.session),
            Ends::Begins => return Ok(self.leases.ending(m.session).as_millis() as u64 + 1),
            Ends::Over => self.is_over_here(m.session),
        }
        Ok(0)
    }

    fn is_over_here(&self, session: SessionId) {
        self.leases.ending(session);
        self.sessions.remove(session);
        self.leases.ended(session);
    }

    /// All others are told, and have heard it. Gives for how long the session may show something there.
    pub(crate) async fn ends_elsewhere(&self, session: SessionId, ends: Ends) -> Result<Duration> {
        let Some(beside) = self.beside.as_ref().filter(|beside| beside.leads) else { return Ok(Duration::ZERO) };
        let from = beside.others.me();
        let others = beside.all_others().ok_or_else(|| {
            Error::new(
                Code::Busy,
                format_args!("session {session}"),
                "it is not known yet who serves and has to hear of its end",
            )
        })?;
        let mut longest = Duration::ZERO;
        for to in others {
            match self.say_to(to, EndsAt { to, from, session, ends }, WORD).await {
                Ok(ms) => longest = longest.max(Duration::from_millis(ms)),
                // What it granted is waited for by who asks: see `until_over_everywhere`.
                Err(_) if beside.others.roster().is_some_and(|roster| !roster.has(to)) => {}
                Err(error) => {
                    let cause = format!("it is not told that session {session} ends: {error}");
                    return Err(Error::new(Code::Unreachable, format_args!("metadata server {to}"), cause));
                }
            }
        }
        Ok(longest)
    }

    /// The session is renewed nowhere from now on, and shows nothing anywhere when this returns: those who serve say for how long it may there, and
    /// of one that has gone it is a session's lease from when that was no member any more. To be done before its row says that it has ended, which
    /// whoever takes slots over looks at.
    pub(crate) async fn until_over_everywhere(&self, session: SessionId) -> Result<()> {
        let Some(beside) = &self.beside else {
            self.leases.until_over(session).await;
            return Ok(());
        };
        // Of a process that has gone there is nobody who shows anything.
        let granted = || match self.sessions.is_gone(session) {
            true => Monotonic::default(),
            false => *beside.last_went.lock() + self.config.session_lease,
        };
        let mut end = Monotonic::default();
        loop {
            let epoch = self.leases.epoch();
            end = end.max(self.env.clock.now() + self.ends_elsewhere(session, Ends::Begins).await?);
            let left = end.max(granted()).since(self.env.clock.now());
            if !left.is_zero() {
                self.env.sleep(left).await;
            }
            self.leases.until_over(session).await;
            // Who has come meanwhile was not told, and one that has gone is waited for.
            if self.leases.epoch() == epoch && granted() <= self.env.clock.now() {
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
        let leads = || self.leader() == Some(leader);
        self.say_while(leader, IsSilent { session }, END_MAX, leads).await?;
        // One that the leader knows nothing of may still show what it was granted here.
        self.leases.until_over(session).await;
        self.is_over_here(session);
        Ok(())
    }

    /// At the leader: a member has gone, perhaps before it had told of those that it had made.
    pub(super) fn look_for_orphans(&self) {
        let Some(server) = self.this.upgrade().filter(|server| server.leads()) else { return };
        self.env.spawn("orphans of a member that went", async move {
            while !server.stopping.load(Relaxed) {
                match server.read_orphans().await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(%error, "the orphans of a member that went are not known yet"),
                }
                server.env.sleep(TELL_AGAIN).await;
            }
        });
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
