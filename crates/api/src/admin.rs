//! What administrators ask a metadata server: status, rows page by page for fsck, repairs.

pub use crate::growing::{
    CopyMove, Drain, Load, Moves, Rebalance, RebalanceChange, RebalanceState, ServerFill, ShiftLeft, Taker,
};
use crate::meta::{Duty, TreeOp, TreeOpStatus};
use crate::quota::{Account, Limits, Miscount, Payer, Summary, ToSum};
pub use crate::sql::{SqlBegun, SqlPage, SqlValue};
pub use crate::waiting::{HeldAs, Waiting};
use braid_types::*;
use serde::{Deserialize, Serialize};

/// One question; answered by the variant of [`AdminAnswer`] with the same name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AdminQuery {
    Status,
    Sessions,
    /// Containers after this id.
    Containers {
        after: ContainerId,
        limit: u32,
    },
    /// Inodes as rows, in key order, after this (parent, name).
    InodeRows {
        after: Option<(InodeId, Vec<u8>)>,
        limit: u32,
    },
    /// `inode_ids` rows after this id.
    IdRows {
        after: Option<InodeId>,
        limit: u32,
    },
    /// Chunk rows after this (inode, index).
    ChunkRows {
        after: Option<(InodeId, ChunkIndex)>,
        limit: u32,
    },
    /// Orphans, spares and what waits to be freed, in order, after this.
    Pending {
        after: Option<Pending>,
        limit: u32,
    },
    /// What a request, a session or a path waits for at this server.
    Why,
    /// Carry out one repair of fsck in a transaction that checks first that the fault is still there.
    Repair(Repair),
    /// Everything known of one inode, in one snapshot.
    Inode {
        id: InodeId,
    },
    /// One name and what it leads to, in one snapshot.
    Entry {
        parent: InodeId,
        name: Vec<u8>,
    },
    /// The names from the root to a directory or a file with one name, in one snapshot.
    PathOf {
        id: InodeId,
    },
    /// One chunk row, its file, and who else may say something of the chunk, in one snapshot.
    Chunk {
        inode: InodeId,
        index: ChunkIndex,
        /// Whose spares are looked at.
        session: SessionId,
    },
    /// Which inodes have rows in the tables beside, in order, after this one.
    SideRows {
        after: Option<(SideTable, InodeId)>,
        limit: u32,
    },
    /// The rows of one inode in one of these tables, in one snapshot.
    Side(SideRow),
    /// How a drain of this data server stands, or what one would do.
    Drain {
        server: ServerId,
    },
    /// Changes what a data server is there for; answered as [`AdminQuery::Drain`].
    SetDuty {
        server: ServerId,
        duty: Duty,
        /// Bytes a second for all moves of the cluster, from now on; as it is if `None`.
        move_rate: Option<u64>,
    },
    /// How evening out stands, or what it would do.
    Rebalance {
        /// Plan it with this, whatever is under way.
        within_permille: Option<u32>,
    },
    /// Answered as [`AdminQuery::Rebalance`].
    SetRebalance {
        change: RebalanceChange,
        /// As it is, or the default, if `None`.
        within_permille: Option<u32>,
        /// As in [`AdminQuery::SetDuty`].
        move_rate: Option<u64>,
    },
    /// Begins a query over one moment of the metadata; it ends by itself after so long.
    SqlBegin {
        query: String,
        timeout_ms: u64,
    },
    /// A page of its answer, counted from 0: the next, or once more the last one.
    SqlNext {
        cursor: u64,
        page: u64,
    },
    /// Nobody wants the rest.
    SqlEnd {
        cursor: u64,
    },
    /// Begins to read all rows of one moment, in the order of their keys; each a row of an answer in SQL: table, key, row. Fetched by
    /// [`AdminQuery::SqlNext`].
    RowsBegin {
        timeout_ms: u64,
    },
    /// Nothing is changed for so long. `hold`: 0, or the one that is to last longer; `ms` of 0 ends it. Answers its number.
    Hold {
        hold: u64,
        ms: u64,
    },
    /// All rows are at another place: this store is served no more, if it has been held all the while.
    MoveAway {
        hold: u64,
        to: String,
    },
    /// Rows that came from a backup are the right ones: what they do not know may be deleted.
    ConfirmRestored,
    /// Gives a quota, or takes it.
    SetQuota {
        payer: Payer,
        limits: Option<Limits>,
    },
    /// What a directory, a user or a group has, and may have.
    Account {
        payer: Payer,
    },
    /// All of them, after this one.
    Accounts {
        after: Option<Payer>,
        limit: u32,
    },
    /// Accounts that are not what the inodes sum up to.
    Miscounts,
    /// What is in these directories, a page of it: the answer says what to ask for next.
    Summary {
        waiting: Vec<ToSum>,
    },
    /// Makes a snapshot of a directory and all that is below it, as it is at one moment.
    CreateSnapshot {
        dir: InodeId,
        name: Name,
        /// How long it may wait, for mounts that write below it or for a large tree to be prepared, before it is not made.
        wait_ms: u64,
    },
    /// Lets go of one; what only it has is freed behind the answer.
    DropSnapshot {
        dir: InodeId,
        name: Name,
    },
    /// Of a directory, or of all that have any.
    Snapshots {
        dir: Option<InodeId>,
    },
    /// What snapshots alone have, behind this row; the answer says what to ask for next.
    KeptRows {
        after: Option<Vec<u8>>,
        limit: u32,
    },
    /// Where several metadata servers serve at once: what the one that is asked has to say of itself.
    Member,
    /// How far a change of a tree is, and what it left as it is: behind what the answer before said.
    TreeOp {
        op: TreeOp,
        after: Option<Vec<u8>>,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AdminAnswer {
    Status(Status),
    Sessions(Vec<SessionStatus>),
    Containers(Vec<ContainerStatus>),
    InodeRows(Vec<InodeRow>),
    IdRows(Vec<IdRow>),
    ChunkRows(Vec<ChunkRow>),
    Pending(Vec<Pending>),
    Why(Vec<Waiting>),
    Repaired {
        done: bool,
        what: String,
    },
    Inode(Box<InodeCheck>),
    Entry(Box<EntryCheck>),
    PathOf(PathCheck),
    Chunk(ChunkCheck),
    SideRows(Vec<SideRow>),
    Side(SideCheck),
    Drain(Box<Drain>),
    SetDuty(Box<Drain>),
    Rebalance(Box<Rebalance>),
    SetRebalance(Box<Rebalance>),
    SqlBegin(SqlBegun),
    SqlNext(SqlPage),
    SqlEnd(()),
    RowsBegin(SqlBegun),
    Hold(u64),
    MoveAway(()),
    /// It was not confirmed before.
    ConfirmRestored(bool),
    SetQuota(()),
    Account(Account),
    Accounts(Vec<Account>),
    Miscounts(Vec<Miscount>),
    Summary(Summary),
    CreateSnapshot(SnapshotStatus),
    DropSnapshot(()),
    Snapshots(Vec<SnapshotStatus>),
    KeptRows(KeptPage),
    Member(MemberStatus),
    TreeOp(TreeOpStatus),
}

/// A metadata server that serves beside others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    pub member: MemberId,
    pub version: String,
    pub leads: bool,
    /// Of the roster that it follows.
    pub epoch: MembershipEpoch,
    /// For which it answers now. All members together answer for all, but for a moment after one has come or gone.
    pub slots: u32,
    /// That have something there.
    pub sessions: u32,
    pub uptime_ms: u64,
    pub transactions: u64,
    pub reads: u64,
}

