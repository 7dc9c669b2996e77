//! Messages between clients (and data servers) and a metadata server: the list of all, in the protocol's order, here; what each has, by subject.
//!
//! Requests by id carry an [`InodeRef`]: the id and the last known place of its row. Mutating requests carry a
//! request id in [`crate::Context`]; their answer is kept in the `requests` table until the session's low-water
//! mark passes it, so that a repeated request takes effect once.

mod early;
mod files;
mod inodes;
mod layout;
mod lookup;
mod names;
mod servers;

pub use crate::at_path::{AtPath, Reached, Then, ThenAnswer};
use crate::lease::LeaseKey;
pub use crate::members::{
    AnnounceAt, Announced, AskToServe, EndSyncAt, Ends, EndsAt, GetRoster, HasOrphan, IsSilent, KnownRoster, ReleaseAt,
    RenewTerm, ServeReply, SettleFileAt, StillAt, StillStep, TermReply,
};
pub use crate::moving::{
    FindKept, KeptChunk, ListPlaced, MOVER, MoveChunk, MoveKept, MoveKind, MovesOn, Placed, ReturnSpares, ShiftChunks,
    Shifted, StuckChunk, TakeBeside, ToMove,
};
pub use crate::quota::{ReturnRoom, TakeRoom};
pub use crate::session::{CloseSession, EndSession, OpenSession, RenewReply, RenewSession, SessionReply};
pub use crate::tree::{ChangeTree, LeftInDir, TreeChange, TreeOp, TreeOpStatus};
pub use crate::walk::{Walk, Walked};
use crate::{Code, Context, Error, Result, When, messages};
use braid_types::*;
use bytes::Bytes;
use std::future::Future;

pub use early::*;
pub use files::*;
pub use inodes::*;
pub use layout::*;
pub use lookup::*;
pub use names::*;
pub use servers::*;

/// What mounts cache, and how they are told to drop it.
pub use crate::lease::{Acknowledge, Listen, Orders, Reassert, Reasserted, Term, YieldFiles};

/// Slots in which one session works alone.
pub use crate::slots::{LeaveSlots, TakeSlot};

/// Locks that several mounts want.
pub use crate::lease::{FoundLock, LeaveLock, LockReply, SetLock, TestLock};

/// Of chains, from a data server to the leader.
pub use crate::copies::ServerSays;

/// For administrators and fsck; see [`crate::admin`].
pub use crate::admin::{AdminAnswer, AdminQuery};

messages! {
    MetaRequest, MetaAnswer:
    OpenSession -> SessionReply;
    RenewSession -> RenewReply;
    CloseSession -> ();
    Lookup -> LookupAnswer;
    Resolve -> Resolved;
    GetAttr -> AttrAnswer;
    ChangeAttr -> AttrAnswer;
    ReadLink -> Bytes;
    MakeNode -> EntryAnswer;
    CreateFile -> OpenAnswer;
    CreateTemporary -> OpenAnswer;
    OpenFile -> OpenAnswer;
    GetMap -> MapAnswer;
    CommitFile -> CommitAnswer;
    DropChunks -> CommitAnswer;
    Unlink -> UnlinkAnswer;
    RemoveDir -> UnlinkAnswer;
    Rename -> RenameAnswer;
    Link -> EntryAnswer;
    ReadDir -> DirPage;
    GetPlace -> Place;
    GetXattr -> Bytes;
    SetXattr -> ();
    ListXattr -> Vec<Bytes>;
    RemoveXattr -> ();
    PutFile -> EntryAnswer;
    GetStatFs -> StatFsAnswer;
    GetPolicy -> PolicyAnswer;
    SetPolicy -> ();
    TakeSpares -> Spares;
    GetContainers -> Vec<ContainerInfo>;
    GetServers -> Servers;
    RegisterServer -> RegisterAnswer;
    Heartbeat -> HeartbeatAnswer;
    AdminQuery -> AdminAnswer;
    Replay -> ReplayAnswer;
    Settle -> ();
    EndSession -> ();
    ServerSays -> ();
    StatNames -> Vec<Option<Attr>>;
    Listen -> Orders;
    Acknowledge -> ();
    Reassert -> Reasserted;
    YieldFiles -> ();
    MarkStable -> ();
    SetLock -> LockReply;
    LeaveLock -> LockReply;
    TestLock -> FoundLock;
    SealFile -> AttrAnswer;
    HoldSealed -> Option<Attr>;
    LeaveSealed -> ();
    MoveChunk -> bool;
    ReturnSpares -> ();
    MovesOn -> ToMove;
    ListPlaced -> Placed;
    ChangeTree -> TreeOp;
    AtPath -> Reached;
    TakeRoom -> u64;
    ReturnRoom -> ();
    TakeBeside -> Spares;
    FindKept -> Option<KeptChunk>;
    MoveKept -> bool;
    TakeSlot -> Option<MembershipEpoch>;
    LeaveSlots -> ();
    GetRoster -> KnownRoster;
    RenewTerm -> TermReply;
    AskToServe -> ServeReply;
    AnnounceAt -> Announced;
    ReleaseAt -> Vec<LeaseKey>;
    SettleFileAt -> ();
    EndsAt -> u64;
    IsSilent -> ();
    EndSyncAt -> LeaseGen;
    HasOrphan -> ();
    StillAt -> bool;
    Walk -> Walked;
    LookToOpen -> LookedToOpen;
    OpenAhead -> Vec<Option<Box<OpenAnswer>>>;
}

