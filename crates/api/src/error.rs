use braid_types::ServerId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// May the same request be sent again?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The answer would be the same.
    No,
    /// Nothing happened.
    Yes,
    /// It may have happened: only with the same request id, or if repeating is harmless.
    IfIdempotent,
    /// After looking up again what it was based on: chain, session, truncate generation, location.
    AfterRefresh,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $retry:ident, $text:literal;)*) => {
        /// Stable numbers of what can go wrong: 1xx the namespace, 2xx sessions and fencing, 3xx transport,
        /// 4xx data, 5xx protocol and configuration, 9xx ourselves.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "u16", into = "u16")]
        #[repr(u16)]
        pub enum Code { $($(#[$doc])* $name = $number,)* }

        impl Code {
            pub const ALL: &[Code] = &[$(Code::$name),*];

            pub fn retry(self) -> Retry {
                match self { $(Code::$name => Retry::$retry,)* }
            }

            /// What the code means, without subject and cause.
            pub fn text(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }
        }

        impl TryFrom<u16> for Code {
            type Error = String;
            fn try_from(number: u16) -> std::result::Result<Self, String> {
                match number {
                    $($number => Ok(Code::$name),)*
                    // A newer peer may know more than we do.
                    _ => Ok(Code::Unknown),
                }
            }
        }
    };
}

codes! {
    NotFound = 100, No, "no such file or directory";
    Exists = 101, No, "exists already";
    NotDirectory = 102, No, "not a directory";
    IsDirectory = 103, No, "is a directory";
    NotEmpty = 104, No, "directory not empty";
    NotPermitted = 105, No, "operation not permitted";
    AccessDenied = 106, No, "permission denied";
    CrossDevice = 107, No, "crosses a boundary that a rename or link cannot cross";
    NameTooLong = 108, No, "name too long";
    Invalid = 109, No, "invalid argument";
    TooManyLinks = 110, No, "too many links";
    NoSpace = 111, No, "no space left";
    QuotaExceeded = 112, No, "quota exceeded";
    FileTooBig = 113, No, "file too large";
    NoXattr = 114, No, "no such attribute";
    /// The caller's buffer for an attribute is too small.
    Range = 115, No, "result does not fit the buffer";
    TooBig = 116, No, "argument too large";
    ReadOnly = 117, No, "read-only file system";
    /// The inode has gone: ESTALE.
    Stale = 118, No, "the file does not exist any more";
    NotSupported = 119, No, "not supported";
    WouldBlock = 120, No, "would block";
    Deadlock = 121, No, "would deadlock";
    Interrupted = 122, No, "interrupted";
    BadHandle = 123, No, "no such open file";
    Busy = 124, Yes, "busy";
    /// No such data or hole (lseek past the end): ENXIO.
    NoData = 125, No, "no data or hole there";
    TextBusy = 126, No, "in use as a program or by a lease";
    TooManyLocks = 127, No, "too many locks";
    /// Nothing of the file changes until it is unsealed: EPERM, as of what Linux calls immutable.
    Sealed = 128, No, "the file is sealed";
    /// A snapshot has the chunk: another has to take its place first ([`ChunkRef::frozen`](crate::meta::ChunkRef::frozen)).
    Frozen = 129, AfterRefresh, "the chunk belongs to a snapshot";

    /// The server does not know this session (any more): register again.
    SessionUnknown = 200, AfterRefresh, "the session is not registered";
    /// The session was declared dead and fenced; its locks and what only it could save are void. A new one may go on.
    SessionFenced = 201, AfterRefresh, "the session was fenced";
    StaleEpoch = 202, AfterRefresh, "carries an old chain epoch";
    StaleTruncGen = 203, AfterRefresh, "carries an old truncate generation";
    StaleLease = 204, AfterRefresh, "carries an old lease";
    NotOwner = 205, AfterRefresh, "another server owns the chunk";
    /// The metadata server is not the one to ask, or does not serve yet.
    NotServing = 206, Yes, "the server does not serve yet";
    /// A request with this id ran before with other contents.
    RequestReused = 207, No, "the request id was used for another request";
    /// The metadata server has started again and waits for what clients keep of answers that came before they were
    /// durable: send it, then come again.
    Recovering = 208, AfterRefresh, "the server collects what clients keep";
    /// What was written, and not yet safe, went with the session under whose lease it was written.
    WriteLost = 210, No, "written bytes were lost with the session";
    /// A change that its sender has given up, or repeated, since. Whoever still waits for it sends it anew.
    Overtaken = 211, Yes, "its sender does not wait for it any more";
    /// Of several metadata servers another is the one to ask: [`GetRoster`](crate::meta::GetRoster) says which.
    HeldElsewhere = 212, AfterRefresh, "another metadata server answers for it";

    Unreachable = 300, Yes, "the server cannot be reached";
    DeadlineExceeded = 301, IfIdempotent, "the deadline passed";
    Disconnected = 302, IfIdempotent, "the connection broke before the answer";
    MaybeCommitted = 303, IfIdempotent, "the outcome of the commit is unknown";

    ChunkUnknown = 400, AfterRefresh, "the server has no such chunk";
    BadBlock = 401, No, "a block does not match its checksum";
    DiskError = 402, No, "the disk failed";
    DiskFull = 403, No, "the disk is full";
    NoServers = 404, Yes, "not enough data servers";
    /// What was on stable storage is not there any more. Nothing is made up for it.
    ChunkLost = 405, No, "bytes that were on stable storage are lost";
    /// Fewer copies of the rows than the file's policy asks for: its bytes go to chunks.
    FewRowCopies = 406, AfterRefresh, "the rows have too few copies for the bytes of the file";

    BadMessage = 500, No, "the message cannot be understood";
    WrongCluster = 501, No, "belongs to another cluster";
    WrongVersion = 502, No, "speaks another version of the protocol";
    WrongRole = 503, No, "the server has another role";
    FrameTooLong = 504, No, "the frame is too long";
    Newer = 505, No, "was written by a newer version";
    BadConfig = 506, No, "the configuration is wrong";
    /// A data server with an id that was taken from it for ever.
    Decommissioned = 507, No, "the data server was decommissioned";

    Internal = 900, No, "internal error";
    Unknown = 999, No, "an error this version does not know";
}

impl From<Code> for u16 {
    fn from(code: Code) -> u16 {
        code as u16
    }
}

/// An error with its stable code, what it is about (a path, an id, an address) and a cause a user can act on.
/// The detail is boxed, so that a `Result` stays as small as its value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    pub code: Code,
    detail: Option<Box<Detail>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Detail {
    subject: String,
    cause: String,
    /// [`Error::owner`].
    owner: Option<ServerId>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For expected outcomes of a hot path (a lookup that finds nothing): no text, no allocation.
    pub const fn bare(code: Code) -> Self {
        Error { code, detail: None }
    }

    pub fn new(code: Code, subject: impl fmt::Display, cause: impl fmt::Display) -> Self {
        let (subject, cause) = (subject.to_string(), cause.to_string());
        Error { code, detail: Some(Box::new(Detail { subject, cause, owner: None })) }
    }

    /// With the data server to ask instead.
    pub fn with_owner(mut self, owner: ServerId) -> Self {
        if let Some(detail) = &mut self.detail {
            detail.owner = Some(owner);
        }
        self
    }

    /// Which data server to ask instead, as far as the one that says so knows.
    pub fn owner(&self) -> Option<ServerId> {
        self.detail.as_ref().and_then(|detail| detail.owner)
    }

    pub fn subject(&self) -> &str {
        self.detail.as_ref().map_or("", |d| &d.subject)
    }

    pub fn cause(&self) -> &str {
        self.detail.as_ref().map_or("", |d| &d.cause)
    }

    pub fn retry(&self) -> Retry {
        self.code.retry()
    }
}

impl From<Code> for Error {
    fn from(code: Code) -> Self {
        Error::bare(code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            None => write!(f, "{}", self.code.text())?,
            Some(d) => {
                write!(f, "{}: {}", d.subject, self.code.text())?;
                if !d.cause.is_empty() {
                    write!(f, ": {}", d.cause)?;
                }
            }
        }
        write!(f, " (B{})", self.code as u16)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_a_newer_version_is_read_as_unknown() {
        let bytes = postcard::to_stdvec(&777u16).unwrap();
        assert_eq!(postcard::from_bytes::<Code>(&bytes).unwrap(), Code::Unknown);
    }

    #[test]
    fn every_code_survives_the_wire() {
        for &code in Code::ALL {
            let error = Error::new(code, "/a", "because");
            let bytes = postcard::to_stdvec(&error).unwrap();
            assert_eq!(postcard::from_bytes::<Error>(&bytes).unwrap(), error);
        }
    }

    #[test]
    fn an_error_names_subject_cause_and_code() {
        let text = Error::new(Code::Unreachable, "data server 3 at tcp:h:1", "connection refused").to_string();
        assert_eq!(text, "data server 3 at tcp:h:1: the server cannot be reached: connection refused (B300)");
    }
}
