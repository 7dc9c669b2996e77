//! Room at the servers for what makes a file longer, asked for before it is taken into the buffer.
//!
//! Promises: a write that was answered finds room when it is sent, so a full disk is told by the write itself and not by a later
//! fsync or close, which many programs do not look at. Not promised where the server could not be asked within
//! [`ANSWER_WITHIN`] (the write is taken and repeated as long as it takes), has restarted or ended the session since, or of
//! bytes below the file's end (holes).
//!
//! Costs no message for the first [`SPARE_ROOM`] of a chunk, whose spare comes with it, then one for each doubling, and one for
//! each [`ROOM_MAX`]: seven for a chunk of 64 MiB. What is left goes back with the next sync of the server after the file is closed.

use crate::body::{Body, ChunkSlot};
use crate::core::{Core, Op};
use crate::inode::{FileState, Inode};
use crate::servers::{Lane, Route};
use crate::spares::Spare;
use crate::wait::Deadline;
use braid_api::data::ReserveRoom;
use braid_api::{Code, Error, Result};
use braid_env::Monotonic;
use braid_lease::Generation;
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, ChunkIndex, ContainerId, FILE_BYTES_MAX};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// Of a spare chunk: most files need no more.
pub const SPARE_ROOM: u64 = 1 << 20;
/// Asked for at once. At 1 GB/s this lasts 16 ms, and asking takes 0.1.
const ROOM_MAX: u64 = 16 << 20;
/// Longer nobody waits for what is only a precaution.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Then nobody is asked for so long, or each write would wait.
const PAUSE: Duration = Duration::from_secs(5);
/// Spares tried for a chunk before its file hears that there is no room.
const SPARES_TRIED: usize = 8;

/// When servers are asked again.
#[derive(Default)]
pub struct Room {
    paused_until: Mutex<Option<Monotonic>>,
}

/// A chunk as its server is asked for it.
type Place = (ChunkId, ContainerId);

/// What a write needs before it is taken into the buffer: chunks for a file that leaves its row.
pub type Chunks = Vec<(ChunkIndex, Spare)>;

fn is_full(error: &Error) -> bool {
    matches!(error.code, Code::NoSpace | Code::DiskFull)
}

impl FileState {
    /// By how much a write to the range makes each chunk longer, in whole blocks, which is what disks give.
    pub fn growth(&self, range: ByteRange) -> Vec<(ChunkIndex, u64)> {
        let size = self.size;
        let mut growth = Vec::new();
        if range.end <= size || range.is_empty() {
            return growth;
        }
        if let Body::Inline(bytes) = &self.body {
            if range.end <= u64::from(self.policy.inline_bytes) {
                return growth;
            }
            if !bytes.is_empty() {
                growth.push((ChunkIndex(0), (bytes.len() as u64).next_multiple_of(BLOCK_BYTES)));
            }
        }
        let gap = range.start > size;
        for (index, part) in ByteRange::new(range.start.max(size), range.end).split_by(self.policy.chunk_bytes) {
            // The block with the file's end is there, unless there is a gap between.
            let first = if gap { part.start / BLOCK_BYTES } else { part.start.div_ceil(BLOCK_BYTES) };
            let bytes = part.end.div_ceil(BLOCK_BYTES).saturating_sub(first) * BLOCK_BYTES;
            match growth.last_mut() {
                Some((last, sum)) if last.0 == index => *sum += bytes,
                _ => growth.push((ChunkIndex(index), bytes)),
            }
        }
        growth.retain(|(_, bytes)| *bytes > 0);
        growth
    }

