//! Messages to a data server. The bytes of reads and writes are the frame's payload, never part of a message.

pub use crate::copies::{
    BlockContent, CloneCopies, CopiesAnswer, CopyHead, CopyState, CutCopies, GetCopies, Held, LeaderSays, PeerSays,
    PunchCopies, ReadCopy, ReserveCopy, SameBlocks, StatCopy, WaitCopies, WaitFor, WriteCopies,
};
use crate::meta::{ContainerInfo, Cuts};
pub use crate::meta_copies::{
    AppendGroups, CopyStanding, FetchRows, FetchedRows, KeeperReport, PromiseTerm, PutBase, RecordSet, SyncGroups,
};
use crate::{Context, Result, messages};
use braid_types::*;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::future::Future;

/// Writes the payload at `offset` of a chunk. Repeating it is harmless.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteChunk {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub offset: u64,
    pub chunk_bytes: u64,
    /// Whose data this is, so that what a lost client wrote is found again.
    pub inode: InodeId,
    pub index: ChunkIndex,
    /// Cuts inside this chunk, in bytes of the chunk, that the server applies first if it has not.
    pub cuts: Cuts,
    /// Answer only when the write is on stable storage.
    pub sync: bool,
    pub make: Make,
    /// What is written is kept in the memory of the machine this server is on: the server need not keep it as well. An
    /// owner of copies keeps it all the same, for it reads what it pushes.
    pub kept_beside: bool,
    /// Nobody else may read or write the file, and the sender keeps the bytes until [`WaitFor::Settle`] was answered: of several copies
    /// the owner's is enough, and the others hear of it soon. Otherwise no copy serves anything older when this is answered.
    pub alone: bool,
    /// Others write the file at the same time: it happens once, however often it is asked for.
    pub once: Option<Once>,
}

/// The operation that has locked a region of the chunk is over: all its answers have come, so it is not asked for again. Until this is said
/// nobody else writes there, nor reads where it has written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct UnlockRegion {
    pub chunk: ChunkId,
    /// As in [`Once`].
    pub number: u64,
}

/// Is the region still locked for this operation? Then nobody has come in between since it was: asked when all its requests are answered, so
/// that it has happened at one moment. An error says that this is not known at the moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CheckRegion {
    pub chunk: ChunkId,
    /// As in [`Once`].
    pub number: u64,
    /// The container of a chunk with several copies, whose owner alone knows; else 0.
    pub copies_of: ContainerId,
}

/// The sender writes to the chunk, alone, and this server is on its host: it had better own it (design.md §5 *Migration*). No answer says
/// whether it does then; who asks finds out by its next write.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WantChunk {
    pub chunk: ChunkId,
    pub container: ContainerId,
}

/// An operation beside those of others, within one chunk. It locks its region (docs/design/0018-region-locks.md): a write until
/// [`UnlockRegion`], a read of several requests as well, one of a single request while it lasts. What is repeated late must not come over what they have written since: so a server remembers what it
/// has carried out of each session, and after something may have been lost, be it a restart or another owner, it takes new ones only
/// under leases that were granted since ([`LeaderSays`], [`crate::meta::RegisterAnswer`]); who may have been carried out before says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Once {
    /// Of the session, rising.
    pub number: u64,
    /// Of the numbers below this one none is asked for again.
    pub done: u64,
    /// An attempt was made that may have been carried out, or another part of the same call was carried out.
    pub repeated: bool,
    /// It was carried out, and its lock was lost with an owner before the whole call was: it has it again before all who came since.
    pub again: bool,
}

/// Whether a request may make the chunk it names where the server has none.
///
/// Chunks are deleted at the metadata server's word, and no request that is late or repeated may bring one back: nobody
/// would ever free it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Make {
    /// It is a spare of the session, and in no file yet.
    #[default]
    Yes,
    /// It is in a file: if it is not here it was deleted, or lost unsynced with the server's power.
    No,
    /// It was lost, for its row was there after the server had answered this in [`SyncAnswer`]. Without effect if
    /// anything was deleted here since.
    Lost { incarnation: u64, deletions: u64 },
}

/// Makes a chunk that begins as another one is, which nobody writes any more: both in one container, so that no byte of it leaves
/// its server. Space for all of it is reserved for the session. Answered when it is on stable storage. `chunk` is a spare of the
/// session, as with [`Make::Yes`]; what is there already under its id, a second attempt leaves as it is, for it may have been written
/// since.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloneChunk {
    pub chunk: ChunkId,
    pub from: ChunkId,
    /// Of both.
    pub container: ContainerId,
    pub chunk_bytes: u64,
    /// The file that is going to name it.
    pub inode: InodeId,
    pub index: ChunkIndex,
    /// Of that file, as in [`WriteChunk`]: what is cut of `from` since is not taken over.
    pub cuts: Cuts,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteAnswer {
    pub version: Version,
    /// This start of the server, and the write's place in its order.
    pub incarnation: u64,
    pub sequence: u64,
    /// Every write up to this one is on stable storage.
    pub stable: u64,
}

