//! Sealing files and unsealing them: what is in the way, and who reads sealed files without asking
//! (docs/design/0015-sealed-files.md).
//!
//! Promises: what was written before a file is sealed is in it, and while it is being sealed nobody gets the right to write. Of who has
//! said that it holds a sealed file it is known until it has said that it does not, or its session has ended; until then
//! the file is not unsealed. Nobody waits for longer than it asked for, and is told who is in the way.

use crate::call::Call;
use crate::leases::Leases;
use crate::server::MetaServer;
use crate::settling::{UntilSettled, is_open};
use braid_api::meta::{HoldSealed, LeaveSealed, MetaAnswer, MetaRequest, SealFile};
use braid_api::{Code, Context, Error, Result};
use braid_types::{Attr, InodeId, SessionId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A file that was closed a moment ago may not be known to be closed yet: its kernel says so behind the close.
const CLOSING: Duration = Duration::from_secs(1);
/// Before it is looked again whether a file is closed.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Before a session is told again that it is in the way: the message may have been lost with its connection.
const TELL_AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Seals {
    /// Being sealed or unsealed, so many times: nobody gets the right to write, nor begins to read without asking.
    under_way: BTreeMap<InodeId, u32>,
    /// Who reads a sealed file without asking, and the number of its last hold.
    held: BTreeMap<InodeId, BTreeMap<SessionId, u64>>,
}

impl Seals {
    pub fn hold(&mut self, session: SessionId, inode: InodeId, number: u64) {
        let last = self.held.entry(inode).or_default().entry(session).or_default();
        *last = number.max(*last);
    }

    fn leave(&mut self, session: SessionId, inode: InodeId, number: u64) {
        if let Some(held) = self.held.get_mut(&inode) {
            held.retain(|of, last| *of != session || *last > number);
            if held.is_empty() {
                self.held.remove(&inode);
            }
        }
    }

    /// Of files that another server answers for from now on nothing is known here.
    pub fn keep(&mut self, is_here: impl Fn(InodeId) -> bool) {
        self.held.retain(|inode, _| is_here(*inode));
    }

    pub fn session_over(&mut self, session: SessionId) {
        self.held.retain(|_, held| {
            held.remove(&session);
            !held.is_empty()
        });
    }
}

/// A file is being sealed or unsealed, until dropped.
struct UnderWay(Arc<Leases>, InodeId);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if let Some(count) = state.seals.under_way.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                state.seals.under_way.remove(&self.1);
            }
        }
        drop(state);
        self.0.seals.notify_waiters();
    }
}

impl Leases {
    fn begin_seal(self: &Arc<Self>, inode: InodeId) -> UnderWay {
        *self.state.lock().seals.under_way.entry(inode).or_default() += 1;
        UnderWay(self.clone(), inode)
    }

    /// For who wants to write: returns when the file is not being sealed, and then its row says whether it is.
    pub(crate) async fn until_not_being_sealed(&self, inode: InodeId) -> Result<()> {
        let end = self.env.clock.now() + SealFile::WAIT_MAX + self.limits.longest_wait_for_a_file();
        loop {
            let changed = self.seals.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the look, so that nothing between the two is missed.
            changed.as_mut().enable();
            if !self.state.lock().seals.under_way.contains_key(&inode) {
                return Ok(());
            }
            let left = end.since(self.env.clock.now());
            if left.is_zero() || self.env.timeout(left, changed).await.is_err() {
                let cause = "it is being sealed or unsealed";
                return Err(Error::new(Code::Busy, format_args!("inode {inode}"), cause));
            }
        }
    }

    fn writers(&self, inode: InodeId, besides: SessionId) -> Vec<SessionId> {
        self.state.lock().holder.writers(inode).filter(|session| *session != besides).collect()
    }

    /// False if the session is not to hold it now.
    fn hold_sealed(&self, session: SessionId, inode: InodeId, number: u64) -> bool {
        let mut state = self.state.lock();
        if state.seals.under_way.contains_key(&inode) || !state.caching.contains_key(&session) {
            return false;
        }
        state.seals.hold(session, inode, number);
        true
    }

    pub(crate) fn leave_sealed(&self, session: SessionId, leave: &LeaveSealed) {
        let mut state = self.state.lock();
        leave.holds.iter().for_each(|(inode, number)| state.seals.leave(session, *inode, *number));
        drop(state);
        self.seals.notify_waiters();
    }