impl MetaRequest {
    /// The message's place in the protocol; kept with a remembered answer.
    pub fn number(&self) -> u8 {
        MetaRequest::NAMES.iter().position(|name| *name == self.name()).unwrap_or(usize::from(u8::MAX)) as u8
    }

    /// Messages that change nothing, neither rows nor what the server keeps in memory: their work may be given up at
    /// any moment. `OpenFile` is none of them because it may truncate.
    pub const QUESTIONS: &[&str] = &[
        "Lookup",
        "StatNames",
        "Resolve",
        "GetAttr",
        "ReadLink",
        "GetMap",
        "ReadDir",
        "GetPlace",
        "GetXattr",
        "ListXattr",
        "GetStatFs",
        "GetPolicy",
        "GetContainers",
        "GetServers",
        // What it takes along is sent again until it is acknowledged.
        "Listen",
        "TestLock",
        "ListPlaced",
        "FindKept",
    ];

    /// Changes rows under a request id, so that a repetition must find the first outcome.
    pub fn is_mutation(&self) -> bool {
        match self {
            MetaRequest::ChangeAttr(_)
            | MetaRequest::MakeNode(_)
            | MetaRequest::CreateFile(_)
            | MetaRequest::CreateTemporary(_)
            | MetaRequest::CommitFile(_)
            | MetaRequest::DropChunks(_)
            | MetaRequest::Unlink(_)
            | MetaRequest::RemoveDir(_)
            | MetaRequest::Rename(_)
            | MetaRequest::Link(_)
            | MetaRequest::SetXattr(_)
            | MetaRequest::RemoveXattr(_)
            | MetaRequest::PutFile(_)
            | MetaRequest::SetPolicy(_)
            | MetaRequest::SealFile(_)
            | MetaRequest::MoveChunk(_)
            | MetaRequest::ReturnSpares(_)
            | MetaRequest::ChangeTree(_)
            | MetaRequest::TakeRoom(_)
            | MetaRequest::ReturnRoom(_)
            | MetaRequest::TakeBeside(_)
            | MetaRequest::MoveKept(_)
            | MetaRequest::TakeSpares(_) => true,
            MetaRequest::OpenFile(open) => open.truncate,
            MetaRequest::AtPath(at) => at.then.is_mutation(),
            _ => false,
        }
    }
}

impl MetaRequest {
    /// Changes that may be answered before they are durable. None of them makes a data server forget or cut anything
    /// before its row is durable: a truncate does, so it waits. What only the server can repeat waits as well.
    pub fn may_be_early(&self) -> bool {
        match self {
            MetaRequest::MakeNode(_)
            | MetaRequest::CommitFile(_)
            | MetaRequest::DropChunks(_)
            | MetaRequest::Unlink(_)
            | MetaRequest::Rename(_)
            | MetaRequest::Link(_)
            | MetaRequest::SetXattr(_)
            | MetaRequest::RemoveXattr(_)
            | MetaRequest::ReturnRoom(_)
            | MetaRequest::PutFile(_) => true,
            // What empties a tree looks at rows that are durable.
            MetaRequest::RemoveDir(remove) => !remove.tree,
            MetaRequest::CreateFile(create) => !create.truncate,
            MetaRequest::ChangeAttr(change) => change.size.is_none(),
            _ => false,
        }
    }

