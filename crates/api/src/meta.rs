//! Messages between clients (and data servers) and a metadata server.
//!
//! Requests by id carry an [`InodeRef`]: the id and the last known place of its row. Mutating requests carry a
//! request id in [`crate::Context`]; their answer is kept in the `requests` table until the session's low-water
//! mark passes it, so that a repeated request takes effect once.

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
use serde::{Deserialize, Serialize};
use std::future::Future;

/// An inode and where its row was last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeRef {
    pub id: InodeId,
    pub hint: Option<(InodeId, Name)>,
}

impl From<InodeId> for InodeRef {
    fn from(id: InodeId) -> Self {
        InodeRef { id, hint: None }
    }
}

/// What of the answer the client may keep, for the rest of its session's term or until it is revoked; see
/// [`crate::lease`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// What a name stands for, or that it stands for nothing.
    pub entry: bool,
    /// The inode's attributes.
    pub attr: bool,
}

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

/// Where one chunk of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkRef {
    pub index: ChunkIndex,
    pub chunk: ChunkId,
    pub container: ContainerId,
    /// Its server has it on stable storage: if it is missing, bytes are lost. Else it may have gone with the server's power, unsynced,
    /// and reads as a hole. Never said early; a writer that was not asked for an fsync says it late.
    pub stable: bool,
    /// A snapshot has it too: nobody writes it any more. Who writes the file there puts another into its place first, which begins as this
    /// one is ([`crate::data::CloneChunk`], [`MoveChunk`]).
    pub frozen: bool,
}

/// A chain: the data servers of a container, in order, under an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerInfo {
    pub id: ContainerId,
    pub epoch: ChainEpoch,
    pub chain: Vec<ServerId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    pub id: ServerId,
    /// As [`Address`](../../braid_env/enum.Address.html) reads them; the first that works is used.
    pub addresses: Vec<String>,
    /// Name of the machine, so that a client knows which server is beside it.
    pub host: String,
    pub state: ServerState,
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub chunks: u64,
    /// Milliseconds since its last heartbeat.
    pub silent_ms: u64,
    /// As configured; empty where it is not.
    pub rack: String,
    /// As in [`Heartbeat::disk`].
    pub disk: u64,
    pub duty: Duty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerState {
    Up,
    Down,
}

/// What a data server is there for. In its row, so that it outlives every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Duty {
    #[default]
    Serves,
    /// Nothing new goes there, and what is there goes elsewhere.
    Drains,
    /// Nothing new goes there; the rest stays for now.
    Paused,
    /// Nothing is there any more.
    Drained,
    /// Its id is never used again.
    Decommissioned,
}

impl Duty {
    pub fn takes_new(self) -> bool {
        self == Duty::Serves
    }
}

impl std::fmt::Display for Duty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Duty::Serves => "serves",
            Duty::Drains => "draining",
            Duty::Paused => "drain paused",
            Duty::Drained => "drained",
            Duty::Decommissioned => "decommissioned",
        })
    }
}

/// How a file's bytes are found: chunks from `first` on, as many as fit a page, with their containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkPage {
    pub chunks: Vec<ChunkRef>,
    pub containers: Vec<ContainerInfo>,
    /// There are chunks after the last one.
    pub more: bool,
}

/// Truncations a data server may not have seen yet: "before generation `.0` was current, the file was cut to
/// `.1` bytes". Generations rise, sizes rise.
pub type Cuts = Vec<(TruncGen, u64)>;

/// What a client must know to read and write a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMap {
    pub policy: Policy,
    pub layout_gen: LayoutGen,
    pub cuts: Cuts,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// All of the file's bytes, exactly as many as its size (shorter if the rest is zero).
    Inline(Bytes),
    Chunked(ChunkPage),
}

// --- early answers --------------------------------------------------------------------------------------------
// Design.md §4 *Early reply*; docs/design/0007-early-reply.md says who keeps what, and why.

/// How far the metadata server is, beside every answer to a caller that asks for it by [`Context::when`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Drawn at each start of the server; numbers of different ones have nothing to do with each other. 0: this server
    /// answers nothing early.
    pub incarnation: u64,
    /// What was answered early under a number up to this one is durable.
    pub durable: u64,
    /// The server has all that was kept of its predecessor's answers, and it is durable.
    pub open: bool,
    pub early: Option<EarlyMark>,
}

