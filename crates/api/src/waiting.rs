//! What waits somewhere, as its process says it.

use crate::About;
use crate::data::DataRequest;
use crate::lease::LeaseKey;
use crate::meta::MetaRequest;
use braid_types::*;
use serde::{Deserialize, Serialize};

/// Something that waits, what for, on whom and since when. Two texts for people, and the same in fields, by which what is waited for at
/// one process is found among what waits at the next. What is not known, or does not apply, is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// `write of inode 4097`, `Rename of session 3`.
    pub who: String,
    /// `data server 2 at tcp:…: connection refused`.
    pub for_what: String,
    pub since_ms: u64,
    /// The file operation for which this is done, as its mount numbers them; 0 if it is not known.
    pub trace: TraceId,
    /// The program that made it, by its process at the mount.
    pub process: Option<u32>,
    /// The files and directories it is about.
    pub inodes: Vec<InodeId>,
    /// For whom it is done.
    pub session: Option<SessionId>,
    /// Who is to give something up.
    pub holder: Option<SessionId>,
    /// As what the holder has what it is to give up.
    pub lease: Option<HeldAs>,
    /// Of the namespace, what the leases are on: the first few.
    pub keys: Vec<LeaseKey>,
    /// Data servers that have not answered.
    pub servers: Vec<ServerId>,
    /// The metadata server has not answered.
    pub metadata: bool,
    pub container: Option<ContainerId>,
    pub chunk: Option<ChunkId>,
    /// Of the container's chain; without a container, that of the leases, which rises with each start of the metadata server.
    pub epoch: Option<u64>,
}

/// What a session has that another waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeldAs {
    /// A file's bytes, size and times, to itself.
    Exclusive,
    /// The same to read.
    Shared,
    /// The same to write beside others.
    Sync,
    /// Names, listings or attributes that it may show.
    Cached,
    /// A lock of a program.
    Lock,
}

impl std::fmt::Display for HeldAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            HeldAs::Exclusive => "exclusive",
            HeldAs::Shared => "shared",
            HeldAs::Sync => "sync",
            HeldAs::Cached => "cached",
            HeldAs::Lock => "lock",
        })
    }
}

impl Waiting {
    pub fn new(who: impl Into<String>, for_what: impl Into<String>) -> Waiting {
        Waiting { who: who.into(), for_what: for_what.into(), ..Waiting::default() }
    }
}

impl MetaRequest {
    /// The inode it is about: the directory, of a name.
    pub fn about(&self) -> About {
        let inode = match self {
            MetaRequest::Lookup(m) => m.parent,
            MetaRequest::LookToOpen(m) => m.parent,
            MetaRequest::StatNames(m) => m.parent,
            MetaRequest::OpenAhead(m) => m.inodes.first().copied().unwrap_or(InodeId(0)),
            MetaRequest::GetAttr(m) => m.inode.id,
            MetaRequest::ChangeAttr(m) => m.inode.id,
            MetaRequest::ChangeTree(m) => m.dir.id,
            MetaRequest::ReadLink(m) => m.inode.id,
            MetaRequest::MakeNode(m) => m.parent.id,
            MetaRequest::CreateFile(m) => m.parent.id,
            MetaRequest::CreateTemporary(m) => m.parent.id,
            MetaRequest::OpenFile(m) => m.inode.id,
            MetaRequest::GetMap(m) => m.inode.id,
            MetaRequest::CommitFile(m) => m.inode.id,
            MetaRequest::DropChunks(m) => m.inode.id,
            MetaRequest::Unlink(m) => m.parent.id,
            MetaRequest::RemoveDir(m) => m.parent.id,
            MetaRequest::Rename(m) => m.from.id,
            MetaRequest::Link(m) => m.parent.id,
            MetaRequest::ReadDir(m) => m.inode,
            MetaRequest::GetXattr(m) => m.inode.id,
            MetaRequest::SetXattr(m) => m.inode.id,
            MetaRequest::ListXattr(m) => m.inode.id,
            MetaRequest::RemoveXattr(m) => m.inode.id,
            MetaRequest::PutFile(m) => m.parent.id,
            MetaRequest::GetPlace(m) => m.id,
            MetaRequest::GetPolicy(m) => m.inode.id,
            MetaRequest::SetPolicy(m) => m.inode.id,
            MetaRequest::SetLock(m) => m.inode,
            MetaRequest::TestLock(m) => m.inode,
            MetaRequest::MoveChunk(m) => m.inode.id,
            MetaRequest::TakeRoom(m) => m.inode.id,
            MetaRequest::FindKept(m) => m.inode,
            MetaRequest::MoveKept(m) => m.inode,
            MetaRequest::SealFile(m) => m.inode.id,
            MetaRequest::HoldSealed(m) => m.inode.id,
            _ => InodeId(0),
        };
        About { inode, ..About::default() }
    }
}

impl DataRequest {
    /// Its chunk, or the first; the file if the request says it.
    pub fn about(&self) -> About {
        let (inode, container, chunk) = match self {
            DataRequest::WriteChunk(m) => (m.inode, m.container, m.chunk),
            DataRequest::WriteCopies(m) => (m.write.inode, m.write.container, m.write.chunk),
            DataRequest::CloneChunk(m) => (m.inode, m.container, m.chunk),
            DataRequest::CloneCopies(m) => (m.clone.inode, m.clone.container, m.clone.chunk),
            DataRequest::ReadChunk(m) => (InodeId(0), m.container, m.chunk),
            DataRequest::CutChunk(m) => (InodeId(0), m.container, m.chunk),
            DataRequest::PunchChunk(m) => (InodeId(0), m.container, m.chunk),
            DataRequest::ReserveChunk(m) => (InodeId(0), m.container, m.chunk),
            DataRequest::StatChunk(m) => (InodeId(0), m.container, m.chunk),
            DataRequest::SyncChunks(m) => (InodeId(0), ContainerId(0), m.chunks.first().copied().unwrap_or_default()),
            DataRequest::WaitCopies(m) => (InodeId(0), m.container, m.chunks.first().copied().unwrap_or_default()),
            _ => Default::default(),
        };
        About { inode, container, chunk, ..About::default() }
    }
}
