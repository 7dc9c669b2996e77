//! File leases at the server: who may cache or change a file's bytes (docs/design/0005-leases.md *Files*).
//!
//! Promises: what a request says of a file's size, times and chunks is read after everybody who could write it has stored what
//! it knows; whoever is granted the right to write has everybody else's pages dropped. A session that is silent is ended, data
//! servers included, before what it held is given to another; nobody waits for longer than
//! [`Limits::longest_wait_for_a_file`](braid_lease::Limits::longest_wait_for_a_file).

use crate::background::Leaves;
use crate::call::Call;
use crate::leases::{Leases, State};
use crate::locks::held_by;
use crate::server::MetaServer;
use braid_api::lease::{Order, YieldFiles};
use braid_api::meta::{FileLease, FileWant, LeaseState, Lookup, MetaAnswer, MetaRequest, WriteHandles};
use braid_api::{Code, Error, Result, trace};
use braid_env::{Env, Monotonic};
use braid_lease::{AskId, Command, Event, Generation, Handles, LockAnswer, Mode, Refusal, Waits, Want};
use braid_types::{FileKind, InodeId, LeaseGen, SessionId};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;

/// Before a session that could not be ended is tried again.
const END_AGAIN: Duration = Duration::from_millis(500);

/// What became of a request for a file.
#[derive(Clone, Copy, Debug)]
pub enum FileAnswer {
    Granted(FileLease),
    /// Size and times are in the row.
    Fresh,
    /// To a question about a lock.
    Lock(LockAnswer),
    Refused(Refusal),
}

impl FileAnswer {
    pub fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Grant { mode, generation, token, locks, .. } => {
                Some(FileAnswer::Granted(lease_of(*mode, *generation, *token, *locks)))
            }
            Command::Fresh { .. } => Some(FileAnswer::Fresh),
            Command::Locked { answer, .. } => Some(FileAnswer::Lock(*answer)),
            Command::Refuse { why, .. } => Some(FileAnswer::Refused(*why)),
            _ => None,
        }
    }
}

fn state_of(mode: Mode) -> LeaseState {
    match mode {
        Mode::None => LeaseState::None,
        Mode::Shared => LeaseState::Shared,
        Mode::Sync => LeaseState::Sync,
        Mode::Exclusive => LeaseState::Exclusive,
    }
}

pub fn held_of(state: LeaseState) -> Mode {
    match state {
        LeaseState::None => Mode::None,
        LeaseState::Shared => Mode::Shared,
        LeaseState::Sync => Mode::Sync,
        LeaseState::Exclusive => Mode::Exclusive,
    }
}

fn want_of(want: FileWant) -> Want {
    match want {
        FileWant::Read => Want::Read,
        FileWant::ReadDirect => Want::Direct,
        FileWant::WriteDirect => Want::Write,
        FileWant::Alone => Want::Once,
    }
}

fn lease_of(mode: Mode, generation: Generation, token: Generation, locks: bool) -> FileLease {
    FileLease { state: state_of(mode), generation: LeaseGen(generation.0), token: LeaseGen(token.0), locks }
}

/// What a session is told of a file.
pub fn order_of(command: &Command) -> Option<Order> {
    match *command {
        Command::Recall { inode, generation, token, to, locks, .. } => Some(Order::Recall {
            inode,
            generation: LeaseGen(generation.0),
            token: LeaseGen(token.0),
            to: state_of(to),
            locks,
        }),
        _ => None,
    }
}

/// What a session has said it holds, and holds from now on under other numbers.
pub fn regranted(command: &Command) -> Option<(InodeId, FileLease)> {
    match *command {
        Command::Grant { ask: None, inode, mode, generation, token, locks, .. } => {
            Some((inode, lease_of(mode, generation, token, locks)))
        }
        _ => None,
    }
}

/// A request for a file; given up by its caller it is taken back.
struct Asked<'a> {
    leases: &'a Leases,
    id: Option<u64>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let mut state = self.leases.state.lock();
            state.traces.remove(&id);
            state.asking.remove(&id);
            self.leases.on(&mut state, Event::Abandon { ask: AskId(id) });
        }
    }
}