/// Reads; the payload has exactly `len` bytes, zeros where nothing was written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadChunk {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub offset: u64,
    pub len: u32,
    pub cuts: Cuts,
    /// What is read is kept in the memory of the machine this server is on: the server need not keep it as well.
    pub kept_beside: bool,
    /// Others may be writing it at this moment, and who reads next, wherever that is, must not see anything older: only who orders the
    /// writes answers, when what was read cannot be lost any more.
    pub ordered: bool,
    /// One of several ordered reads of one call: what it reads stays locked.
    pub hold: Option<Once>,
}

/// Asks for the files of a chunk, for reading it on the host of its server without asking (docs/design/0013-local-reads.md). Refused where
/// that cannot be, or not now: reads ask then.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenLocal {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub cuts: Cuts,
    /// It is one of several copies.
    pub copies: bool,
}

/// The chunk's files, as long as the word of the server's board has this value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalOpened {
    /// Good for a few seconds, and once.
    pub ticket: u64,
    /// The Unix socket at which it is good.
    pub socket: String,
    pub word: u64,
    pub value: u64,
    /// What the server's clock said, in nanoseconds: a reader whose own is not the same must not go on.
    pub now: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadAnswer {
    pub version: Version,
}

/// Makes everything written to these chunks stable; of none it asks how the server is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncChunks {
    pub chunks: Vec<ChunkId>,
    /// What is reserved for these is not needed any more; see [`ReserveRoom`].
    pub release: Vec<ChunkId>,
}

impl SyncChunks {
    pub fn of(chunks: Vec<ChunkId>) -> SyncChunks {
        SyncChunks { chunks, release: Vec::new() }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncAnswer {
    pub incarnation: u64,
    pub stable: u64,
    /// Deletions in this incarnation, see [`Make::Lost`].
    pub deletions: u64,
}

/// Applies truncations now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CutChunk {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub cuts: Cuts,
}

/// Frees a range, which reads as zero afterwards.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PunchChunk {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub range: ByteRange,
    pub cuts: Cuts,
}

/// Reserves space for a chunk up to `bytes` in all, so that writing it cannot end in ENOSPC.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReserveChunk {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub chunk_bytes: u64,
    pub bytes: u64,
    pub make: Make,
}

/// Sees that so many bytes of these chunks, each, can still be written, so that what a client takes into its buffer finds room
/// when it comes. Counting alone: the chunks need not exist, and nothing reaches the disk. Answers those that have it; an
/// error if none does. Lost with the server's process, as clients know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReserveRoom {
    pub chunks: Vec<(ChunkId, ContainerId)>,
    pub bytes: u64,
}

/// Returns unused reservations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnreserveChunks {
    pub chunks: Vec<ChunkId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatChunk {
    pub chunk: ChunkId,
    pub container: ContainerId,
    /// Ranges that hold data within this range, at block grain, for SEEK_DATA and SEEK_HOLE.
    pub extents_in: ByteRange,
    pub cuts: Cuts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkStatus {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub len: u64,
    pub occupied: u64,
    pub version: Version,
    pub trunc_gen: TruncGen,
    /// Of the file it was last written for.
    pub inode: InodeId,
    pub index: ChunkIndex,
    pub extents: Vec<ByteRange>,
    /// It was never synced when its server crashed: any part of what was written before may be missing.
    pub unsure: bool,
}

/// Deletes chunks; unknown ones are deleted already. Only the leader asks for this.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeleteChunks {
    pub chunks: Vec<ChunkId>,
}

/// Chunks after this id, in order, without extents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListChunks {
    pub after: ChunkId,
    pub limit: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChunkList {
    /// Without those of which nothing can be read.
    pub chunks: Vec<ChunkStatus>,
    /// Of this page: what is known to be damaged, also among `chunks`.
    pub damaged: Vec<DamagedChunk>,
    pub more: bool,
}

impl ChunkList {
    /// Where the next page begins.
    pub fn last(&self) -> Option<ChunkId> {
        self.chunks.last().map(|c| c.chunk).max(self.damaged.last().map(|c| c.chunk))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedChunk {
    pub chunk: ChunkId,
    /// What says what the chunk is cannot be used, so that nothing of it can be read; else bytes are missing or wrong.
    pub header: bool,
    /// Names the file.
    pub cause: String,
}

/// Takes the files of damaged chunks that no row names out of the store and keeps them beside it. What is sound, or not
/// there, stays as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetAside {
    pub chunks: Vec<ChunkId>,
}

/// What is here, in hashes (docs/design/0025-block-reports.md).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetReport {
    /// Of the numbers that are drawn for chunks; the asker's choice.
    pub key: u64,
    pub ask: ReportAsk,
}

