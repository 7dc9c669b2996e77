//! A network in memory whose lines can be cut, a clock that is tokio's, and a service that does what it is told.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part; a test may panic")]

use braid_api::{Context as Cx, Result};
use braid_env::*;
use braid_types::*;
use braid_wire::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

pub struct TestClock(tokio::time::Instant);

impl Clock for TestClock {
    fn now(&self) -> Monotonic {
        Monotonic(Duration::from_secs(1000) + self.0.elapsed())
    }
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move { tokio::time::sleep(duration).await })
    }
}

/// Splitmix64: the tests' randomness, from a seed.
pub struct Seeded(pub AtomicU64);

impl Random for Seeded {
    fn u64(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

struct Tasks;

impl Spawn for Tasks {
    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        TaskHandle(tokio::spawn(task))
    }
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

#[derive(Default)]
struct Line {
    cut: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Line {
    fn is_cut(&self, cx: &Context<'_>) -> bool {
        self.wakers.lock().push(cx.waker().clone());
        self.cut.load(SeqCst)
    }
}

struct Half<T>(T, Arc<Line>);

impl AsyncRead for Half<ReadHalf<DuplexStream>> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.1.is_cut(cx) { Poll::Ready(Ok(())) } else { Pin::new(&mut self.0).poll_read(cx, buf) }
    }
}

impl AsyncWrite for Half<WriteHalf<DuplexStream>> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.1.is_cut(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.0).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[derive(Default)]
pub struct Net {
    listeners: Mutex<BTreeMap<String, mpsc::UnboundedSender<Connection>>>,
    lines: Mutex<Vec<Arc<Line>>>,
    pub connects: AtomicUsize,
}

struct NetListener(tokio::sync::Mutex<mpsc::UnboundedReceiver<Connection>>, Address);

impl Listener for NetListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async { self.0.lock().await.recv().await.ok_or(io::ErrorKind::NotConnected.into()) })
    }
    fn local(&self) -> Address {
        self.1.clone()
    }
}

impl Net {
    /// Every connection breaks now.
    pub fn cut(&self) {
        for line in self.lines.lock().drain(..) {
            line.cut.store(true, SeqCst);
            line.wakers.lock().drain(..).for_each(Waker::wake);
        }
    }
}

pub struct NetTransport(pub Arc<Net>);

impl Transport for NetTransport {
    fn listen(&self, at: &Address) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        let (send, receive) = mpsc::unbounded_channel();
        self.0.listeners.lock().insert(at.to_string(), send);
        let at = at.clone();
        Box::pin(async move { Ok(Box::new(NetListener(tokio::sync::Mutex::new(receive), at)) as Box<dyn Listener>) })
    }

    fn connect(&self, to: &Address) -> BoxFuture<'_, io::Result<Connection>> {
        self.0.connects.fetch_add(1, SeqCst);
        let listener = self.0.listeners.lock().get(&to.to_string()).cloned();
        let line = Arc::new(Line::default());
        let end = |stream: DuplexStream, peer: &str| {
            let (reader, writer) = tokio::io::split(stream);
            let (reader, writer) = (Half(reader, line.clone()), Half(writer, line.clone()));
            Connection { reader: Box::new(reader), writer: Box::new(writer), peer: peer.to_owned() }
        };
        let (near, far) = tokio::io::duplex(64 << 10);
        let (near, far) = (end(near, &to.to_string()), end(far, "somewhere"));
        let taken = listener.is_some_and(|listener| listener.send(far).is_ok());
        self.0.lines.lock().push(line);
        Box::pin(async move { if taken { Ok(near) } else { Err(io::ErrorKind::ConnectionRefused.into()) } })
    }
}

pub fn world() -> (Env, Arc<Net>) {
    let net = Arc::new(Net::default());
    let env = Env {
        clock: Arc::new(TestClock(tokio::time::Instant::now())),
        random: Arc::new(Seeded(AtomicU64::new(1))),
        disk: Arc::new(os::OsDisk),
        transport: Arc::new(NetTransport(net.clone())),
        spawner: Arc::new(Tasks),
    };
    (env, net)
}

pub const CLUSTER: ClusterId = ClusterId([7; 16]);

pub fn endpoint(env: &Env, role: Role, server: u64, limits: Limits) -> Endpoint {
    let identity = Identity { role, cluster: CLUSTER, server: ServerId(server), incarnation: 1 };
    Endpoint::new(env.clone(), identity, limits)
}

