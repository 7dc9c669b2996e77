//! After a crash: what sessions keep of answers that came before they were durable is collected and executed again, in
//! the order the predecessor had given it, before anything else is admitted (design.md §4 *Early reply*).
//!
//! Waited for is who is on record as keeping something ([`SessionRow::keeps`]): mostly nobody, as the record is taken
//! back a moment after a session's last change.
//!
//! [`SessionRow::keeps`]: braid_meta_namespace::rows::SessionRow

use crate::server::MetaServer;
use braid_api::admin::Waiting;
use braid_api::meta::{AdminQuery, EarlyMark, Kept, MetaRequest, Replay, ReplayAnswer};
use braid_api::{Code, Context, Error, Result};
use braid_env::Monotonic;
use braid_meta_engine::{Early, Engine};
use braid_meta_namespace::ops::session;
use braid_types::{RequestId, SessionId, Token};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use tokio::sync::Notify;

#[derive(Default)]
struct State {
    since: Monotonic,
    /// Who may keep something and has not sent all of it, with its description.
    waiting: BTreeMap<SessionId, String>,
    sent: BTreeSet<SessionId>,
    kept: BTreeMap<(u64, SessionId, RequestId), Kept>,
    /// It is being executed: too late for more.
    closed: bool,
}

/// The door that is shut until all that was kept is executed and durable.
#[derive(Default)]
pub struct Recovery {
    open: AtomicBool,
    state: Mutex<State>,
    changed: Notify,
    executed: AtomicU64,
    failed: AtomicU64,
}

impl Recovery {
    /// Nothing is admitted until each of these has sent what it keeps, or has been given up.
    pub fn begin(&self, waiting: BTreeMap<SessionId, String>, since: Monotonic) {
        let mut state = self.state.lock();
        self.open.store(waiting.is_empty(), SeqCst);
        (state.waiting, state.since) = (waiting, since);
    }

    pub fn is_open(&self) -> bool {
        self.open.load(SeqCst)
    }

    /// May this be answered now? Before the door is open that is so of what reads and changes no rows that kept changes
    /// may concern.
    pub fn admit(&self, request: &MetaRequest) -> Result<()> {
        if self.is_open() {
            return Ok(());
        }
        match request {
            MetaRequest::OpenSession(_)
            | MetaRequest::RenewSession(_)
            | MetaRequest::CloseSession(_)
            | MetaRequest::EndSession(_)
            | MetaRequest::Replay(_)
            | MetaRequest::GetServers(_)
            | MetaRequest::RegisterServer(_)
            | MetaRequest::Heartbeat(_)
            | MetaRequest::Listen(_)
            | MetaRequest::Acknowledge(_)
            | MetaRequest::Reassert(_)
            | MetaRequest::ServerSays(_)
            | MetaRequest::AdminQuery(AdminQuery::Status | AdminQuery::Sessions | AdminQuery::Why) => Ok(()),
            _ => Err(self.error()),
        }
    }

    fn error(&self) -> Error {
        let state = self.state.lock();
        let cause = match state.waiting.iter().next() {
            Some((id, who)) => {
                format!("it waits for what {} sessions keep, of them {id}: {who}", state.waiting.len())
            }
            None => format!("{} changes that clients kept are being executed", state.kept.len()),
        };
        Error::new(Code::Recovering, "the metadata server has started again", cause)
    }

    /// Takes in a page of what a session keeps. `None`: it is not (any more) waited for.
    fn take(&self, session: SessionId, replay: &Replay) -> Option<Result<ReplayAnswer>> {
        let mut state = self.state.lock();
        if self.is_open() || !(state.waiting.contains_key(&session) || state.sent.contains(&session)) {
            return None;
        }
        if state.closed {
            drop(state);
            return Some(Err(self.error()));
        }
        for kept in &replay.kept {
            state.kept.insert((kept.mark.number, session, kept.request), kept.clone());
        }
        if replay.last && state.waiting.remove(&session).is_some() {
            state.sent.insert(session);
            drop(state);
            self.changed.notify_one();
        }
        Some(Ok(ReplayAnswer::default()))
    }

    /// The session has ended or is to end: nothing of it is taken any more.
    fn give_up(&self, session: SessionId) {
        let mut state = self.state.lock();
        state.waiting.remove(&session);
        if !state.sent.contains(&session) {
            // Half of what somebody keeps is worse than nothing: it would be no beginning of what was done.
            state.kept.retain(|(_, of, _), _| *of != session);
        }
        drop(state);
        self.changed.notify_one();
    }

    pub fn waiting(&self, now: Monotonic) -> Vec<Waiting> {
        let state = self.state.lock();
        let since_ms = now.since(state.since).as_millis() as u64;
        let one = |(id, who): (&SessionId, &String)| Waiting {
            who: "start of the metadata server".to_owned(),
            for_what: format!("what session {id} keeps of answers that were not durable: {who}"),
            since_ms,
            holder: Some(*id),
            ..Waiting::default()
        };
        state.waiting.iter().map(one).collect()
    }

    /// Changes executed again since the start, and those of them that failed: a failure means that an answer is lost.
    pub fn repeated(&self) -> (u64, u64) {
        (self.executed.load(SeqCst), self.failed.load(SeqCst))
    }
}

impl MetaServer {
    /// Collects, executes, opens.
    pub(crate) fn recover(self: Arc<Self>) {
        let env = self.env.clone();
        env.spawn("recovery", async move {
            for waiting in self.recovery.waiting(self.env.clock.now()) {
                tracing::info!("nothing new is admitted yet: waiting for {}", waiting.for_what);
            }
            self.collect().await;
            while let Err(error) = self.execute_kept().await {
                if self.stopping.load(SeqCst) || error.code == Code::NotServing {
                    return;
                }
                tracing::warn!(%error, "what clients kept is not durable yet");
                self.env.sleep(self.config.housekeeping).await;
            }
        });
    }

