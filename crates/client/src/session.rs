//! The client's registration: opened at start, renewed on its own connection, opened again when the server has
//! forgotten it. All that with the one that leads, where several serve.

use crate::core::{Core, Op};
use crate::wait::{Attempts, Deadline};
use braid_api::meta::{
    CloseSession, EndSession, Mark, MetaAnswer, MetaRequest, OpenSession, RenewReply, RenewSession, SessionReply,
};
use braid_api::{Carries, Code, Context, Error, Result, When};
use braid_env::Monotonic;
use braid_types::{InodeId, SessionEpoch, SessionId, Token};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Registration {
    pub session: SessionId,
    pub epoch: SessionEpoch,
    pub lease: Duration,
    pub renew: Duration,
    pub renewed: Monotonic,
}

impl Registration {
    pub fn from_reply(reply: &SessionReply, now: Monotonic) -> Self {
        Registration {
            session: reply.session,
            epoch: reply.epoch,
            lease: Duration::from_millis(reply.lease_ms.into()),
            renew: Duration::from_millis(reply.renew_ms.max(1).into()),
            renewed: now,
        }
    }
}

/// Some six bytes each in a renewal, of which a message of 1 MiB has room for 170,000. A reply brings up to 65,536.
const ORPHANS_MAX: usize = 65_536;

/// What is known of inodes without a name.
#[derive(Default)]
struct Orphans {
    seen: u64,
    /// Listed by the server and open here at that time, or perhaps what one of the creates was about to open that had begun: the last of them.
    held: BTreeMap<InodeId, u64>,
}

/// As whom the client registers.
#[derive(Clone, Copy)]
struct Identity {
    /// Registering again with it finds the same session, if that still exists. Drawn at the client's start, and again
    /// when data servers have fenced the session and its end has to wait: a fence is for ever.
    client: u64,
    /// The number before this one, until a session has begun under this one.
    former: Option<u64>,
}

pub struct Session {
    /// What it has kept, and what is open, may be as old as this one.
    first: SessionId,
    identity: Mutex<Identity>,
    now: Mutex<Registration>,
    orphans: Mutex<Orphans>,
    servers_version: Mutex<u64>,
    /// Async: one registration at a time.
    registering: tokio::sync::Mutex<()>,
}

impl Session {
    pub fn new(client: u64, registration: Registration) -> Self {
        Session {
            first: registration.session,
            identity: Mutex::new(Identity { client, former: None }),
            now: Mutex::new(registration),
            orphans: Mutex::default(),
            servers_version: Mutex::default(),
            registering: tokio::sync::Mutex::default(),
        }
    }

    pub fn id(&self) -> SessionId {
        self.now.lock().session
    }

    /// Between two renewals.
    pub fn renew(&self) -> Duration {
        self.now.lock().renew
    }

    pub fn token(&self) -> Token {
        let now = self.now.lock();
        Token { session: now.session, session_epoch: now.epoch, ..Token::default() }
    }
}

