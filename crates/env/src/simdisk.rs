//! A deterministic in-memory disk with a crash model and faults.
//!
//! What a power cut may do is what POSIX allows, no less: of the writes, lengths, holes and names that were not
//! synced, [`SimDisk::crash`] keeps, drops or tears (at 512-byte sectors) any combination, drawn from its seed.
//! What was synced stays. The same calls and seeds give the same disk, byte for byte.
//!
//! Left out: sectors are never torn inside (disks promise as much), and a synced byte never rots by itself; plant
//! that with [`SimDisk::corrupt`] and [`SimDisk::bad_range`].

mod faults;
mod file;
mod image;
mod memory;
mod mirror;
mod names;
#[cfg(test)]
mod tests;

use crate::read_only::ReadOnlyFile;
use crate::{Disk, DiskDirEntry, DiskFile, DiskLock, DiskSpace, OpenMode};
pub use faults::SyncFault;
use faults::{Faults, denied};
use file::{Inode, SimFile};
use memory::SimMemory;
use names::Names;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// What is torn: a disk writes this much or nothing.
pub const SECTOR_BYTES: usize = 512;
/// Size shown by a disk without a capacity limit.
const UNLIMITED_BYTES: u64 = 1 << 40;

pub(crate) type NodeId = u64;

/// How often the disk was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Of files and of directories.
    pub syncs: u64,
    /// Every call that changes something or syncs: the crash points of [`SimDisk::stop_after`].
    pub changes: u64,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
}

#[derive(Default)]
struct World {
    /// Raised by every crash; a handle of an older one belongs to a dead process.
    generation: u64,
    next_node: NodeId,
    nodes: BTreeMap<NodeId, Inode>,
    names: Names,
    locks: BTreeSet<PathBuf>,
    faults: Faults,
    counters: SimCounters,
}

impl SimDisk {
    /// An empty disk without limits or faults.
    pub fn new() -> Self {
        SimDisk::default()
    }

    /// Cuts the power: handles and locks die, unsynced changes survive whole, torn or not at all.
    pub fn crash(&self, seed: u64) {
        let mut world = self.world.lock();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        world.generation += 1;
        world.locks.clear();
        world.faults.power_is_back();
        world.names.crash(&mut rng);
        let alive = world.names.nodes();
        world.nodes.retain(|node, _| alive.contains(node));
        for inode in world.nodes.values_mut() {
            inode.crash(&mut rng);
        }
    }

    /// Kills the process but not the machine: handles and locks die, what was written stays (unsynced).
    pub fn kill_process(&self) {
        let mut world = self.world.lock();
        world.generation += 1;
        world.locks.clear();
        world.faults.power_is_back();
    }

    /// After `changes` more calls that change something, every call fails until [`SimDisk::crash`]; `None` lifts it.
    /// With every number from 0 up, a script is cut at each of its points.
    pub fn stop_after(&self, changes: Option<u64>) {
        self.world.lock().faults.stop_after = changes;
    }

    /// The next sync of a file does not do its work.
    pub fn fail_next_sync(&self, fault: SyncFault) {
        self.world.lock().faults.next_sync = Some(fault);
    }

    /// Planted bug: no sync does anything, and all say they did.
    pub fn skip_syncs(&self, skip: bool) {
        self.world.lock().faults.skip_syncs = skip;
    }

    /// Planted bug: words of boards stay as they were first written.
    pub fn keep_words(&self, keep: bool) {
        self.world.lock().faults.keep_words = keep;
    }

    /// Planted bug: a board that was to be believed once is for ever.
    pub fn keep_times(&self, keep: bool) {
        self.world.lock().faults.keep_times = keep;
    }

    fn keeps_of_boards(&self) -> (bool, bool) {
        let world = self.world.lock();
        (world.faults.keep_words, world.faults.keep_times)
    }

    /// The next `count` writes to files fail with EIO, each after an arbitrary part.
    pub fn fail_writes(&self, count: u64) {
        self.world.lock().faults.failing_writes = count;
    }

    /// Files can share ranges, as on XFS. What is shared is torn and lost like what is written, and takes as much room.
    pub fn share_ranges(&self, can: bool) {
        self.world.lock().faults.shares_ranges = can;
    }

    /// Everything that changes the disk fails with EROFS.
    pub fn read_only(&self, read_only: bool) {
        self.world.lock().faults.read_only = read_only;
    }

