//! Where each row lies: table, partition, rest of the primary key.

use braid_meta_engine::{Key, Table};
use braid_types::{ChunkId, ChunkIndex, ContainerId, InodeId, Name, RequestId, ServerId, SessionId};

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

/// Single rows. Their names are on disk.
/// Who leads the metadata servers.
pub fn lead() -> Key {
    Key::new(Table::Elections, 0, b"")
}

/// How many files are sealed: a store of before it was counted has none.
pub fn sealed_count() -> Key {
    global("sealed")
}

/// Whether these rows may be served; most stores have no such row.
pub fn handover() -> Key {
    global("handover")
}

/// That these rows come from a backup; most stores have no such row.
pub fn restored() -> Key {
    global("restored")
}

pub fn global(name: &str) -> Key {
    Key::new(Table::Globals, 0, name.as_bytes())
}
