//! Messages where several metadata servers serve at once (docs/design/0027-several-that-serve.md): who holds which slot, and what holders
//! say to each other. Any of them may be lost, repeated or late.

use crate::lease::{LeaseKey, Term};
use braid_members::{Question, Reply, Roster};
use braid_types::{InodeId, LeaseGen, MemberId, MembershipEpoch, SessionId};
use serde::{Deserialize, Serialize};

/// Who holds which slot, as far as the asked server knows. `None`: it holds them all.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetRoster {}

/// Prolongs what the session has at a server that does not lead. At the one that leads [`crate::meta::RenewSession`] does so.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RenewTerm {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermReply {
    pub lease_ms: u32,
    /// None: the session does not cache.
    pub term: Option<Term>,
}

/// A member's sign of life to the leader, or the wish to become one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AskToServe {
    pub question: Question,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServeReply {
    pub reply: Reply,
    /// The engine's epoch under which the members of the roster commit.
    pub fence: u64,
}

/// Holders are asked to have everybody but the session drop what a change is going to make old. Repeated until it is answered with more
/// than [`Announced::NotYet`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AnnounceAt {
    /// Another start at its address takes it for nothing.
    pub to: MemberId,
    pub from: MemberId,
    /// Rises with each change of that member's.
    pub number: u64,
    pub epoch: MembershipEpoch,
    pub session: SessionId,
    pub keys: Vec<LeaseKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Announced {
    /// Nobody else shows it, under this epoch.
    Ready { epoch: MembershipEpoch },
    /// What it is about is not held here, or the announcement is an old one.
    Refused { epoch: MembershipEpoch },
    /// To be asked again.
    NotYet,
}

/// The change is committed, or never will be. `keep` covers what the session is told; the answer is what of that it may keep. Repeated until
/// it is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReleaseAt {
    /// As [`AnnounceAt::to`].
    pub to: MemberId,
    pub from: MemberId,
    pub number: u64,
    pub keep: Vec<LeaseKey>,
}

/// The row of a file is about to be read for the session: what others know of size and times is in it when this is answered. `takes`: its
/// bytes are to be changed, so that nobody else may write it, or show its pages, any more.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SettleFileAt {
    /// As [`AnnounceAt::to`].
    pub to: MemberId,
    pub session: SessionId,
    pub inode: InodeId,
    pub takes: bool,
}

/// How far a session's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ends {
    /// Its process has gone: it caches nothing any more.
    Gone,
    /// It is granted nothing from now on.
    Begins,
    /// It has ended everywhere: what it held is free.
    Over,
}

/// The leader tells a member that a session ends. The answer: milliseconds for which it may still show what it was granted there.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EndsAt {
    /// As [`AnnounceAt::to`].
    pub to: MemberId,
    /// Who leads; of another one nothing is taken.
    pub from: MemberId,
    pub session: SessionId,
    pub ends: Ends,
}

/// A member tells the leader of a session that is silent and holds up others.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct IsSilent {
    pub session: SessionId,
}

/// Whoever writes a file beside others finishes what it has under way ([`crate::meta::LeaseState::Sync`]). The answer is the last number of a
/// file lease that was given out there. `above`: numbers from now on are above this one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EndSyncAt {
    /// As [`AnnounceAt::to`].
    pub to: MemberId,
    pub above: Option<LeaseGen>,
}

/// How far the making of a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StillStep {
    /// Whoever may write a file below the directory stores what it has and gives that up. Others may begin to.
    Files,
    /// And nobody begins to write anywhere.
    Writes,
    /// It is over.
    LetGo,
}

/// The leader makes a snapshot of a directory: what is below it and written at the asked server is to stand still until
/// [`StillStep::LetGo`], or another epoch. Repeated until the answer is true.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StillAt {
    /// As [`AnnounceAt::to`].
    pub to: MemberId,
    pub epoch: MembershipEpoch,
    /// Rises with each attempt to make one.
    pub number: u64,
    /// Rises with each question of an attempt: one that comes after a later one changes nothing.
    pub turn: u64,
    pub root: InodeId,
    pub step: StillStep,
}

/// A file has lost its last name. `held`: by this session it is open.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HasOrphan {
    pub inode: InodeId,
    pub held: Option<SessionId>,
}

/// What [`GetRoster`] is answered with.
pub type KnownRoster = Option<Roster>;