impl Leases {
    /// Asks the holder, and waits for its answer.
    async fn ask_for_file(&self, inode: InodeId, event: impl FnOnce(AskId) -> Event) -> Result<FileAnswer> {
        let (mut asked, waits) = {
            let mut state = self.state.lock();
            state.last += 1;
            let id = state.last;
            let (tell, told) = oneshot::channel();
            state.asking.insert(id, tell);
            state.traces.insert(id, trace::current());
            let asked = Asked { leases: self, id: Some(id) };
            self.on(&mut state, event(AskId(id)));
            (asked, told)
        };
        // The holder ends each wait within this; the rest is for a server that is busy.
        let patience = self.limits.longest_wait_for_a_file() + self.limits.session_lease;
        match self.env.timeout(patience, waits).await {
            Ok(Ok(answer)) => {
                if let Some(id) = asked.id.take() {
                    self.state.lock().traces.remove(&id);
                }
                Ok(answer)
            }
            Ok(Err(_)) => {
                Err(Error::new(Code::NotServing, format_args!("inode {inode}"), "this server is about to stop"))
            }
            Err(_) => {
                let who = self.who_has(inode);
                Err(Error::new(Code::Busy, format_args!("inode {inode}"), format!("waits until {who} give it up")))
            }
        }
    }

    fn who_has(&self, of: InodeId) -> String {
        let waits = self.state.lock().holder.waits();
        let sessions = waits.into_iter().find_map(|wait| match wait {
            Waits::File { inode, sessions, .. } if inode == of => Some(sessions),
            _ => None,
        });
        let names: Vec<String> = sessions.unwrap_or_default().iter().map(|(id, _)| format!("session {id}")).collect();
        if names.is_empty() { "others".to_owned() } else { names.join(", ") }
    }

    /// The session may from now on do with the file's bytes what it wants to. Waits until others have given up what is in its
    /// way. None for a session that does not cache, or whose term is over.
    pub async fn take_file(&self, session: SessionId, inode: InodeId, want: Want) -> Result<FileLease> {
        if !self.state.lock().caching.contains_key(&session) {
            return Ok(FileLease::default());
        }
        match self.ask_for_file(inode, |ask| Event::Take { ask, session, inode, want }).await? {
            FileAnswer::Granted(lease) => Ok(lease),
            FileAnswer::Refused(Refusal::NotHere) => {
                let cause = "another metadata server holds its slot";
                Err(Error::new(Code::HeldElsewhere, format_args!("inode {inode}"), cause))
            }
            FileAnswer::Fresh | FileAnswer::Lock(_) | FileAnswer::Refused(_) => Ok(FileLease::default()),
        }
    }

    /// A data server begins anew, or a chain goes on with another owner. Whoever writes a file beside others finishes what it has under
    /// way before any of them begins something new; what is given tells the data servers which leases are of before.
    pub fn end_sync(&self) -> LeaseGen {
        let mut state = self.state.lock();
        self.on(&mut state, Event::EndSync);
        state.sync_floor = LeaseGen(state.holder.last_number().0);
        state.sync_floor
    }

    /// Numbers given out from here on are above this one, which every data server is about to be told.
    pub(crate) fn raise_sync_floor(&self, floor: LeaseGen) {
        let mut state = self.state.lock();
        self.on(&mut state, Event::Above { floor: Generation(floor.0) });
        state.sync_floor = state.sync_floor.max(floor);
    }

    pub fn sync_floor(&self) -> LeaseGen {
        self.state.lock().sync_floor
    }

    /// What a session has open for writing: it decides whether several may write at once.
    pub fn heard_handles(&self, session: SessionId, inode: InodeId, said: WriteHandles) {
        let WriteHandles { seq, cached, direct } = said;
        let mut state = self.state.lock();
        if !state.caching.contains_key(&session) {
            return;
        }
        state.last += 1;
        let ask = AskId(state.last);
        let handles = Handles { seq, open: cached || direct, cached_write: cached, sync_write: direct };
        self.on(&mut state, Event::Opened { ask, session, inode, handles });
    }

