//! Files that several mounts write at once: the lease `sync` (docs/design/0005-leases.md *Sync*).
//!
//! Promises: under it nothing is cached. A write returns when its bytes are stable and no copy of them serves anything older, and
//! when the size, if it grew, is in the row; it happens once, however often it is sent. A read asks whoever orders the writes, and shows nothing that is only here: so all that
//! these mounts do is in one order, whether a call is of one chunk or of several (`regions`). What must change the file's map (a first chunk, inline bytes that move) is done under
//! `exclusive`, so that the others learn the map with their next lease.
//!
//! Only handles that cache nothing can: those opened with O_DIRECT, and all of a file that is marked. While any other handle of the
//! file is open here, this mount takes `exclusive` to write.

use crate::believed::keeps_pages;
use crate::body::Body;
use crate::commit::Reach;
use crate::core::{Core, Op};
use crate::fetch::Order;
use crate::files::{Locks, Pass};
use crate::handles::FileHandle;
use crate::inode::{FileState, Inode};
use crate::lost::lost;
use crate::map::key;
use crate::regions::{Place, Region, Regions};
use crate::wait::Attempts;
use braid_api::data::{Once, WriteChunk};
use braid_api::meta::{FileWant, WriteHandles};
use braid_api::{Code, OpenFlags, Result};
use braid_lease::Want;
use braid_types::{ByteRange, ChunkIndex, ContainerId, InodeId};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// An ordered read has so many bytes, half of what a data server gives out at a time: what a kernel asks for (1 MiB) is one request in each chunk.
const ORDERED_BYTES_MAX: u64 = 8 << 20;

/// Marked files that are remembered; of the others it is heard when they are opened.
pub const MARKED_MAX: usize = 1 << 14;

/// What the slot holder knows of who writes what here. It is told with the answer to a recall, so that a file that nobody
/// else wants costs no message.
#[derive(Default)]
pub struct Told {
    said: Mutex<(u64, HashMap<InodeId, WriteHandles>)>,
    /// What is done beside others is numbered, and these are not over yet.
    writes: Mutex<(u64, BTreeSet<u64>)>,
}

/// A request beside others, until all that it belongs to has an answer or is given up.
pub struct Numbered<'a>(&'a Told, u64);

impl Numbered<'_> {
    pub fn number(&self) -> u64 {
        self.1
    }

    /// As it is sent now. `repeated` and `again` as in [`Once`].
    pub fn once(&self, repeated: bool, again: bool) -> Once {
        Once { number: self.1, done: self.0.first_open(), repeated, again }
    }
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        self.0.writes.lock().1.remove(&self.1);
    }
}

impl Told {
    pub fn begin(&self) -> Numbered<'_> {
        let (last, open) = &mut *self.writes.lock();
        *last += 1;
        open.insert(*last);
        Numbered(self, *last)
    }

    fn first_open(&self) -> u64 {
        let (last, open) = &*self.writes.lock();
        open.first().copied().unwrap_or(last + 1)
    }

    /// What is to be said of the file now; none if nothing was said of it and there is nothing to say.
    fn say(&self, inode: InodeId, cached: bool, direct: bool) -> Option<WriteHandles> {
        let (seq, told) = &mut *self.said.lock();
        if !cached && !direct && !told.contains_key(&inode) {
            return None;
        }
        *seq += 1;
        let handles = WriteHandles { seq: *seq, cached, direct };
        match cached || direct {
            true => _ = told.insert(inode, handles),
            false => _ = told.remove(&inode),
        }
        Some(handles)
    }

    /// The holder believes something else.
    fn differs(&self, inode: InodeId, cached: bool, direct: bool) -> bool {
        self.said.lock().1.get(&inode).is_some_and(|told| (told.cached, told.direct) != (cached, direct))
    }
}

pub fn asked(want: Want) -> FileWant {
    match want {
        Want::Read => FileWant::Read,
        Want::Direct => FileWant::ReadDirect,
        Want::Write => FileWant::WriteDirect,
        Want::Once => FileWant::Alone,
    }
}

/// A write within one chunk.
#[derive(Clone, Copy)]
struct Part<'a> {
    pass: &'a Pass<'a>,
    index: ChunkIndex,
    part: ByteRange,
    data: &'a Bytes,
    region: &'a Region<'a>,
    /// Something of the call was carried out: it is finished under the lease under which it began.
    begun: bool,
    /// It was carried out itself, and its lock was lost since.
    again: bool,
}

