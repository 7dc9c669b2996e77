use crate::address_book::AddressBook;
use crate::body::Body;
use crate::channel::Channel;
use crate::endpoint::Endpoint;
use crate::hello::{PeerInfo, Role};
use crate::limits::deadline_or_default;
use crate::retry::{Story, pause, repeatable};
use crate::stats::{WireSnapshot, WireStats};
use crate::waits::of_call;
use braid_api::{Code, Context, Error, Manner, Result};
use braid_env::{Address, Monotonic};
use braid_types::ServerId;
use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A server somewhere, over one connection that is made when needed and made again when it breaks.
///
/// A call is repeated until its deadline as long as its errors allow that; all requests of BraidFS may be repeated,
/// mutations by their request id, data writes by nature. Leases and heartbeats use a `Remote` of their own, so that
/// they never queue behind bulk data. Cheap to clone.
#[derive(Clone)]
pub struct Remote(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    role: Role,
    /// Who must answer; with 0 any server of the role will do.
    server: ServerId,
    addresses: AddressBook,
    channel: Mutex<Option<Channel>>,
    /// Held by the one caller that connects; the others wait for it and share the outcome.
    pace: tokio::sync::Mutex<Pace>,
    /// Attempts to connect that have failed.
    failed: AtomicU64,
    stats: Arc<WireStats>,
}

#[derive(Default)]
struct Pace {
    /// In a row.
    failures: u32,
    not_before: Monotonic,
    /// Of the last attempt.
    error: Option<Error>,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.server {
            ServerId(0) => write!(f, "{}", self.0.role)?,
            id => write!(f, "{} {id}", self.0.role)?,
        }
        for (i, address) in self.0.addresses.list().iter().enumerate() {
            write!(f, "{}{address}", if i == 0 { " at " } else { " or " })?;
        }
        Ok(())
    }
}