    /// A question about a lock.
    pub async fn ask_for_lock(
        &self,
        inode: InodeId,
        event: impl FnOnce(AskId) -> Event,
    ) -> Result<std::result::Result<LockAnswer, Refusal>> {
        Ok(match self.ask_for_file(inode, event).await? {
            FileAnswer::Lock(answer) => Ok(answer),
            FileAnswer::Refused(why) => Err(why),
            FileAnswer::Granted(_) | FileAnswer::Fresh => Ok(LockAnswer::Free),
        })
    }

    /// The same for a file that nobody else knows of, at once.
    pub fn take_new_file(&self, session: SessionId, inode: InodeId) -> FileLease {
        let mut state = self.state.lock();
        if !state.caching.contains_key(&session) {
            return FileLease::default();
        }
        state.last += 1;
        let ask = AskId(state.last);
        let commands = self.on(&mut state, Event::Take { ask, session, inode, want: Want::Write });
        match commands.iter().find_map(FileAnswer::of) {
            Some(FileAnswer::Granted(lease)) => lease,
            Some(_) => FileLease::default(),
            None => {
                self.on(&mut state, Event::Abandon { ask });
                FileLease::default()
            }
        }
    }

    /// What was granted for a file that was not made after all.
    fn no_new_file(&self, session: SessionId, inode: InodeId, lease: FileLease) {
        if lease.state != LeaseState::None {
            let generation = Generation(lease.generation.0);
            let event = Event::Yield { session, inode, generation, mode: Mode::None, locks: Vec::new() };
            self.on(&mut self.state.lock(), event);
        }
    }

    /// The same for a request that changes bytes by itself. Who may write already goes ahead, also while others ask for the file: its
    /// client gives the file up when this is done, so that waiting for them here would be waiting for itself.
    pub(crate) async fn take_to_change(&self, session: SessionId, inode: InodeId) -> Result<()> {
        if self.owner(inode) == Some(session) {
            return Ok(());
        }
        // Held without being told: the next to want it has it back for one message.
        let taken = self.take_file(session, inode, Want::Once).await?;
        if taken.state == LeaseState::None && self.state.lock().caching.contains_key(&session) {
            // Whoever writes it has given nothing up: what it has not sent would come over the change.
            let cause = "the session has no term at the moment, so nobody has given the file up for it";
            return Err(Error::new(Code::Busy, format_args!("inode {inode}"), cause));
        }
        Ok(())
    }

    pub(crate) fn holders(&self, inode: InodeId) -> Vec<SessionId> {
        self.state.lock().holder.holders(inode).collect()
    }

    pub(crate) fn owner(&self, inode: InodeId) -> Option<SessionId> {
        self.state.lock().holder.owner(inode)
    }

    /// A session that holds nothing of the file could read it, nobody waits for it, and it takes nothing from anybody.
    pub(crate) fn may_be_read(&self, session: SessionId, inode: InodeId) -> bool {
        self.takes_nothing(inode) && self.state.lock().holder.holders(inode).all(|other| other != session)
    }

    /// To read the file takes nothing from anybody, and waits for nobody.
    pub(crate) fn takes_nothing(&self, inode: InodeId) -> bool {
        let holder = &self.state.lock().holder;
        holder.may_own(inode).count() == 0 && holder.is_only_read(inode)
    }

    /// Another session has size and times that are not in the row; or may have, and has not said so since this server began.
    pub fn is_owned_elsewhere(&self, session: SessionId, inode: InodeId) -> bool {
        let state = self.state.lock();
        state.holder.owner(inode).into_iter().chain(state.holder.may_own(inode)).any(|owner| owner != session)
    }

    /// Returns when the row says what others know of size and times.
    pub async fn refresh_file(&self, session: SessionId, inode: InodeId) -> Result<()> {
        if !self.is_owned_elsewhere(session, inode) {
            return Ok(());
        }
        // Also for a session that has no term yet, which is told so by the holder and goes ahead.
        self.until_said(Some(session), inode).await?;
        self.ask_for_file(inode, |ask| Event::Refresh { ask, session, inode }).await.map(drop)
    }

