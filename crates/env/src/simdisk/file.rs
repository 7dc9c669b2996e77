use super::faults::{SyncFault, dead, eio, full};
use super::image::{Image, PAGE_BYTES, pieces};
use super::mirror::Mirror;
use super::{NodeId, SECTOR_BYTES, SimDisk, World};
use crate::DiskFile;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

/// A change of content that no sync has covered.
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Punch { offset: u64, len: u64 },
    SetLen(u64),
}

/// One file: as it is, and as a crash would at least leave it.
#[derive(Default)]
pub(super) struct Inode {
    now: Image,
    stable: Image,
    pending: Vec<Change>,
    /// Pages reserved without content.
    allocated: BTreeSet<u64>,
    pub cached: BTreeSet<u64>,
    pub bad: Vec<Range<u64>>,
    /// What a descriptor shows, once somebody has asked for one.
    mirror: Option<Arc<Mirror>>,
}

impl Inode {
    pub fn occupied(&self) -> u64 {
        let reserved = self.allocated.iter().filter(|page| !self.now.pages.contains_key(page)).count();
        ((self.now.pages.len() + reserved) * PAGE_BYTES) as u64
    }

    pub fn corrupt(&mut self, offset: u64, mask: u8) {
        for image in [&mut self.now, &mut self.stable] {
            let mut byte = [0];
            if image.read(offset, &mut byte) == 1 {
                image.put(offset, &[byte[0] ^ mask]);
            }
        }
        self.cached.remove(&(offset / PAGE_BYTES as u64));
        self.show_all();
    }

    /// One that is there all the while: it shows what is in the file now and whatever comes.
    fn mirror(&mut self) -> io::Result<Arc<Mirror>> {
        if let Some(mirror) = &self.mirror {
            return Ok(mirror.clone());
        }
        let mirror = Arc::new(Mirror::new()?);
        mirror.show_all(&self.now);
        self.mirror = Some(mirror.clone());
        Ok(mirror)
    }

    fn show_all(&self) {
        if let Some(mirror) = &self.mirror {
            mirror.show_all(&self.now);
        }
    }

    fn show(&self, offset: u64, len: u64) {
        if let Some(mirror) = &self.mirror {
            mirror.show(&self.now, offset, len);
        }
    }

    /// Replays what is pending rather than copying what is now: the pages of an earlier failed sync stay lost.
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::Write { offset, bytes } => {
                    self.stable.put(offset, &bytes);
                    self.stable.len = self.stable.len.max(offset + bytes.len() as u64);
                }
                Change::Punch { offset, len } => self.stable.zero(offset, len),
                Change::SetLen(len) => self.stable.set_len(len),
            }
        }
    }

    /// The pages of a failed sync reached the disk or not, and are no longer waiting for it.
    fn sync_failed(&mut self) {
        let seed = self.pending.len() as u64;
        self.settle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    }

    pub fn crash(&mut self, rng: &mut Xoshiro256PlusPlus) {
        self.settle(rng);
        self.now = self.stable.clone();
        self.cached.clear();
        self.allocated.clear();
        self.show_all();
    }

    /// Applies any subset of the pending changes, in order, to what is stable: so each sector holds one of the
    /// contents it had since the last sync.
    fn settle(&mut self, rng: &mut Xoshiro256PlusPlus) {
        let share = [0.0, 0.3, 0.7, 1.0][rng.random_range(0..4usize)];
        let torn = rng.random_bool(0.5);
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::Write { offset, bytes } => {
                    let end = offset + bytes.len() as u64;
                    let mut at = offset;
                    let whole = rng.random_bool(share);
                    while at < end {
                        let next = ((at / SECTOR_BYTES as u64 + 1) * SECTOR_BYTES as u64).min(end);
                        if if torn { rng.random_bool(share) } else { whole } {
                            self.stable.put(at, &bytes[(at - offset) as usize..(next - offset) as usize]);
                        }
                        at = next;
                    }
                    // The length is written apart from the data.
                    if end > self.stable.len && rng.random_bool(share) {
                        self.stable.len = end;
                    }
                }
                Change::Punch { offset, len } => {
                    if rng.random_bool(share) {
                        self.stable.zero(offset, len);
                    }
                }
                Change::SetLen(len) => {
                    if rng.random_bool(share) {
                        self.stable.set_len(len);
                    }
                }
            }
        }
        self.stable.clip();
    }

    fn overlaps_bad(&self, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        self.bad.iter().any(|bad| bad.start < end && offset < bad.end)
    }
}

pub(super) struct SimFile {
    pub disk: SimDisk,
    pub generation: u64,
    pub node: NodeId,
    pub mirror: OnceLock<Option<Arc<Mirror>>>,
}

impl SimFile {
    fn with<T>(&self, call: impl FnOnce(&mut World, NodeId) -> io::Result<T>) -> io::Result<T> {
        let mut world = self.disk.world.lock();
        if world.generation != self.generation {
            return Err(dead());
        }
        world.faults.check_alive()?;
        call(&mut world, self.node)
    }
}

fn inode(world: &mut World, node: NodeId) -> io::Result<&mut Inode> {
    world.nodes.get_mut(&node).ok_or_else(dead)
}

fn read(world: &mut World, node: NodeId, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let inode = inode(world, node)?;
    if inode.overlaps_bad(offset, buf.len()) {
        return Err(eio());
    }
    let n = inode.now.read(offset, buf);
    inode.cached.extend(pieces(offset, n).map(|(page, ..)| page));
    world.counters.reads += 1;
    world.counters.bytes_read += n as u64;
    Ok(n)
}

