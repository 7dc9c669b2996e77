//! A file that is open here, or has bytes here that are not yet saved.
//!
//! Locks, in the order they may be taken: `Inode::order` (async: one commit, truncate or punch at a time), a
//! server's gate (async), then `Inode::state`, then a server's retention (never across an await).

use crate::body::Body;
use crate::buffer::Extents;
use crate::creating::Creating;
use crate::nearer::Copying;
use crate::readahead::Blocks;
use braid_api::Error;
use braid_api::meta::{Content, Cuts, FileMap, OpenAnswer};
use braid_env::Monotonic;
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore};

pub struct Inode {
    pub id: InodeId,
    pub state: Mutex<FileState>,
    /// Held by whoever commits, truncates or punches; see the module.
    pub order: tokio::sync::Mutex<()>,
    /// Held by the write whose turn it is, until it is in the buffer.
    pub arriving: tokio::sync::Mutex<()>,
    /// Held by who puts another chunk into the place of one that a snapshot has.
    pub thawing: tokio::sync::Mutex<()>,
    /// Something a waiter may look for has changed: a write was answered, sending may go on.
    pub changed: Notify,
    /// Writes on their way.
    pub window: Arc<Semaphore>,
}

/// Of a file that is kept after it was closed: 64 × about 150 bytes.
const KEPT_CHUNKS_MAX: usize = 64;

/// A write on its way to a server.
pub struct InFlight {
    pub range: ByteRange,
    pub data: Bytes,
}

pub struct FileState {
    /// As the metadata server told last.
    pub attr: Attr,
    pub policy: Policy,
    pub layout_gen: LayoutGen,
    /// Of the lease that the map came with, or 0: while the file is held under it the map is right.
    pub map_lease: LeaseGen,
    pub cuts: Cuts,
    /// Cuts up to here are known at the data servers.
    pub cuts_applied: TruncGen,
    pub body: Body,
    /// The last write: what is sent and saved behind the operations works for it.
    pub written_by: TraceId,
    /// As users of this client see it.
    pub size: u64,
    /// Of writes not yet committed.
    pub mtime: Option<Timestamp>,
    /// Size, chunks or content differ from what the metadata server has.
    pub unsaved: bool,
    /// Raised by every change made here, so that an answer asked for before is recognised.
    pub version: u64,
    /// Bytes written here and not yet sent, in offsets of the file.
    pub dirty: Extents,
    pub dirty_since: Option<Monotonic>,
    /// Offsets in runs of `dirty` that are long enough to be sent at once.
    pub full: VecDeque<u64>,
    pub sender_runs: bool,
    /// By rising number; their ranges never overlap.
    pub inflight: BTreeMap<u64, InFlight>,
    pub last_ticket: u64,
    /// End of the furthest byte that was sent.
    pub sent_end: u64,
    /// End of the furthest byte that a server has answered.
    pub stored_end: u64,
    /// Raised whenever servers have taken some of it, or made it stable. Who waits for all of it waits as long as this goes on.
    pub answered: u64,
    /// Nothing may be sent now: a truncate or punch is under way.
    pub held: bool,
    /// A chunk of it is brought to this host; see `nearer`.
    pub copying: Option<Copying>,
    /// How often one was: a map that was asked for before does not know of it.
    pub brought: u64,
    /// How often inline bytes were moved into chunks; a commit must not begin before such a move and end after it.
    pub conversions: u64,
    /// Chunks that were written, but committed never: the bytes are inline now, and the next commit says so.
    pub unused: Vec<ChunkId>,
    /// Few bytes are left of a chunked file: put them inline with the next commit.
    pub rewrite_inline: bool,
    /// A truncate is on its way: the size is the one after it.
    pub cutting: bool,
    /// The metadata server may hold inline bytes of the file, which are durable there until a commit drops them.
    pub inline_row: bool,
    /// Up to here inline bytes from the row were moved to the buffer and are not all answered: they are sent first.
    pub moved_end: u64,
    /// Another client truncated: fetch the map before it is used.
    pub stale: bool,
    pub failed: Option<Error>,
    pub failures: u64,
    /// Bytes were dropped, and nobody has been told since.
    pub lost: Option<Error>,
    /// How often its lease was lost, see `lost`.
    pub lapses: u64,
    /// How often bytes were lost with it, and what was lost last: handles from before fail.
    pub losses: u64,
    pub loss: Option<Error>,
    pub retry_at: Option<Monotonic>,
    pub handles: u32,
    /// Of them, those that may write.
    pub writers: u32,
    /// And those through which the kernel caches: for reading or writing, and for writing.
    pub cached: u32,
    pub cached_writers: u32,
    /// Handles through which the kernel keeps pages.
    pub paged: u32,
    /// The kernel may believe the file to end elsewhere; see `believed`.
    pub end_moved: bool,
    /// Made without a name, and may get one.
    pub linkable: bool,
    /// It is being sealed, so many times: it is not opened for writing.
    pub sealing: u32,
    pub blocks: Blocks,
    /// This file's share of the write buffer.
    pub charged: u64,
    /// A save waits for its turn.
    pub send_waits: bool,
    /// Up to here it is paid for, if somebody who pays for it has a quota; see `quota`.
    pub paid: Option<u64>,
    /// The metadata server has a note that room was taken, which goes with its return.
    pub room_noted: bool,
}

