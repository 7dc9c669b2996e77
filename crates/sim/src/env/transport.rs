use super::handing::Handing;
use super::links::{LinkEnd, Links};
use super::trap::{Passes, Trap};
use super::word::{Sent, Word};
use super::{Hardware, PauseGate, Surroundings};
use crate::history::History;
use crate::machine::Machine;
use braid_env::{Address, BoxFuture, Connection, DiskFile, Listener, Tickets, Transport};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use turmoil::net::{TcpListener, TcpStream};

/// TCP between simulated machines, by their names.
#[derive(Clone)]
pub struct SimTransport {
    machine: &'static str,
    links: Arc<Links>,
    history: Arc<History>,
    handing: Arc<Handing>,
    trap: Arc<Trap>,
    gate: Arc<PauseGate>,
}

impl SimTransport {
    pub fn new(hardware: &Hardware, around: &Surroundings) -> Self {
        let Surroundings { links, history, handing, trap, .. } = around.clone();
        SimTransport { machine: hardware.name, links, history, handing, trap, gate: hardware.pause.clone() }
    }

    fn connection(&self, stream: TcpStream, peer: String) -> Connection {
        let (reader, writer) = stream.into_split();
        let end = Arc::new(End {
            link: self.links.join(self.machine, &peer),
            links: self.links.clone(),
            machine: self.machine,
            by_meta: is_meta(self.machine),
            to_meta: is_meta(&peer),
            peer: peer.clone(),
            history: self.history.clone(),
            trap: self.trap.clone(),
            gate: self.gate.clone(),
        });
        Connection {
            reader: Box::new(SimReader { inner: reader, end: end.clone() }),
            writer: Box::new(SimWriter { inner: writer, end, carried: None }),
            peer,
        }
    }
}

fn is_meta(machine: &str) -> bool {
    Machine::METAS.iter().any(|meta| meta.name() == machine)
}

fn refused(at: &Address) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{at}: simulated machines meet over TCP only"))
}

impl Transport for SimTransport {
    fn hand_out(&self, path: &Path, from: Arc<dyn Tickets>) -> BoxFuture<'_, io::Result<BoxFuture<'static, ()>>> {
        let handed = self.handing.hand_out(path, from);
        Box::pin(async { Ok(handed) })
    }

    fn take(&self, path: &Path, ticket: u64) -> BoxFuture<'_, io::Result<Vec<Arc<dyn DiskFile>>>> {
        let taken = self.handing.take(path, ticket);
        Box::pin(async { taken })
    }

    fn listen(&self, at: &Address) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        let at = at.clone();
        Box::pin(async move {
            let Address::Tcp(host_port) = &at else { return Err(refused(&at)) };
            let (_, port) = host_port.rsplit_once(':').ok_or_else(|| refused(&at))?;
            let port: u16 = port.parse().map_err(|_| refused(&at))?;
            let listener = TcpListener::bind(("0.0.0.0", port)).await?;
            let local = Address::Tcp(format!("{}:{}", self.machine, listener.local_addr()?.port()));
            Ok(Box::new(SimListener { listener, local, transport: self.clone() }) as Box<dyn Listener>)
        })
    }

    fn connect(&self, to: &Address) -> BoxFuture<'_, io::Result<Connection>> {
        let to = to.clone();
        Box::pin(async move {
            let Address::Tcp(host_port) = &to else { return Err(refused(&to)) };
            let stream = TcpStream::connect(host_port.as_str()).await?;
            let peer = host_port.rsplit_once(':').map_or(host_port.as_str(), |(host, _)| host).to_owned();
            Ok(self.connection(stream, peer))
        })
    }
}

struct SimListener {
    listener: TcpListener,
    local: Address,
    transport: SimTransport,
}

impl Listener for SimListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async move {
            let (stream, from) = self.listener.accept().await?;
            let peer = turmoil::reverse_lookup(from.ip()).unwrap_or_else(|| from.ip().to_string());
            Ok(self.transport.connection(stream, peer))
        })
    }

    fn local(&self) -> Address {
        self.local.clone()
    }
}

/// What both halves of one end share.
struct End {
    link: LinkEnd,
    links: Arc<Links>,
    machine: &'static str,
    peer: String,
    by_meta: bool,
    to_meta: bool,
    history: Arc<History>,
    trap: Arc<Trap>,
    gate: Arc<PauseGate>,
}

impl End {
    fn check(&self) -> io::Result<()> {
        match self.links.holds(&self.link) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::ConnectionReset, format!("the link to {} broke", self.peer))),
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.links.leave(&self.link);
    }
}

struct SimReader {
    inner: OwnedReadHalf,
    end: Arc<End>,
}

impl AsyncRead for SimReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.end.check()?;
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        if poll.is_pending() {
            self.end.links.watch(&self.end.link, cx.waker());
        }
        poll
    }
}

struct SimWriter {
    inner: OwnedWriteHalf,
    end: Arc<End>,
    /// Of a word of the leader the first part has been written.
    carried: Option<usize>,
}

impl AsyncWrite for SimWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.end.check()?;
        let sent = Sent { by_meta: self.end.by_meta, to_meta: self.end.to_meta, carried: self.carried };
        if self.end.trap.at_message(self.end.machine, &self.end.gate, buf, sent) == Passes::Not {
            // It is asked again by the gate, when that is open.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let poll = Pin::new(&mut self.inner).poll_write(cx, buf);
        if let Poll::Ready(Ok(n)) = &poll {
            self.end.history.bytes(self.end.machine, &self.end.peer, &buf[..*n]);
            self.carried = Word::carried_after(&buf[..*n]);
        }
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
