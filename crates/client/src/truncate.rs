//! Cutting a file, and freeing ranges of it.
//!
//! Order of a truncate: what is buffered beyond the new size is dropped; what is on its way is awaited, and nothing
//! is sent meanwhile, for bytes written after the truncate but sent under the old generation would be cut; then the
//! metadata server raises the generation; then the chunk at the border is cut. If servers hold bytes or chunks the
//! metadata server has not heard of, they are committed first, so that it drops every chunk there is.

use crate::body::Body;
use crate::commit::Reach;
use crate::core::{Core, Op};
use crate::cuts::{border, in_chunk};
use crate::files::Pass;
use crate::inode::{FileState, Inode};
use crate::lost::still;
use crate::map::{file_name, key};
use crate::wait::{Attempts, timed_out, wait_until};
use braid_api::data::{CutChunk, PunchChunk, SyncChunks};
use braid_api::meta::{AttrAnswer, ChangeAttr, Cuts, DropChunks};
use braid_api::{Code, Error, Result, When};
use braid_types::{ByteRange, ChunkIndex, InodeId};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;

/// While it lives nothing of the inode is sent.
pub struct Quiet<'a>(&'a Inode);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.state.lock().held = false;
        self.0.changed.notify_waiters();
    }
}

impl Core {
    /// Stops sending and waits for what is on its way. The caller holds the inode's order.
    pub async fn quiet<'a>(&self, inode: &'a Inode, op: Op) -> Result<Quiet<'a>> {
        inode.state.lock().held = true;
        let quiet = Quiet(inode);
        let idle = || inode.state.lock().inflight.is_empty().then_some(());
        let done = wait_until(&self.env, &inode.changed, op.deadline, idle).await;
        done.ok_or_else(|| timed_out(file_name(inode), "its writes to be answered"))?;
        Ok(quiet)
    }

    /// Changes attributes, of which the size is one.
    pub async fn truncate_leased(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        change: ChangeAttr,
        size: u64,
        op: Op,
    ) -> Result<AttrAnswer> {
        loop {
            let pass = self.enter_write(inode, ByteRange::new(size, u64::MAX), op).await?;
            match self.truncate(inode, change.clone(), size, &pass, op).await {
                // A snapshot was made that this client has not heard of.
                Err(error) if error.code == Code::Frozen && !op.deadline.left(&self.env).is_zero() => {
                    self.refresh_map(inode, op).await?;
                }
                // Lost before the metadata server was asked.
                Err(error) if error.code == Code::StaleLease && pass.is_over(&inode.state.lock()) => {}
                done => {
                    // The kernel may hold a page for which it waits, and that for the lease.
                    drop(pass);
                    if done.is_ok() {
                        self.kernel_cuts(inode, size).await;
                    }
                    return done;
                }
            }
        }
    }

    /// The same, under the file's lease.
    async fn truncate(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        change: ChangeAttr,
        size: u64,
        pass: &Pass<'_>,
        op: Op,
    ) -> Result<AttrAnswer> {
        let (_order, op) = self.in_order(inode, op).await?;
        self.fresh(inode, op).await?;
        // Earlier ones first, of whichever client: the metadata server remembers few.
        self.cut_border(inode, op).await;
        let chunk_bytes = inode.state.lock().policy.chunk_bytes;
        if let Some(index) = border(size, chunk_bytes) {
            self.thaw(inode, index, op).await?;
        }
        let dropped = self.update(inode, |state| {
            pass.check(state)?;
            Ok::<_, Error>(drop_beyond(state, size))
        })?;
        let result = self.truncate_ordered(inode, change, size, pass, op).await;
        match &result {
            Ok(_) => {
                inode.state.lock().forget_room(size);
                self.cut_border(inode, op).await;
            }
            Err(_) => self.update(inode, |state| {
                state.cutting = false;
                if !pass.is_over(state) {
                    restore(state, dropped);
                }
            }),
        }
        result
    }

    async fn truncate_ordered(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        mut change: ChangeAttr,
        size: u64,
        pass: &Pass<'_>,
        op: Op,
    ) -> Result<AttrAnswer> {
        let unheard = {
            let state = inode.state.lock();
            // A chunk without a row is as unheard of as a size: the metadata server would take the file for inline.
            size < state.sent_end && (state.sent_end > state.attr.size || !state.body.is_clean())
        };
        if unheard {
            // Without what was dropped; the size it commits is the one after the truncate.
            let sent_end = self.update(inode, |state| {
                pass.check(state)?;
                state.size = size.max(state.dirty.end());
                // Nor may it move bytes inline: it would take those that are to be cut, and nothing cuts them there.
                // `adopt_cut` asks for the move again.
                state.rewrite_inline = false;
                Ok::<_, Error>(state.sent_end)
            })?;
            self.commit_before_cut(inode, sent_end, pass, op).await?;
        }
        let _quiet = self.quiet(inode, op).await?;
        change.cuts_applied = {
            let state = inode.state.lock();
            pass.check(&state)?;
            state.cuts_applied
        };
        // Under another session too, where the server takes the lease for it and knows what it has carried out: it happens once.
        let answer = self.call(change, op).await?;
        let gone = self.update(inode, |state| match pass.is_over(state) {
            // What it is now says its map.
            true => {
                (state.cutting, state.stale) = (false, true);
                Vec::new()
            }
            false => adopt_cut(state, &answer, size),
        });
        gone.into_iter().for_each(|chunk| self.servers.forget_chunk(chunk));
        self.cut_retained_at(inode.id, &answer, size);
        Ok(answer)
    }

    /// Tells the metadata server how far servers hold bytes.
    async fn commit_before_cut(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        sent_end: u64,
        pass: &Pass<'_>,
        op: Op,
    ) -> Result<()> {
        let size = self.update(inode, |state| {
            pass.check(state)?;
            state.unsaved = true;
            Ok::<_, Error>(std::mem::replace(&mut state.size, sent_end))
        })?;
        let result = self.commit_ordered(inode, Reach::Answered, op).await.map(drop);
        self.update(inode, |state| {
            if !pass.is_over(state) {
                state.size = size.max(state.dirty.end());
            }
        });
        result
    }

    /// What is retained of the file beyond `size` must not come back.
    pub fn cut_retained_at(&self, id: InodeId, answer: &AttrAnswer, size: u64) {
        let generation = answer.attr.trunc_gen;
        let mut cuts: Cuts = answer.cuts.clone();
        if cuts.last().is_none_or(|(last, _)| *last < generation) {
            cuts.push((generation, size));
        }
        for lane in self.servers.lanes() {
            lane.retained(|retain| retain.cut_file(id, generation, &cuts));
        }
    }

    /// Cuts the chunks at borders now, so that the cuts need not be remembered. A server that does not answer
    /// learns them from the next request.
    pub async fn cut_border(&self, inode: &Inode, op: Op) {
        let to_be_made = |state: &FileState| -> BTreeSet<ChunkIndex> {
            let cuts = state.cuts.iter().filter(|(of, _)| *of > state.cuts_applied);
            cuts.filter_map(|(_, size)| border(*size, state.policy.chunk_bytes)).collect()
        };
        let last = to_be_made(&inode.state.lock()).last().copied();
        // None is left out: in a file that grows by truncates no cut is contained in a later one.
        if let Some(last) = last
            && self.know_chunk(inode, last, op).await.is_err()
        {
            return;
        }
        let (policy, generation, cuts, borders) = {
            let state = inode.state.lock();
            let borders = to_be_made(&state);
            // Of newer ones than these, which the attributes may tell of already, nothing is known.
            let Some((generation, _)) = state.cuts.last().copied() else { return };
            if borders.iter().any(|&index| state.body.unknown_from(index).is_some()) {
                return;
            }
            (state.policy, generation, state.cuts.clone(), borders)
        };
        for index in borders {
            let slot = {
                let state = inode.state.lock();
                if state.body.unknown_from(index).is_some() {
                    return;
                }
                match state.body.slot(index) {
                    Some(slot) if slot.exists() => slot.clone(),
                    _ => continue,
                }
            };
            let Ok(route) = self.route(&policy, slot.container, op).await else { return };
            let Ok(token) = self.change_token(&inode.state.lock(), &route) else { return };
            let cuts = in_chunk(&cuts, index, policy.chunk_bytes);
            let message = CutChunk { chunk: slot.chunk, container: slot.container, cuts };
            match self.ask(&route.lane, token, message, Bytes::new(), op).await {
                // It is lost, and there is nothing to cut.
                Err(error) if error.code == Code::ChunkUnknown && slot.stable => {}
                Err(error) => {
                    tracing::debug!(%error, "a chunk is not cut yet");
                    return;
                }
                Ok(_) => {}
            }
        }
        let mut state = inode.state.lock();
        state.cuts_applied = state.cuts_applied.max(generation);
    }

    /// The range reads as zero afterwards and holds no space. The size stays.
    pub async fn punch(self: &Arc<Self>, inode: &Arc<Inode>, range: ByteRange, pass: &Pass<'_>, op: Op) -> Result<()> {
        let (_order, op) = self.in_order(inode, op).await?;
        // Everything is known everywhere, so that chunks can be dropped by row.
        let op = self.commit_ordered(inode, Reach::Answered, op).await?;
        let (now, wall) = (self.now(), self.env.clock.wall());
        let range = {
            let state = inode.state.lock();
            ByteRange::new(range.start.min(state.size), range.end.min(state.size))
        };
        let punched = self.update(inode, |state| {
            pass.check(state)?;
            Ok::<_, Error>(range.is_empty() || punch_inline(state, range, now, wall))
        })?;
        if punched {
            return Ok(());
        }
        let chunk_bytes = inode.state.lock().policy.chunk_bytes;
        self.know_chunk(inode, ChunkIndex((range.end - 1) / chunk_bytes), op).await?;
        let _quiet = self.quiet(inode, op).await?;
        self.update(inode, |state| {
            pass.check(state)?;
            state.dirty.remove(range);
            state.blocks.invalidate(range);
            // It would come back with what was copied before.
            state.copying = None;
            state.touched(now, wall);
            Ok::<_, Error>(())
        })?;
        self.wake.notify_one();
        let mut whole: Option<(ChunkIndex, ChunkIndex)> = None;
        for (index, part) in range.split_by(chunk_bytes) {
            let index = ChunkIndex(index);
            if inode.state.lock().body.slot(index).is_none() {
                continue;
            }
            if part.len() == chunk_bytes {
                whole = Some((whole.map_or(index, |(from, _)| from), ChunkIndex(index.0 + 1)));
            } else {
                self.punch_chunk(inode, index, part, pass, op).await?;
            }
        }
        match whole {
            Some((from, until)) => self.drop_chunks(inode, from, until, pass, op).await,
            None => Ok(()),
        }
    }

    async fn drop_chunks(
        &self,
        inode: &Inode,
        from: ChunkIndex,
        until: ChunkIndex,
        pass: &Pass<'_>,
        op: Op,
    ) -> Result<()> {
        let message = DropChunks { inode: self.cache.inode(inode.id), from, until };
        let answer = self.call_while(message, When::Early, op, still(inode, pass.lapses)).await?;
        let gone = self.update(inode, |state| {
            if pass.is_over(state) {
                return Vec::new();
            }
            state.adopt_attr(&answer.attr, Some(&answer.cuts));
            let Body::Chunked(table) = &mut state.body else { return Vec::new() };
            let mut rest = table.slots.split_off(&from);
            table.slots.extend(rest.split_off(&until));
            rest.into_values().map(|slot| slot.chunk).collect()
        });
        self.cache.changed(inode.id);
        gone.into_iter().for_each(|chunk| self.servers.forget_chunk(chunk));
        Ok(())
    }

    /// A punch is not retained: it is stable when this returns.
    async fn punch_chunk(
        self: &Arc<Self>,
        inode: &Inode,
        index: ChunkIndex,
        range: ByteRange,
        pass: &Pass<'_>,
        op: Op,
    ) -> Result<()> {
        let mut attempts = Attempts::until(op.deadline);
        loop {
            self.thaw(inode, index, op).await?;
            let there = |state: &FileState| {
                state.body.slot(index).map(|slot| (key(inode.id, index, slot, &state.policy), state.policy))
            };
            let Some((key, policy)) = self.with_chunk(inode, index, op, there).await? else { return Ok(()) };
            let route = self.route(&policy, key.container, op).await?;
            let (token, cuts) = {
                let state = inode.state.lock();
                pass.check(&state)?;
                let token = self.change_token(&state, &route);
                (token, state.chunk_cuts(index))
            };
            let token = match token {
                Ok(token) => token,
                Err(error) => {
                    self.recover(&mut attempts, error, key.container, op).await?;
                    continue;
                }
            };
            let message = PunchChunk { chunk: key.chunk, container: key.container, range, cuts };
            // A repetition that is on its way would bring the bytes back after the punch.
            let left = op.deadline.left(&self.env);
            let gate = self.env.timeout(left, route.lane.gate.read()).await;
            let gate =
                gate.map_err(|_| timed_out(file_name(inode), format!("{} to take a punch", route.lane.name())))?;
            route.lane.retained(|retain| retain.remove(key.chunk, range));
            let error = match self.ask(&route.lane, token, message, Bytes::new(), op).await {
                Ok((punched, _)) => {
                    route.lane.retained(|retain| retain.stable(punched.incarnation, punched.stable));
                    let message = SyncChunks::of(vec![key.chunk]);
                    match self.ask(&route.lane, token, message, Bytes::new(), op).await {
                        Ok((synced, _)) if synced.incarnation == punched.incarnation => {
                            self.mind(&route.lane);
                            return Ok(());
                        }
                        Ok(_) => Error::new(Code::Disconnected, route.lane.name(), "it restarted during a punch"),
                        Err(error) => error,
                    }
                }
                Err(error) if error.code == Code::ChunkUnknown => return Ok(()),
                Err(error) => error,
            };
            drop(gate);
            match error.code {
                Code::StaleTruncGen => self.refresh_map(inode, op).await?,
                Code::StaleLease => self.refused_lease(inode.id, token),
                _ => {}
            }
            self.recover(&mut attempts, error, key.container, op).await?;
        }
    }
}

