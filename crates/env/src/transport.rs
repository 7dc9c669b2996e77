use crate::{BoxFuture, DiskFile};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Where a server listens: `tcp:host:port` or `unix:/path`. A bare `host:port` is TCP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    Tcp(String),
    Unix(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address; use host:port, tcp:host:port or unix:/path")]
pub struct AddressError(pub String);

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let bad = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') { Ok(Address::Unix(path.into())) } else { Err(bad()) };
        }
        let rest = text.strip_prefix("tcp:").unwrap_or(text);
        match rest.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Address::Tcp(rest.to_owned())),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host_port) => write!(f, "tcp:{host_port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A stream of bytes in both directions. Dropping both halves closes it.
pub struct Connection {
    pub reader: Box<dyn AsyncRead + Send + Sync + Unpin>,
    pub writer: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    /// The other end, for messages.
    pub peer: String,
}

/// Accepts connections.
pub trait Listener: Send + Sync {
    fn accept(&self) -> BoxFuture<'_, io::Result<Connection>>;
    /// Where it really listens: a port of 0 has been replaced by the one that was given.
    fn local(&self) -> Address;
}

/// Connects and listens. A Unix address is removed first if nothing answers on it.
pub trait Transport: Send + Sync {
    fn listen(&self, at: &Address) -> BoxFuture<'_, io::Result<Box<dyn Listener>>>;
    fn connect(&self, to: &Address) -> BoxFuture<'_, io::Result<Connection>>;

    /// Gives open files to processes of this host that connect to the socket at `path` and know their ticket, for as long as the future is
    /// polled. Only files that have a [`DiskFile::descriptor`] can be given; others are as if they were not there.
    fn hand_out(&self, _path: &Path, _from: Arc<dyn Tickets>) -> BoxFuture<'_, io::Result<BoxFuture<'static, ()>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// The files of a ticket, as the process that hands them out has them open; what is written to them fails unless they are open for
    /// that. `NotFound` if the ticket is not valid (any more).
    fn take(&self, _path: &Path, _ticket: u64) -> BoxFuture<'_, io::Result<Vec<Arc<dyn DiskFile>>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

/// What [`Transport::hand_out`] gives.
pub trait Tickets: Send + Sync {
    /// At most [`FILES_OF_A_TICKET_MAX`]; none if the ticket is not valid. A ticket is a number that nobody can guess.
    fn redeem(&self, ticket: u64) -> Vec<Arc<dyn DiskFile>>;
}

pub const FILES_OF_A_TICKET_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_what_they_print() {
        for text in ["tcp:127.0.0.1:7000", "unix:/run/braid.sock", "tcp:[::1]:80"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("host:1".parse::<Address>().unwrap(), Address::Tcp("host:1".into()));
        for text in ["", "host", "host:", ":1", "host:99999", "unix:relative"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
