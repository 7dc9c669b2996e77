use super::RowFormat;
use braid_types::{SessionEpoch, SessionId, Timestamp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A row of `sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub epoch: SessionEpoch,
    /// Drawn by the client at its start; makes its registration idempotent.
    pub client: u64,
    pub description: String,
    pub host: String,
    pub since: Timestamp,
    /// It may keep changes that were answered before they were durable: after a crash the server waits for it. Durable
    /// before the first such answer, and taken back when all of them are.
    pub keeps: bool,
    /// It may hold leases: after a change of holder changes wait until it has dropped them.
    pub caches: bool,
    /// The first session of its client since that was started: it may know what it was told then. 0: nobody knows.
    pub first: SessionId,
}

impl SessionRow {
    /// The epoch of a session that has ended, and whose answers are kept for its client: no token carries it.
    const ENDED: SessionEpoch = SessionEpoch(0);

    pub fn has_ended(&self) -> bool {
        self.epoch == Self::ENDED
    }

    pub fn ended(self) -> Self {
        SessionRow { epoch: Self::ENDED, keeps: false, caches: false, ..self }
    }
}

/// As version 1 wrote it.
#[derive(Serialize, Deserialize)]
struct SessionRow1 {
    epoch: SessionEpoch,
    client: u64,
    description: String,
    host: String,
    since: Timestamp,
}

/// As version 2 wrote it.
#[derive(Serialize, Deserialize)]
struct SessionRow2 {
    epoch: SessionEpoch,
    client: u64,
    description: String,
    host: String,
    since: Timestamp,
    keeps: bool,
}

/// As version 3 wrote it.
#[derive(Serialize, Deserialize)]
struct SessionRow3 {
    epoch: SessionEpoch,
    client: u64,
    description: String,
    host: String,
    since: Timestamp,
    keeps: bool,
    caches: bool,
}

impl RowFormat for SessionRow {
    const VERSION: u8 = 4;

    fn decode_older(version: u8, body: &[u8]) -> Option<Result<Self, postcard::Error>> {
        // Sessions of before leases had grants too, when they were alone.
        match version {
            1 => Some(postcard::from_bytes(body).map(|old: SessionRow1| {
                let SessionRow1 { epoch, client, description, host, since } = old;
                SessionRow { epoch, client, description, host, since, keeps: false, caches: true, first: SessionId(0) }
            })),
            2 => Some(postcard::from_bytes(body).map(|old: SessionRow2| {
                let SessionRow2 { epoch, client, description, host, since, keeps } = old;
                SessionRow { epoch, client, description, host, since, keeps, caches: true, first: SessionId(0) }
            })),
            3 => Some(postcard::from_bytes(body).map(|old: SessionRow3| {
                let SessionRow3 { epoch, client, description, host, since, keeps, caches } = old;
                SessionRow { epoch, client, description, host, since, keeps, caches, first: SessionId(0) }
            })),
            _ => None,
        }
    }
}

/// A row of `requests`: what a mutating request answered, so that a repetition takes effect once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRow {
    /// Which message it was, by its place in the protocol, to notice an id used twice.
    pub message: u8,
    /// The answer as it went over the wire.
    pub answer: Bytes,
}

impl RowFormat for RequestRow {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::keys;

    #[test]
    fn a_session_of_an_older_version_is_read() {
        let old = SessionRow1 {
            epoch: SessionEpoch(3),
            client: 4,
            description: "d".into(),
            host: "h".into(),
            since: Timestamp(5),
        };
        let key = keys::session(SessionId(1));
        let row = postcard::to_extend(&old, vec![1]).expect("plain fields");
        let read = SessionRow::decode(&key, &row).expect("the older format is known");
        assert_eq!((read.epoch, read.client, read.since, read.keeps), (SessionEpoch(3), 4, Timestamp(5), false));
        let SessionRow { epoch, client, description, host, since, .. } = read.clone();
        let second = SessionRow2 { epoch, client, description, host, since, keeps: true };
        let row = postcard::to_extend(&second, vec![2]).expect("plain fields");
        let now = SessionRow { keeps: true, ..read };
        let SessionRow { epoch, client, description, host, since, keeps, caches, .. } = now.clone();
        let third = SessionRow3 { epoch, client, description, host, since, keeps, caches };
        let row3 = postcard::to_extend(&third, vec![3]).expect("plain fields");
        assert_eq!(SessionRow::decode(&key, &row3).expect("the older format is known"), now);
        assert!(now.caches, "it may have been granted something");
        assert_eq!(SessionRow::decode(&key, &row).expect("the older format is known"), now);
        assert_eq!(SessionRow::decode(&key, &now.encode()).expect("it reads back"), now);
    }
}