/// What a truncate took away, in case it fails.
struct Dropped {
    pieces: Vec<(u64, Bytes)>,
    inline: Vec<u8>,
    size: u64,
    /// The size that was to be.
    cut: u64,
}

fn drop_beyond(state: &mut FileState, size: u64) -> Dropped {
    let pieces = state.dirty.take(ByteRange::new(size, u64::MAX)).into_pieces().map(|(at, data, ())| (at, data));
    let pieces = pieces.collect();
    let inline = match &mut state.body {
        Body::Inline(bytes) => bytes.split_off((bytes.len() as u64).min(size) as usize),
        Body::Chunked(_) => Vec::new(),
    };
    state.blocks.clear();
    state.version += 1;
    state.cutting = true;
    Dropped { pieces, inline, size: std::mem::replace(&mut state.size, size), cut: size }
}

fn restore(state: &mut FileState, dropped: Dropped) {
    let cut = state.size;
    for (offset, data) in dropped.pieces {
        state.dirty.insert_under(offset, data, ());
    }
    if let Body::Inline(bytes) = &mut state.body
        && bytes.len() as u64 <= cut
    {
        bytes.resize(bytes.len().max(if dropped.inline.is_empty() { 0 } else { cut as usize }), 0);
        bytes.extend(dropped.inline);
    }
    // One that was to grow the file has not; what was written meanwhile stays.
    let has_grown = dropped.cut > dropped.size && state.size == dropped.cut;
    state.size = if has_grown { written_end(state).max(dropped.size) } else { state.size.max(dropped.size) };
    state.version += 1;
    state.cutting = false;
}

