//! Files: opened, committed, written whole, and what a session may do with their bytes.
use super::{ChunkPage, ChunkRef, Cuts, DirAfter, FileMap, Grant, InodeRef, NodeSpec};
use braid_types::*;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// State of a file lease (design.md *File lease*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseState {
    /// Nothing without asking.
    #[default]
    None,
    Shared,
    Exclusive,
    Sync,
}

/// What a session may do with a file's bytes from now on. See [`crate::lease`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLease {
    pub state: LeaseState,
    /// Orders what the slot holder says of its file leases.
    pub generation: LeaseGen,
    /// Rises when the right to write passes on.
    pub token: LeaseGen,
    /// The session may grant itself locks on the file.
    pub locks: bool,
}

/// O_CREAT: makes or opens a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateFile {
    pub parent: InodeRef,
    pub name: Name,
    pub spec: NodeSpec,
    pub exclusive: bool,
    /// If the file exists: cut it to nothing.
    pub truncate: bool,
    pub write: bool,
}

/// O_TMPFILE: a file without a name, held by this session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateTemporary {
    pub parent: InodeRef,
    pub spec: NodeSpec,
}

/// What a session wants to do with a file's bytes: the lease that it asks for with an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileWant {
    /// Read, with pages cached.
    #[default]
    Read,
    /// Read by handles that cache nothing.
    ReadDirect,
    /// Write by handles that cache nothing, others beside.
    WriteDirect,
    /// Write with a cache, append, truncate: alone.
    Alone,
}

/// What a session has open for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteHandles {
    /// Rises with each change at the session.
    pub seq: u64,
    /// Some handle writes through the kernel's cache.
    pub cached: bool,
    /// Some handle caches nothing.
    pub direct: bool,
}

/// Opens a file by id, or asks for its lease again. Opening for read only leaves no trace at the server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OpenFile {
    pub inode: InodeRef,
    pub want: FileWant,
    pub truncate: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenAnswer {
    pub attr: Attr,
    pub grant: Grant,
    pub lease: FileLease,
    pub map: FileMap,
    /// The file was made by this request.
    pub created: bool,
    /// Marked by [`SHARED_XATTR`]: no handle caches its bytes.
    pub shared: bool,
    /// Somebody who pays for it has a quota of bytes: up to here it is paid for, and room for more is asked for with [`TakeRoom`] before it
    /// is written. Not said of a file that is opened to be read.
    pub room: Option<u64>,
    /// The directory it was made in by this request.
    pub dir: DirAfter,
}

/// A file that has this attribute with the value 1 is for several writers at once: no handle caches it, so that every mount may write
/// it at the same time. What is made in a directory that has it has it too.
pub const SHARED_XATTR: &[u8] = b"user.braid.shared";

/// More of a file's chunks, and its attributes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetMap {
    pub inode: InodeRef,
    pub first: ChunkIndex,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapAnswer {
    pub attr: Attr,
    pub map: FileMap,
}

/// What a client did to a file's bytes: sent at fsync and close, every second while it writes, at revocation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommitFile {
    pub inode: InodeRef,
    /// The generation the size below was computed under; an older one is [`crate::Code::StaleTruncGen`].
    pub trunc_gen: TruncGen,
    /// The end of the furthest byte written: the size becomes the maximum of this and what the row has.
    pub size: u64,
    pub mtime: Option<Timestamp>,
    pub atime: Option<Timestamp>,
    pub content: CommitContent,
    pub cuts_applied: TruncGen,
    /// A write by an ordinary user happened: clear setuid and setgid.
    pub kill_privileges: bool,
    /// Spares of this session that were written for the file, whose bytes have gone to its row instead. They are freed: left
    /// behind, they would be taken for the file's bytes when the session ends.
    pub unused: Vec<ChunkId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CommitContent {
    /// Size and times only.
    Unchanged,
    /// These are all bytes of the file now; chunks, if there were any, are freed.
    Inline(Bytes),
    /// Chunks that were written for the first time, from this session's spares. Inline bytes, if there were
    /// any, are dropped: they are in the chunks now.
    Chunks(Vec<ChunkRef>),
}

impl CommitContent {
    /// There are bytes that go beside the file's row.
    pub fn is_in_row(&self) -> bool {
        matches!(self, CommitContent::Inline(bytes) if !bytes.is_empty())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommitAnswer {
    pub attr: Attr,
    pub cuts: Cuts,
    pub grant: Grant,
    /// Chunks that another client had put in the same place before: write there instead.
    pub instead: ChunkPage,
}

/// These chunks of files are on stable storage, see [`ChunkRef::stable`]. Those that are no longer where the message says are passed over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MarkStable {
    /// At most [`MarkStable::MAX`].
    pub chunks: Vec<(InodeId, ChunkIndex, ChunkId)>,
}

impl MarkStable {
    pub const MAX: usize = 1024;
}

/// Frees whole chunks inside a range (punch hole); the client has zeroed the edges.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DropChunks {
    pub inode: InodeRef,
    pub from: ChunkIndex,
    pub until: ChunkIndex,
}

/// A whole inline file in one message (the native call; POSIX needs two).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutFile {
    pub parent: InodeRef,
    pub name: Name,
    pub spec: NodeSpec,
    pub data: Bytes,
    pub replace: bool,
    /// As in [`Unlink`], of what it replaces.
    pub open_here: bool,
}