impl FileState {
    pub fn new(attr: Attr) -> Self {
        FileState {
            written_by: TraceId(0),
            attr,
            policy: Policy::PLAIN,
            layout_gen: LayoutGen(0),
            map_lease: LeaseGen(0),
            cuts: Cuts::new(),
            cuts_applied: TruncGen(0),
            body: Body::default(),
            size: attr.size,
            mtime: None,
            unsaved: false,
            version: 0,
            dirty: Extents::default(),
            dirty_since: None,
            full: VecDeque::new(),
            sender_runs: false,
            inflight: BTreeMap::new(),
            last_ticket: 0,
            sent_end: 0,
            stored_end: 0,
            answered: 0,
            held: false,
            copying: None,
            brought: 0,
            conversions: 0,
            unused: Vec::new(),
            rewrite_inline: false,
            cutting: false,
            inline_row: false,
            moved_end: 0,
            stale: false,
            failed: None,
            failures: 0,
            lost: None,
            lapses: 0,
            losses: 0,
            loss: None,
            retry_at: None,
            handles: 0,
            writers: 0,
            cached: 0,
            cached_writers: 0,
            paged: 0,
            end_moved: true,
            sealing: 0,
            linkable: false,
            blocks: Blocks::default(),
            charged: 0,
            send_waits: false,
            paid: None,
            room_noted: false,
        }
    }

    /// Nothing here is unknown to the servers.
    pub fn is_clean(&self) -> bool {
        !self.unsaved && self.dirty.is_empty() && self.inflight.is_empty()
    }

    pub fn buffered(&self) -> u64 {
        let inline = match &self.body {
            Body::Inline(bytes) if self.unsaved => bytes.len() as u64,
            _ => 0,
        };
        self.dirty.bytes() + self.inflight.values().map(|write| write.data.len() as u64).sum::<u64>() + inline
    }

    /// Attributes as users of this client see them.
    pub fn shown(&self, server: &Attr) -> Attr {
        let mut attr = *server;
        if !self.is_clean() {
            // Within a generation it only grows, also by what others write at the same time.
            let grows = server.trunc_gen == self.attr.trunc_gen && !self.cutting;
            attr.size = if grows { self.size.max(server.size) } else { self.size };
        }
        if let Some(mtime) = self.mtime {
            attr.mtime = attr.mtime.max(mtime);
            attr.ctime = attr.ctime.max(mtime);
        }
        attr
    }

    /// Takes a write into the buffer, or into the inline bytes while they are few.
    pub fn write(&mut self, offset: u64, data: Bytes, now: Monotonic, wall: Timestamp) {
        self.written_by = braid_api::trace::current();
        let range = ByteRange::at(offset, data.len() as u64);
        let size = self.size.max(range.end);
        if size > u64::from(self.policy.inline_bytes) {
            self.convert();
        }
        match &mut self.body {
            Body::Inline(bytes) => crate::body::write_inline(bytes, offset, &data),
            Body::Chunked(_) => {
                self.dirty.insert(offset, data, ());
                if self.dirty.run_around(offset).is_some() {
                    self.full.push_back(offset);
                }
            }
        }
        self.size = size;
        self.blocks.invalidate(range);
        self.touched(now, wall);
    }

