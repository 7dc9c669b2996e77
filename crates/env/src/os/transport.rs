use super::handing;
use crate::{Address, BoxFuture, Connection, DiskFile, Listener, Tickets, Transport};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

/// TCP and Unix sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsTransport;

/// Connections the kernel keeps for us between two calls of accept: every client of a large cluster may come
/// back in the same second.
const BACKLOG: u32 = 1024;

/// What a Unix socket may hold in each direction: a whole 1 MiB frame, so that its sender need not be woken in
/// the middle. The kernel grants less where `net.core.wmem_max` is lower. TCP sizes its own buffers.
const UNIX_BUFFER_BYTES: usize = 1 << 20;

/// A Unix socket whose backlog is full refuses with EAGAIN at once, instead of waiting as TCP does: 100 × 5 ms.
const UNIX_CONNECT_TRIES: u32 = 100;
const UNIX_CONNECT_PAUSE: Duration = Duration::from_millis(5);

struct OsTcpListener {
    listener: TcpListener,
    local: Address,
}

struct OsUnixListener {
    listener: UnixListener,
    path: PathBuf,
}

impl Transport for OsTransport {
    fn hand_out(&self, path: &Path, from: Arc<dyn Tickets>) -> BoxFuture<'_, io::Result<BoxFuture<'static, ()>>> {
        let path = path.to_owned();
        Box::pin(async move { handing::hand_out(bind_unix(&path).await?, path, from) })
    }

    fn take(&self, path: &Path, ticket: u64) -> BoxFuture<'_, io::Result<Vec<Arc<dyn DiskFile>>>> {
        let path = path.to_owned();
        Box::pin(async move { handing::take(connect_unix(&path).await?, ticket).await })
    }

    fn listen(&self, at: &Address) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        let at = at.clone();
        Box::pin(async move {
            match at {
                Address::Tcp(host_port) => listen_tcp(&host_port).await,
                Address::Unix(path) => listen_unix(path).await,
            }
        })
    }

    fn connect(&self, to: &Address) -> BoxFuture<'_, io::Result<Connection>> {
        let to = to.clone();
        Box::pin(async move {
            match &to {
                Address::Tcp(host_port) => tcp_connection(TcpStream::connect(host_port.as_str()).await?),
                Address::Unix(path) => Ok(unix_connection(connect_unix(path).await?, to.to_string())),
            }
        })
    }
}

async fn listen_tcp(host_port: &str) -> io::Result<Box<dyn Listener>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host_port} names no address"));
    for address in tokio::net::lookup_host(host_port).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A server that restarts must not wait a minute for its old connections to be forgotten.
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => {
                let local = Address::Tcp(listener.local_addr()?.to_string());
                return Ok(Box::new(OsTcpListener { listener, local }));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn listen_unix(path: PathBuf) -> io::Result<Box<dyn Listener>> {
    let listener = bind_unix(&path).await?;
    Ok(Box::new(OsUnixListener { listener, path }))
}

async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Ok(found) = std::fs::symlink_metadata(path)
        && found.file_type().is_socket()
    {
        match UnixStream::connect(path).await {
            Ok(_) => return Err(in_use(path)),
            // A full backlog: somebody is there.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(in_use(path)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
            Err(_) => {}
        }
    }
    UnixListener::bind(path)
}

fn in_use(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, format!("another process answers on {}", path.display()))
}

async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    for _ in 1..UNIX_CONNECT_TRIES {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(UNIX_CONNECT_PAUSE).await,
            result => return result,
        }
    }
    UnixStream::connect(path).await
}

fn tcp_connection(stream: TcpStream) -> io::Result<Connection> {
    // Frames are written whole; Nagle's wait for an acknowledgement would add up to 40 ms to each.
    stream.set_nodelay(true)?;
    let peer = stream.peer_addr()?.to_string();
    let (reader, writer) = stream.into_split();
    Ok(Connection { reader: Box::new(reader), writer: Box::new(writer), peer })
}

fn unix_connection(stream: UnixStream, peer: String) -> Connection {
    // A refusal leaves the default, which works as well.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(stream.as_fd(), UNIX_BUFFER_BYTES);
    let (reader, writer) = stream.into_split();
    Connection { reader: Box::new(reader), writer: Box::new(writer), peer }
}

/// A caller that was gone before we answered is no fault of the listener.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | NotConnected)
}

impl Listener for OsTcpListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async move {
            loop {
                match self.listener.accept().await.and_then(|(stream, _)| tcp_connection(stream)) {
                    Err(error) if is_gone(&error) => {}
                    result => return result,
                }
            }
        })
    }

    fn local(&self) -> Address {
        self.local.clone()
    }
}

impl Listener for OsUnixListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async move {
            loop {
                match self.listener.accept().await {
                    Err(error) if is_gone(&error) => {}
                    Err(error) => return Err(error),
                    Ok((stream, _)) => return Ok(unix_connection(stream, self.local().to_string())),
                }
            }
        })
    }

    fn local(&self) -> Address {
        Address::Unix(self.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn exchange(at: Address) {
        let listener = OsTransport.listen(&at).await.unwrap();
        let local = listener.local();
        let client = async {
            let mut connection = OsTransport.connect(&local).await.unwrap();
            assert!(connection.writer.is_write_vectored());
            let parts = [IoSlice::new(b"two "), IoSlice::new(b"parts")];
            assert_eq!(connection.writer.write_vectored(&parts).await.unwrap(), 9);
        };
        let server = async {
            let mut connection = listener.accept().await.unwrap();
            let mut text = String::new();
            connection.reader.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "two parts");
        };
        tokio::join!(client, server);
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn bytes_arrive_in_one_vectored_write() {
        run(exchange(Address::Tcp("127.0.0.1:0".into())));
        let dir = tempfile::tempdir().unwrap();
        run(exchange(Address::Unix(dir.path().join("s"))));
    }

    #[test]
    fn a_stale_socket_is_replaced_and_nothing_else() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let at = Address::Unix(dir.path().join("s"));
            drop(OsTransport.listen(&at).await.unwrap());
            let listener = OsTransport.listen(&at).await.unwrap();
            let error = OsTransport.listen(&at).await.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            drop(listener);
            let file = dir.path().join("f");
            std::fs::write(&file, "precious").unwrap();
            assert!(OsTransport.listen(&Address::Unix(file.clone())).await.is_err());
            assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        });
    }
}
