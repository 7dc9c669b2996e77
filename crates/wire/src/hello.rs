use crate::frame::{Draft, FrameError, OutFrame};
use crate::header::Kind;
use crate::limits::Limits;
use crate::reader::Frame;
use braid_api::{Code, Context, Error, PROTOCOL_VERSION, Result};
use braid_types::{ClusterId, ServerId};
use bytes::Bytes;
use std::fmt;

/// The oldest protocol this version still speaks.
pub const PROTOCOL_VERSION_MIN: u16 = 34;

const MAGIC: [u8; 8] = *b"BraidFS\n";
/// Before the authentication's bytes.
const FIXED_BYTES: usize = 58;
/// Room for a certificate chain or a token, and no more.
const AUTH_BYTES_MAX: usize = 16 << 10;

/// What an end of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    Client = 1,
    Metadata = 2,
    Data = 3,
    Admin = 4,
}

/// The first thing each end says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub version: u16,
    /// The oldest version the sender speaks.
    pub version_min: u16,
    pub role: Role,
    /// What the other end must be; `None` if the sender does not mind.
    pub wanted: Option<Role>,
    /// Zero if the sender does not know it yet: at a first start, a first mount, a join.
    pub cluster: ClusterId,
    /// Drawn at each start of the sender.
    pub incarnation: u64,
    /// Of a server; zero otherwise and before its first registration.
    pub server: ServerId,
    /// Empty until identities exist.
    pub auth: Bytes,
}

/// The other end of a connection, as its hello introduced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    pub role: Role,
    pub cluster: ClusterId,
    pub server: ServerId,
    pub incarnation: u64,
    /// The version both speak.
    pub version: u16,
    /// Where it is connected from, or was connected to; for messages.
    pub address: String,
}

impl Role {
    fn read(byte: u8) -> Option<Role> {
        [Role::Client, Role::Metadata, Role::Data, Role::Admin].into_iter().find(|&role| role as u8 == byte)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Client => "client",
            Role::Metadata => "metadata server",
            Role::Data => "data server",
            Role::Admin => "administrator",
        })
    }
}

impl fmt::Display for PeerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server {
            ServerId(0) => write!(f, "{} at {}", self.role, self.address),
            id => write!(f, "{} {id} at {}", self.role, self.address),
        }
    }
}

/// As both ends would say it, since a refusal is shown at both.
impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server {
            ServerId(0) => write!(f, "the {}", self.role),
            id => write!(f, "{} {id}", self.role),
        }
    }
}