impl Core {
    /// A server does not know the session of `unknown` any more, or refuses it: register again, unless somebody just
    /// did.
    ///
    /// What was buffered or retained under the old session's leases is not sent under the new one, see `lost`.
    pub async fn register_again(&self, unknown: Token, why: Code, op: Op) -> Result<()> {
        let _one = self.session.registering.lock().await;
        if self.stop.is_over() {
            return Err(Error::new(Code::SessionUnknown, "this client", "it has ended"));
        }
        let token = self.session.token();
        if (token.session, token.session_epoch) != (unknown.session, unknown.session_epoch) {
            return Ok(());
        }
        if why == Code::SessionFenced {
            // The metadata server may still be ending it and would give it again. Under the same number it knows what was
            // carried out under the old session, so its end is asked for first; but one that waits for a data server that is away
            // is not waited for long, and then the client is another.
            let bound = self.now() + self.config.attempt * 2;
            let patient = Op { deadline: Deadline(op.deadline.0.min(bound)), ..op };
            if let Err(error) = self.ask_again(token, EndSession {}.wrap(), patient).await {
                tracing::warn!(%error, "the old session does not end");
                let mut identity = self.session.identity.lock();
                // A second time the session of the first may have begun, whose answer was lost.
                if identity.former.is_none() {
                    *identity = Identity { client: self.env.random.u64(), former: Some(identity.client) };
                }
            }
        }
        let Identity { client, former } = *self.session.identity.lock();
        let message = OpenSession {
            client,
            former,
            since: self.session.first,
            description: self.config.description.clone(),
            host: self.config.host.clone(),
            caches: true,
        };
        let sent = self.now();
        let (answer, mark) = self.ask_again(Token::default(), message.wrap(), op).await?;
        self.requests.observe(&mark);
        let reply = OpenSession::unwrap(answer).ok_or(Error::bare(Code::BadMessage))?;
        let registration = Registration::from_reply(&reply, sent);
        self.session.identity.lock().former = None;
        if self.session.id() != registration.session {
            self.lose_session();
        }
        let old = std::mem::replace(&mut *self.session.now.lock(), registration);
        self.servers.adopt(&reply.servers);
        if old.session != registration.session {
            tracing::warn!(old = old.session.0, new = registration.session.0, "the session was lost, a new one begins");
            self.counters.sessions_lost.fetch_add(1, Relaxed);
            self.spares.clear();
            *self.session.orphans.lock() = Orphans::default();
            if let Err(error) = self.compare_former(self.session.token(), op).await {
                tracing::warn!(%error, "what was kept under the old session was not compared");
            }
        }
        self.heard_term(sent, registration.lease, reply.term);
        if old.session != registration.session {
            self.renew_everywhere();
        }
        if let Some(core) = self.this.upgrade() {
            core.look_for_adrift();
            if old.session != registration.session {
                core.hold_again();
            }
        }
        Ok(())
    }

