//! Where each row lies: table, partition, rest of the primary key.

use braid_api::meta::TreeOp;
use braid_api::quota::Payer;
use braid_meta_engine::{Key, Table};
use braid_types::{ChunkId, ChunkIndex, ContainerId, InodeId, Name, RequestId, ServerId, SessionId, SnapshotHandle};

/// The parent under which the root's own row lies, with an empty name.
pub const NO_PARENT: InodeId = InodeId(0);

fn number(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

pub fn entry(parent: InodeId, name: &Name) -> Key {
    Key::new(Table::Inodes, parent.0, name.as_bytes())
}

pub fn root_entry() -> Key {
    Key::new(Table::Inodes, NO_PARENT.0, b"")
}

/// All entries of a directory.
pub fn entries(parent: InodeId) -> Key {
    Key::new(Table::Inodes, parent.0, b"")
}

pub fn inode_id(id: InodeId) -> Key {
    Key::new(Table::InodeIds, id.0, b"")
}

pub fn chunk(inode: InodeId, index: ChunkIndex) -> Key {
    Key::new(Table::Chunks, inode.0, &number(index.0))
}

pub fn chunks(inode: InodeId) -> Key {
    Key::new(Table::Chunks, inode.0, b"")
}

/// The index in a key of `chunks`.
pub fn chunk_index(key: &Key) -> Option<ChunkIndex> {
    Some(ChunkIndex(u64::from_be_bytes(key.rest().try_into().ok()?)))
}

pub fn inline_small(inode: InodeId) -> Key {
    Key::new(Table::InlineSmall, inode.0, b"")
}

pub fn inline_large(inode: InodeId) -> Key {
    Key::new(Table::InlineLarge, inode.0, b"")
}

pub fn xattr(inode: InodeId, name: &[u8]) -> Key {
    Key::new(Table::Xattrs, inode.0, name)
}

pub fn xattrs(inode: InodeId) -> Key {
    Key::new(Table::Xattrs, inode.0, b"")
}

pub fn policy(root: InodeId) -> Key {
    Key::new(Table::Policies, root.0, b"")
}

pub fn session(id: SessionId) -> Key {
    Key::new(Table::Sessions, id.0, b"")
}

pub fn request(session: SessionId, id: RequestId) -> Key {
    Key::new(Table::Requests, session.0, &number(id.0))
}

pub fn requests(session: SessionId) -> Key {
    Key::new(Table::Requests, session.0, b"")
}

pub fn spare(session: SessionId, chunk: ChunkId) -> Key {
    Key::new(Table::Spares, session.0, &number(chunk.0))
}

pub fn spares(session: SessionId) -> Key {
    Key::new(Table::Spares, session.0, b"")
}

/// The number at the end of a key of `requests` or `spares`.
pub fn trailing_number(key: &Key) -> Option<u64> {
    Some(u64::from_be_bytes(key.rest().try_into().ok()?))
}

pub fn container(id: ContainerId) -> Key {
    Key::new(Table::Containers, id.0, b"")
}

pub fn server(id: ServerId) -> Key {
    Key::new(Table::Servers, id.0, b"")
}

pub fn orphan(id: InodeId) -> Key {
    Key::new(Table::Orphans, id.0, b"")
}

const RECLAIM_INODE: u8 = 0;
const RECLAIM_CHUNK: u8 = 1;
const RECLAIM_TREE: u8 = 2;

/// An inode whose chunk rows are to be freed.
pub fn reclaim_inode(id: InodeId) -> Key {
    Key::new(Table::Reclaim, id.0, &[RECLAIM_INODE])
}

/// A chunk that data servers are to delete.
pub fn reclaim_chunk(id: ChunkId) -> Key {
    Key::new(Table::Reclaim, id.0, &[RECLAIM_CHUNK])
}

/// A removed directory that is to be emptied.
pub fn reclaim_tree(dir: InodeId) -> Key {
    Key::new(Table::Reclaim, dir.0, &[RECLAIM_TREE])
}

/// What a key of `reclaim` is about.
pub enum Reclaimed {
    Inode(InodeId),
    Chunk(ChunkId),
    Tree(InodeId),
}

pub fn reclaimed(key: &Key) -> Option<Reclaimed> {
    match key.rest() {
        [RECLAIM_INODE] => Some(Reclaimed::Inode(InodeId(key.partition()))),
        [RECLAIM_CHUNK] => Some(Reclaimed::Chunk(ChunkId(key.partition()))),
        [RECLAIM_TREE] => Some(Reclaimed::Tree(InodeId(key.partition()))),
        _ => None,
    }
}

const LIMIT: u8 = 0;
const USAGE: u8 = 1;
const USER: u8 = 2;
const GROUP: u8 = 3;
const ROOM: u8 = 4;
const RESTAMP: u8 = 1;
const SPREAD: u8 = 2;
const TREE_CHANGE: u8 = 3;
const LEFT: u8 = 4;

/// Quotas of users and groups lie where no inode's do.
fn of_payer(payer: Payer, rest: &[u8]) -> Key {
    let with = |kind: u8, id: u32| {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&id.to_be_bytes());
        bytes.extend_from_slice(rest);
        Key::new(Table::Quotas, NO_PARENT.0, &bytes)
    };
    match payer {
        Payer::Dir(id) => Key::new(Table::Quotas, id.0, rest),
        Payer::User(id) => with(USER, id),
        Payer::Group(id) => with(GROUP, id),
    }
}