    /// Returns when every session of before this start, but this one, has said whether it owns the file, or has ended.
    pub(crate) async fn until_said(&self, besides: Option<SessionId>, inode: InodeId) -> Result<()> {
        let end = self.env.clock.now() + self.limits.longest_wait_for_a_file() + self.limits.session_lease;
        let unsaid = |state: &State| state.holder.may_own(inode).find(|other| Some(*other) != besides);
        self.until_none(&format!("inode {inode}"), end, unsaid).await
    }

    /// The same of every session, and all that it may hold here.
    pub(crate) async fn until_all_said(&self, end: Monotonic) -> Result<()> {
        self.until_none("what is held here", end, |state| state.holder.has_not_said()).await
    }

    async fn until_none(&self, of: &str, end: Monotonic, unsaid: impl Fn(&State) -> Option<SessionId>) -> Result<()> {
        loop {
            let said = self.said.notified();
            let mut said = std::pin::pin!(said);
            // Registered before the look, so that nothing between the two is missed.
            said.as_mut().enable();
            let unsaid = {
                let state = self.state.lock();
                if state.stopped {
                    return Err(Error::new(Code::NotServing, of, "this server is about to stop"));
                }
                unsaid(&state)
            };
            let Some(other) = unsaid else { return Ok(()) };
            let left = end.since(self.env.clock.now());
            if left.is_zero() || self.env.timeout(left, said).await.is_err() {
                let cause = format!("waits until session {other} says what it holds since this server began");
                return Err(Error::new(Code::Busy, of, cause));
            }
        }
    }

    pub fn yielded(&self, session: SessionId, yielded: &YieldFiles) {
        if yielded.member != self.member {
            return;
        }
        // Before what they make room for is granted.
        for (inode, handles) in &yielded.handles {
            self.heard_handles(session, *inode, *handles);
        }
        let mut state = self.state.lock();
        self.locks_done(&mut state, session, yielded.locks_done);
        for (inode, generation, to) in &yielded.files {
            let (inode, generation, mode) = (*inode, Generation(generation.0), held_of(*to));
            let of_file = yielded.locks.iter().filter(|(of, _)| *of == inode);
            let locks = of_file.flat_map(|(_, locks)| held_by(session, locks)).collect();
            let commands = self.on(&mut state, Event::Yield { session, inode, generation, mode, locks });
            if commands.iter().any(|command| matches!(command, Command::LocksLost { .. })) {
                // Nobody is granted a lock while this session grants them.
                tracing::error!(%session, inode = inode.0, "locks were granted twice");
            }
        }
    }
}

/// A file that is about to be made, and belongs to its maker before anybody else can know of it.
pub(crate) struct NewFile<'a> {
    leases: &'a Leases,
    session: SessionId,
    inode: InodeId,
    lease: FileLease,
}

impl<'a> NewFile<'a> {
    pub fn take(leases: &'a Leases, session: SessionId, inode: InodeId) -> Self {
        NewFile { leases, session, inode, lease: leases.take_new_file(session, inode) }
    }

    /// The answer says what is granted, if it is this file that was made.
    pub fn made(mut self, mut answer: MetaAnswer) -> MetaAnswer {
        if let MetaAnswer::CreateFile(made) | MetaAnswer::CreateTemporary(made) = &mut answer
            && made.attr.id == self.inode
        {
            made.lease = std::mem::take(&mut self.lease);
        }
        answer
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        self.leases.no_new_file(self.session, self.inode, self.lease);
    }
}