    /// Bytes of all files together; beyond, ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world.lock().faults.capacity = bytes;
    }

    /// Reads that touch the range fail with EIO until it is written again.
    pub fn bad_range(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        let mut world = self.world.lock();
        world.file_mut(path)?.bad.push(range);
        Ok(())
    }

    /// Turns over the bits of `mask` in one stored byte, as rot does.
    pub fn corrupt(&self, path: &Path, offset: u64, mask: u8) -> io::Result<()> {
        let mut world = self.world.lock();
        world.file_mut(path)?.corrupt(offset, mask);
        Ok(())
    }

    /// Nothing can be read without the disk until it has been read or written again.
    pub fn drop_caches(&self) {
        self.world.lock().nodes.values_mut().for_each(|inode| inode.cached.clear());
    }

    pub fn counters(&self) -> SimCounters {
        self.world.lock().counters
    }
}

impl World {
    /// The node of an existing file.
    fn file_node(&self, path: &Path) -> io::Result<NodeId> {
        match self.names.get(path) {
            Some(names::Entry::File(node)) => Ok(node),
            Some(names::Entry::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file_mut(&mut self, path: &Path) -> io::Result<&mut Inode> {
        let node = self.file_node(path)?;
        self.nodes.get_mut(&node).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// A file without a name occupies nothing, though its inode is kept for what a crash may do to the name.
    fn used_bytes(&self) -> u64 {
        self.names.nodes().iter().filter_map(|node| self.nodes.get(node)).map(Inode::occupied).sum()
    }

    /// Bytes that can still be written. Summed up only where there is a limit.
    fn room(&self) -> u64 {
        self.faults.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used_bytes()))
    }

    /// Counts a change, unless the disk refuses it.
    fn change(&mut self) -> io::Result<()> {
        self.faults.check_alive()?;
        if self.faults.read_only {
            return Err(denied());
        }
        self.faults.count_change()?;
        self.counters.changes += 1;
        Ok(())
    }

    fn space(&self) -> DiskSpace {
        let total = self.faults.capacity.unwrap_or(UNLIMITED_BYTES);
        DiskSpace { disk: 0, total, free: total.saturating_sub(self.used_bytes()), read_only: self.faults.read_only }
    }
}

struct SimLock {
    disk: SimDisk,
    generation: u64,
    path: PathBuf,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut world = self.disk.world.lock();
        if world.generation == self.generation {
            world.locks.remove(&self.path);
        }
    }
}

impl Disk for SimDisk {
    fn memory_file(&self, bytes: u64) -> io::Result<[Arc<dyn DiskFile>; 2]> {
        let file = SimMemory { disk: self.clone(), bytes: Arc::new(Mutex::new(vec![0; bytes as usize])) };
        Ok([Arc::new(file.clone()), Arc::new(ReadOnlyFile(file))])
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut world = self.world.lock();
        world.faults.check_alive()?;
        if world.faults.read_only && mode != OpenMode::ReadOnly {
            // Handles are for writing.
            return Err(denied());
        }
        let node = match (world.file_node(path), mode) {
            (Ok(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Ok(node), _) => node,
            (Err(error), OpenMode::Existing | OpenMode::ReadOnly) => return Err(error),
            (Err(error), _) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            (Err(_), _) => {
                world.change()?;
                let node = world.next_node;
                world.names.link(path, node)?;
                world.next_node += 1;
                world.nodes.insert(node, Inode::default());
                node
            }
        };
        let (disk, generation) = (self.clone(), world.generation);
        let file = SimFile { disk, generation, node, mirror: OnceLock::new() };
        Ok(if mode == OpenMode::ReadOnly { Arc::new(ReadOnlyFile(file)) } else { Arc::new(file) })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        world.change()?;
        // The inode stays for open handles and because an unsynced removal may not survive; a crash sweeps it.
        world.names.unlink(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        world.change()?;
        world.names.rename(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        if matches!(world.names.get(path), Some(names::Entry::Dir)) {
            return world.faults.check_alive();
        }
        world.change()?;
        world.names.make_dirs(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DiskDirEntry>> {
        let world = self.world.lock();
        world.faults.check_alive()?;
        world.names.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        world.change()?;
        world.counters.syncs += 1;
        if !world.faults.skip_syncs {
            world.names.sync_dir(path)?;
        }
        Ok(())
    }

    fn space(&self, _path: &Path) -> io::Result<DiskSpace> {
        let world = self.world.lock();
        world.faults.check_alive()?;
        Ok(world.space())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        drop(self.open(path, OpenMode::OrCreate)?);
        let mut world = self.world.lock();
        if !world.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), generation: world.generation, path: path.to_owned() }))
    }
}