/// What a payer may have. Before its usage, so that it is locked first.
pub fn limit(payer: Payer) -> Key {
    of_payer(payer, &[LIMIT])
}

/// One of the rows whose sum is what a payer has.
pub fn usage(payer: Payer, share: u8) -> Key {
    of_payer(payer, &[USAGE, share])
}

/// What a key of `quotas` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    Limit(Payer),
    Usage(Payer),
}

pub fn account(key: &Key) -> Option<Account> {
    let of = |payer: Payer, rest: &[u8]| match rest {
        [LIMIT] => Some(Account::Limit(payer)),
        [USAGE, _] => Some(Account::Usage(payer)),
        _ => None,
    };
    if key.partition() != NO_PARENT.0 {
        return of(Payer::Dir(InodeId(key.partition())), key.rest());
    }
    let (kind, rest) = key.rest().split_first()?;
    let (id, rest) = rest.split_first_chunk::<4>()?;
    let id = u32::from_be_bytes(*id);
    match *kind {
        USER => of(Payer::User(id), rest),
        GROUP => of(Payer::Group(id), rest),
        _ => None,
    }
}

/// That a session has taken room for a file.
pub fn room(session: SessionId, inode: InodeId) -> Key {
    let mut rest = vec![ROOM];
    rest.extend_from_slice(&number(session.0));
    rest.extend_from_slice(&number(inode.0));
    Key::new(Table::Quotas, NO_PARENT.0, &rest)
}

pub fn rooms(session: SessionId) -> Key {
    let mut rest = vec![ROOM];
    rest.extend_from_slice(&number(session.0));
    Key::new(Table::Quotas, NO_PARENT.0, &rest)
}

/// The file in a key of a room.
pub fn room_of(key: &Key) -> Option<InodeId> {
    match (key.partition(), key.rest().split_first()) {
        (0, Some((&ROOM, rest))) => Some(InodeId(u64::from_be_bytes(rest.get(8..)?.try_into().ok()?))),
        _ => None,
    }
}

/// The snapshots of a directory.
pub fn snapshots(root: InodeId) -> Key {
    Key::new(Table::Snapshots, root.0, b"")
}

/// No snapshot has a larger number.
pub const SNAPSHOT_MAX: u64 = (1 << 56) - 1;

/// Of a row below a snapshot root: how it was until it changed after the snapshot of this number. All of a root are in one partition,
/// because with a snapshot goes what was kept for it, wherever it lay. No name in a key contains a zero, and no number reaches 2^56: so
/// these sort as the rows do, and by number where they are of one row.
pub fn old_row(root: InodeId, of: &Key, snapshot: u64) -> Key {
    let mut key = old_rest(of);
    key.extend_from_slice(&number(snapshot));
    Key::new(Table::OldRows, root.0, &key)
}

/// How keys begin of rows that were kept for this row, or below this prefix.
pub fn old_rows_below(root: InodeId, prefix: &Key) -> Key {
    Key::new(Table::OldRows, root.0, &old_rest(prefix))
}

fn old_rest(of: &Key) -> Vec<u8> {
    let mut key = vec![of.table() as u8];
    key.extend_from_slice(of.bytes());
    key
}

/// Which row was kept, and for which snapshot.
pub fn of_old_row(key: &Key) -> Option<(Key, u64)> {
    let (rest, snapshot) = key.rest().split_last_chunk::<8>()?;
    let (table, bytes) = rest.split_first()?;
    Some((Key::from_bytes(Table::from_number(*table)?, bytes)?, u64::from_be_bytes(*snapshot)))
}

/// Behind all tables.
const KEPT_INODE: u8 = 0xff;

/// A file below a snapshot root that has gone, see [`super::KeptInode`].
pub fn kept_inode(root: InodeId, inode: InodeId) -> Key {
    let mut rest = vec![KEPT_INODE];
    rest.extend_from_slice(&number(inode.0));
    Key::new(Table::OldRows, root.0, &rest)
}

pub fn of_kept_inode(key: &Key) -> Option<InodeId> {
    let (&KEPT_INODE, inode) = key.rest().split_first()? else { return None };
    Some(InodeId(u64::from_be_bytes(inode.try_into().ok()?)))
}