/// An answer that came before what it tells of is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyMark {
    /// Durable when [`Mark::durable`] reaches it.
    pub number: u64,
    /// What the server had drawn for the request: with both it can be repeated exactly.
    pub fresh: InodeId,
    pub now: Timestamp,
}

impl EarlyMark {
    /// The number of a change that its program was told of and that was not answered: none of an answer is above it.
    pub const UNANSWERED: u64 = u64::MAX;
}

/// A change that was answered early, as its client keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    pub request: RequestId,
    pub mark: EarlyMark,
    /// Whoever asked has been told, so that it must not fail. Else it is only kept for the sake of others that were.
    pub told: bool,
    pub message: MetaRequest,
}

/// What a session keeps, in pages, after a start of the server. Can be repeated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replay {
    pub kept: Vec<Kept>,
    /// Nothing follows.
    pub last: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayAnswer {
    /// Of these, changes that the server no longer takes and does not have: they are lost.
    pub lost: Vec<RequestId>,
}

/// Answered when everything that was ordered before is durable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settle {}

// --- namespace ----------------------------------------------------------------------------------------------

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lookup {
    pub parent: InodeId,
    pub name: Name,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookupAnswer {
    pub attr: Option<Attr>,
    pub grant: Grant,
}

/// A lookup of who is about to read what it finds, most likely: a file comes with all that an open of it would be told, if nobody has to be
/// asked for that. A session that holds the file already is told nothing anew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookToOpen {
    pub parent: InodeId,
    pub name: Name,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookedToOpen {
    pub found: LookupAnswer,
    pub opened: Option<Box<OpenAnswer>>,
}

/// Attributes of several names of one directory: one message and one round trip to the database, one more if some of
/// the files have several links. For whoever knows names already and keeps nothing: the answer grants nothing. More than
/// [`StatNames::MAX`] are refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatNames {
    pub parent: InodeId,
    pub names: Vec<Name>,
}

impl StatNames {
    /// Their answer is about 100 bytes each: 100 KiB.
    pub const MAX: usize = 1024;
}

/// Resolves a path of components from `from` in one message; for `braid fs` and native doors. Symbolic links in
/// the middle are not followed: the answer says where one stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resolve {
    pub from: InodeId,
    pub path: Vec<Name>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resolved {
    /// Attributes of each component found, in order.
    pub attrs: Vec<Attr>,
    /// Components that were not resolved, because one before is missing or is no directory.
    pub rest: u32,
}

impl Resolved {
    /// Where `path` led from `from`, with the place of its row.
    pub fn end(&self, from: InodeId, path: &[Name]) -> InodeRef {
        let Some(last) = self.attrs.last() else { return from.into() };
        let parent = self.attrs.iter().rev().nth(1).map_or(from, |attr| attr.id);
        InodeRef { id: last.id, hint: path.last().map(|name| (parent, name.clone())) }
    }

    /// Why components are left.
    pub fn why_short(&self) -> Error {
        self.why_short_at(format!("component {} of the path", self.attrs.len() + 1))
    }