impl Remote {
    /// Connects to nothing yet. `names` are those of the messages the server takes.
    pub fn new(
        endpoint: &Endpoint,
        role: Role,
        server: ServerId,
        names: &'static [&'static str],
        addresses: Vec<Address>,
    ) -> Self {
        Remote(Arc::new(Inner {
            endpoint: endpoint.clone(),
            role,
            server,
            addresses: AddressBook::new(addresses),
            channel: Mutex::new(None),
            pace: tokio::sync::Mutex::default(),
            failed: AtomicU64::new(0),
            stats: WireStats::new(names),
        }))
    }

    /// The server is somewhere else now. A connection to an address that is not in the list is not used for new
    /// calls; a wait for the next attempt to connect ends.
    pub fn set_addresses(&self, addresses: Vec<Address>) {
        if self.0.addresses.replace(addresses) {
            self.0.channel.lock().take_if(|channel| !self.0.addresses.contains(channel.address()));
        }
    }

    pub fn addresses(&self) -> Vec<Address> {
        self.0.addresses.list()
    }

    pub fn stats(&self) -> WireSnapshot {
        self.0.stats.snapshot()
    }

    /// Who is at the other end of the present connection.
    pub fn peer(&self) -> Option<PeerInfo> {
        self.live().map(|channel| channel.peer().clone())
    }

    /// Gives up the present connection; the next call makes a new one.
    pub fn disconnect(&self) {
        let channel = self.0.channel.lock().take();
        if let Some(channel) = channel {
            channel.close();
        }
    }

    fn live(&self) -> Option<Channel> {
        self.0.channel.lock().as_ref().filter(|channel| !channel.is_broken()).cloned()
    }

    /// Sends a request, if need be again and again, and returns the answer's body and payload.
    pub async fn call(&self, cx: Context, body: &impl Body, payload: Bytes) -> Result<(Bytes, Bytes)> {
        let env = self.0.endpoint.env();
        let begun = env.clock.now();
        if cx.trace.0 != 0 {
            tracing::debug!(trace = cx.trace.0, session = cx.token.session.0, "a request to {self}");
        }
        let deadline = deadline_or_default(cx.deadline);
        if cx.manner == Manner::Once {
            let once = async { self.connected(Manner::Once).await?.call(cx, body, payload).await };
            return match env.timeout(deadline, once).await {
                Ok(result) => result,
                Err(_) => Err(Story::default().end(&self.to_string(), deadline)),
            };
        }
        let mut story = Story::default();
        if let Some(channel) = self.live() {
            match channel.call(cx, body, payload.clone()).await {
                Err(error) if repeatable(&error) => story.add(error),
                result => return result,
            }
        }
        let rest = deadline.saturating_sub(env.clock.now().since(begun));
        if rest.is_zero() {
            return Err(story.end(&self.to_string(), deadline));
        }
        let attempts = self.persist(begun, deadline, cx, body, payload, &mut story);
        match env.timeout(rest, attempts).await {
            Ok(result) => result,
            Err(_) => Err(story.end(&self.to_string(), deadline)),
        }
    }

    /// Repeats until there is an answer or an error that forbids it; the caller ends this at the deadline.
    async fn persist(
        &self,
        begun: Monotonic,
        deadline: Duration,
        cx: Context,
        body: &impl Body,
        payload: Bytes,
        story: &mut Story,
    ) -> Result<(Bytes, Bytes)> {
        let Inner { endpoint, role, server, stats, .. } = &*self.0;
        let env = endpoint.env();
        let name = stats.name(stats.message(&body.write(Vec::new())?));
        let shown = || endpoint.waits().enter(of_call(name, &cx, (*role, *server), self.to_string()), begun);
        let is_standing = cx.manner == Manner::Standing;
        let mut wait = Some(shown());
        loop {
            if story.attempts > 0 {
                env.sleep(pause(story.attempts, &*env.random)).await;
                stats.retries(1);
            }
            let attempt = async {
                let channel = self.connected(cx.manner).await?;
                // That there is no server to wait at is worth showing, that it waits there is not.
                wait.take_if(|_| is_standing);
                let rest = deadline.saturating_sub(env.clock.now().since(begun)).max(Duration::from_millis(1));
                channel.call_listed(Context { deadline: rest, ..cx }, body, payload.clone(), false).await
            };
            match attempt.await {
                Err(error) if repeatable(&error) => {
                    wait.get_or_insert_with(shown).set(error.to_string());
                    story.add(error);
                }
                result => return result,
            }
        }
    }

    /// A connection that works, made now if there is none. One caller tries, once, after the pause that follows the
    /// last failure; those who come meanwhile share its outcome.
    async fn connected(&self, manner: Manner) -> Result<Channel> {
        if let Some(channel) = self.live() {
            return Ok(channel);
        }
        let Inner { endpoint, addresses, pace, failed, .. } = &*self.0;
        let failed_before = failed.load(Relaxed);
        let mut pace = pace.lock().await;
        if let Some(channel) = self.live() {
            return Ok(channel);
        }
        if failed.load(Relaxed) != failed_before
            && let Some(error) = &pace.error
        {
            return Err(error.clone());
        }
        let env = endpoint.env();
        let mut changes = addresses.watch();
        let rest = pace.not_before.since(env.clock.now());
        if !rest.is_zero() {
            if let (Manner::Once, Some(error)) = (manner, &pace.error) {
                return Err(error.clone());
            }
            let _ = env.timeout(rest, changes.changed()).await;
        }
        match self.connect_to_any().await {
            Ok(channel) => {
                *pace = Pace::default();
                *self.0.channel.lock() = Some(channel.clone());
                Ok(channel)
            }
            Err(error) => {
                pace.failures += 1;
                pace.not_before = env.clock.now() + pause(pace.failures, &*env.random);
                pace.error = Some(error.clone());
                failed.fetch_add(1, Relaxed);
                Err(error)
            }
        }
    }

    /// Tries each address; of the errors, one that may pass counts more than one that will not.
    async fn connect_to_any(&self) -> Result<Channel> {
        let Inner { endpoint, role, addresses, stats, .. } = &*self.0;
        let mut last = Error::new(Code::Unreachable, self, "no address is known");
        for (i, address) in addresses.list().iter().enumerate() {
            let connected = endpoint.connect(address, *role, stats.clone()).await;
            match connected.and_then(|channel| self.check_server(channel)) {
                Ok(channel) => return Ok(channel),
                Err(error) if i == 0 || repeatable(&error) => last = error,
                Err(_) => {}
            }
        }
        Err(last)
    }

    /// An address may have passed to another server since we learnt it; ours may still come up elsewhere.
    fn check_server(&self, channel: Channel) -> Result<Channel> {
        let (wanted, found) = (self.0.server, channel.peer().server);
        if wanted == found || wanted.0 == 0 {
            return Ok(channel);
        }
        Err(Error::new(Code::Unreachable, self, format!("server {found} answers at {}", channel.address())))
    }
}
