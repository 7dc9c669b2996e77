use super::PORT;
use crate::cluster::Process;
use braid_api::meta::{CloseSession, MetaAnswer, MetaRequest, Namespace, OpenSession, RenewSession, SessionReply};
use braid_api::{Carries, Code, Context, Error, Result, Retry};
use braid_env::Address;
use braid_types::{ClusterId, RequestId, ServerId, Token};
use braid_wire::{Endpoint, Identity, Limits, Remote, RemoteNamespace, Role};
use parking_lot::Mutex;
use std::collections::BTreeSet;
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
pub fn namespace(endpoint: &Endpoint) -> RemoteNamespace {
    let address = Address::Tcp(format!("meta:{PORT}"));
    RemoteNamespace(Remote::new(endpoint, Role::Metadata, ServerId(0), MetaRequest::NAMES, vec![address]))
}

/// The smallest client there can be: a session and native calls. What it finds is the metadata server's doing alone.
pub struct Native {
    process: Process,
    calls: RemoteNamespace,
    control: RemoteNamespace,
    state: Mutex<State>,
}

struct State {
    session: SessionReply,
    next: u64,
    open: BTreeSet<u64>,
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
        let (calls, control) = (namespace(&endpoint), namespace(&endpoint));
        let client = process.env.random.u64();
        let name = process.machine.name();
        let open = OpenSession { client, description: format!("native on {name}"), host: name.to_owned() };
        let session = loop {
            match calls.call(Context::default(), open.clone()).await {
                Ok(session) => break session,
                Err(_) => process.env.sleep(PAUSE).await,
            }
        };
        let state = Mutex::new(State { session, next: 0, open: BTreeSet::new(), orphans_seen: 0 });
        let native = Arc::new(Native { process: process.clone(), calls, control, state });
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
                let low_water = RequestId(state.open.first().copied().unwrap_or(state.next + 1));
                let orphans_seen = state.orphans_seen;
                (token(&state.session), RenewSession { low_water, orphans_seen, orphans_held: Vec::new() })
            };
            let cx = Context { token, deadline: every, ..Context::default() };
            // An answer that is missing is asked for again; there is nothing else to do about it here.
            if let Ok(reply) = self.control.call(cx, renew).await {
                self.state.lock().orphans_seen = reply.orphans_seen;
            }
        }
    }

    /// One call, repeated under one request id until it has an answer. The session is longer than any fault.
    pub async fn call<M>(&self, message: M) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        let request = message.wrap();
        let (token, number) = {
            let mut state = self.state.lock();
            state.next += 1;
            let number = state.next;
            state.open.insert(number);
            (token(&state.session), number)
        };
        let deadline = self.process.cluster.settings.client.deadline;
        let begun = self.process.env.clock.now();
        let result = loop {
            let left = deadline.saturating_sub(self.process.env.clock.now().since(begun));
            // An answer that a server took with it when it lost its power never comes: ask again.
            let attempt = left.clamp(Duration::from_millis(1), ATTEMPT);
            let cx = Context { token, request: RequestId(number), deadline: attempt, ..Context::default() };
            match self.calls.execute(cx, request.clone()).await {
                Ok(answer) => break M::unwrap(answer).ok_or(Error::bare(Code::BadMessage)),
                Err(error) if left.is_zero() || matches!(error.retry(), Retry::No | Retry::AfterRefresh) => {
                    break Err(error);
                }
                Err(_) => self.process.env.sleep(PAUSE).await,
            }
        };
        self.state.lock().open.remove(&number);
        result
    }

    pub async fn close(&self) -> Result<()> {
        self.call(CloseSession {}).await
    }
}

fn token(session: &SessionReply) -> Token {
    Token { session: session.session, session_epoch: session.epoch, ..Token::default() }
}