/// What only snapshots have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum KeptRow {
    /// A chunk that was in a file, and is not there any more.
    Chunk(ChunkRow),
    /// A file that has gone, the rows of whose chunks stay.
    Inode(InodeId),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KeptPage {
    pub rows: Vec<KeptRow>,
    pub next: Option<Vec<u8>>,
}

/// A snapshot of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotStatus {
    pub dir: InodeId,
    pub name: Name,
    /// Rises with each that is made in the cluster.
    pub number: u64,
    pub made: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    pub cluster: ClusterId,
    pub version: String,
    pub engine: String,
    pub uptime_ms: u64,
    pub sessions: u32,
    /// How often all leases of a session ran out since this server's start: its mount was killed, stopped or cut off, or did not answer
    /// for longer than it may. One that leaves is not counted.
    pub leases_run_out: u64,
    pub servers_up: u32,
    pub servers_down: u32,
    pub inodes: u64,
    pub metadata_bytes: u64,
    pub metadata_copies: u32,
    pub round_trips: u64,
    pub transactions: u64,
    pub reads: u64,
    pub syncs: u64,
    pub chains: ChainsStatus,
    /// Copies that are to be on data servers; 0 where none are kept.
    pub copies_wanted: u32,
    /// Data servers as keepers of copies of the metadata.
    pub copies: Vec<CopyHealth>,
    /// The rows come from a backup of then, and nobody has confirmed yet that they are the right ones.
    pub restored: Option<Timestamp>,
    pub reports: Box<ReportsStatus>,
}

