//! Messages by which a client comes, says that it is still there, and goes.

use crate::lease::Term;
use crate::meta::ServerInfo;
use braid_types::*;
use serde::{Deserialize, Serialize};

/// Registers a client. Idempotent by `client` (drawn at random at the client's start).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenSession {
    pub client: u64,
    /// The same client under the number it had before, if the session of that is being ended and its end is not waited for. From
    /// now on nothing runs under that one, and what ran is answered under the new one.
    pub former: Option<u64>,
    /// The first session that it had since its start, 0 if it had none: so old may be what it has kept, and what it has open.
    pub since: SessionId,
    /// For `status`: `fuse /mnt on host 3, process 4711`.
    pub description: String,
    pub host: String,
    /// It keeps what it is granted, and listens for what is revoked: see [`crate::lease`].
    pub caches: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionReply {
    pub session: SessionId,
    pub epoch: SessionEpoch,
    pub cluster: ClusterId,
    pub lease_ms: u32,
    pub renew_ms: u32,
    pub servers: Vec<ServerInfo>,
    /// Of what the session caches; none if it does not.
    pub term: Option<Term>,
}

/// Sent every `renew_ms` on a connection of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewSession {
    /// Every request with a smaller id has been answered and will not be repeated.
    pub low_water: RequestId,
    /// Up to where the client has read the list of unlinked inodes.
    pub orphans_seen: u64,
    /// Of the inodes listed up to there, those it has open.
    pub orphans_held: Vec<InodeId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewReply {
    pub lease_ms: u32,
    /// Inodes that lost their last name since `orphans_seen`, and the new mark.
    pub orphans: Vec<InodeId>,
    pub orphans_seen: u64,
    /// Rises when servers come, go or change; the client then asks for them.
    pub servers_version: u64,
    /// As in [`SessionReply`].
    pub term: Option<Term>,
}

/// A clean end: everything the client buffered has been sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloseSession {}

/// The session's client has died, says who knows it: whoever mounts where it had. What it wrote and did not report is
/// looked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndSession {}