pub fn at(name: &str) -> Address {
    Address::Tcp(name.to_owned())
}

pub const NAMES: &[&str] = &["Echo", "Hang", "Add", "Panic", "Sleep", "Busy", "Change"];
pub const ECHO: u8 = 0;
pub const HANG: u8 = 1;
pub const ADD: u8 = 2;
pub const PANIC: u8 = 3;
pub const SLEEP: u8 = 4;
pub const BUSY: u8 = 5;
/// Takes its second byte in tenths of a second and has its effect at the end.
pub const CHANGE: u8 = 6;

#[derive(Default)]
pub struct Obedient {
    seen: Mutex<BTreeSet<u64>>,
    /// Effects of ADD and CHANGE.
    pub effects: AtomicUsize,
    pub dropped: AtomicUsize,
    pub begun: AtomicUsize,
    pub last: Mutex<Option<Cx>>,
}

struct CountDrop<'a>(&'a AtomicUsize);

impl Drop for CountDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Service for Obedient {
    const NAMES: &'static [&'static str] = NAMES;

    async fn handle(self: Arc<Self>, _: Arc<PeerInfo>, request: Request) -> Result<Reply> {
        self.begun.fetch_add(1, SeqCst);
        tracing::info!("handled");
        *self.last.lock() = Some(request.context);
        match request.body.first().copied().unwrap_or(255) {
            HANG => {
                let _count = CountDrop(&self.dropped);
                std::future::pending().await
            }
            ADD => {
                if self.seen.lock().insert(request.context.request.0) {
                    self.effects.fetch_add(1, SeqCst);
                    // The first answer never arrives.
                    std::future::pending::<()>().await;
                }
                Ok(Reply::raw(b"added", Bytes::new()))
            }
            PANIC => panic!("planted"),
            SLEEP => {
                tokio::time::sleep(Duration::from_millis(u64::from(request.body[1]) * 100)).await;
                Ok(Reply::raw(&request.body, Bytes::new()))
            }
            CHANGE => {
                let _count = CountDrop(&self.dropped);
                tokio::time::sleep(Duration::from_millis(u64::from(request.body[1]) * 100)).await;
                self.effects.fetch_add(1, SeqCst);
                Ok(Reply::raw(&request.body, Bytes::new()))
            }
            BUSY if self.begun.load(SeqCst) < 4 => Err(braid_api::Code::Busy.into()),
            ECHO | BUSY => Ok(Reply::raw(&request.body, request.payload)),
            _ => Err(braid_api::Error::new(braid_api::Code::BadMessage, "body", "no such order")),
        }
    }

    fn may_drop(&self, body: &[u8]) -> bool {
        body.first() != Some(&CHANGE)
    }
}

pub struct Server {
    pub service: Arc<Obedient>,
    pub stats: Arc<WireStats>,
    pub at: Address,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    task: TaskHandle,
}

impl Server {
    pub async fn start(env: &Env, address: &Address, service: Arc<Obedient>, limits: Limits) -> Server {
        let endpoint = endpoint(env, Role::Data, 2, limits);
        Server::start_as(endpoint, address, service).await
    }

    pub async fn start_as(endpoint: Endpoint, address: &Address, service: Arc<Obedient>) -> Server {
        let env = endpoint.env().clone();
        let listener = env.transport.listen(address).await.unwrap();
        let (at, stats) = (listener.local(), WireStats::new(NAMES));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = serve(endpoint, listener, service.clone(), stats.clone(), async {
            let _ = stopped.await;
        });
        let task = env.spawn("server", serving);
        Server { service, stats, at, stop: Some(stop), task }
    }

    pub async fn shut_down(mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.task.join().await;
    }

    /// As a crash: listener and connections vanish, nothing is finished.
    pub fn kill(self, net: &Net) {
        self.task.abort();
        net.cut();
    }
}

pub fn remote(endpoint: &Endpoint, at: &Address) -> Remote {
    Remote::new(endpoint, Role::Data, ServerId(2), NAMES, vec![at.clone()])
}

pub fn within(ms: u64) -> Cx {
    Cx { deadline: Duration::from_millis(ms), ..Cx::default() }
}

/// Runs a test on one thread with paused time, which leaps ahead when all tasks wait.
pub fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(test);
}