impl Hello {
    /// What a hello's frame may hold at most: whoever has not introduced itself gets no more room.
    pub(crate) fn limits(limits: &Limits) -> Limits {
        Limits { body_bytes_max: FIXED_BYTES + AUTH_BYTES_MAX, payload_bytes_max: 0, ..limits.clone() }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_BYTES + self.auth.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.version_min.to_le_bytes());
        out.extend_from_slice(&[self.role as u8, self.wanted.map_or(0, |role| role as u8), 0, 0, 0, 0]);
        out.extend_from_slice(&self.cluster.0);
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.server.0.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let auth = &self.auth[..self.auth.len().min(AUTH_BYTES_MAX)];
        out.extend_from_slice(&(auth.len() as u32).to_le_bytes());
        out.extend_from_slice(auth);
        out
    }

    /// Bytes behind what this version knows are of a newer one and not looked at.
    pub fn decode(body: &[u8], peer: &str) -> Result<Hello> {
        let bad = |why: &str| Error::new(Code::BadMessage, peer, format!("its hello {why}"));
        if !body.starts_with(&MAGIC) {
            return Err(bad("is not one of BraidFS"));
        }
        let (Some(fixed), rest) = (body.first_chunk::<FIXED_BYTES>(), body.get(FIXED_BYTES..).unwrap_or_default())
        else {
            return Err(bad("is too short"));
        };
        let u16_at = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let u64_at = |at: usize| fixed[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut cluster = ClusterId::default();
        cluster.0.copy_from_slice(&fixed[18..34]);
        let auth_len = fixed[54..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        let auth = rest.get(..auth_len).ok_or_else(|| bad("is too short"))?;
        let version = u16_at(8);
        let Some(role) = Role::read(fixed[12]) else {
            return Err(Error::new(Code::WrongVersion, peer, format!("role {} of its version {version}", fixed[12])));
        };
        let wanted = match fixed[13] {
            0 => None,
            byte => Some(Role::read(byte).ok_or_else(|| bad("wants an unknown role"))?),
        };
        Ok(Hello {
            version,
            version_min: u16_at(10),
            role,
            wanted,
            cluster,
            incarnation: u64_at(34),
            server: ServerId(u64_at(42)),
            auth: Bytes::copy_from_slice(auth),
        })
    }

    pub(crate) fn frame(&self, limits: &Limits) -> std::result::Result<OutFrame, FrameError> {
        let body = self.encode();
        let draft = Draft::new(Bytes::new(), |mut head: Vec<u8>| {
            head.extend_from_slice(&body);
            Ok::<_, FrameError>(head)
        })?;
        draft.finish(Kind::Hello, 0, Context::default(), &Hello::limits(limits))
    }

    /// Reads the frame that must be a hello; an error frame in its place is the peer's refusal.
    pub(crate) fn read(frame: Option<Frame>, peer: &str) -> Result<Hello> {
        match frame {
            None => Err(Error::new(Code::Disconnected, peer, "closed before its hello")),
            Some(frame) => match frame.header.kind {
                Kind::Hello => Hello::decode(&frame.body, peer),
                Kind::Error => {
                    let refusal = crate::body::decode::<Error>(&frame.body).unwrap_or_else(|error| error);
                    Err(Error::new(refusal.code, peer, format!("it refused us: {}", refusal.cause())))
                }
                kind => Err(FrameError::Misplaced(kind).into_error(peer)),
            },
        }
    }

    /// May we, who say `self`, talk to whoever says `other`? Both ends ask this.
    pub fn accept(&self, other: &Hello, address: &str) -> Result<PeerInfo> {
        let version = self.version.min(other.version);
        if version < self.version_min || version < other.version_min {
            let says = |hello: &Hello| format!("{hello} speaks {} to {}", hello.version_min, hello.version);
            let cause = format!("{}, {}; upgrade the older one", says(other), says(self));
            return Err(Error::new(Code::WrongVersion, address, cause));
        }
        let unknown = ClusterId::default();
        if self.cluster != other.cluster && self.cluster != unknown && other.cluster != unknown {
            let cause = format!("{other} is of {}, {self} of {}; check the address", other.cluster, self.cluster);
            return Err(Error::new(Code::WrongCluster, address, cause));
        }
        if let Some(wanted) = other.wanted.filter(|&wanted| wanted != self.role) {
            let cause = format!("{other} wants a {wanted}, this is {self}");
            return Err(Error::new(Code::WrongRole, address, cause));
        }
        if let Some(wanted) = self.wanted.filter(|&wanted| wanted != other.role) {
            let cause = format!("a {wanted} is wanted, this is {other}");
            return Err(Error::new(Code::WrongRole, address, cause));
        }
        let Hello { role, cluster, server, incarnation, .. } = *other;
        Ok(PeerInfo { role, cluster, server, incarnation, version, address: address.to_owned() })
    }
}

impl Default for Hello {
    fn default() -> Self {
        Hello {
            version: PROTOCOL_VERSION,
            version_min: PROTOCOL_VERSION_MIN,
            role: Role::Client,
            wanted: None,
            cluster: ClusterId::default(),
            incarnation: 0,
            server: ServerId(0),
            auth: Bytes::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            wanted: Some(Role::Data),
            cluster: ClusterId([7; 16]),
            incarnation: 3,
            server: ServerId(9),
            auth: Bytes::from_static(b"who"),
            ..Hello::default()
        }
    }

    #[test]
    fn a_hello_reads_back_what_it_writes_and_a_part_of_it_does_not() {
        let mut bytes = hello().encode();
        for cut in 0..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..cut], "p").unwrap_err().code, Code::BadMessage);
        }
        bytes.extend_from_slice(b"of a newer version");
        assert_eq!(Hello::decode(&bytes, "p").unwrap(), hello());
    }

    #[test]
    fn a_server_that_is_not_the_wanted_one_is_refused_by_both() {
        let data = Hello { role: Role::Data, cluster: ClusterId([7; 16]), ..Hello::default() };
        assert_eq!(data.accept(&hello(), "a").unwrap().server, ServerId(9));
        let meta = Hello { role: Role::Metadata, ..data.clone() };
        assert_eq!(meta.accept(&hello(), "a").unwrap_err().code, Code::WrongRole);
        assert_eq!(hello().accept(&meta, "a").unwrap_err().code, Code::WrongRole);
        let other = Hello { cluster: ClusterId([8; 16]), ..data.clone() };
        let error = other.accept(&hello(), "a").unwrap_err();
        assert_eq!(error.code, Code::WrongCluster);
        assert!(error.cause().contains(&"07".repeat(16)) && error.cause().contains(&"08".repeat(16)));
        let new = Hello { cluster: ClusterId::default(), ..data.clone() };
        assert!(new.accept(&hello(), "a").is_ok());
    }

    #[test]
    fn versions_must_overlap() {
        let span = |version_min, version| Hello { version_min, version, ..Hello::default() };
        assert_eq!(span(1, 3).accept(&span(2, 5), "a").unwrap().version, 3);
        assert_eq!(span(1, 3).accept(&span(4, 5), "a").unwrap_err().code, Code::WrongVersion);
        assert_eq!(span(4, 5).accept(&span(1, 3), "a").unwrap_err().code, Code::WrongVersion);
    }
}