    /// Inline bytes grow too many: from now on they are chunk data like all others.
    pub fn convert(&mut self) {
        if let Body::Inline(bytes) = &mut self.body {
            let bytes = std::mem::take(bytes);
            self.body = Body::Chunked(Default::default());
            self.move_out(0, bytes.into());
            self.unsaved = true;
        }
    }

    /// Inline bytes go to chunks with what else is dirty, and under it. If a row holds them they are sent before
    /// anything else: should this client die, the metadata server takes a chunk 0 that it finds for all that was
    /// inline.
    pub fn move_out(&mut self, offset: u64, bytes: Bytes) {
        if self.inline_row {
            self.moved_end = self.moved_end.max(offset + bytes.len() as u64);
        }
        self.dirty.insert_under(offset, bytes, ());
        self.conversions += 1;
    }

    pub fn touched(&mut self, now: Monotonic, wall: Timestamp) {
        self.version += 1;
        self.unsaved = true;
        self.dirty_since.get_or_insert(now);
        // Times never go back, whatever this machine's clock says.
        self.mtime = Some(wall.max(self.attr.mtime).max(self.mtime.unwrap_or(wall)));
    }

    /// The server's word on the file, with what is not saved here on top.
    pub fn adopt_attr(&mut self, attr: &Attr, cuts: Option<&Cuts>) {
        if attr.trunc_gen < self.attr.trunc_gen || self.is_older(attr) {
            return;
        }
        self.moves_end(attr);
        self.attr = *attr;
        if let Some(cuts) = cuts {
            self.cuts = cuts.clone();
        }
        // An answer from before a truncate would bring back what that takes.
        if !self.cutting {
            self.size = if self.is_clean() { attr.size } else { self.size.max(attr.size) };
            if self.is_clean() && self.body.is_clean() {
                self.ends_with_row();
            }
        }
    }

    /// All that was sent is in the row, and others may have cut it off since: a truncate here must not tell the metadata server that it
    /// is there, where a third would see a size that never was.
    pub fn ends_with_row(&mut self) {
        self.sent_end = self.sent_end.min(self.attr.size);
        self.stored_end = self.stored_end.min(self.attr.size);
    }

    /// An answer that was overtaken by another: the metadata server never sets a ctime back.
    pub fn is_older(&self, attr: &Attr) -> bool {
        attr.ctime < self.attr.ctime && attr.trunc_gen <= self.attr.trunc_gen
    }

    /// An open's answer, if nothing was changed here since it was asked for.
    pub fn adopt_open(&mut self, answer: &OpenAnswer, version: u64) {
        self.hear_room(answer);
        self.inline_row |= holds_inline(&answer.map.content);
        let has_moved = answer.map.layout_gen > self.layout_gen;
        // What is unsaved was written here, and by nobody else since. Else the attributes may be newer than the bytes, and a map that was
        // fetched meanwhile older than the lease that comes with this answer.
        let is_unsure = self.is_clean() && !self.cutting;
        // Asked for before a chunk was put elsewhere from here: the times of the file are the same.
        let is_of_before = answer.map.layout_gen < self.layout_gen;
        if self.is_older(&answer.attr) || is_of_before {
            // The times of a file are the same when a chunk of it has moved.
            self.stale |= has_moved || is_unsure || is_of_before;
            return;
        }
        if self.version == version && self.is_clean() && self.body.is_clean() && !self.cutting {
            self.adopt_map(&answer.attr, &answer.map);
            self.map_lease = answer.lease.generation;
            self.ends_with_row();
        } else if answer.attr.trunc_gen > self.attr.trunc_gen || has_moved || is_unsure {
            self.stale = true;
        } else {
            self.adopt_attr(&answer.attr, Some(&answer.map.cuts));
        }
    }

    /// Replaces everything known of the file. The caller has nothing unsaved, or rebases it.
    pub fn adopt_map(&mut self, attr: &Attr, map: &FileMap) {
        self.moves_end(attr);
        self.attr = *attr;
        self.size = attr.size;
        self.policy = map.policy;
        self.layout_gen = map.layout_gen;
        // Who has it from an open says so.
        self.map_lease = LeaseGen(0);
        self.cuts = map.cuts.clone();
        self.inline_row = holds_inline(&map.content);
        self.body = Body::from_content(&map.content);
        self.stale = false;
    }