    /// The write is taken into the buffer: what it needs of the room is used. Chunks that are not needed are given back.
    pub fn use_room(&mut self, growth: &[(ChunkIndex, u64)], chunks: Chunks) -> Vec<Spare> {
        let Body::Chunked(table) = &mut self.body else { return chunks.into_iter().map(|(_, spare)| spare).collect() };
        let mut unused = Vec::new();
        for (index, spare) in chunks {
            match table.slots.entry(index) {
                Entry::Vacant(vacant) => drop(vacant.insert(ChunkSlot::fresh(&spare))),
                Entry::Occupied(_) => unused.push(spare),
            }
        }
        for (index, bytes) in growth {
            if let Some(slot) = table.slots.get_mut(index) {
                slot.room = slot.room.saturating_sub(*bytes);
            }
        }
        unused
    }

    /// Bytes of the chunk that no server has answered: what is reserved for it is for these first.
    pub fn unanswered(&self, index: ChunkIndex) -> u64 {
        let chunk = ByteRange::at(index.0.saturating_mul(self.policy.chunk_bytes), self.policy.chunk_bytes);
        let within = |range: ByteRange| range.intersect(chunk).map_or(0, |part| part.len() + 2 * BLOCK_BYTES);
        let dirty: u64 = self.dirty.ranges().into_iter().map(within).sum();
        dirty + self.inflight.values().map(|write| within(write.range)).sum::<u64>()
    }
}

