use crate::channel::{Channel, Reader};
use crate::hello::{Hello, PeerInfo, Role};
use crate::limits::Limits;
use crate::pool::BufferPool;
use crate::reader::FrameReader;
use crate::sink::{Sink, Writer};
use crate::stats::WireStats;
use crate::waits::Waits;
use braid_api::{Code, Error, Result};
use braid_env::{Address, Connection, Env};
use braid_types::{ClusterId, ServerId};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;

/// Who this process says it is in its hellos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub role: Role,
    /// Zero until known.
    pub cluster: ClusterId,
    /// Zero until registered, and for what is no server.
    pub server: ServerId,
    /// Drawn at each start.
    pub incarnation: u64,
}

/// What all connections of one server or client share. Cheap to clone.
#[derive(Clone)]
pub struct Endpoint(Arc<Shared>);

struct Shared {
    env: Env,
    identity: Mutex<Identity>,
    limits: Limits,
    pool: Arc<BufferPool>,
    waits: Arc<Waits>,
}

impl Endpoint {
    pub fn new(env: Env, identity: Identity, limits: Limits) -> Self {
        let pool = BufferPool::new(limits.pool_bytes_max);
        let waits = Waits::new(env.clock.clone());
        let payload_bytes_max = limits.payload_bytes_max.min(BufferPool::BUFFER_BYTES_MAX);
        let limits = Limits { payload_bytes_max, ..limits };
        Endpoint(Arc::new(Shared { env, identity: Mutex::new(identity), limits, pool, waits }))
    }

    pub fn env(&self) -> &Env {
        &self.0.env
    }

    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub fn pool(&self) -> &Arc<BufferPool> {
        &self.0.pool
    }

    pub fn waits(&self) -> &Arc<Waits> {
        &self.0.waits
    }

    pub fn identity(&self) -> Identity {
        *self.0.identity.lock()
    }

    /// For connections to come: a server learns its cluster and id when it first registers.
    pub fn set_identity(&self, identity: Identity) {
        *self.0.identity.lock() = identity;
    }

    /// One connection to a server of role `wanted`. `names` of `stats` are those of the messages it takes.
    pub async fn connect(&self, to: &Address, wanted: Role, stats: Arc<WireStats>) -> Result<Channel> {
        let timeout = self.limits().connect_timeout;
        let connected = self.env().timeout(timeout, self.connect_and_greet(to, wanted)).await;
        let greeted = match connected {
            Ok(greeted) => greeted,
            Err(_) => {
                Err(Error::new(Code::Unreachable, format!("{wanted} at {to}"), format!("silent for {timeout:?}")))
            }
        };
        let (halves, peer) = greeted.inspect_err(|error| {
            if !matches!(error.code, Code::Unreachable | Code::Disconnected) {
                stats.refusals(1);
            }
        })?;
        stats.connects(1);
        Ok(Channel::start(self, halves, peer, to.clone(), stats))
    }

    async fn connect_and_greet(&self, to: &Address, wanted: Role) -> Result<((Reader, Writer), PeerInfo)> {
        let subject = || format!("{wanted} at {to}");
        let unreachable = |error: &dyn std::fmt::Display| Error::new(Code::Unreachable, subject(), error);
        let Connection { reader, writer, .. } = self.env().transport.connect(to).await.map_err(|e| unreachable(&e))?;
        let ours = self.hello(Some(wanted));
        let (mut reader, mut sink) = (self.greeting_reader(reader), Sink::new(writer));
        // A peer that refuses us may do so before it has read our hello: what it says counts more than the write.
        let written = self.say(&mut sink, &ours).await;
        let frame = reader.next().await.map_err(|error| error.into_error(&subject()));
        let theirs = frame.and_then(|frame| Hello::read(frame, &subject())).map_err(not_begun)?;
        written.map_err(not_begun)?;
        let peer = ours.accept(&theirs, &to.to_string())?;
        self.stay_with(peer.cluster);
        reader.set_limits(self.limits().clone());
        Ok(((reader, sink.into_inner()), peer))
    }

    /// A client is of the cluster that it first reaches: at the same address another may serve one day, whose files have the
    /// same numbers.
    fn stay_with(&self, cluster: ClusterId) {
        let mut identity = self.0.identity.lock();
        if identity.role == Role::Client && identity.cluster == ClusterId::default() {
            identity.cluster = cluster;
        }
    }

    pub(crate) fn hello(&self, wanted: Option<Role>) -> Hello {
        let Identity { role, cluster, server, incarnation } = self.identity();
        Hello { role, wanted, cluster, server, incarnation, ..Hello::default() }
    }

    pub(crate) fn greeting_reader(&self, reader: Box<dyn tokio::io::AsyncRead + Send + Sync + Unpin>) -> Reader {
        FrameReader::new(reader, Hello::limits(self.limits()), self.pool().clone())
    }

    /// Writes a hello.
    pub(crate) async fn say(&self, sink: &mut Sink, hello: &Hello) -> Result<()> {
        let frame = hello.frame(self.limits()).map_err(|error| error.into_error("own hello"))?;
        sink.load(&mut VecDeque::from([frame]));
        write_all(sink).await.map_err(|error| Error::new(Code::Disconnected, "hello", error))
    }
}

/// Writes all frames of a sink that is not yet in use by others.
pub(crate) async fn write_all(sink: &mut Sink) -> std::io::Result<()> {
    while !sink.is_empty() {
        poll_fn(|cx| sink.poll_write(cx)).await?;
    }
    Ok(())
}

/// Before the hellos nothing can have happened, so that repeating is safe whatever was asked.
fn not_begun(error: Error) -> Error {
    match error.code {
        Code::Disconnected => Error::new(Code::Unreachable, error.subject(), error.cause()),
        _ => error,
    }
}