impl FileState {
    /// The lease under which a handle reads. A file that is open for writing here is read under the right to write: its pages may be
    /// mapped, and the kernel tells nobody when they are stored to.
    pub fn want_to_read(&self, direct: bool) -> Want {
        // Of a sealed file nobody stores into a mapping, whoever may have opened it for writing before.
        match (direct && self.cached == 0, self.writers > 0 && !self.attr.sealed) {
            (true, true) => Want::Write,
            (true, false) => Want::Direct,
            (false, true) => Want::Once,
            (false, false) => Want::Read,
        }
    }

    /// The lease under which it writes.
    pub fn want_to_write(&self, direct: bool) -> Want {
        if direct && self.cached == 0 { Want::Write } else { Want::Once }
    }

    fn write_handles(&self) -> (bool, bool) {
        (self.cached_writers > 0, self.writers > self.cached_writers)
    }

    /// All of the range is in chunks that everybody knows, and that are written.
    fn is_in_known_chunks(&self, range: ByteRange) -> bool {
        let Body::Chunked(table) = &self.body else { return false };
        let is_known =
            |index| table.slots.get(&ChunkIndex(index)).is_some_and(|slot| slot.fresh.is_none() && !slot.frozen);
        range.split_by(self.policy.chunk_bytes).all(|(index, _)| is_known(index))
    }
}

impl Core {
    /// The lease that an open asks for, before its handle counts.
    pub fn want_to_open(&self, id: InodeId, flags: OpenFlags) -> Want {
        let (cached, writers) = self.inodes.get(id).map_or((0, 0), |inode| {
            let state = inode.state.lock();
            (state.cached, state.writers)
        });
        match (flags.direct && cached == 0, flags.write || flags.truncate, writers > 0) {
            (_, _, _) if flags.truncate => Want::Once,
            (true, true, _) | (true, false, true) => Want::Write,
            (true, false, false) => Want::Direct,
            (false, true, _) | (false, _, true) => Want::Once,
            (false, false, false) => Want::Read,
        }
    }

    /// The lease that changes of its bytes need which are here already.
    pub fn want_to_send(&self, id: InodeId) -> Want {
        if self.cache.is_shared(id) { Want::Write } else { Want::Once }
    }

    /// With the answer to a recall of the file.
    pub fn say_handles(&self, id: InodeId) -> Option<WriteHandles> {
        let (cached, direct) = self.write_handles(id);
        self.told.say(id, cached, direct)
    }

    /// The slot holder should know: it believes that the file is written here in a way in which it is not any more.
    pub fn handles_changed(&self, id: InodeId) -> bool {
        let (cached, direct) = self.write_handles(id);
        self.told.differs(id, cached, direct)
    }

    fn write_handles(&self, id: InodeId) -> (bool, bool) {
        self.inodes.get(id).map_or((false, false), |inode| inode.state.lock().write_handles())
    }

