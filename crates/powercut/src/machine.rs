//! The disk of one machine: nodes, names, open handles, faults. Everything a request can do to it, without the kernel.
//!
//! One lock guards it. Results are error numbers because that is what the kernel is answered.
//! Calls on names are in `machine_names.rs`, the cut is in `cut.rs`.

use crate::faults::{Faults, Options};
use crate::image::PAGE_BYTES;
use crate::names::{Names, NodeId, ROOT};
use crate::node::Node;
use crate::settle::{Fate, Order};
use crate::stats::Stats;
use braid_fuse_kernel::{Attr, SetAttr};
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) type Outcome<T> = Result<T, i32>;

/// Offsets beyond this are refused, as ext4 refuses what its maps cannot say: 16 TiB.
const FILE_BYTES_MAX: u64 = 16 << 40;
/// What `statfs` shows when there is no limit: 1 TiB.
const BYTES_SHOWN: u64 = 1 << 40;
/// Unlinked nodes that may wait before the next look for those nobody can reach.
const UNREACHABLE_MAX: u64 = 64;

pub(crate) struct Listed {
    pub name: Vec<u8>,
    pub node: NodeId,
    pub mode: u32,
}

pub(crate) enum Handle {
    File(NodeId),
    /// The listing is as it was when it was read from the start.
    Dir(NodeId, Vec<Listed>),
}

pub(crate) struct Machine {
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) names: Names,
    pub(crate) handles: HashMap<u64, Handle>,
    pub faults: Faults,
    pub(crate) order: Option<Order>,
    pub(crate) stats: Stats,
    /// Of the journal.
    pub(crate) seq: u64,
    pub(crate) last_node: NodeId,
    last_handle: u64,
    pub(crate) unlinked: u64,
}

