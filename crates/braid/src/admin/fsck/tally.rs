//! The first pass over names and inodes: what the rows say of each inode, added up, and what does not fit.
//!
//! The rows are read page by page while the cluster works, so what does not fit is only a [`Doubt`]; `confirm` makes
//! sure of each. An inode costs 48 bytes, in a hash map that doubles: 55 to 110 MB a million inodes. Names are not
//! kept, a hash stands for them.

use braid_api::admin::{IdRow, InodeRow};
use braid_types::{FileKind, InodeId};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What may be wrong with an inode. Names the rows that did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// There are pointers to it and no attributes.
    Pointers,
    /// There are attributes at more than one place.
    TwoRows,
    /// Its id row is missing, or leads elsewhere.
    IdRow,
    /// Its id row leads nowhere.
    IdRowNowhere,
    /// The links of an inode whose attributes lie beside its one name.
    LinksHere,
    /// The links of an inode in `inode_ids`.
    LinksById,
    /// A directory's counts.
    Counts,
    /// There are entries in a directory that is not there.
    NoDirectory,
    /// A directory below itself.
    Circle,
    Orphan,
}

mod flag {
    pub const HERE: u16 = 1;
    pub const POINTER: u16 = 2;
    pub const ID_AT: u16 = 4;
    /// The id row leads to the entry with the attributes.
    pub const ID_FITS: u16 = 8;
    pub const ID_ATTR: u16 = 16;
    pub const ORPHAN: u16 = 32;
    pub const TWICE: u16 = 64;
    pub const DIR: u16 = 128;
    pub const FILE: u16 = 256;
    pub const REACHED: u16 = 512;
    pub const PASSED: u16 = 1024;
}

#[derive(Clone, Copy, Default)]
struct Node {
    parent: u64,
    /// Of a file its bytes, of a directory the entries its row counts.
    size: u64,
    name: u32,
    nlink: u32,
    names: u32,
    children: u32,
    subdirs: u32,
    flags: u16,
    chunk_shift: u8,
}

impl Node {
    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// What the pass over chunks must know of a file.
#[derive(Clone, Copy)]
pub struct FileFacts {
    pub size: u64,
    pub chunk_bytes: u64,
}

#[derive(Default)]
pub struct Tally {
    nodes: HashMap<u64, Node>,
    pub names: u64,
}

fn hash(name: &[u8]) -> u32 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() as u32
}

fn kind_flags(kind: FileKind) -> u16 {
    match kind {
        FileKind::Directory => flag::DIR,
        FileKind::File => flag::FILE,
        _ => 0,
    }
}

fn shift(chunk_bytes: u64) -> u8 {
    chunk_bytes.max(1).trailing_zeros() as u8
}

impl Tally {
    fn node(&mut self, id: InodeId) -> &mut Node {
        self.nodes.entry(id.0).or_default()
    }

    pub fn inodes(&self) -> u64 {
        self.nodes.values().filter(|n| n.has(flag::HERE | flag::ID_ATTR)).count() as u64
    }

    pub fn entry(&mut self, row: &InodeRow) {
        let is_root = row.id == InodeId::ROOT && row.parent == InodeId(0);
        if !is_root {
            self.names += 1;
            let parent = self.node(row.parent);
            parent.children += 1;
            parent.subdirs += u32::from(row.kind == FileKind::Directory);
        }
        let node = self.node(row.id);
        node.names += 1;
        let Some(attr) = &row.attr else {
            node.flags |= flag::POINTER;
            return;
        };
        if node.has(flag::HERE) {
            node.flags |= flag::TWICE;
            return;
        }
        node.flags |= flag::HERE | kind_flags(row.kind);
        node.parent = row.parent.0;
        node.name = hash(&row.name);
        node.nlink = attr.nlink;
        node.size = if row.kind == FileKind::Directory { row.entries } else { attr.size };
        node.chunk_shift = shift(row.chunk_bytes);
    }

    /// Comes after all entries.
    pub fn id_row(&mut self, row: &IdRow) {
        let node = self.node(row.id);
        if let Some((parent, name)) = &row.place {
            node.flags |= flag::ID_AT;
            if node.has(flag::HERE) && node.parent == parent.0 && node.name == hash(name) {
                node.flags |= flag::ID_FITS;
            }
        }
        if let Some(attr) = &row.attr {
            node.flags |= flag::ID_ATTR | kind_flags(attr.kind);
            if row.orphan {
                node.flags |= flag::ORPHAN;
            }
            if !node.has(flag::HERE) {
                node.nlink = attr.nlink;
                node.size = attr.size;
                node.chunk_shift = shift(row.chunk_bytes);
            }
        }
    }