    /// Bytes a request takes while it is kept: a bound, not exact.
    pub fn kept_bytes(&self) -> usize {
        const FIXED: usize = 256 + 2 * 255;
        FIXED
            + match self {
                MetaRequest::CommitFile(CommitFile { content: CommitContent::Inline(bytes), .. }) => bytes.len(),
                MetaRequest::CommitFile(CommitFile { content: CommitContent::Chunks(chunks), .. }) => 32 * chunks.len(),
                MetaRequest::PutFile(put) => put.data.len(),
                MetaRequest::SetXattr(set) => set.name.len() + set.value.len(),
                MetaRequest::RemoveXattr(remove) => remove.name.len(),
                MetaRequest::MakeNode(make) => make.spec.target.len(),
                _ => 0,
            }
    }
}

impl MetaAnswer {
    /// What it tells of directories it changed.
    pub fn dirs_mut(&mut self) -> impl Iterator<Item = &mut DirAfter> {
        let dirs = match self {
            MetaAnswer::MakeNode(a) | MetaAnswer::Link(a) | MetaAnswer::PutFile(a) => std::slice::from_mut(&mut a.dir),
            MetaAnswer::CreateFile(a) => std::slice::from_mut(&mut a.dir),
            MetaAnswer::Unlink(a) | MetaAnswer::RemoveDir(a) => std::slice::from_mut(&mut a.dir),
            MetaAnswer::Rename(a) => &mut a.dirs[..],
            _ => &mut [],
        };
        dirs.iter_mut()
    }
}

/// A metadata server, near (the service itself) or far (the stub over `wire`).
pub trait Namespace: Send + Sync + 'static {
    fn execute(&self, cx: Context, request: MetaRequest) -> impl Future<Output = Result<MetaAnswer>> + Send;

    /// As [`Namespace::execute`] for a caller that keeps what it asks: with [`When::Early`] the answer may come before it
    /// is durable, and the mark says so; of a server that knows no early answers it never does.
    fn execute_early(
        &self,
        cx: Context,
        request: MetaRequest,
    ) -> impl Future<Output = Result<(MetaAnswer, Mark)>> + Send {
        async move { Ok((self.execute(Context { when: When::Durable, ..cx }, request).await?, Mark::default())) }
    }

    /// The typed form of [`Namespace::execute`].
    fn call<M>(&self, cx: Context, message: M) -> impl Future<Output = Result<M::Answer>> + Send
    where
        M: crate::Carries<MetaRequest, MetaAnswer> + Send,
        M::Answer: Send,
    {
        async move {
            let answer = self.execute(cx, message.wrap()).await?;
            M::unwrap(answer).ok_or_else(|| Error::bare(Code::BadMessage))
        }
    }
}

/// A metadata server in this process.
impl<N: Namespace> Namespace for std::sync::Arc<N> {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        (**self).execute(cx, request).await
    }

    async fn execute_early(&self, cx: Context, request: MetaRequest) -> Result<(MetaAnswer, Mark)> {
        (**self).execute_early(cx, request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question that is no message would silently never be given up; a change among them would be.
    #[test]
    fn questions_are_messages_and_no_changes() {
        for name in MetaRequest::QUESTIONS {
            assert!(MetaRequest::NAMES.contains(name), "{name}");
        }
        let others: Vec<&str> =
            MetaRequest::NAMES.iter().copied().filter(|name| !MetaRequest::QUESTIONS.contains(name)).collect();
        let questions = MetaRequest::NAMES.len() - others.len();
        assert_eq!(questions, MetaRequest::QUESTIONS.len());
        for change in [
            "Replay",
            "OpenSession",
            "CloseSession",
            "EndSession",
            "OpenFile",
            "RegisterServer",
            "AdminQuery",
            "Unlink",
            "Rename",
        ] {
            assert!(others.contains(&change), "{change}");
        }
    }
}