/// All rows that are kept for snapshots of a directory.
pub fn all_old_rows(root: InodeId) -> Key {
    Key::new(Table::OldRows, root.0, b"")
}

/// That the entries of a directory are to be looked through, see [`super::RestampRow`].
pub fn restamp(dir: InodeId) -> Key {
    Key::new(Table::SubtreeOps, dir.0, &[RESTAMP])
}

/// That the directories in a directory are to be told whose policy holds for them, see [`super::SpreadRow`].
pub fn spread(dir: InodeId) -> Key {
    Key::new(Table::SubtreeOps, dir.0, &[SPREAD])
}

fn of_tree_op(partition: InodeId, kind: u8, op: TreeOp, rest: &[u8]) -> Key {
    let mut bytes = vec![kind];
    [op.top.0, op.session.0, op.request.0].iter().for_each(|n| bytes.extend_from_slice(&number(*n)));
    bytes.extend_from_slice(rest);
    Key::new(Table::SubtreeOps, partition.0, &bytes)
}

fn tree_op_of(key: &Key, kind: u8) -> Option<(TreeOp, &[u8])> {
    let (found, mut rest) = key.rest().split_first()?;
    let mut next = || {
        let (number, behind) = rest.split_first_chunk::<8>()?;
        rest = behind;
        Some(u64::from_be_bytes(*number))
    };
    let op = TreeOp { top: InodeId(next()?), session: SessionId(next()?), request: RequestId(next()?) };
    (*found == kind).then_some((op, rest))
}

/// That what is in a directory is to be changed, see [`super::ChangeRow`].
pub fn tree_change(dir: InodeId, op: TreeOp) -> Key {
    of_tree_op(dir, TREE_CHANGE, op, b"")
}

pub fn tree_change_of(key: &Key) -> Option<TreeOp> {
    tree_op_of(key, TREE_CHANGE).filter(|(_, rest)| rest.is_empty()).map(|(op, _)| op)
}

/// What was left as it is in a directory, from this name on, see [`super::LeftRow`]. All of an operation are in one partition.
pub fn left(op: TreeOp, dir: InodeId, first: &[u8]) -> Key {
    of_tree_op(op.top, LEFT, op, &[&number(dir.0), first].concat())
}

pub fn all_left(op: TreeOp) -> Key {
    of_tree_op(op.top, LEFT, op, b"")
}

pub fn left_of(key: &Key) -> Option<TreeOp> {
    tree_op_of(key, LEFT).map(|(op, _)| op)
}

/// Single rows. Their names are on disk.
/// Who leads the metadata servers.
pub fn lead() -> Key {
    Key::new(Table::Elections, 0, b"")
}

/// Which of them serve at once.
pub fn roster() -> Key {
    Key::new(Table::Elections, 0, b"roster")
}

/// How many files are sealed: a store of before it was counted has none.
pub fn sealed_count() -> Key {
    global("sealed")
}

/// How many of them are in the count of a directory; no row: none.
pub fn sealed_placed() -> Key {
    global("sealed_placed")
}

/// Before a directory in which files are sealed.
const SEALED_IN: &[u8] = b"sealed_in_";

pub fn all_sealed_in() -> Key {
    Key::new(Table::Globals, 0, SEALED_IN)
}

/// How many files with one name, which is in this directory, were sealed; no row: none.
pub fn sealed_in(dir: InodeId) -> Key {
    Key::new(Table::Globals, 0, &[SEALED_IN, &number(dir.0)].concat())
}

pub fn of_sealed_in(key: &Key) -> Option<InodeId> {
    let bytes = key.rest().strip_prefix(SEALED_IN)?;
    Some(InodeId(u64::from_be_bytes(bytes.try_into().ok()?)))
}

/// Whether these rows may be served; most stores have no such row.
pub fn handover() -> Key {
    global("handover")
}

/// That these rows come from a backup; most stores have no such row.
pub fn restored() -> Key {
    global("restored")
}

/// Before a handle of snapshots that was let go of.
const HANDLE: &[u8] = b"snapshot_handle_";

pub fn handles() -> Key {
    Key::new(Table::Globals, 0, HANDLE)
}

/// See [`super::HandleRow`].
pub fn handle(handle: SnapshotHandle) -> Key {
    Key::new(Table::Globals, 0, &[HANDLE, &handle.0.to_be_bytes()].concat())
}

pub fn of_handle(key: &Key) -> Option<SnapshotHandle> {
    let bytes = key.rest().strip_prefix(HANDLE)?;
    Some(SnapshotHandle(u16::from_be_bytes(bytes.try_into().ok()?)))
}

/// Whether somebody has a quota ([`super::AnyLimitRow`]).
pub fn any_limit() -> Key {
    global("any_limit")
}

pub fn global(name: &str) -> Key {
    Key::new(Table::Globals, 0, name.as_bytes())
}