    /// Writes on their way, and dirty bytes over them, in the order they must be painted.
    pub fn overlay(&self, range: ByteRange) -> Vec<(u64, Bytes)> {
        let mut pieces = Vec::new();
        for write in self.inflight.values() {
            if let Some(cut) = write.range.intersect(range) {
                let from = (cut.start - write.range.start) as usize;
                pieces.push((cut.start, write.data.slice(from..from + cut.len() as usize)));
            }
        }
        pieces.extend(self.dirty.snapshot(range));
        pieces
    }

    /// Chunk-relative cuts a request for this chunk must carry.
    pub fn chunk_cuts(&self, index: ChunkIndex) -> Cuts {
        crate::cuts::in_chunk(&self.cuts, index, self.policy.chunk_bytes)
    }

    pub fn fail(&mut self, error: Error) {
        self.failures += 1;
        self.failed = Some(error);
    }

    /// Bytes at the end may have been dropped: the file ends where bytes are, here or at the servers.
    pub fn shrink_to_bytes(&mut self) {
        let on_their_way = self.inflight.values().map(|write| write.range.end).max().unwrap_or(0);
        let end = self.attr.size.max(self.stored_end).max(on_their_way).max(self.dirty.end());
        if end < self.size {
            self.size = end;
            self.version += 1;
            self.unsaved = true;
        }
    }

    /// Bytes of the file in its map, if that is all there is to know of it and it may be kept for the next open.
    pub fn to_keep(&self) -> Option<usize> {
        let whole = self.is_clean() && !self.stale && !self.cutting && self.attr.nlink > 0;
        if !whole || self.failed.is_some() || self.loss.is_some() || self.map_lease == LeaseGen(0) {
            return None;
        }
        match &self.body {
            Body::Inline(bytes) => Some(bytes.len()),
            // Of more chunks an open tells the first only.
            Body::Chunked(table) if table.slots.len() > KEPT_CHUNKS_MAX => None,
            Body::Chunked(table) => table.slots.values().all(|slot| slot.fresh.is_none()).then_some(0),
        }
    }

    /// Bytes were dropped for this reason. If nobody has the file open, who saves it next must hear of it.
    pub fn lose(&mut self, error: Error) {
        self.lost = Some(error.clone());
        self.fail(error);
    }
}

/// There are bytes in a row.
fn holds_inline(content: &Content) -> bool {
    matches!(content, Content::Inline(bytes) if !bytes.is_empty())
}

impl Inode {
    pub fn new(attr: Attr, window: usize) -> Self {
        Inode {
            id: attr.id,
            state: Mutex::new(FileState::new(attr)),
            order: tokio::sync::Mutex::new(()),
            arriving: tokio::sync::Mutex::new(()),
            thawing: tokio::sync::Mutex::new(()),
            changed: Notify::new(),
            window: Arc::new(Semaphore::new(window)),
        }
    }
}

/// Inodes in use.
#[derive(Default)]
pub struct Inodes {
    map: Mutex<HashMap<InodeId, Arc<Inode>>>,
    /// Opens on their way, and whether they are for writing: the server may list them as unlinked before the answer is here.
    opening: Mutex<Vec<(InodeId, bool)>>,
    pub creating: Creating,
}

/// An open on its way.
pub struct Opening<'a>(&'a Inodes, (InodeId, bool));

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut opening = self.0.opening.lock();
        if let Some(at) = opening.iter().position(|one| *one == self.1) {
            opening.swap_remove(at);
        }
    }
}

impl Inodes {
    pub fn get(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.map.lock().get(&id).cloned()
    }

    /// The inode, counted as open once more, and whether nothing was known of it.
    pub fn open(&self, attr: &Attr, window: usize) -> (Arc<Inode>, bool) {
        let mut map = self.map.lock();
        let new = !map.contains_key(&attr.id);
        let inode = map.entry(attr.id).or_insert_with(|| Arc::new(Inode::new(*attr, window)));
        inode.state.lock().handles += 1;
        (inode.clone(), new)
    }

