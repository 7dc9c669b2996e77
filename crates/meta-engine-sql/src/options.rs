//! How a [`SqlEngine`](crate::SqlEngine) reaches its database. None of these is stored.

use braid_meta_engine::EngineError;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where a database server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp { host: String, port: u16 },
    Socket(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Whether every changing transaction writes a fence row (`fence.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// On databases whose row locks do not reach over all their servers.
    WhereNeeded,
    Always,
}

#[derive(Clone, Debug)]
pub struct SqlOptions {
    /// The first that answers is used by all connections, until it is lost. Several are the servers of one cluster.
    pub addresses: Vec<Address>,
    pub user: String,
    pub password: Option<String>,
    /// Made if it is not there and the user may.
    pub database: String,
    /// Connections at most. A transaction has one from its first call to its commit, so this bounds how many run at once;
    /// 32 are more than 8 cores of a database keep busy.
    pub connections_max: usize,
    /// Partitions of each table where the database does not choose the number itself. Only counts when tables are made.
    pub partitions: u16,
    /// How long the database lets a transaction wait for a row. Whole seconds, 1 to 3: shorter than the patience of any
    /// client, longer than any commit.
    pub lock_wait: Duration,
    /// No answer for so long, and the connection is given up. Several locks may be waited for in one message.
    pub answer_deadline: Duration,
    pub connect_deadline: Duration,
    /// A transaction is begun so often at most, with pauses that double from 1 to 64 ms: a hot row is passed on in a
    /// millisecond or less, so 24 attempts outlast a queue of hundreds.
    pub attempts_max: u32,
    /// And for so long at most, also while no server answers. Less than a client's call deadline of 60 s.
    pub give_up_after: Duration,
    pub fencing: Fencing,
    /// Connections go through a proxy, which may give another server after a deadlock: they are not used again then.
    pub through_proxy: bool,
    /// Planted fault, for tests of the tests.
    #[cfg(feature = "planted")]
    pub planted: Option<crate::PlantedBug>,
    /// The database is taken for one whose statements cannot share a moment, as NDB is.
    #[cfg(feature = "planted")]
    pub without_snapshots: bool,
}

impl SqlOptions {
    pub fn new(addresses: Vec<Address>, user: &str, database: &str) -> Self {
        SqlOptions {
            addresses,
            user: user.to_owned(),
            password: None,
            database: database.to_owned(),
            connections_max: 32,
            partitions: 8,
            lock_wait: Duration::from_secs(2),
            answer_deadline: Duration::from_secs(10),
            connect_deadline: Duration::from_secs(3),
            attempts_max: 24,
            give_up_after: Duration::from_secs(30),
            fencing: Fencing::WhereNeeded,
            through_proxy: false,
            #[cfg(feature = "planted")]
            planted: None,
            #[cfg(feature = "planted")]
            without_snapshots: false,
        }
    }

    /// From `mysql://USER[:PASSWORD]@HOST[:PORT][,HOST[:PORT]…]/DATABASE`; user and password may have %-escapes. One of the
    /// hosts may be the absolute path of a socket, its slashes escaped as %2F.
    pub fn from_url(url: &str) -> Result<Self, EngineError> {
        parse(url).map_err(|why| EngineError::Storage(format!("the database's address {:?}: {why}", hidden(url))))
    }

    /// What cannot work is told before anything is tried.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let wrong = |what: &str| Err(EngineError::Storage(format!("options of the SQL engine: {what}")));
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.addresses.is_empty() {
            return wrong("no address of a server");
        }
        if self.database.is_empty() || self.database.len() > 64 || !self.database.chars().all(name) {
            return wrong("the database's name is 1 to 64 letters, digits and underscores");
        }
        if self.connections_max == 0 || self.partitions == 0 || self.attempts_max == 0 {
            return wrong("connections, partitions and attempts are at least 1");
        }
        if !(1..=60).contains(&self.lock_wait.as_secs()) || self.answer_deadline <= self.lock_wait {
            return wrong("the wait for a lock is at least 1 s, and shorter than that for an answer");
        }
        Ok(())
    }
}

fn parse(url: &str) -> Result<SqlOptions, String> {
    let rest = url.strip_prefix("mysql://").ok_or("it begins with mysql://")?;
    let (login, rest) = rest.rsplit_once('@').ok_or("the user is missing")?;
    let slash = rest.find('/').ok_or("the database is missing")?;
    let (hosts, database) = (&rest[..slash], &rest[slash + 1..]);
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(unescaped(password)?)),
        None => (login, None),
    };
    let addresses = hosts.split(',').map(address).collect::<Result<_, _>>()?;
    Ok(SqlOptions { password, ..SqlOptions::new(addresses, &unescaped(user)?, database) })
}

fn address(host: &str) -> Result<Address, String> {
    let host = unescaped(host)?;
    if host.starts_with('/') {
        return Ok(Address::Socket(host.into()));
    }
    // An IPv6 address stands in brackets, as its colons are not those of a port.
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().map_err(|_| format!("the port {port:?}"))?),
        _ => (host.as_str(), 3306),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if name.is_empty() {
        return Err("a host has no name".into());
    }
    Ok(Address::Tcp { host: name.to_owned(), port })
}

fn unescaped(text: &str) -> Result<String, String> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (high, low) = (digit(), digit());
        let escape = high.zip(low).ok_or("a % is followed by two hexadecimal digits")?;
        bytes.push((escape.0 * 16 + escape.1) as u8);
    }
    String::from_utf8(bytes).map_err(|_| "it is no UTF-8".to_owned())
}

/// The address without its password, for messages.
pub fn hidden(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(start), Some(end)) if start + 3 <= end => format!("{}…{}", &url[..start + 3], &url[end..]),
        // Whatever it is: before the last @ there may be a password.
        (None, Some(end)) => format!("…{}", &url[end..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let options = SqlOptions::from_url("mysql://braid:p%40ss:w@a,b:3307,[::1]:3308,%2Frun%2Fdb.sock/meta").unwrap();
        let shown: Vec<_> = options.addresses.iter().map(Address::to_string).collect();
        assert_eq!(shown, ["a:3306", "b:3307", "::1:3308", "/run/db.sock"]);
        assert_eq!((options.user.as_str(), options.password.as_deref()), ("braid", Some("p@ss:w")));
        assert_eq!(options.database, "meta");
        assert!(options.check().is_ok());
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in ["postgres://a:secret@b/c", "mysql://a:secret@b", "mysql://a:secret@b:x/c", "mysql://a:secret%4@b/c"]
        {
            let error = SqlOptions::from_url(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let mut options = SqlOptions::new(vec![], "a", "b`; drop");
        assert!(options.check().unwrap_err().to_string().contains("no address"));
        options.addresses.push(Address::Socket("/s".into()));
        assert!(options.check().unwrap_err().to_string().contains("letters"));
    }
}