/// What data servers have against what rows name, since this server's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportsStatus {
    /// Reports compared, and those of them that differed, be it by what was on its way.
    pub compared: u64,
    pub differing: u64,
    /// Chunks of files that were not at a data server of their chain, in two reports in a row; one at two servers counts twice.
    pub lost: u64,
    /// Of these, copies that were taken from the others.
    pub restored: u64,
    /// Chunks at data servers that no row names, in two reports in a row; counted each time until they are gone.
    pub extra: u64,
    pub removed: u64,
    /// Lost and not back, now, and those of them that are being copied.
    pub missing: u64,
    pub restoring: u64,
    /// The first of those that are missing.
    pub some_missing: Vec<MissingChunk>,
}

/// A chunk of a file that is not where it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingChunk {
    pub server: ServerId,
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub inode: InodeId,
    pub index: ChunkIndex,
}

/// The chains of containers with several copies, as the leader sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainsStatus {
    pub containers: u64,
    /// Their chain is being changed, or chunks of them are not yet open in the newest epoch: their writes may wait.
    pub unsettled: u64,
    /// Fewer of their servers live than there should be copies.
    pub short: u64,
    /// Servers that live in the worst of these.
    pub live_min: Option<u8>,
    /// Data servers that may have copies nobody needs any more, and are still to be asked for them.
    pub with_strays: u64,
    /// Their servers are in fewer racks, hosts or disks than those that are up would allow.
    pub too_near: u64,
}

/// A data server as a keeper of a copy of the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHealth {
    pub server: ServerId,
    pub host: String,
    pub is_member: bool,
    /// Groups it has not received; `None` if it has no copy that follows.
    pub lag: Option<u64>,
    pub silent_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionStatus {
    pub session: SessionId,
    pub epoch: SessionEpoch,
    pub description: String,
    pub host: String,
    pub silent_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerStatus {
    pub id: ContainerId,
    pub epoch: ChainEpoch,
    pub chain: Vec<ServerId>,
    pub layout: Layout,
    pub chunk_bytes: u64,
    pub chunks_given: u32,
    pub chunks_freed: u32,
}

/// An inode row as fsck sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InodeRow {
    pub parent: InodeId,
    pub name: Vec<u8>,
    pub id: InodeId,
    pub kind: FileKind,
    /// Attributes are in `inode_ids` (several links) if `None`.
    pub attr: Option<Attr>,
    /// Children a directory's row counts.
    pub entries: u64,
    pub inline: bool,
    pub inline_bytes: u64,
    pub chunk_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdRow {
    pub id: InodeId,
    /// Where its row is, if the attributes are not here.
    pub place: Option<(InodeId, Vec<u8>)>,
    pub attr: Option<Attr>,
    pub inline: bool,
    pub inline_bytes: u64,
    pub chunk_bytes: u64,
    pub orphan: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChunkRow {
    pub inode: InodeId,
    pub index: ChunkIndex,
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub stable: bool,
}

/// Something that is to be freed, or belongs to a session but to no file yet. In the order in which [`AdminQuery::Pending`]
/// lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pending {
    /// A file without a name that may still be open.
    Orphan(InodeId),
    Spare(SessionId, ChunkId, ContainerId),
    /// A freed file with chunks.
    Inode(InodeId),
    /// A chunk that no file has any more.
    Chunk(ChunkId, ContainerId),
    /// A removed directory that is not empty yet.
    Tree(InodeId),
}

/// One inode in one snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct InodeCheck {
    pub id_row: Option<IdRow>,
    /// The entry where `id_row` says that it is, whatever it leads to; the root's own row for the root.
    pub entry: Option<InodeRow>,
    /// Of a directory: its entries and subdirectories, counted.
    pub entries: u64,
    pub subdirs: u64,
    pub orphan: bool,
    /// Its chunks wait to be freed.
    pub reclaim: bool,
}

/// One name in one snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EntryCheck {
    pub entry: Option<InodeRow>,
    /// Of the inode that the entry leads to.
    pub id_row: Option<IdRow>,
    /// What lies where `id_row` says.
    pub there: Option<InodeRow>,
    /// The entry's parent is a directory that exists.
    pub parent_exists: bool,
}