    async fn collect(&self) {
        let most = self.config.session_expiry;
        let patience = self.config.gather.max(self.config.session_lease).min(most);
        let end = self.env.clock.now() + patience;
        loop {
            let changed = self.recovery.changed.notified();
            let left = end.since(self.env.clock.now());
            let waiting: Vec<SessionId> = self.recovery.state.lock().waiting.keys().copied().collect();
            if waiting.is_empty() || self.stopping.load(SeqCst) {
                return;
            }
            if left.is_zero() {
                for id in waiting {
                    tracing::warn!(session = id.0, "it has not sent what it keeps in time, and ends");
                    self.abandon(id);
                }
                return;
            }
            let _ = self.env.timeout(left, changed).await;
        }
    }

    /// The session is to end, as soon as that is possible, and nobody is answered under it any more.
    pub(crate) fn abandon(&self, id: SessionId) {
        self.sessions.abandon(id);
        self.recovery.give_up(id);
    }

    /// Can be repeated: what ran is known by its request id.
    async fn execute_kept(&self) -> Result<()> {
        let kept = {
            let mut state = self.recovery.state.lock();
            state.closed = true;
            state.kept.clone()
        };
        let count = kept.len();
        for ((number, session, request), kept) in kept {
            let told = kept.told;
            match self.repeat(session, kept).await {
                Ok(()) => {
                    self.recovery.executed.fetch_add(1, SeqCst);
                }
                Err(error) if matches!(error.code, Code::NotServing | Code::MaybeCommitted) => return Err(error),
                // Its client still asks, and is told this.
                Err(error) if !told => tracing::info!(%error, number, "a change that nobody was told of fails now"),
                Err(error) => {
                    self.recovery.failed.fetch_add(1, SeqCst);
                    tracing::error!(%error, number, session = session.0, request = request.0,
                        "a change that had been answered cannot be repeated");
                }
            }
        }
        self.engine.settle().await.map_err(braid_meta_namespace::OpError::from)?;
        self.keep_nothing(self.sessions.snapshot().into_iter().map(|(id, _)| id).collect()).await?;
        let mut state = self.recovery.state.lock();
        *state = State::default();
        self.recovery.open.store(true, SeqCst);
        drop(state);
        if count > 0 {
            tracing::info!(count, "what clients had kept is durable: the metadata server is open");
        }
        Ok(())
    }

    async fn repeat(&self, session: SessionId, mut kept: Kept) -> Result<()> {
        if kept.mark.number == EarlyMark::UNANSWERED {
            // It happens now, and its client's clock says nothing here.
            kept.mark.now = self.env.clock.wall();
        }
        let unknown = || Error::new(Code::SessionUnknown, format_args!("session {session}"), "it has ended");
        let session_epoch = self.sessions.with(session, |s| s.epoch).ok_or_else(unknown)?;
        if !kept.message.may_be_early() {
            return Err(Error::new(Code::BadMessage, kept.message.name(), "is never answered early"));
        }
        let token = Token { session, session_epoch, ..Token::default() };
        let cx = Context { token, request: kept.request, ..Context::default() };
        let number = kept.message.number();
        let mut call = crate::call::Call::new(Some(Early { owner: session.0, admitted: true }));
        self.mutate(&mut call, cx, number, kept.message, Some(kept.mark)).await.map(drop)
    }

    pub(crate) async fn replay(&self, cx: Context, replay: Replay) -> Result<ReplayAnswer> {
        let id = cx.token.session;
        match self.sessions.with(id, |s| s.epoch) {
            Some(epoch) if epoch == cx.token.session_epoch => {}
            Some(_) => return Err(Error::new(Code::SessionFenced, format_args!("session {id}"), "")),
            None => return Err(Error::new(Code::SessionUnknown, format_args!("session {id}"), "")),
        }
        if let Some(taken) = self.recovery.take(id, &replay) {
            return taken;
        }
        // Nobody waited for it, so all of it should be durable.
        let requests = replay.kept.iter().map(|kept| kept.request).collect();
        let missing = session::MissingRequests { session: id, requests };
        let lost = self.engine.read(id.0, missing).await.map_err(Error::from)?;
        if !lost.is_empty() {
            tracing::error!(session = id.0, count = lost.len(), "changes that had been answered early are lost");
        }
        Ok(ReplayAnswer { lost })
    }

    /// Puts on record that a restart need not wait for these.
    pub(crate) async fn keep_nothing(&self, sessions: Vec<SessionId>) -> Result<()> {
        if sessions.is_empty() {
            return Ok(());
        }
        self.engine.transact(0, session::KeepNothing { sessions }).await.map_err(Error::from)
    }

    /// Changes of a crashed predecessor that were executed again at the start, and those that could not be.
    pub fn repeated(&self) -> (u64, u64) {
        self.recovery.repeated()
    }

    /// The last thing a server does that is told to stop, when nothing is being answered any more: everything is
    /// durable, and the next start waits for nobody.
    pub async fn close(&self) -> Result<()> {
        self.stop();
        self.engine.settle().await.map_err(braid_meta_namespace::OpError::from)?;
        if self.recovery.is_open() {
            self.keep_nothing(self.sessions.keeping(None, |id| self.leases.works_alone(id))).await?;
        }
        Ok(())
    }
}