    /// As [`Inodes::open`] for one that may be open already, or was kept: none if it is neither.
    pub fn open_known(&self, id: InodeId, kept: Option<Arc<Inode>>) -> Option<Arc<Inode>> {
        let mut map = self.map.lock();
        let inode = match (map.get(&id), kept) {
            (Some(inode), _) => inode.clone(),
            (None, Some(kept)) => map.entry(id).or_insert(kept).clone(),
            (None, None) => return None,
        };
        inode.state.lock().handles += 1;
        Some(inode)
    }

    /// Forgets the inode if no handle, nothing unsaved, no chunk under way and no bad news needs it.
    pub fn forget_if_unused(&self, id: InodeId) -> Option<Arc<Inode>> {
        let mut map = self.map.lock();
        let unused = map.get(&id).is_some_and(|inode| {
            let state = inode.state.lock();
            state.handles == 0 && state.is_clean() && state.copying.is_none() && state.lost.is_none()
        });
        if unused { map.remove(&id) } else { None }
    }

    pub fn all(&self) -> Vec<Arc<Inode>> {
        self.map.lock().values().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.map.lock().len()
    }

    /// Which of these are open here, or not saved yet. What a create is about to open is not known: see [`Creating`].
    pub fn held(&self, ids: &[InodeId]) -> Vec<InodeId> {
        if ids.is_empty() {
            return Vec::new();
        }
        let (map, opening) = (self.map.lock(), self.opening.lock());
        let in_use = |id: &InodeId| {
            map.get(id).is_some_and(|inode| {
                let state = inode.state.lock();
                state.handles > 0 || !state.is_clean()
            })
        };
        let is_opening = |id: InodeId| opening.iter().any(|(of, _)| *of == id);
        ids.iter().filter(|id| in_use(id) || is_opening(**id)).copied().collect()
    }

    /// To be held until its handle counts.
    pub fn opening(&self, id: InodeId, to_write: bool) -> Opening<'_> {
        self.opening.lock().push((id, to_write));
        Opening(self, (id, to_write))
    }

    /// Something is being opened.
    pub fn is_any_opening(&self) -> bool {
        !self.opening.lock().is_empty() || self.creating.is_any()
    }

    /// Somebody is about to have it open for writing: what has been asked for may have been granted.
    pub fn is_opening_to_write(&self, id: InodeId) -> bool {
        self.opening.lock().contains(&(id, true))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use braid_api::meta::{DirAfter, FileLease, Grant};

    pub(crate) fn answer(bytes: &'static [u8], ctime: i64) -> OpenAnswer {
        let attr = Attr { ctime: Timestamp(ctime), size: bytes.len() as u64, ..crate::cache::tests::attr(1) };
        let content = Content::Inline(Bytes::from_static(bytes));
        let map = FileMap { policy: Policy::PLAIN, layout_gen: LayoutGen(0), cuts: Cuts::new(), content };
        let (grant, lease, dir) = (Grant::default(), FileLease::default(), DirAfter::default());
        OpenAnswer { attr, grant, lease, map, created: false, shared: false, room: None, dir }
    }

    /// Two opens are under way, and another client writes. Each time it is not known that the bytes are those of the lease.
    #[test]
    fn an_open_that_may_not_be_taken_over_makes_the_map_stale() {
        let first = answer(b"old", 1);
        let state = || {
            let mut state = FileState::new(first.attr);
            state.adopt_open(&first, 0);
            assert!(!state.stale);
            state
        };
        // The map was fetched again in between.
        let mut fetched = state();
        fetched.adopt_map(&first.attr, &first.map);
        fetched.version += 1;
        fetched.adopt_open(&answer(b"new", 2), 0);
        assert!(fetched.stale);
        // The attributes came before, without the bytes.
        let mut told = state();
        told.adopt_attr(&answer(b"new", 3).attr, None);
        told.adopt_open(&answer(b"new", 2), 0);
        assert!(told.stale);
        // A chunk was put elsewhere from here meanwhile, which is no change of the file's times.
        let mut moved = state();
        moved.layout_gen = LayoutGen(1);
        moved.adopt_open(&answer(b"old", 1), 0);
        assert!(moved.stale && moved.layout_gen == LayoutGen(1));
        // What is written here is newer than any answer to what was asked before.
        let mut written = state();
        written.touched(Monotonic::default(), Timestamp(2));
        written.adopt_open(&answer(b"new", 2), 0);
        assert!(!written.stale);
    }
}