/// The way from the root.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathCheck {
    /// Names from where `end` stands down to the inode.
    pub names: Vec<Vec<u8>>,
    pub end: PathEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathEnd {
    Root,
    /// This inode has no row that says where it is.
    Missing(InodeId),
    /// This directory lies below itself.
    Circle(InodeId),
}

/// One chunk row in one snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChunkCheck {
    pub row: Option<ChunkRow>,
    /// `None` if there is no such file.
    pub file: Option<FileCheck>,
    /// The inode's chunks wait to be freed.
    pub reclaim_inode: bool,
    /// The chunk is a spare of the session that was asked about.
    pub spare: bool,
    /// The chunk itself waits to be freed.
    pub reclaim: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FileCheck {
    pub size: u64,
    pub chunk_bytes: u64,
    pub trunc_gen: TruncGen,
    /// Truncations that its data servers may not have made yet.
    pub cuts: u32,
}

/// A table whose rows stand beside an inode. In the order in which [`AdminQuery::SideRows`] lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SideTable {
    InlineSmall,
    InlineLarge,
    Xattrs,
    Quotas,
    Policies,
}

impl SideTable {
    pub const ALL: [SideTable; 5] =
        [SideTable::InlineSmall, SideTable::InlineLarge, SideTable::Xattrs, SideTable::Quotas, SideTable::Policies];
}

impl std::fmt::Display for SideTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SideTable::InlineSmall | SideTable::InlineLarge => "inline bytes",
            SideTable::Xattrs => "extended attributes",
            SideTable::Quotas => "quotas",
            SideTable::Policies => "policies",
        })
    }
}

/// An inode has rows in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideRow {
    pub table: SideTable,
    pub inode: InodeId,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct SideCheck {
    pub rows: u32,
    /// The inode exists, or waits to be freed.
    pub belongs: bool,
}

/// What `fsck --repair` may do. Each is checked again inside its transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repair {
    /// Set a link count, or a directory's count of entries, to what the rows say. A directory is counted again in
    /// the transaction.
    Links { inode: InodeId, nlink: u32, entries: u64 },
    /// Write the missing or wrong `inode_ids` row.
    IdRow { inode: InodeId, parent: InodeId, name: Vec<u8> },
    /// Drop an `inode_ids` row that leads nowhere.
    DropIdRow { inode: InodeId },
    /// Drop a chunk row whose file does not exist.
    DropChunkRow { inode: InodeId, index: ChunkIndex },
    /// A name leads to no inode: remove the name.
    DropEntry { parent: InodeId, name: Vec<u8> },
    /// A tree that cannot be reached: give it the name `#<id>` in the root directory.
    Reattach { inode: InodeId },
    /// Size beyond what any chunk can hold, or the like.
    Size { inode: InodeId, size: u64 },
    /// Set the links of an inode whose attributes are in `inode_ids`, if they and its change time are still these.
    /// With 0 names counted it gets the name `#<id>` in the root directory.
    FileLinks { inode: InodeId, names: u32, nlink: u32, ctime: Timestamp },
    /// An entry that cannot be reached (its directory does not exist, or lies below itself) gets the name `#<id>` in
    /// the root directory.
    MoveEntry { parent: InodeId, name: Vec<u8> },
    /// An entry with attributes that also lie elsewhere: where `inode_ids` leads to is the truth. The entry goes, or
    /// becomes a pointer if the truth is in `inode_ids` itself.
    Duplicate { parent: InodeId, name: Vec<u8> },
    /// An inode without names that nothing would free: list it as an orphan.
    MakeOrphan { inode: InodeId },
    /// An orphan that has names, or does not exist: take it from the list.
    DropOrphan { inode: InodeId },
    /// A chunk of a file is also a spare, or waits to be freed: the file keeps it.
    KeepChunk { inode: InodeId, index: ChunkIndex, session: SessionId },
    /// A chunk row without a file, whose chunk another row names: drop the row and leave the chunk alone.
    ForgetChunkRow { inode: InodeId, index: ChunkIndex },
    /// Bytes lie beyond the size: their writer was lost before it could report. Raise the size from `from` to `to` if
    /// it and the truncate generation are still these.
    RaiseSize { inode: InodeId, from: u64, to: u64, trunc_gen: TruncGen },
    /// Drop rows beside an inode that does not exist.
    DropSideRows(SideRow),
    /// Add to an account what it is short of, if it is the same as when it was counted.
    Usage(Miscount),
}
