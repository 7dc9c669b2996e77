//! Learning where a file's chunks are, and finding a place for new ones.

use crate::body::{Body, ChunkSlot};
use crate::buffer::Extents;
use crate::core::{Core, Op};
use crate::inode::{FileState, Inode};
use crate::retain::ChunkKey;
use braid_api::meta::{Content, GetMap, MapAnswer};
use braid_api::{Code, Error, Result};
use braid_types::{ByteRange, ChunkId, ChunkIndex, InodeId, Policy};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Core {
    /// Fetches the map again if another client truncated.
    pub async fn fresh(&self, inode: &Inode, op: Op) -> Result<()> {
        if !inode.state.lock().stale {
            return Ok(());
        }
        self.refresh_map(inode, op).await
    }

    /// Reads the file's map and rebases what is not saved here on it.
    ///
    /// Buffered bytes cannot be ordered against a truncate of another client, so they are taken to come after it;
    /// what a data server had answered under the old generation comes before and is cut.
    pub async fn refresh_map(&self, inode: &Inode, op: Op) -> Result<()> {
        let (answer, gone) = loop {
            let brought = inode.state.lock().brought;
            let message = GetMap { inode: self.cache.inode(inode.id), first: ChunkIndex(0) };
            let answer = self.call(message, op).await?;
            let late = op.deadline.left(&self.env).is_zero();
            // Overtaken by a save of this client's own: the next answer has what it saved.
            let based = |state: &mut FileState| {
                let is_good = state.brought == brought && (late || !state.is_older(&answer.attr));
                is_good.then(|| rebase(state, &answer))
            };
            if let Some(gone) = self.update(inode, based) {
                break (answer, gone);
            }
        };
        self.cut_retained(inode.id, &answer);
        gone.into_iter().for_each(|chunk| self.servers.forget_chunk(chunk));
        Ok(())
    }

    fn cut_retained(&self, id: InodeId, answer: &MapAnswer) {
        for lane in self.servers.lanes() {
            lane.retained(|retain| retain.cut_file(id, answer.attr.trunc_gen, &answer.map.cuts));
        }
    }

    /// For a file that is not open here any more: learns how it was cut. False if it is gone.
    pub async fn refresh_cuts(&self, id: InodeId, op: Op) -> Result<bool> {
        if let Some(inode) = self.inodes.get(id) {
            return self.refresh_map(&inode, op).await.map(|()| true);
        }
        match self.call(GetMap { inode: self.cache.inode(id), first: ChunkIndex(0) }, op).await {
            Ok(answer) => self.cut_retained(id, &answer),
            Err(error) if matches!(error.code, Code::NotFound | Code::Stale) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Fetches pages of the map until the chunk at `index` is known or known to be absent.
    pub async fn know_chunk(&self, inode: &Inode, index: ChunkIndex, op: Op) -> Result<()> {
        loop {
            let (unknown, brought) = {
                let state = inode.state.lock();
                (state.body.unknown_from(index), state.brought)
            };
            let Some(first) = unknown else { return Ok(()) };
            let answer = self.call(GetMap { inode: self.cache.inode(inode.id), first }, op).await?;
            self.update(inode, |state| {
                let Body::Chunked(table) = &mut state.body else { return };
                match &answer.map.content {
                    _ if state.brought != brought => {}
                    _ if answer.attr.trunc_gen > state.attr.trunc_gen => state.stale = true,
                    Content::Chunked(page) if table.known_below == Some(first) => {
                        table.adopt(page);
                        // A page without progress would be asked for ever.
                        if table.known_below == Some(first) {
                            table.known_below = None;
                        }
                    }
                    Content::Chunked(_) => {}
                    Content::Inline(_) => state.stale = true,
                }
            });
            self.fresh(inode, op).await?;
        }
    }

    /// Looks at the file when the map is known up to `index`: a map that was fetched anew meanwhile begins at its first page, and
    /// what is beyond that looks like a hole.
    pub async fn with_chunk<T>(
        &self,
        inode: &Inode,
        index: ChunkIndex,
        op: Op,
        look: impl Fn(&FileState) -> T,
    ) -> Result<T> {
        loop {
            self.know_chunk(inode, index, op).await?;
            let state = inode.state.lock();
            if state.body.unknown_from(index).is_none() {
                return Ok(look(&state));
            }
        }
    }

    /// Fetches the map again, as far as the chunk at `index`.
    pub async fn refresh_chunk(&self, inode: &Inode, index: ChunkIndex, op: Op) -> Result<()> {
        self.refresh_map(inode, op).await?;
        self.know_chunk(inode, index, op).await
    }

    /// The chunk at `index`, taking a spare if the file has none there.
    pub async fn slot_for(self: &Arc<Self>, inode: &Inode, index: ChunkIndex, op: Op) -> Result<(ChunkKey, Policy)> {
        let session = self.session.id();
        // A spare that was taken in the moment in which its session ended: nothing was written to it.
        let is_void = |slot: &ChunkSlot| slot.fresh.is_some_and(|of| of != session);
        let there = |state: &FileState| {
            let slot = state.body.slot(index).filter(|slot| !is_void(slot));
            let frozen = slot.is_some_and(|slot| slot.frozen);
            (slot.map(|slot| key(inode.id, index, slot, &state.policy)), state.policy, frozen)
        };
        let (slot, policy) = loop {
            let (slot, policy, frozen) = self.with_chunk(inode, index, op, there).await?;
            if !frozen {
                break (slot, policy);
            }
            self.thaw(inode, index, op).await?;
        };
        if let Some(slot) = slot {
            return Ok((slot, policy));
        }
        let spare = self.take_spare(policy, op).await?;
        let mut unused = Some(spare);
        let slot = self.update(inode, |state| {
            let Body::Chunked(table) = &mut state.body else { return None };
            if table.slots.get(&index).is_some_and(is_void) {
                table.slots.remove(&index);
            }
            let slot = table.slots.entry(index).or_insert_with(|| {
                unused = None;
                ChunkSlot::fresh(&spare)
            });
            Some(slot.clone())
        });
        if let Some(spare) = unused {
            self.spares.give_back(policy, spare);
        }
        let slot = slot.ok_or_else(|| Error::new(Code::Internal, file_name(inode), "chunk data of an inline file"))?;
        Ok((key(inode.id, index, &slot, &policy), policy))
    }
}

pub fn key(inode: InodeId, index: ChunkIndex, slot: &ChunkSlot, policy: &Policy) -> ChunkKey {
    let ChunkSlot { chunk, container, stable, .. } = *slot;
    ChunkKey { chunk, container, inode, index, chunk_bytes: policy.chunk_bytes, stable }
}

pub fn file_name(inode: &Inode) -> String {
    format!("inode {}", inode.id)
}

/// Puts what is unsaved on top of a newer map. Gives chunks that are no longer the file's.
fn rebase(state: &mut FileState, answer: &MapAnswer) -> Vec<ChunkId> {
    let before = state.attr.trunc_gen;
    let clean = state.is_clean() && state.body.is_clean();
    let own_size = state.size;
    let old = std::mem::take(&mut state.body);
    state.blocks.clear();
    state.adopt_map(&answer.attr, &answer.map);
    state.version += 1;
    if clean {
        state.ends_with_row();
        return Vec::new();
    }
    // The smallest cut this client did not know: sizes rise with generations.
    let cut = answer.map.cuts.iter().find(|(generation, _)| *generation > before).map_or(u64::MAX, |(_, size)| *size);
    let chunk_bytes = state.policy.chunk_bytes;
    let ends = state.inflight.values().map(|write| write.range.end).chain([state.dirty.end()]).max().unwrap_or(0);
    let mut gone = Vec::new();
    match (old, &mut state.body) {
        (Body::Inline(own), Body::Inline(_)) => {
            // Which of these bytes were written here is not known: all of them are.
            state.size = own_size;
            let fits = own.len() as u64 <= state.policy.inline_bytes.into();
            state.body = Body::Inline(own);
            if !fits {
                state.convert();
            }
        }
        (Body::Inline(own), Body::Chunked(_)) => {
            state.size = state.size.max(own_size);
            state.move_out(0, own.into());
        }
        (Body::Chunked(mut table), new) => {
            gone.extend(table.cut(cut, chunk_bytes).iter().map(|slot| slot.chunk));
            let fresh = table.slots.into_iter().filter(|(_, slot)| slot.fresh.is_some());
            if let Body::Chunked(new) = new {
                let sent = |index: ChunkIndex| {
                    let of_chunk = ByteRange::at(index.0.saturating_mul(chunk_bytes), chunk_bytes);
                    state.inflight.values().any(|write| write.range.overlaps(of_chunk))
                };
                for (index, slot) in fresh {
                    // Where another client's chunk was first, what was written to this one still has to get there: the next
                    // commit is told so, see `write_instead`.
                    if !slot.written.is_empty() || sent(index) {
                        new.slots.insert(index, slot);
                    } else {
                        new.slots.entry(index).or_insert(slot);
                    }
                }
            } else if let Content::Inline(base) = &answer.map.content {
                let slots: BTreeMap<ChunkIndex, ChunkSlot> = fresh.collect();
                // What a server has, or is about to have, was written after the row's bytes: they go under it.
                let mut under = Extents::default();
                under.insert_whole(0, base.clone(), ());
                state.inflight.values().for_each(|write| under.remove(write.range));
                for (index, slot) in &slots {
                    let first = index.0.saturating_mul(chunk_bytes);
                    slot.written.iter().for_each(|range| under.remove(ByteRange::at(first + range.start, range.len())));
                }
                if state.inline_row {
                    state.moved_end = state.moved_end.max(base.len() as u64);
                }
                state.conversions += 1;
                under.into_pieces().for_each(|(at, bytes, ())| state.move_out(at, bytes));
                state.body = Body::Chunked(crate::body::ChunkTable { slots, known_below: None });
            }
            // A cut is in the server's size already, also one that is not remembered any more: what this client had
            // beyond it, and has not written since, is gone.
            let own_size = if answer.attr.trunc_gen > before { 0 } else { own_size };
            state.size = answer.attr.size.max(ends).max(own_size);
        }
    }
    state.unsaved = true;
    gone
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use braid_api::meta::FileMap;
    use braid_types::{Attr, ContainerId, SessionId};
    use bytes::Bytes;

    const CHUNK: ChunkId = ChunkId(7);

    /// A file of three inline bytes that has grown out of line here: `sent` went to a fresh chunk, `dirty` is still here.
    fn grown(sent: ByteRange, dirty: (u64, &'static [u8])) -> (FileState, MapAnswer) {
        let attr = Attr { size: 3, ..crate::cache::tests::attr(1) };
        let mut state = FileState::new(attr);
        let mut slot = ChunkSlot::fresh(&crate::spares::Spare {
            chunk: CHUNK,
            container: ContainerId(1),
            session: SessionId(1),
            room: 0,
        });
        slot.written.add(sent);
        let slots = [(ChunkIndex(0), slot)].into();
        state.body = Body::Chunked(crate::body::ChunkTable { slots, known_below: None });
        state.dirty.insert(dirty.0, Bytes::from_static(dirty.1), ());
        state.unsaved = true;
        let content = Content::Inline(Bytes::from_static(b"old"));
        let map = FileMap { policy: state.policy, layout_gen: state.layout_gen, cuts: state.cuts.clone(), content };
        (state, MapAnswer { attr, map })
    }

    fn after_rebase(sent: ByteRange, dirty: (u64, &'static [u8])) -> Vec<(u64, Bytes)> {
        let (mut state, answer) = grown(sent, dirty);
        assert!(rebase(&mut state, &answer).is_empty());
        assert_eq!(state.body.slot(ChunkIndex(0)).unwrap().chunk, CHUNK);
        state.dirty.snapshot(ByteRange::new(0, 100))
    }

    #[test]
    fn bytes_of_the_row_go_under_what_was_sent_since() {
        let kept = |text: &'static [u8]| Bytes::from_static(text);
        assert_eq!(after_rebase(ByteRange::new(0, 3), (3, b"new")), [(3, kept(b"new"))]);
        assert_eq!(
            after_rebase(ByteRange::new(1, 2), (3, b"new")),
            [(0, kept(b"o")), (2, kept(b"d")), (3, kept(b"new"))]
        );
        assert_eq!(after_rebase(ByteRange::new(5, 9), (1, b"new")), [(0, kept(b"o")), (1, kept(b"new"))]);
    }
}