    /// Tells who holds the file that it is to be unsealed. Gives them.
    fn ask_to_leave(&self, inode: InodeId) -> Vec<SessionId> {
        let mut state = self.state.lock();
        let held: Vec<SessionId> = state.seals.held.get(&inode).into_iter().flatten().map(|(of, _)| *of).collect();
        for session in &held {
            state.tell_to_leave(*session, inode);
        }
        held
    }
}

impl MetaServer {
    pub(crate) async fn seal_file(
        &self,
        call: &mut Call,
        cx: Context,
        number: u8,
        mut seal: SealFile,
    ) -> Result<MetaAnswer> {
        self.hint(&mut seal.inode);
        let (session, inode) = (cx.token.session, seal.inode.id);
        let wait = Duration::from_millis(seal.wait_ms.into()).min(SealFile::WAIT_MAX);
        let under_way = self.leases.begin_seal(inode);
        match seal.sealed {
            true => self.until_nobody_writes(session, inode, wait.min(CLOSING)).await?,
            false => self.until_nobody_holds(inode, wait).await?,
        }
        // Else a hold could be granted that the row does not allow any more.
        let under_way = UntilSettled::new(self, "a seal that was given up", under_way);
        let done = self.mutate(call, cx, number, MetaRequest::SealFile(seal), None).await;
        if !done.as_ref().is_err_and(is_open) {
            drop(under_way.end());
        }
        done
    }

    /// Others have stored what they wrote, and none of them has the file open for writing.
    async fn until_nobody_writes(&self, session: SessionId, inode: InodeId, wait: Duration) -> Result<()> {
        let end = self.env.clock.now() + wait;
        self.leases.take_to_change(session, inode).await?;
        loop {
            let writers = self.leases.writers(inode, session);
            if writers.is_empty() {
                return Ok(());
            }
            if end <= self.env.clock.now() {
                return Err(self.in_the_way(inode, "is open for writing", &writers));
            }
            self.env.sleep(LOOK_AGAIN).await;
        }
    }

    async fn until_nobody_holds(&self, inode: InodeId, wait: Duration) -> Result<()> {
        // Who held it before this start has said so since, the mount that asks among them: it may hold it for another program.
        self.leases.until_said(None, inode).await?;
        let end = self.env.clock.now() + wait;
        loop {
            let changed = self.leases.seals.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the look, so that nothing between the two is missed.
            changed.as_mut().enable();
            let held = self.leases.ask_to_leave(inode);
            if held.is_empty() {
                return Ok(());
            }
            self.end_silent_of(&held);
            let left = end.since(self.env.clock.now());
            if left.is_zero() {
                return Err(self.in_the_way(inode, "is open and read without asking (passthrough)", &held));
            }
            let _ = self.env.timeout(left.min(TELL_AGAIN), changed).await;
        }
    }

    /// A session whose process has gone says nothing any more, and its kernel has closed everything: it ends as one that has what
    /// others wait for.
    fn end_silent_of(&self, sessions: &[SessionId]) {
        let now = self.env.clock.now();
        let is_silent = |id: &&SessionId| {
            let silent = self.sessions.with(**id, |s| now.since(s.seen) > self.config.session_lease);
            silent.unwrap_or_default()
        };
        let silent: Vec<SessionId> = sessions.iter().filter(is_silent).copied().collect();
        if !silent.is_empty() {
            self.leases.state.lock().to_end.extend(silent);
            self.leases.to_end.notify_one();
        }
    }

    fn in_the_way(&self, inode: InodeId, how: &str, sessions: &[SessionId]) -> Error {
        let name = |id: &SessionId| {
            let known = self.sessions.with(*id, |s| format!("session {id} ({}, host {})", s.description, s.host));
            known.unwrap_or_else(|| format!("session {id}"))
        };
        let names: Vec<String> = sessions.iter().map(name).collect();
        let cause = format!("it {how} by {}; close it there", names.join(", "));
        Error::new(Code::TextBusy, format_args!("inode {inode}"), cause)
    }

    pub(crate) async fn hold_sealed(&self, session: SessionId, mut hold: HoldSealed) -> Result<Option<Attr>> {
        self.hint(&mut hold.inode);
        let (inode, number) = (hold.inode.id, hold.number);
        // Before the row is read: whoever unseals it from here on finds this.
        if !self.leases.hold_sealed(session, inode, number) {
            return Ok(None);
        }
        let sealed = self.ask(&mut Call::new(None), inode, hold).await;
        if !matches!(sealed, Ok(Some(_))) {
            self.leases.leave_sealed(session, &LeaveSealed { holds: vec![(inode, number)] });
        }
        sealed
    }
}