    /// The lease under which this write can be done: `exclusive` where it changes the map, and then the file's bytes are put into
    /// chunks, for the next to be done beside others.
    pub async fn enter_to_write<'a>(
        self: &'a Arc<Self>,
        file: &FileHandle,
        range: Option<ByteRange>,
        op: Op,
    ) -> Result<(Pass<'a>, bool)> {
        let inode = &file.inode;
        // Its handle keeps no pages, and where the end is nobody else may change meanwhile.
        let Some(range) = range else {
            let pass = self.enter(inode, Want::Once, ByteRange::default(), op).await?;
            self.expect_unsealed(inode, op).await?;
            return Ok((pass, false));
        };
        let want = inode.state.lock().want_to_write(file.flags.direct);
        let pass = self.enter_with(inode, want, range, keeps_pages(file.flags).then_some(Locks::LastPage), op).await?;
        self.expect_unsealed(inode, op).await?;
        if !pass.shared {
            return Ok((pass, false));
        }
        if let Some(last) = range.end.checked_sub(1) {
            let chunk_bytes = inode.state.lock().policy.chunk_bytes;
            self.know_chunk(inode, ChunkIndex(last / chunk_bytes), op).await?;
        }
        if inode.state.lock().is_in_known_chunks(range) {
            return Ok((pass, false));
        }
        drop(pass);
        let pass = self.enter(inode, Want::Once, range, op).await?;
        self.expect_unsealed(inode, op).await?;
        Ok((pass, true))
    }

    /// Writes beside others. Chunk by chunk, and to whoever else reads or writes there at one moment: when all of it is there, and all of
    /// it is still locked.
    pub async fn write_beside(
        self: &Arc<Self>,
        file: &FileHandle,
        pass: Pass<'_>,
        range: ByteRange,
        data: Bytes,
        op: Op,
    ) -> Result<()> {
        let mut pass = Some(pass);
        loop {
            let now = match pass.take() {
                Some(pass) => pass,
                None => self.enter_to_write(file, Some(range), op).await?.0,
            };
            if !now.shared {
                // The others are gone, or the map has to change.
                drop(now);
                return Box::pin(self.write_to(file, range, data, op)).await;
            }
            if self.write_parts(&file.inode, &now, range, &data, op).await? {
                return Ok(());
            }
        }
    }

    /// False if the lease is not good for it any more and nothing was done.
    async fn write_parts(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        pass: &Pass<'_>,
        range: ByteRange,
        data: &Bytes,
        op: Op,
    ) -> Result<bool> {
        let chunk_bytes = inode.state.lock().policy.chunk_bytes;
        let pieces: Vec<(ChunkIndex, ByteRange, Bytes)> = (range.split_by(chunk_bytes))
            .map(|(index, part)| {
                let from = (index * chunk_bytes + part.start - range.start) as usize;
                (ChunkIndex(index), part, data.slice(from..from + part.len() as usize))
            })
            .collect();
        if pieces.is_empty() {
            return Ok(true);
        }
        let mut regions = Regions::new(self);
        for (n, (index, part, data)) in pieces.iter().enumerate() {
            let region = regions.next();
            let write = Part { pass, index: *index, part: *part, data, region, begun: n > 0, again: false };
            if !self.write_part(inode, &write, op).await? {
                return Ok(false);
            }
        }
        self.grow_to(inode, range.end, op).await?;
        let mut last = pieces.len() - 1;
        while let Some(at) = regions.first_lost(Some(last), op).await? {
            let ((index, part, data), region) = (&pieces[at], regions.instead_of(at));
            let write = Part { pass, index: *index, part: *part, data, region, begun: true, again: true };
            self.write_part(inode, &write, op).await?;
            last = at;
        }
        Ok(true)
    }

    /// Within one chunk. False if the lease is not good for it any more and nothing was done.
    async fn write_part(self: &Arc<Self>, inode: &Arc<Inode>, write: &Part<'_>, op: Op) -> Result<bool> {
        let mut attempts = Attempts::until(op.deadline);
        let (mut repeated, mut waiting) = (write.begun, None);
        loop {
            let mut container = ContainerId(0);
            let error = match self.try_part(inode, write, repeated, &mut container, op).await {
                Ok(is_done) => return Ok(is_done),
                Err(error) => error,
            };
            match error.code {
                // The handle says what is lost with the session; what was certainly not done begins again.
                _ if write.pass.is_over(&inode.state.lock()) => {
                    let len = write.part.len();
                    return if repeated { Err(lost(crate::map::file_name(inode), len)) } else { Ok(false) };
                }
                Code::StaleLease if !repeated => return Ok(false),
                // Out of touch for a moment, or the slot holder is another: it waits until it may be sent.
                Code::StaleLease => {}
                Code::StaleTruncGen => self.refresh_map(inode, op).await?,
                Code::DeadlineExceeded | Code::Disconnected => repeated = true,
                _ => {}
            }
            let who = || format!("write of {}", crate::map::file_name(inode));
            waiting.get_or_insert_with(|| self.waits.enter(&self.env, who(), &error).of(inode.id).within(container));
            self.recover(&mut attempts, error, container, op).await?;
        }
    }

    async fn try_part(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        write: &Part<'_>,
        repeated: bool,
        container: &mut ContainerId,
        op: Op,
    ) -> Result<bool> {
        let Part { pass, index, part, data, region, again, .. } = *write;
        let once = region.number.once(repeated, again);
        let there = |state: &FileState| {
            let slot = state.body.slot(index).filter(|slot| slot.fresh.is_none() && !slot.frozen);
            slot.map(|slot| (key(inode.id, index, slot, &state.policy), state.policy))
        };
        let Some((key, policy)) = self.with_chunk(inode, index, op, there).await? else {
            return if once.repeated { Err(crate::lost::over(crate::map::file_name(inode))) } else { Ok(false) };
        };
        *container = key.container;
        let route = self.route(&policy, key.container, op).await?;
        let (token, cuts) = {
            let state = inode.state.lock();
            pass.check(&state)?;
            (self.change_token(&state, &route)?, state.chunk_cuts(index))
        };
        let message = WriteChunk {
            chunk: key.chunk,
            container: key.container,
            offset: part.start,
            chunk_bytes: policy.chunk_bytes,
            inode: inode.id,
            index,
            cuts,
            sync: true,
            make: self.make_of(&key),
            kept_beside: false,
            alone: false,
            once: Some(once),
        };
        region.is_asked_for(Place { lane: route.lane.clone(), token, chunk: key.chunk });
        let written = self.ask(&route.lane, token, message, data.clone(), op).await;
        if written.as_ref().is_err_and(|error| error.code == Code::StaleLease) {
            self.refused_lease(inode.id, token);
        }
        written?;
        self.counters.bytes_written.fetch_add(part.len(), Relaxed);
        Ok(true)
    }

    /// The size, if it grew, is in the row before the write returns; the times follow within a second.
    async fn grow_to(self: &Arc<Self>, inode: &Arc<Inode>, end: u64, op: Op) -> Result<()> {
        let (now, wall) = (self.now(), self.env.clock.wall());
        let grows = self.update(inode, |state| {
            state.size = state.size.max(end);
            state.touched(now, wall);
            end > state.attr.size
        });
        self.wake.notify_one();
        if grows { self.commit(inode, Reach::Answered, op).await } else { Ok(()) }
    }

    /// Reads under `sync`: what is there, and how far the file reaches, at one moment.
    pub async fn read_shared(self: &Arc<Self>, inode: &Arc<Inode>, range: ByteRange, op: Op) -> Result<Vec<Bytes>> {
        let (mut regions, mut all, mut at) = (Regions::new(self), Vec::new(), range.start);
        while at < range.end {
            let (size, chunk_bytes) = self.size_beside(inode, range.end, op).await?;
            let here = ByteRange::new(at, range.end.min(size).max(at));
            if here.is_empty() {
                break;
            }
            at = here.end;
            self.know_chunk(inode, ChunkIndex((at - 1) / chunk_bytes), op).await?;
            let mut parts =
                here.split_by(chunk_bytes).flat_map(|(index, part)| pieces(part).map(move |part| (index, part)));
            let mut next = parts.next();
            while let Some((index, part)) = next {
                next = parts.next();
                // The last one of all is locked while it is read; the others until then. Where the file ends, the size is looked at once
                // more while all is locked: a write over the end that was under way has put it into the row before it unlocked anything.
                let order = match next.is_none() && at == range.end {
                    true => Order::Now,
                    false => Order::Locked(regions.next()),
                };
                all.push(self.fetch_chunk(inode, ChunkIndex(index), part, order, op).await?);
            }
        }
        match regions.first_lost(None, op).await? {
            None => Ok(all),
            // It begins again, under whatever lease there is then.
            Some(_) => Err(crate::lost::over(crate::map::file_name(inode))),
        }
    }

    /// The file's size as its row has it (of what is growing here at this moment nobody else knows yet), and that of its chunks.
    async fn size_beside(self: &Arc<Self>, inode: &Arc<Inode>, end: u64, op: Op) -> Result<(u64, u64)> {
        {
            let mut state = inode.state.lock();
            // Others may have written on.
            state.stale |= end > state.attr.size;
        }
        self.fresh(inode, op).await?;
        let state = inode.state.lock();
        Ok((state.attr.size, state.policy.chunk_bytes))
    }
}

/// What is asked for with one request.
fn pieces(part: ByteRange) -> impl Iterator<Item = ByteRange> {
    let starts = (part.start..part.end).step_by(ORDERED_BYTES_MAX as usize);
    starts.map(move |start| ByteRange::new(start, part.end.min(start.saturating_add(ORDERED_BYTES_MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_told_what_it_does_not_know_and_no_more() {
        let (told, file) = (Told::default(), InodeId(5));
        assert!(told.say(file, false, false).is_none() && !told.differs(file, true, false), "nobody has asked");
        let first = told.say(file, true, false).unwrap();
        assert!(first.cached && !first.direct && told.differs(file, false, false));
        let closed = told.say(file, false, false).unwrap();
        assert!(closed.seq > first.seq && !closed.cached);
        assert!(!told.differs(file, false, false) && told.say(file, false, false).is_none());
    }
}