    /// The same, with another word for the first of them.
    pub fn why_short_at(&self, at: impl std::fmt::Display) -> Error {
        match self.attrs.last() {
            Some(attr) if attr.kind == FileKind::Symlink => {
                Error::new(Code::NotDirectory, at, "the one before is a symbolic link, which is not followed here")
            }
            Some(attr) if attr.kind != FileKind::Directory => {
                Error::new(Code::NotDirectory, at, "the one before is a file")
            }
            _ => Error::new(Code::NotFound, at, ""),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetAttr {
    pub inode: InodeRef,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttrAnswer {
    pub attr: Attr,
    pub cuts: Cuts,
    pub grant: Grant,
    /// Where the row is now, if not at the hint.
    pub place: Option<(InodeId, Name)>,
}

/// A change of attributes. A change of size is a truncate: see design.md *Size and times*.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeAttr {
    pub inode: InodeRef,
    pub mode: Option<Mode>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<NewTime>,
    pub mtime: Option<NewTime>,
    pub kill_privileges: bool,
    /// Cuts up to this generation are known at the owner and need not be remembered.
    pub cuts_applied: TruncGen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewTime {
    /// The server's clock.
    Now,
    At(Timestamp),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadLink {
    pub inode: InodeRef,
}

/// Makes an inode that is not opened: directory, symlink, special file, or file by mknod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MakeNode {
    pub parent: InodeRef,
    pub name: Name,
    pub spec: NodeSpec,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeSpec {
    pub kind: FileKind,
    pub mode: Mode,
    /// Applied unless the parent has a default ACL.
    pub umask: u32,
    pub uid: u32,
    /// Replaced by the parent's group if the parent is setgid.
    pub gid: u32,
    pub rdev: DeviceId,
    /// Of a symlink.
    pub target: Bytes,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EntryAnswer {
    pub attr: Attr,
    pub grant: Grant,
    pub dir: DirAfter,
    /// A directory was made, and that it is empty is leased.
    pub empty: bool,
    /// Of [`PutFile`]: what had the name before, with its remaining link count.
    pub replaced: Option<Attr>,
}

/// A directory after a change of what is in it: a kernel asks for its attributes at the next call that goes through it. Not on record with
/// the answer, so that a repetition does not tell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DirAfter {
    pub attr: Option<Attr>,
    pub granted: bool,
}

impl From<Attr> for DirAfter {
    fn from(attr: Attr) -> Self {
        DirAfter { attr: Some(attr), granted: false }
    }
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

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unlink {
    pub parent: InodeRef,
    pub name: Name,
    /// Inodes this session has open, if the client knows which inode the name has; lets the server free at once
    /// what nobody can have open.
    pub open_here: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnlinkAnswer {
    /// What lost the name, with its remaining link count.
    pub attr: Attr,
    pub dir: DirAfter,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveDir {
    pub parent: InodeRef,
    pub name: Name,
    /// With all that is in it: whoever looks from the root finds nothing of it any more; it is freed afterwards, top-down.
    pub tree: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rename {
    pub from: InodeRef,
    pub from_name: Name,
    pub to: InodeRef,
    pub to_name: Name,
    pub mode: RenameKind,
    /// As in [`Unlink`], of what is replaced.
    pub open_here: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameKind {
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenameAnswer {
    pub moved: Attr,
    /// What was replaced (with its remaining link count) or exchanged.
    pub other: Option<Attr>,
    /// Of the new name, and of what was moved.
    pub grant: Grant,
    /// The directory it left; and the one it went to, if that is another.
    pub dirs: [DirAfter; 2],
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    pub inode: InodeRef,
    pub parent: InodeRef,
    pub name: Name,
}

/// One page of a directory in byte order of names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadDir {
    pub inode: InodeId,
    pub after: Option<Name>,
    pub limit: u32,
    /// With attributes; else the attributes of files with several links are not looked up.
    pub plus: bool,
    /// But for those of these inodes: names and attributes of them are known to who asks, under leases. In order.
    pub knows: Vec<InodeId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirPage {
    pub entries: Vec<(Name, InodeId, FileKind, Option<Attr>)>,
    pub more: bool,
    /// Of each entry; empty if nothing is granted.
    pub grants: Vec<Grant>,
    /// What is in the directory is leased, from the moment of this page on: granted with the first alone.
    pub listing: bool,
}

/// The place of an inode: for `..`, NFS handles and messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetPlace {
    pub id: InodeId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    pub parent: InodeId,
    /// `None` for the root.
    pub name: Option<Name>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetXattr {
    pub inode: InodeRef,
    pub name: Bytes,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetXattr {
    pub inode: InodeRef,
    pub name: Bytes,
    pub value: Bytes,
    pub mode: XattrKind,
    /// For setting `system.posix_acl_access`: the caller may keep setgid.
    pub clear_setgid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrKind {
    Any,
    Create,
    Replace,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListXattr {
    pub inode: InodeRef,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveXattr {
    pub inode: InodeRef,
    pub name: Bytes,
}

/// Seals a file, or unseals it: nothing of a sealed file changes, neither bytes nor attributes nor names
/// (docs/design/0015-sealed-files.md). Waits for what is in the way: handles that may write, or handles that read without asking.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SealFile {
    pub inode: InodeRef,
    pub sealed: bool,
    /// After this time, and at the latest after [`SealFile::WAIT_MAX`], it is said what is in the way.
    pub wait_ms: u32,
}

impl SealFile {
    /// With the wait for leases before it, below the deadline of a call.
    pub const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(20);
}

/// The session is about to give out handles of a sealed file that cannot be taken back. It may if the answer has
/// attributes: the file is sealed, and stays so until the session has sent [`LeaveSealed`] or has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldSealed {
    pub inode: InodeRef,
    /// Rises with each hold of the session.
    pub number: u64,
}

/// No such handle is left, nor a mapping, of what was held under a number up to this one. One that comes late ends no newer hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaveSealed {
    pub holds: Vec<(InodeId, u64)>,
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

/// How much room there is: of the file system, and to what this is, or is made in it, no more than the directories with quotas above it
/// leave. 0: of the file system alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetStatFs {
    pub of: InodeId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatFsAnswer {
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub files: u64,
    pub files_free: u64,
    /// Some directory may have a quota: the answer holds for what was asked about alone.
    pub limited: bool,
}

// --- policies, chunks, servers ------------------------------------------------------------------------------

/// The policy in force, and the directory it comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetPolicy {
    pub inode: InodeRef,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyAnswer {
    pub policy: Policy,
    pub root: InodeId,
}

/// Sets a directory's policy, or with `None` returns it to its parent's. What exists keeps its layout; what is
/// made from now on below it takes the new one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetPolicy {
    pub inode: InodeRef,
    pub policy: Option<Policy>,
}

/// Spare chunks for files this session is going to write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakeSpares {
    pub policy: Policy,
    pub count: u32,
    /// The data server beside the client, to be first in the chains.
    pub beside: Option<ServerId>,
    /// Copies of other chunks go there: should the session be lost, what is in them is in no file, and never comes into one.
    pub for_moves: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spares {
    pub spares: Vec<(ChunkId, ContainerId)>,
    pub containers: Vec<ContainerInfo>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetContainers {
    pub ids: Vec<ContainerId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetServers {}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Servers {
    pub version: u64,
    pub servers: Vec<ServerInfo>,
}

/// A data server's start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegisterServer {
    /// 0 at its very first start: the answer brings an id.
    pub id: ServerId,
    /// Drawn at each start.
    pub incarnation: u64,
    pub addresses: Vec<String>,
    pub host: String,
    pub clean_stop: bool,
    pub rack: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegisterAnswer {
    pub id: ServerId,
    pub cluster: ClusterId,
    pub heartbeat_ms: u32,
    pub sessions: LiveSessions,
    /// As in [`crate::data::LeaderSays`].
    pub sync_floor: LeaseGen,
    /// A data server that is silent for longer is taken for down, and sessions end without a word to it.
    pub lease_ms: u32,
    /// Of the metadata server: [`crate::data::FenceSession::by`] is not older from now on.
    pub epoch: MembershipEpoch,
}

/// Which sessions may still send something to data servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveSessions {
    /// Sessions from this number on began later: of them nothing is said here.
    pub before: SessionId,
    pub live: Vec<SessionId>,
}

impl LiveSessions {
    /// `live` is in order.
    pub fn may_live(&self, session: SessionId) -> bool {
        session >= self.before || self.live.binary_search(&session).is_ok()
    }
}

/// A data server's sign of life, on a connection of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    pub id: ServerId,
    pub incarnation: u64,
    /// Which disk of its host: servers on one disk fail together. 0 if that is not known.
    pub disk: u64,
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub chunks: u64,
    pub bad_blocks: u64,
    pub sealed_blocks: u64,
    /// Which file system of its host: servers on one share its room. 0 if that is not known.
    pub filesystem: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    /// The server is not known (any more): register again.
    pub register_again: bool,
    /// So much may be moved to it a second: its part of what the operator allows.
    pub move_bytes_per_s: u64,
    /// As in [`RegisterAnswer`].
    pub epoch: MembershipEpoch,
}

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