    /// Some row spoke of it: a name, or where it is.
    pub fn knows(&self, id: InodeId) -> bool {
        self.nodes.contains_key(&id.0)
    }

    pub fn has_root(&self) -> bool {
        self.nodes.get(&InodeId::ROOT.0).is_some_and(|root| root.has(flag::HERE) && root.has(flag::DIR))
    }

    pub fn file(&self, id: InodeId) -> Option<FileFacts> {
        let node = self.nodes.get(&id.0).filter(|n| n.has(flag::FILE))?;
        Some(FileFacts { size: node.size, chunk_bytes: 1 << node.chunk_shift.min(62) })
    }

    /// Everything that does not fit, in order of inodes. `orphans` are those listed as unlinked.
    pub fn doubts(&mut self, orphans: &[InodeId]) -> Vec<(InodeId, Doubt)> {
        let mut doubts = Vec::new();
        for (&id, node) in &self.nodes {
            let mut doubt = |is: bool, what| {
                if is {
                    doubts.push((InodeId(id), what));
                }
            };
            let [here, id_at, by_id, dir] = [flag::HERE, flag::ID_AT, flag::ID_ATTR, flag::DIR].map(|f| node.has(f));
            let root = id == InodeId::ROOT.0;
            doubt(node.has(flag::POINTER) && !by_id, Doubt::Pointers);
            doubt(node.has(flag::TWICE) || (here && by_id), Doubt::TwoRows);
            doubt(here && !by_id && !root && !node.has(flag::ID_FITS), Doubt::IdRow);
            doubt(id_at && !here, Doubt::IdRowNowhere);
            doubt(here && !dir && !by_id && node.nlink != 1, Doubt::LinksHere);
            doubt(
                by_id && (node.nlink != node.names || (node.nlink == 0 && !node.has(flag::ORPHAN))),
                Doubt::LinksById,
            );
            let counts = (u64::from(node.nlink), node.size);
            doubt(here && dir && counts != (u64::from(node.subdirs) + 2, u64::from(node.children)), Doubt::Counts);
            // One that was removed with all that is in it lies in `inode_ids` until it is empty.
            doubt(node.children > 0 && !((here || by_id) && dir), Doubt::NoDirectory);
        }
        let unlinked =
            |id: &&InodeId| self.nodes.get(&id.0).is_some_and(|n| n.has(flag::ID_ATTR) && n.nlink == 0 && n.names == 0);
        doubts.extend(orphans.iter().filter(|id| !unlinked(id)).map(|id| (*id, Doubt::Orphan)));
        doubts.extend(self.circles().into_iter().map(|id| (id, Doubt::Circle)));
        doubts.sort_unstable();
        doubts
    }

    /// The smallest directory of each circle. Every directory is passed once: what a walk towards the root has
    /// passed need not be walked again.
    fn circles(&mut self) -> Vec<InodeId> {
        let dirs: Vec<u64> =
            self.nodes.iter().filter(|(_, n)| n.has(flag::DIR) && n.has(flag::HERE)).map(|(&id, _)| id).collect();
        let mut circles = Vec::new();
        let mut walk = Vec::new();
        for dir in dirs {
            let mut at = dir;
            walk.clear();
            while let Some(node) = self.nodes.get_mut(&at).filter(|n| n.flags & (flag::REACHED | flag::PASSED) == 0) {
                node.flags |= flag::PASSED;
                walk.push(at);
                at = node.parent;
            }
            // Passed but not left behind by an earlier walk: the walk met itself.
            if self.nodes.get(&at).is_some_and(|n| !n.has(flag::REACHED))
                && let Some(start) = walk.iter().position(|&id| id == at)
            {
                circles.extend(walk[start..].iter().min().map(|&id| InodeId(id)));
            }
            for id in &walk {
                if let Some(node) = self.nodes.get_mut(id) {
                    node.flags |= flag::REACHED;
                }
            }
        }
        circles
    }
}