/// Are these missing here, whatever the server has open of them? Only the leader asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoseChunks {
    pub container: ContainerId,
    pub chunks: Vec<ChunkId>,
    /// What is known here of those copies that are missing goes with the next epoch of their chain, if that begins soon: the server then begins
    /// with nothing of them, as after a restart.
    pub begin_anew: bool,
}

/// Tells the server the chain of containers it serves, from the leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetChains {
    pub containers: Vec<ContainerInfo>,
}

/// A session has ended: refuse what it still sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FenceSession {
    pub session: SessionId,
    pub epoch: SessionEpoch,
    /// Of the metadata server that says so. Refused of one that others have succeeded since, or may have: it may have stood still, and the
    /// session lives.
    pub by: MembershipEpoch,
}

/// Nothing of the session is applied any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fenced {
    /// Chunks that its writes have made longer, since this start of the server and in the last minutes: their files'
    /// sizes may not know.
    pub grown: Vec<ChunkId>,
    /// The same of chunks with several copies, whose owner may be another by now.
    pub grown_copies: Vec<(ChunkId, ContainerId)>,
}

/// Checks every checksum of a chunk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScrubChunk {
    pub chunk: ChunkId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScrubAnswer {
    pub blocks: u64,
    /// Offsets of blocks that do not match their checksum.
    pub bad: Vec<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetDataStatus {}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DataStatus {
    pub id: ServerId,
    pub incarnation: u64,
    pub version: String,
    pub uptime_ms: u64,
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub bytes_reserved: u64,
    pub chunks: u64,
    pub bad_blocks: u64,
    pub sealed_blocks: u64,
    pub reads: u64,
    pub writes: u64,
    pub syncs: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub waiting: Vec<crate::admin::Waiting>,
    /// Bad blocks of copies that were taken from another copy since the server's start.
    pub mended_blocks: u64,
    /// Chunks owned here of which not every server of the chain has everything yet, and how many copies that are.
    pub chunks_lacking: u64,
    pub copies_lacking: u64,
    /// To be copied to this server.
    pub bytes_lacking: u64,
    /// So long ago something was written of chunks owned here that not every copy has.
    pub lacking_ms: u64,
}

messages! {
    DataRequest, DataAnswer:
    WriteChunk -> WriteAnswer;
    ReadChunk -> ReadAnswer;
    SyncChunks -> SyncAnswer;
    CutChunk -> ();
    PunchChunk -> WriteAnswer;
    ReserveChunk -> ();
    UnreserveChunks -> ();
    ReserveRoom -> Vec<ChunkId>;
    StatChunk -> ChunkStatus;
    DeleteChunks -> ();
    ListChunks -> ChunkList;
    SetChains -> ();
    FenceSession -> Fenced;
    ScrubChunk -> ScrubAnswer;
    GetDataStatus -> DataStatus;
    WriteCopies -> CopiesAnswer;
    ReadCopy -> ReadAnswer;
    WaitCopies -> Vec<CopiesAnswer>;
    PunchCopies -> CopiesAnswer;
    CutCopies -> ();
    StatCopy -> ChunkStatus;
    ReserveCopy -> ();
    PeerSays -> ();
    LeaderSays -> ();
    GetCopies -> Vec<CopyState>;
    PromiseTerm -> KeeperReport;
    RecordSet -> KeeperReport;
    AppendGroups -> KeeperReport;
    SyncGroups -> KeeperReport;
    PutBase -> KeeperReport;
    FetchRows -> FetchedRows;
    SetAside -> ();
    UnlockRegion -> ();
    OpenLocal -> LocalOpened;
    WantChunk -> ();
    CheckRegion -> bool;
    GetReport -> ReportPart;
    LoseChunks -> Vec<bool>;
    CloneChunk -> WriteAnswer;
    CloneCopies -> CopiesAnswer;
}

/// A data server, near or far.
pub trait DataNode: Send + Sync + 'static {
    /// `payload` is what a write carries; the answer's is what a read brings; both are empty otherwise.
    fn execute(
        &self,
        cx: Context,
        request: DataRequest,
        payload: Bytes,
    ) -> impl Future<Output = Result<(DataAnswer, Bytes)>> + Send;

    /// The typed form of [`DataNode::execute`].
    fn call<M>(
        &self,
        cx: Context,
        message: M,
        payload: Bytes,
    ) -> impl Future<Output = Result<(M::Answer, Bytes)>> + Send
    where
        M: crate::Carries<DataRequest, DataAnswer> + Send,
        M::Answer: Send,
    {
        async move {
            let (answer, payload) = self.execute(cx, message.wrap(), payload).await?;
            let answer = M::unwrap(answer).ok_or_else(|| crate::Error::bare(crate::Code::BadMessage))?;
            Ok((answer, payload))
        }
    }
}

/// Finds the way to a data server. Cheap to call; connects when it is first used.
pub trait DataPeers: Send + Sync + 'static {
    type Node: DataNode;
    fn node(&self, server: &crate::meta::ServerInfo) -> std::sync::Arc<Self::Node>;
}