impl MetaServer {
    /// Before a request's rows are read or changed: others have stored what they know of the file, and where the request
    /// changes bytes they have dropped their pages. Gives what an open is granted.
    pub(crate) async fn settle_file(&self, session: SessionId, request: &MetaRequest) -> Result<FileLease> {
        match request {
            MetaRequest::OpenFile(m) => {
                let want = if m.truncate { Want::Once } else { want_of(m.want) };
                if matches!(want, Want::Once | Want::Write) {
                    self.leases.until_not_being_sealed(m.inode.id).await?;
                }
                let lease = match self.is_mover(session) {
                    true => self.take_if_given(session, m.inode.id, want).await?,
                    false => self.leases.take_file(session, m.inode.id, want).await?,
                };
                if lease.state == LeaseState::None {
                    self.refresh_file(session, m.inode.id).await?;
                }
                return Ok(lease);
            }
            MetaRequest::ChangeAttr(m) if m.size.is_some() => {
                self.take_to_change(session, m.inode.id).await?;
            }
            // The new times are to be the last word.
            MetaRequest::ChangeAttr(m) if m.mtime.is_some() => self.refresh_file(session, m.inode.id).await?,
            MetaRequest::PutFile(m) if m.replace => {
                let lookup = Lookup { parent: m.parent.id, name: m.name.clone() };
                let found = self.ask(&mut Call::new(None), m.parent.id, lookup).await;
                // Whatever is wrong with the place is said by the request itself.
                if let Some(attr) = found.ok().and_then(|found| found.attr) {
                    self.take_to_change(session, attr.id).await?;
                }
            }
            MetaRequest::GetAttr(m)
                if self.foreign(m.inode.id).is_some() || self.leases.is_owned_elsewhere(session, m.inode.id) =>
            {
                // Whether it is a file has to be read only after a start of this server, and what is wrong is said by the request itself.
                let is_owned = self.leases.owner(m.inode.id).is_some();
                let found =
                    if is_owned { None } else { self.ask(&mut Call::new(None), m.inode.id, m.clone()).await.ok() };
                if is_owned || found.is_some_and(|found| found.attr.kind == FileKind::File) {
                    self.refresh_file(session, m.inode.id).await?;
                }
            }
            _ => {}
        }
        Ok(FileLease::default())
    }

    /// Ends sessions that are silent and have what others wait for.
    pub(crate) fn end_silent_sessions(self: &Arc<Self>) {
        let (weak, leases, env): (_, _, Env) = (Arc::downgrade(self), self.leases.clone(), self.env.clone());
        self.env.spawn("ending sessions", async move {
            loop {
                let due: Vec<SessionId> = {
                    let state = leases.state.lock();
                    if state.stopped {
                        return;
                    }
                    state.to_end.iter().copied().collect()
                };
                if due.is_empty() {
                    leases.to_end.notified().await;
                    continue;
                }
                let Some(server) = weak.upgrade() else { return };
                let mut all = !server.stopping.load(Relaxed);
                for session in due {
                    all &= server.recovery.is_open() && server.end_silent(session).await;
                }
                drop(server);
                if !all {
                    env.sleep(END_AGAIN).await;
                }
            }
        });
    }

    /// Ends a session whose process has gone. What it held is given to others only when it has ended: where that fails it is tried
    /// until it does, whether anybody asks again or not.
    pub(crate) async fn end_or_try_again(&self, session: SessionId, leaves: Leaves) -> Result<()> {
        let ended = self.end_session(session, leaves).await;
        if ended.is_err() {
            self.leases.state.lock().to_end.insert(session);
            self.leases.to_end.notify_one();
        }
        ended
    }

    async fn end_silent(&self, session: SessionId) -> bool {
        if !self.leads() {
            let ended = self.end_at_leader(session).await;
            if let Err(error) = &ended {
                tracing::debug!(session = session.0, %error, "the leader cannot end it yet");
            }
            return ended.is_ok();
        }
        tracing::warn!(
            session = session.0,
            "session is silent or has gone, and others wait for what it holds: it ends"
        );
        match self.end_session(session, Leaves::Silently).await {
            Ok(()) => {
                // Also one that had ended already.
                self.leases.ended(session);
                true
            }
            Err(error) => {
                tracing::warn!(session = session.0, %error, "cannot end it yet");
                false
            }
        }
    }
}