fn write(world: &mut World, node: NodeId, offset: u64, buf: &[u8]) -> io::Result<()> {
    let mut room = world.room() / PAGE_BYTES as u64;
    let inode = inode(world, node)?;
    // As the kernel does, a write that does not fit is done up to where it fits.
    let fits = pieces(offset, buf.len())
        .take_while(|(page, ..)| {
            let has = inode.now.pages.contains_key(page) || inode.allocated.contains(page);
            let ok = has || room > 0;
            room -= u64::from(!has && ok);
            ok
        })
        .last()
        .map_or(0, |(_, _, done, len)| done + len);
    if fits > 0 {
        let (end, bytes) = (offset + fits as u64, &buf[..fits]);
        inode.now.put(offset, bytes);
        inode.now.len = inode.now.len.max(end);
        inode.pending.push(Change::Write { offset, bytes: bytes.to_vec() });
        inode.cached.extend(pieces(offset, fits).map(|(page, ..)| page));
        inode.bad.retain(|bad| !(offset <= bad.start && bad.end <= end));
        inode.show(offset, fits as u64);
        world.counters.bytes_written += fits as u64;
    }
    if fits == buf.len() { Ok(()) } else { Err(full()) }
}

impl SimFile {
    /// The pages of the range that are not in the page cache.
    fn uncached(&self, offset: u64, len: usize) -> io::Result<Vec<u64>> {
        self.with(|world, node| {
            let cached = &inode(world, node)?.cached;
            Ok(pieces(offset, len).map(|(page, ..)| page).filter(|page| !cached.contains(page)).collect())
        })
    }

    fn uncache(&self, pages: &[u64]) -> io::Result<()> {
        self.with(|world, node| {
            let cached = &mut inode(world, node)?.cached;
            pages.iter().for_each(|page| {
                cached.remove(page);
            });
            Ok(())
        })
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|world, node| read(world, node, offset, buf))
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.with(|world, node| {
            let inode = inode(world, node)?;
            let n = inode.now.len.saturating_sub(offset).min(buf.len() as u64) as usize;
            if !pieces(offset, n).all(|(page, ..)| inode.cached.contains(&page)) {
                return Ok(None);
            }
            read(world, node, offset, buf).map(Some)
        })
    }

    fn read_once_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let uncached = self.uncached(offset, buf.len())?;
        let done = self.read_at(buf, offset);
        self.uncache(&uncached)?;
        done
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.with(|world, node| {
            world.change()?;
            world.counters.writes += 1;
            if world.faults.failing_writes > 0 {
                world.faults.failing_writes -= 1;
                let part = buf.len() / 2;
                write(world, node, offset, &buf[..part])?;
                return Err(eio());
            }
            write(world, node, offset, buf)
        })
    }

    fn write_once_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let uncached = self.uncached(offset, buf.len())?;
        let done = self.write_at(buf, offset);
        self.uncache(&uncached)?;
        done
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|world, node| {
            world.change()?;
            world.counters.syncs += 1;
            let skip = world.faults.skip_syncs;
            let fault = world.faults.next_sync.take();
            let inode = inode(world, node)?;
            match fault {
                Some(SyncFault::Error) => {
                    inode.sync_failed();
                    return Err(eio());
                }
                Some(SyncFault::Lost) => {}
                None if skip => {}
                None => inode.sync(),
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|world, node| Ok(inode(world, node)?.now.len))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|world, node| {
            world.change()?;
            let inode = inode(world, node)?;
            inode.now.set_len(len);
            inode.pending.push(Change::SetLen(len));
            inode.show_all();
            inode.allocated.retain(|page| page * (PAGE_BYTES as u64) < len);
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.with(|world, node| {
            world.change()?;
            let free = world.room();
            let inode = inode(world, node)?;
            let pages = offset / PAGE_BYTES as u64..offset.saturating_add(len).div_ceil(PAGE_BYTES as u64);
            let new: Vec<u64> =
                pages.filter(|page| !inode.now.pages.contains_key(page) && !inode.allocated.contains(page)).collect();
            if (new.len() * PAGE_BYTES) as u64 > free {
                return Err(full());
            }
            inode.allocated.extend(new);
            Ok(())
        })
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.with(|world, node| {
            world.change()?;
            let inode = inode(world, node)?;
            inode.now.zero(offset, len);
            inode.show(offset, len);
            inode.pending.push(Change::Punch { offset, len });
            let whole = offset.div_ceil(PAGE_BYTES as u64)..offset.saturating_add(len) / PAGE_BYTES as u64;
            inode.allocated.retain(|page| !whole.contains(page));
            Ok(())
        })
    }

    fn clone_range(&self, from: &dyn DiskFile, offset: u64, len: u64) -> io::Result<()> {
        let is_whole = offset.is_multiple_of(PAGE_BYTES as u64) && len.is_multiple_of(PAGE_BYTES as u64);
        if !is_whole || !self.with(|world, _| Ok(world.faults.shares_ranges))? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::Unsupported)?];
        from.read_at(&mut bytes, offset)?;
        self.with(|world, node| {
            world.change()?;
            let before = world.counters.bytes_written;
            let cloned = write(world, node, offset, &bytes);
            world.counters.bytes_written = before;
            cloned
        })
    }

    fn occupied(&self) -> io::Result<u64> {
        self.with(|world, node| Ok(inode(world, node)?.occupied()))
    }

    /// Shows the file to who reads it beside this disk, also when the process that opened it has gone: such a reader is another.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let mirror = self.mirror.get_or_init(|| self.with(|world, node| inode(world, node)?.mirror()).ok());
        Some(mirror.as_ref()?.as_fd())
    }
}
