use super::PORT;
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::machine::Machine;
use braid_api::meta::{
    CloseSession, MetaAnswer, MetaRequest, Namespace, OpenSession, RenewSession, Replay, SessionReply,
};
use braid_api::{Carries, Code, Context, Error, Result, Retry, When};
use braid_client::{Asked, Deadline, Requests};
use braid_env::Address;
use braid_types::{ClusterId, ServerId, SessionId, Token};
use braid_wire::{Endpoint, Identity, Limits, Remote, RemoteNamespace, Role};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The machine's end of connections.
pub fn endpoint(process: &Process, role: Role) -> Endpoint {
    let incarnation = process.env.random.u64().max(1);
    let identity = Identity { role, cluster: ClusterId::default(), server: ServerId(0), incarnation };
    // Buffers in proportion to the world's small files; a real endpoint's 64 MiB would be the simulator's memory.
    let limits = Limits { pool_bytes_max: 1 << 20, ..Limits::default() };
    Endpoint::new(process.env.clone(), identity, limits)
}

/// The metadata server, on a connection of its own.
pub fn namespace(process: &Process, endpoint: &Endpoint) -> RemoteNamespace {
    let several = process.cluster.settings.several;
    // Of several it is the one that leads who listens there.
    let at = |machine: &Machine| Address::Tcp(format!("{}:{PORT}", machine.name()));
    let addresses = if several { Machine::METAS.iter().map(at).collect() } else { vec![at(&Machine::Meta)] };
    RemoteNamespace(Remote::new(endpoint, Role::Metadata, ServerId(0), MetaRequest::NAMES, addresses))
}

/// The smallest client there can be: a session and native calls. What it finds is the metadata server's doing alone.
pub struct Native {
    process: Process,
    calls: RemoteNamespace,
    control: RemoteNamespace,
    /// What the real client does with early answers is the same.
    requests: Requests,
    replaying: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    session: SessionReply,
    /// Up to where the list of unlinked inodes has been read; none of them is open here.
    orphans_seen: u64,
}

const PAUSE: Duration = Duration::from_millis(20);
/// What wire takes for silence.
const ATTEMPT: Duration = Duration::from_secs(10);

impl Native {
    /// Registers, for as long as it takes.
    pub async fn start(process: &Process) -> Arc<Native> {
        let endpoint = endpoint(process, Role::Client);
        let (calls, control) = (namespace(process, &endpoint), namespace(process, &endpoint));
        let client = process.env.random.u64();
        let name = process.machine.name();
        let open = OpenSession {
            client,
            former: None,
            since: SessionId(0),
            description: format!("native on {name}"),
            host: name.to_owned(),
            caches: false,
        };
        let session = loop {
            match calls.call(Context::default(), open.clone()).await {
                Ok(session) => break session,
                Err(_) => process.env.sleep(PAUSE).await,
            }
        };
        let state = Mutex::new(State { session, orphans_seen: 0 });
        let native = Arc::new(Native {
            process: process.clone(),
            calls,
            control,
            requests: Requests::default(),
            replaying: tokio::sync::Mutex::default(),
            state,
        });
        let renewing = native.clone();
        process.env.spawn("renewal", async move { renewing.renew().await });
        native
    }

    async fn renew(&self) {
        loop {
            let every = Duration::from_millis(self.state.lock().session.renew_ms.into());
            self.process.env.sleep(every).await;
            let (token, renew) = {
                let state = self.state.lock();
                let low_water = self.requests.low_water();
                let orphans_seen = state.orphans_seen;
                (token(&state.session), RenewSession { low_water, orphans_seen, orphans_held: Vec::new() })
            };
            let cx = Context { token, deadline: every, when: When::Marked, ..Context::default() };
            // An answer that is missing is asked for again; there is nothing else to do about it here.
            if let Ok((MetaAnswer::RenewSession(reply), mark)) = self.control.execute_early(cx, renew.wrap()).await {
                self.state.lock().orphans_seen = reply.orphans_seen;
                self.requests.observe(&mark);
                if !mark.open || self.requests.is_to_replay() {
                    let _ = self.replay().await;
                }
            }
        }
    }

    /// As the real client's.
    async fn replay(&self) -> Result<()> {
        let _one = self.replaying.lock().await;
        let token = token(&self.state.lock().session);
        let cx = Context { token, when: When::Marked, deadline: ATTEMPT, ..Context::default() };
        let who = Replay { kept: Vec::new(), last: false };
        let (_, server) = self.calls.execute_early(cx, who.wrap()).await?;
        self.requests.observe(&server);
        if self.requests.has_replayed_to(server.incarnation) {
            return Ok(());
        }
        let kept = self.requests.to_replay(token.session);
        let (answer, mark) = self.calls.execute_early(cx, Replay { kept, last: true }.wrap()).await?;
        self.requests.observe(&mark);
        if let (MetaAnswer::Replay(replayed), true) = (answer, mark.incarnation == server.incarnation) {
            self.requests.replayed(mark.incarnation);
            if !replayed.lost.is_empty() {
                let lost = format_args!("{:?} of a session that lives are lost", replayed.lost);
                self.process.cluster.around.failures.add(Invariant::EarlyAnswersAreKept, lost);
            }
        }
        Ok(())
    }

    /// One call, repeated under one request id until it has an answer. The session is longer than any fault.
    pub async fn call<M>(&self, message: M) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        let request = message.wrap();
        let token = token(&self.state.lock().session);
        let is_change = request.is_mutation();
        let early = self.process.cluster.settings.native_early;
        let early = early && (!is_change || (request.may_be_early() && self.requests.takes(0, usize::MAX)));
        let numbered = self.requests.begin(early && is_change);
        let when = if early { When::Early } else { When::Marked };
        let deadline = self.process.cluster.settings.client.deadline;
        let begun = self.process.env.clock.now();
        loop {
            let left = deadline.saturating_sub(self.process.env.clock.now().since(begun));
            // An answer that a server took with it when it lost its power never comes: ask again.
            let attempt = left.clamp(Duration::from_millis(1), ATTEMPT);
            let cx = Context { token, request: numbered.id, deadline: attempt, when, ..Context::default() };
            match self.calls.execute_early(cx, request.clone()).await {
                Ok((answer, mark)) => {
                    let asked = Asked { id: numbered.id, session: token.session, message: &request };
                    let env = &self.process.env;
                    let end = Deadline::after(env, left);
                    if self.requests.accept(env, end, is_change.then_some(asked), &mark).await {
                        break M::unwrap(answer).ok_or(Error::bare(Code::BadMessage));
                    }
                }
                Err(error) if error.code == Code::Recovering && !left.is_zero() => {
                    let _ = self.replay().await;
                    self.process.env.sleep(PAUSE).await;
                }
                Err(error) if left.is_zero() => break Err(error),
                Err(error) if matches!(error.retry(), Retry::No | Retry::AfterRefresh) => {
                    let env = &self.process.env;
                    let of = is_change.then_some(numbered.id);
                    if self.requests.accept_failure(env, Deadline::after(env, left), of).await {
                        break Err(error);
                    }
                }
                Err(_) => self.process.env.sleep(PAUSE).await,
            }
        }
    }

    pub async fn close(&self) -> Result<()> {
        self.call(CloseSession {}).await
    }
}

fn token(session: &SessionReply) -> Token {
    Token { session: session.session, session_epoch: session.epoch, ..Token::default() }
}