fn written_end(state: &FileState) -> u64 {
    let inline = if let Body::Inline(bytes) = &state.body { bytes.len() as u64 } else { 0 };
    state.dirty.end().max(state.sent_end).max(inline)
}

fn adopt_cut(state: &mut FileState, answer: &AttrAnswer, size: u64) -> Vec<braid_types::ChunkId> {
    state.version += 1;
    state.cutting = false;
    state.attr = answer.attr;
    state.cuts = answer.cuts.clone();
    // Shown before, and later than the server's clock: the next commit says so.
    state.mtime = state.mtime.filter(|mtime| *mtime > answer.attr.mtime);
    state.unsaved |= state.mtime.is_some();
    state.sent_end = state.sent_end.min(size);
    state.stored_end = state.stored_end.min(size);
    state.inline_row &= size > 0;
    let (inline_bytes, chunk_bytes) = (u64::from(state.policy.inline_bytes), state.policy.chunk_bytes);
    let Body::Chunked(table) = &mut state.body else { return Vec::new() };
    let gone = table.cut(size, chunk_bytes);
    // Spares of which no row will know.
    state.unused.extend(gone.iter().filter(|slot| slot.fresh.is_some()).map(|slot| slot.chunk));
    let gone = gone.into_iter().map(|slot| slot.chunk).collect();
    if size == 0 && state.dirty.is_empty() {
        state.body = Body::Inline(Vec::new());
    } else if size <= inline_bytes / 2 && !table.slots.is_empty() {
        state.rewrite_inline = true;
        state.unsaved = true;
    }
    gone
}

fn punch_inline(
    state: &mut FileState,
    range: ByteRange,
    now: braid_env::Monotonic,
    wall: braid_types::Timestamp,
) -> bool {
    let Body::Inline(bytes) = &mut state.body else { return false };
    let len = bytes.len() as u64;
    bytes[range.start.min(len) as usize..range.end.min(len) as usize].fill(0);
    state.touched(now, wall);
    true
}