impl Machine {
    pub fn new(options: &Options) -> Self {
        let mut root = Node::new(libc::S_IFDIR | 0o755, 0, 0);
        root.links = 1;
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            names: Names::default(),
            handles: HashMap::new(),
            faults: Faults { capacity: options.capacity, ..Faults::default() },
            order: options.order,
            stats: Stats::default(),
            seq: 0,
            last_node: ROOT,
            last_handle: 0,
            unlinked: 0,
        }
    }

    /// A node of before a cut is unknown, and to who still holds it the disk is dead.
    pub(crate) fn node(&self, id: NodeId) -> Outcome<&Node> {
        if self.faults.is_stopped() {
            return Err(libc::EIO);
        }
        self.nodes.get(&id).ok_or(libc::EIO)
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> Outcome<&mut Node> {
        self.nodes.get_mut(&id).ok_or(libc::EIO)
    }

    pub(crate) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Before each change: is the disk there, and the handle of this life?
    fn begin_change(&mut self, id: NodeId, fh: Option<u64>) -> Outcome<()> {
        self.node(id)?;
        if fh.is_some_and(|fh| !self.handles.contains_key(&fh)) {
            return Err(libc::EIO);
        }
        self.faults.count_change()
    }

    pub fn attr(&self, id: NodeId) -> Outcome<Attr> {
        Ok(self.node(id)?.attr(id))
    }

    pub fn set_attr(&mut self, id: NodeId, set: &SetAttr) -> Outcome<Attr> {
        self.begin_change(id, None)?;
        if let Some(size) = set.size {
            self.set_len(id, size)?;
        }
        let node = self.node_mut(id)?;
        node.set(set);
        Ok(node.attr(id))
    }

    fn set_len(&mut self, id: NodeId, size: u64) -> Outcome<()> {
        check_end(0, size)?;
        let seq = self.next_seq();
        let node = self.node_mut(id)?;
        node.content.set_len(size, seq);
        node.modified();
        (node.last_change, node.last_size_change) = (seq, seq);
        Ok(())
    }

    pub fn open(&mut self, id: NodeId) -> Outcome<u64> {
        let handle = if self.node(id)?.is_dir() { Handle::Dir(id, Vec::new()) } else { Handle::File(id) };
        self.last_handle += 1;
        self.handles.insert(self.last_handle, handle);
        Ok(self.last_handle)
    }

    pub fn release(&mut self, fh: u64) {
        self.handles.remove(&fh);
        self.collect_many();
    }

    fn collect_many(&mut self) {
        if self.unlinked > UNREACHABLE_MAX {
            self.collect();
        }
    }

    /// Frees what no name leads to, now or after a cut, and nobody has open.
    pub(crate) fn collect(&mut self) {
        let mut kept = self.names.named();
        kept.insert(ROOT);
        kept.extend(self.open_nodes());
        self.nodes.retain(|id, _| kept.contains(id));
        self.unlinked = 0;
    }

    fn open_nodes(&self) -> BTreeSet<NodeId> {
        let node = |handle: &Handle| match handle {
            Handle::File(node) | Handle::Dir(node, _) => *node,
        };
        self.handles.values().map(node).collect()
    }

    pub fn read(&mut self, id: NodeId, fh: u64, offset: u64, size: u32) -> Outcome<Vec<u8>> {
        if !self.handles.contains_key(&fh) {
            return Err(libc::EIO);
        }
        self.stats.reads += 1;
        Ok(self.node(id)?.content.read(offset, size.into()))
    }

    pub fn write(&mut self, id: NodeId, fh: u64, offset: u64, data: &[u8]) -> Outcome<()> {
        self.begin_change(id, Some(fh))?;
        check_end(offset, data.len() as u64)?;
        if Faults::takes(&mut self.faults.failing_writes) {
            self.stats.injected += 1;
            return Err(libc::EIO);
        }
        self.make_room(id, offset, data.len() as u64)?;
        let grows = self.node(id)?.content.len() < offset + data.len() as u64;
        let seq = if grows { self.next_seq() } else { 0 };
        let node = self.node_mut(id)?;
        let journalled = node.content.write(offset, data);
        node.modified();
        node.last_change = node.last_change.max(seq);
        node.last_size_change = node.last_size_change.max(seq);
        self.names.committed = self.names.committed.max(journalled.unwrap_or(0));
        self.stats.writes += 1;
        self.stats.bytes_written += data.len() as u64;
        Ok(())
    }

    /// Modes as of the system call: reserve, punch a hole or zero a range.
    pub fn fallocate(&mut self, id: NodeId, fh: u64, offset: u64, len: u64, mode: u32) -> Outcome<()> {
        self.begin_change(id, Some(fh))?;
        check_end(offset, len)?;
        let mode = mode as i32;
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => {
                self.make_room(id, offset, len)?;
                self.node_mut(id)?.content.reserve(offset, len);
            }
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE => {
                let seq = self.next_seq();
                let node = self.node_mut(id)?;
                node.content.zero(offset, len, seq);
                (node.last_change, node.last_size_change) = (seq, seq);
            }
            _ => return Err(libc::EOPNOTSUPP),
        }
        if !keeps_size && offset + len > self.node(id)?.content.len() {
            self.set_len(id, offset + len)?;
        }
        Ok(())
    }

    /// fsync and fdatasync of a file.
    pub fn sync_file(&mut self, id: NodeId, fh: u64, data_only: bool) -> Outcome<()> {
        self.begin_change(id, Some(fh))?;
        if Faults::takes(&mut self.faults.failing_syncs) {
            let mut fate = Fate::new(Order::Posix, self.seq, 0, 0);
            self.node_mut(id)?.content.sync_failed(&mut fate);
            self.stats.injected += 1;
            return Err(libc::EIO);
        }
        self.stats.file_syncs += 1;
        if self.faults.lose_syncs {
            self.stats.lost_syncs += 1;
            return Ok(());
        }
        let node = self.node_mut(id)?;
        node.content.sync();
        let needed = if data_only { node.last_size_change } else { node.last_change };
        self.names.committed = self.names.committed.max(needed);
        Ok(())
    }

    pub fn sync_dir(&mut self, id: NodeId, fh: u64) -> Outcome<()> {
        self.begin_change(id, Some(fh))?;
        if Faults::takes(&mut self.faults.failing_syncs) {
            self.stats.injected += 1;
            return Err(libc::EIO);
        }
        self.stats.directory_syncs += 1;
        if self.faults.lose_syncs {
            self.stats.lost_syncs += 1;
            return Ok(());
        }
        self.names.sync_dir(id);
        self.names.committed = self.names.committed.max(self.node(id)?.last_change);
        self.collect_many();
        Ok(())
    }

    fn make_room(&mut self, id: NodeId, offset: u64, len: u64) -> Outcome<()> {
        let Some(capacity) = self.faults.capacity else { return Ok(()) };
        let missing = self.node(id)?.content.missing_pages(offset, len);
        if missing > 0 && (self.occupied_pages() + missing) * PAGE_BYTES > capacity {
            self.stats.injected += 1;
            return Err(libc::ENOSPC);
        }
        Ok(())
    }

    fn occupied_pages(&self) -> u64 {
        let open = self.open_nodes();
        let live = self.nodes.iter().filter(|(id, node)| node.links > 0 || open.contains(id));
        live.map(|(_, node)| node.content.occupied_pages()).sum()
    }

    /// Bytes in all and bytes free.
    pub fn space(&self) -> (u64, u64) {
        let total = self.faults.capacity.unwrap_or(BYTES_SHOWN);
        (total, total.saturating_sub(self.occupied_pages() * PAGE_BYTES))
    }

    pub fn stats(&self) -> Stats {
        let mut stats = Stats { pending_names: self.names.pending() as u64, ..self.stats };
        for node in self.nodes.values() {
            let (writes, bytes) = node.content.pending();
            stats.pending_writes += writes as u64;
            stats.pending_bytes += bytes as u64;
        }
        stats
    }
}

fn check_end(offset: u64, len: u64) -> Outcome<()> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(()),
        _ => Err(libc::EFBIG),
    }
}