    /// A server that lost its power after it took the message answers nothing, and nothing says so.
    async fn ask_again(&self, token: Token, message: MetaRequest, op: Op) -> Result<(MetaAnswer, Mark)> {
        let mut attempts = Attempts::until(op.deadline);
        loop {
            let deadline = op.deadline.left(&self.env).min(self.config.attempt);
            let cx = Context { token, deadline, when: When::Marked, ..Context::default() };
            self.counters.message(message.name());
            let answer = self.env.timeout(deadline, self.route.ask_leader(cx, message.clone())).await;
            match answer.unwrap_or_else(|_| Err(Error::new(Code::DeadlineExceeded, message.name(), ""))) {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    self.learn_from(&error, op.deadline).await;
                    attempts.again(&self.env, error).await?;
                }
            }
        }
    }

    async fn renew(&self) -> Result<()> {
        let now = *self.session.now.lock();
        let (orphans_seen, orphans_held) = {
            let mut orphans = self.session.orphans.lock();
            let listed: Vec<InodeId> = orphans.held.keys().copied().collect();
            let first = self.inodes.creating.first();
            let open: BTreeSet<InodeId> = self.inodes.held(&listed).into_iter().collect();
            orphans.held.retain(|id, created| open.contains(id) || first.is_some_and(|first| first <= *created));
            (orphans.seen, orphans.held.keys().copied().collect())
        };
        let message = RenewSession { low_water: self.requests.low_water(), orphans_seen, orphans_held };
        let token = self.session.token();
        let cx = Context { token, deadline: now.renew, when: When::Marked, ..Context::default() };
        self.counters.message("RenewSession");
        let sent = self.now();
        let answer = self.env.timeout(now.renew, self.route.say_to_leader(cx, message.wrap())).await;
        let (answer, mark) = answer.map_err(|_| Error::new(Code::DeadlineExceeded, "renewing the session", ""))??;
        self.requests.observe(&mark);
        let recovering = mark.incarnation != 0 && !mark.open;
        let reply: RenewReply = RenewSession::unwrap(answer).ok_or(Error::bare(Code::BadMessage))?;
        {
            let mut current = self.session.now.lock();
            if current.session == now.session {
                // The lease runs from when it was asked for.
                current.renewed = sent;
                current.lease = Duration::from_millis(reply.lease_ms.into());
                self.heard_term(sent, current.lease, reply.term);
            }
        }
        {
            let mut orphans = self.session.orphans.lock();
            // What is not open shows at the next renewal, when the creates that are on their way now have been answered.
            let created = self.inodes.creating.last();
            // While a create takes its time they can be many. What is not read now comes again.
            if orphans.held.len() < ORPHANS_MAX {
                orphans.seen = reply.orphans_seen;
                orphans.held.extend(reply.orphans.iter().map(|id| (*id, created)));
            }
        }
        let version = *self.session.servers_version.lock();
        if version != reply.servers_version {
            let op = self.own_op();
            self.refresh_servers(op).await?;
            *self.session.servers_version.lock() = reply.servers_version;
        }
        if recovering || self.requests.is_to_replay() {
            // Others wait for what this client keeps, or for hearing that it is nothing.
            self.replay(self.own_op()).await?;
        }
        Ok(())
    }

    /// What is this session's alone, its spares, may be used only while its lease lasts: afterwards it may have ended, and
    /// a data server that has restarted since does not know so.
    pub async fn confirm_session(&self, op: Op) -> Result<()> {
        let now = *self.session.now.lock();
        if self.now().since(now.renewed) < now.lease {
            return Ok(());
        }
        let token = self.session.token();
        match self.renew().await {
            Err(error) if matches!(error.code, Code::SessionUnknown | Code::SessionFenced) => {
                self.register_again(token, error.code, op).await
            }
            done => done,
        }
    }

    pub fn keep_session(self: &Arc<Self>) {
        let (core, stop) = (Arc::downgrade(self), self.stop.listen());
        let (env, mut pause) = (self.env.clone(), self.session.now.lock().renew);
        self.env.spawn("session", async move {
            loop {
                tokio::select! {
                    biased;
                    () = env.sleep(pause) => {}
                    () = due(&core) => {}
                    () = stop.wait() => return,
                }
                let Some(core) = Weak::upgrade(&core) else { return };
                pause = core.renew_once().await;
            }
        });
    }

    /// Renews; gives the time until the next renewal.
    async fn renew_once(self: &Arc<Self>) -> Duration {
        let token = self.session.token();
        let renew = self.session.now.lock().renew;
        let Err(error) = self.renew().await else {
            self.look_at_leaving();
            self.local.let_go(self.now());
            return renew;
        };
        tracing::warn!(%error, "the session was not renewed");
        self.pass_time();
        self.learn_from(&error, Deadline::after(&self.env, renew / 3)).await;
        if error.code == Code::SessionUnknown {
            let op = self.own_op();
            if let Err(error) = self.register_again(token, error.code, op).await {
                tracing::warn!(%error, "the session was not opened again");
            }
        }
        renew / 3
    }

    /// The last thing a client says. From now on nobody registers again: what still runs in the background would
    /// otherwise begin a session that nobody ends.
    pub async fn close_session(&self, op: Op) -> Result<()> {
        self.stop.stop();
        // A registration that is under way brings the session that is to be closed.
        let left = op.deadline.left(&self.env);
        drop(self.env.timeout(left, self.session.registering.lock()).await);
        match self.call(CloseSession {}, op).await {
            Err(error) if error.code == Code::SessionUnknown => Ok(()),
            done => done,
        }
    }
}

/// Another start of the server wants a renewal.
async fn due(core: &Weak<Core>) {
    match core.upgrade() {
        Some(core) => core.leases.renewal_due().await,
        None => std::future::pending().await,
    }
}