impl Core {
    /// Sees that what a write to the range adds to the file has room. The range's bytes are not taken yet.
    pub async fn find_room(self: &Arc<Self>, inode: &Arc<Inode>, range: ByteRange, op: Op) -> Result<Chunks> {
        let (lacking, inline) = {
            let state = inode.state.lock();
            if range.end > FILE_BYTES_MAX {
                return Ok(Chunks::new());
            }
            let mut lacking = state.growth(range);
            lacking.retain(|(index, bytes)| state.body.slot(*index).is_none_or(|slot| slot.room < *bytes));
            (lacking, matches!(state.body, Body::Inline(_)))
        };
        if lacking.is_empty() || self.room_is_paused() {
            return Ok(Chunks::new());
        }
        let brief = self.brief(op);
        let mut chunks = Chunks::new();
        for (index, bytes) in lacking {
            let found = match inline {
                true => self.roomy_spare(inode, bytes, brief).await.map(|spare| chunks.push((index, spare))),
                false => self.room_in_chunk(inode, index, bytes, brief).await,
            };
            match found {
                Ok(()) => {}
                Err(error) if is_full(&error) => {
                    let policy = inode.state.lock().policy;
                    chunks.into_iter().for_each(|(_, spare)| self.spares.give_back(policy, spare));
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, inode = inode.id.0, "room is not asked for, the bytes are taken without");
                    self.pause_room();
                    break;
                }
            }
        }
        Ok(chunks)
    }

    fn room_is_paused(&self) -> bool {
        self.room.paused_until.lock().is_some_and(|until| self.now() < until)
    }

    fn pause_room(&self) {
        *self.room.paused_until.lock() = Some(self.now() + PAUSE);
    }

    /// The operation, as long as it waits for room.
    fn brief(&self, op: Op) -> Op {
        Op { deadline: Deadline(op.deadline.0.min(self.now() + ANSWER_WITHIN)), ..op }
    }

    /// A chunk for the bytes that leave a row.
    async fn roomy_spare(self: &Arc<Self>, inode: &Inode, bytes: u64, op: Op) -> Result<Spare> {
        let policy = inode.state.lock().policy;
        let mut tried = 0;
        loop {
            let mut spare = self.take_spare(policy, op).await?;
            if spare.room >= bytes {
                return Ok(spare);
            }
            let lane = self.route(&policy, spare.container, op).await?.lane;
            match self.ask_room(&lane, &[(spare.chunk, spare.container)], bytes, op).await {
                Ok(_) => {
                    spare.room = bytes;
                    return Ok(spare);
                }
                Err(error) if is_full(&error) && tried < SPARES_TRIED => tried += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn room_in_chunk(self: &Arc<Self>, inode: &Arc<Inode>, index: ChunkIndex, bytes: u64, op: Op) -> Result<()> {
        let mut tried = 0;
        loop {
            let (key, policy) = self.slot_for(inode, index, op).await?;
            let (unanswered, ask) = {
                let state = inode.state.lock();
                // Another change of the file has come between: it is written without.
                let Some(slot) = state.body.slot(index).filter(|slot| slot.chunk == key.chunk) else { return Ok(()) };
                if slot.room >= bytes {
                    return Ok(());
                }
                (state.unanswered(index), slot.ask)
            };
            let lane = self.route(&policy, key.container, op).await?.lane;
            let chunk = [(key.chunk, key.container)];
            let more = ask.min(policy.chunk_bytes).max(bytes);
            let mut room = more;
            let mut asked = self.ask_room(&lane, &chunk, unanswered + more, op).await;
            if more > bytes && asked.as_ref().is_err_and(is_full) {
                room = bytes;
                asked = self.ask_room(&lane, &chunk, unanswered + bytes, op).await;
            }
            match asked {
                Ok(_) => {
                    if let Some(slot) = inode.state.lock().body.slot_mut(index)
                        && slot.chunk == key.chunk
                    {
                        slot.room = slot.room.max(room);
                        slot.ask = (slot.ask * 2).min(ROOM_MAX);
                    }
                    return Ok(());
                }
                // Nothing is in it yet: another may lie where there is room.
                Err(error) if is_full(&error) && unanswered == 0 && tried < SPARES_TRIED => {
                    tried += 1;
                    if !drop_unused(&mut inode.state.lock(), index, key.chunk) {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub async fn ask_room(&self, lane: &Lane, chunks: &[Place], bytes: u64, op: Op) -> Result<Vec<ChunkId>> {
        let message = ReserveRoom { chunks: chunks.to_vec(), bytes };
        Ok(self.ask(lane, self.session.token(), message, Bytes::new(), op).await?.0)
    }

    /// Room for spares, before anybody needs it. What finds none is no worse than before.
    pub async fn room_for_spares(self: &Arc<Self>, policy: braid_types::Policy, spares: &mut [Spare], op: Op) {
        if self.room_is_paused() {
            return;
        }
        let brief = self.brief(op);
        let mut by_lane: Vec<(Arc<Lane>, Vec<Place>)> = Vec::new();
        for spare in spares.iter() {
            let Ok(Route { lane, .. }) = self.route(&policy, spare.container, brief).await else { continue };
            let chunk = (spare.chunk, spare.container);
            match by_lane.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &lane)) {
                Some((_, chunks)) => chunks.push(chunk),
                None => by_lane.push((lane, vec![chunk])),
            }
        }
        for (lane, chunks) in by_lane {
            match self.ask_room(&lane, &chunks, SPARE_ROOM, brief).await {
                Ok(granted) => {
                    let granted = |spare: &&mut Spare| granted.contains(&spare.chunk);
                    spares.iter_mut().filter(granted).for_each(|spare| spare.room = SPARE_ROOM);
                }
                Err(error) if is_full(&error) => {}
                Err(error) => {
                    tracing::debug!(%error, "spare chunks come without room");
                    self.pause_room();
                    return;
                }
            }
        }
    }

    /// Forgets the inode if nothing needs it, and gives back what its chunks had of room.
    pub fn forget_if_unused(&self, id: braid_types::InodeId) {
        let ticket = self.cache.ticket();
        let Some(inode) = self.inodes.forget_if_unused(id) else { return };
        let kept = self.update(&inode, |state| {
            self.give_room_back(state);
            state.blocks.clear();
            Some((state.map_lease, state.to_keep()?))
        });
        if let Some((lease, bytes)) = kept {
            self.cache.keep_file(inode, (Generation(lease.0), bytes), ticket, self.now());
        }
    }

    fn give_room_back(&self, state: &mut FileState) {
        let policy = state.policy;
        let Body::Chunked(table) = &mut state.body else { return };
        let current = self.session.id();
        table.slots.retain(|_, slot| {
            let ChunkSlot { chunk, container, room, .. } = *slot;
            match slot.fresh {
                Some(session) if !slot.exists() => {
                    if session == current {
                        self.spares.give_back(policy, Spare { chunk, container, session, room });
                    }
                    return false;
                }
                _ if room > 0 => self.servers.release_room(chunk, container),
                _ => {}
            }
            slot.room = 0;
            true
        });
    }
}

/// Takes the chunk out of the file if nothing was written to it and no row names it.
pub fn drop_unused(state: &mut FileState, index: ChunkIndex, chunk: ChunkId) -> bool {
    let Body::Chunked(table) = &mut state.body else { return false };
    let unused = table.slots.get(&index).is_some_and(|slot| slot.chunk == chunk && !slot.exists());
    if unused {
        table.slots.remove(&index);
    }
    unused
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::body::ChunkTable;
    use braid_types::SessionId;

    const BLOCK: u64 = BLOCK_BYTES;

    fn state(size: u64, body: Body) -> FileState {
        let mut state = FileState::new(crate::cache::tests::attr(1));
        (state.size, state.body) = (size, body);
        state
    }

    fn chunked(size: u64) -> FileState {
        state(size, Body::Chunked(ChunkTable::default()))
    }

    #[test]
    fn a_file_grows_by_whole_blocks_beyond_its_end() {
        let grows = |size, from, to| chunked(size).growth(ByteRange::new(from, to));
        let chunk = chunked(0).policy.chunk_bytes;
        assert_eq!(grows(0, 0, 1), [(ChunkIndex(0), BLOCK)]);
        assert_eq!(grows(100, 0, 100), []);
        assert_eq!(grows(100, 50, 4_096), [], "the rest of its last block");
        assert_eq!(grows(100, 100, 4_097), [(ChunkIndex(0), BLOCK)]);
        assert_eq!(grows(8_192, 8_192, 1 << 20), [(ChunkIndex(0), (1 << 20) - 8_192)]);
        assert_eq!(grows(100, 10_000, 10_001), [(ChunkIndex(0), BLOCK)], "a block of its own behind a gap");
        let beyond = [(ChunkIndex(0), 2 * BLOCK), (ChunkIndex(1), BLOCK)];
        assert_eq!(grows(chunk - 2 * BLOCK, chunk - 3 * BLOCK, chunk + 1), beyond);
    }

    #[test]
    fn what_leaves_a_row_needs_room_in_a_chunk() {
        let inline = u64::from(chunked(0).policy.inline_bytes);
        let small = state(5_000, Body::Inline(vec![1; 5_000]));
        assert_eq!(small.growth(ByteRange::new(5_000, inline)), [], "it stays where it is");
        let moved = 2 * BLOCK + (inline + 1).next_multiple_of(BLOCK) - 2 * BLOCK;
        assert_eq!(small.growth(ByteRange::new(5_000, inline + 1)), [(ChunkIndex(0), moved)]);
    }

    #[test]
    fn room_is_used_once_and_chunks_that_are_not_needed_come_back() {
        let spare =
            |chunk| Spare { chunk: ChunkId(chunk), container: ContainerId(1), session: SessionId(1), room: 100 };
        let mut state = chunked(0);
        assert!(state.use_room(&[(ChunkIndex(0), 60)], vec![(ChunkIndex(0), spare(7))]).is_empty());
        assert_eq!(state.body.slot(ChunkIndex(0)).unwrap().room, 40);
        let back = state.use_room(&[(ChunkIndex(0), 60)], vec![(ChunkIndex(0), spare(8))]);
        assert_eq!((back.len(), back[0].chunk), (1, ChunkId(8)));
        assert_eq!(state.body.slot(ChunkIndex(0)).unwrap().room, 0, "never less");
        assert!(state.body.is_clean(), "a chunk that was only assigned waits for no commit");
        assert!(drop_unused(&mut state, ChunkIndex(0), ChunkId(7)));
        assert!(state.body.slot(ChunkIndex(0)).is_none());
    }
}
