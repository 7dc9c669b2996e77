//! From the buffer to the data servers.
//!
//! Promises: several writes of a file are on their way at once, but never two that overlap; bytes leave `dirty`
//! and enter `inflight` in one step, and leave `inflight` only when they are retained, so a reader always finds
//! them; a write goes back to the buffer when its server has answered neither it nor any other until its deadline.

use crate::buffer::RUN_BYTES;
use crate::core::{Core, Op};
use crate::inode::{FileState, InFlight, Inode};
use crate::map::file_name;
use crate::retain::Receipt;
use crate::servers::Lane;
use crate::wait::{Attempts, Deadline, timed_out, wait_until};
use braid_api::data::{Make, WriteChunk};
use braid_api::{Code, Result, Retry};
use braid_types::{ByteRange, ChunkIndex, ContainerId, Token};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// A write ends by its own deadline; whoever waits for it gives it this long to report.
const REPORT_SLACK: Duration = Duration::from_secs(1);
/// After a write failed at its deadline the buffer tries again this much later.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A write within one chunk.
struct Piece {
    ticket: u64,
    offset: u64,
    data: Bytes,
}

enum Taken {
    Piece(Piece),
    /// Something has to be answered first.
    NotNow,
    Nothing,
}

/// Whom a write was sent to last, and how much they had answered when its time began.
#[derive(Default)]
struct Asked {
    container: ContainerId,
    lane: Option<(Arc<Lane>, u64)>,
}

impl Asked {
    fn at(&mut self, lane: &Arc<Lane>) {
        if !self.lane.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, lane)) {
            self.lane = Some((lane.clone(), lane.answered()));
        }
    }

    /// They have answered others since then, so they are not gone.
    fn are_slow(&mut self) -> bool {
        self.lane.as_mut().is_some_and(|(lane, seen)| {
            let answered = lane.answered();
            std::mem::replace(seen, answered) != answered
        })
    }
}

/// Bytes that were inline in a row are being answered.
struct OnItsWay;

/// Where such bytes still wait to be sent, before all others.
fn moved_first(state: &mut FileState) -> std::result::Result<Option<ByteRange>, OnItsWay> {
    let moved = ByteRange::new(0, state.moved_end);
    if state.dirty.first_in(moved).is_some() {
        return Ok(Some(moved));
    }
    if state.inflight.values().any(|write| write.range.overlaps(moved)) {
        return Err(OnItsWay);
    }
    state.moved_end = 0;
    Ok(None)
}

/// Moves the first dirty bytes within `range` into flight.
fn take_piece(state: &mut FileState, range: ByteRange) -> Taken {
    if state.held {
        return Taken::NotNow;
    }
    let chunk_bytes = state.policy.chunk_bytes;
    if state.dirty.first_in(range).is_none() {
        return Taken::Nothing;
    }
    let range = match moved_first(state) {
        Ok(moved) => moved.unwrap_or(range),
        Err(OnItsWay) => return Taken::NotNow,
    };
    let Some(first) = state.dirty.first_in(range) else { return Taken::Nothing };
    let end = (first / chunk_bytes + 1).saturating_mul(chunk_bytes).min(range.end);
    let Some((offset, data)) = state.dirty.take_run(ByteRange::new(first, end), RUN_BYTES as u64) else {
        return Taken::Nothing;
    };
    let range = ByteRange::at(offset, data.len() as u64);
    if state.inflight.values().any(|write| write.range.overlaps(range)) {
        state.dirty.insert_whole(offset, data, ());
        return Taken::NotNow;
    }
    state.last_ticket += 1;
    let ticket = state.last_ticket;
    state.sent_end = state.sent_end.max(range.end);
    state.inflight.insert(ticket, InFlight { range, data: data.clone() });
    Taken::Piece(Piece { ticket, offset, data })
}

impl Core {
    /// Sends everything that is dirty now and waits until it is answered; ends early where a chunk was found void.
    ///
    /// As long as any of it is answered this goes on beyond the operation's deadline: much may be buffered, and the way slow.
    pub async fn send_all(self: &Arc<Self>, inode: &Arc<Inode>, mut op: Op) -> Result<()> {
        let (failures, ranges, mut seen) = {
            let state = inode.state.lock();
            (state.failures, state.dirty.ranges(), state.answered)
        };
        for range in ranges {
            while inode.state.lock().failures == failures {
                match self.send_one(inode, range, op).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => op = self.more_time(inode, &mut seen, op).ok_or(error)?,
                }
            }
        }
        let last = inode.state.lock().last_ticket;
        let answered = || {
            let state = inode.state.lock();
            state.inflight.first_key_value().is_none_or(|(&first, _)| first > last).then_some(())
        };
        let done = loop {
            let until = Deadline(op.deadline.0 + REPORT_SLACK);
            match wait_until(&self.env, &inode.changed, until, answered).await {
                None if inode.state.lock().failures == failures => match self.more_time(inode, &mut seen, op) {
                    Some(more) => op = more,
                    None => break None,
                },
                done => break done,
            }
        };
        let state = inode.state.lock();
        match (&state.failed, done) {
            (Some(error), _) if state.failures != failures => Err(error.clone()),
            (_, None) => Err(timed_out(file_name(inode), "its writes to be answered")),
            _ => Ok(()),
        }
    }

    /// Sends the first piece within the range; false if there is none.
    async fn send_one(self: &Arc<Self>, inode: &Arc<Inode>, range: ByteRange, op: Op) -> Result<bool> {
        let left = op.deadline.left(&self.env);
        let permit = self.env.timeout(left, inode.window.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(timed_out(file_name(inode), "earlier writes to be answered")) };
        let take = || match take_piece(&mut inode.state.lock(), range) {
            Taken::Piece(piece) => Some(Some(piece)),
            Taken::Nothing => Some(None),
            Taken::NotNow => None,
        };
        match wait_until(&self.env, &inode.changed, op.deadline, take).await {
            Some(Some(piece)) => {
                self.start_write(inode, piece, permit, op);
                Ok(true)
            }
            Some(None) => Ok(false),
            None => Err(timed_out(file_name(inode), "an earlier write to the same bytes")),
        }
    }

    /// Sends runs that are long enough, in the background.
    pub fn send_full_runs(self: &Arc<Self>, inode: &Arc<Inode>) {
        if std::mem::replace(&mut inode.state.lock().sender_runs, true) {
            return;
        }
        let (core, inode) = (self.clone(), inode.clone());
        self.spawn_for("send", braid_api::trace::current(), async move {
            loop {
                let run = {
                    let mut state = inode.state.lock();
                    let Some(at) = state.full.pop_front() else {
                        state.sender_runs = false;
                        return;
                    };
                    state.dirty.run_around(at)
                };
                let Some(start) = run else { continue };
                let range = ByteRange::at(start, RUN_BYTES as u64);
                let op = core.own_op();
                while let Ok(true) = core.send_one(&inode, range, op).await {}
            }
        });
    }

    fn start_write(self: &Arc<Self>, inode: &Arc<Inode>, piece: Piece, permit: OwnedSemaphorePermit, op: Op) {
        let (core, inode) = (self.clone(), inode.clone());
        self.spawn_for("write", op.trace, async move {
            // It has its own time: what sends it may have none left.
            let result = core.write_piece(&inode, &piece, core.op(op.trace)).await;
            core.update(&inode, |state| {
                let Some(write) = state.inflight.remove(&piece.ticket) else { return };
                if let Some(copying) = &mut state.copying {
                    copying.wrote(write.range);
                }
                state.blocks.invalidate(write.range);
                let Err(error) = result else {
                    state.stored_end = state.stored_end.max(write.range.end);
                    state.answered += 1;
                    return;
                };
                // Bytes that a row still has are never given up: a commit without them would drop them there.
                let in_row = write.range.start < state.moved_end;
                if error.retry() == Retry::No && !in_row {
                    state.lost = Some(error.clone());
                    // Or the file would show bytes that nobody has.
                    state.shrink_to_bytes();
                    core.counters.bytes_lost.fetch_add(write.data.len() as u64, Relaxed);
                    tracing::error!(%error, inode = inode.id.0, bytes = write.data.len(), "written bytes are given up");
                } else {
                    state.dirty.insert_under(write.range.start, write.data, ());
                    state.retry_at = Some(core.now() + RETRY_AFTER);
                }
                state.fail(error);
                // What nobody wants any more is not wanted again because it failed; else it is due.
                core.let_go(state);
                if !state.is_clean() {
                    state.dirty_since.get_or_insert(core.now());
                }
            });
            // Else each write of an open file would take the lock of all files.
            if inode.state.lock().handles == 0 {
                core.forget_if_unused(inode.id);
            }
            drop(permit);
        });
    }

    async fn write_piece(self: &Arc<Self>, inode: &Arc<Inode>, piece: &Piece, mut op: Op) -> Result<()> {
        let mut attempts = Attempts::until(op.deadline);
        let (mut waiting, mut servers) = (None, Asked::default());
        loop {
            let Err(error) = self.try_write(inode, piece, &mut servers, op).await else { return Ok(()) };
            let container = std::mem::take(&mut servers.container);
            if !inode.state.lock().inflight.contains_key(&piece.ticket) {
                // Its lease was lost, and this with it.
                return Err(error);
            }
            if error.code == Code::StaleTruncGen {
                self.refresh_map(inode, op).await?;
            }
            let who = || format!("write of {}", file_name(inode));
            waiting.get_or_insert_with(|| self.waits.enter(&self.env, who(), &error).of(inode.id).within(container));
            if let Err(error) = self.recover(&mut attempts, error, container, op).await {
                if error.retry() == Retry::No || !servers.are_slow() {
                    return Err(error);
                }
                op = self.op(op.trace);
                attempts = Attempts::until(op.deadline);
            }
        }
    }

    async fn try_write(self: &Arc<Self>, inode: &Arc<Inode>, piece: &Piece, servers: &mut Asked, op: Op) -> Result<()> {
        let chunk_bytes = inode.state.lock().policy.chunk_bytes;
        let index = ChunkIndex(piece.offset / chunk_bytes);
        let (key, policy) = self.slot_for(inode, index, op).await?;
        if self.make_of(&key) == Make::Yes {
            self.confirm_session(op).await?;
        }
        servers.container = key.container;
        let route = self.route(&policy, key.container, op).await?;
        let lane = route.lane.clone();
        servers.at(&lane);
        self.retained_room(piece.data.len() as u64, op).await?;
        let busy = || timed_out(file_name(inode), format!("{} to take a write", lane.name()));
        let left = op.deadline.left(&self.env);
        let Ok(Ok(_window)) = self.env.timeout(left, lane.window.acquire()).await else { return Err(busy()) };
        let left = op.deadline.left(&self.env);
        let Ok(_gate) = self.env.timeout(left, lane.gate.read()).await else { return Err(busy()) };
        let (token, cuts) = {
            let state = inode.state.lock();
            // The session's token as it is while what was written under it is here: see `lost`.
            let token = self.change_token(&state, &route)?;
            if !state.inflight.contains_key(&piece.ticket) {
                return Err(crate::lost::over(file_name(inode)));
            }
            (token, state.chunk_cuts(index))
        };
        let offset = piece.offset % chunk_bytes;
        let kept_beside = self.config.pages_above && lane.is_beside(&self.config.host);
        let message = |make| WriteChunk {
            chunk: key.chunk,
            container: key.container,
            offset,
            chunk_bytes,
            inode: inode.id,
            index,
            cuts: cuts.clone(),
            sync: false,
            make,
            kept_beside,
            // Bytes are sent under `exclusive`, and retained until they are settled.
            alone: true,
            once: None,
        };
        let make = self.make_of(&key);
        let mut written = self.ask(&lane, token, message(make), piece.data.clone(), op).await;
        if let Err(error) = &written
            && error.code == Code::ChunkUnknown
        {
            match self.make_again(&lane, &key, op).await? {
                Some(again) => written = self.ask(&lane, token, message(again), piece.data.clone(), op).await,
                // Another client removed the chunk: the file has another now, or needs one.
                None => self.refresh_map(inode, op).await?,
            }
        }
        if written.as_ref().is_err_and(|error| error.code == Code::StaleLease) {
            self.refused_lease(inode.id, token);
        }
        let (answer, _) = written?;
        let len = piece.data.len() as u64;
        if offset >= chunk_bytes / 2 {
            self.want_next(inode, index, token);
        }
        self.counters.bytes_written.fetch_add(len, Relaxed);
        lane.has_answered();
        self.wrote_chunk(inode, &key, &policy, len);
        let receipt = Receipt { incarnation: answer.incarnation, sequence: answer.sequence, stable: answer.stable };
        let cuts = (token.trunc_gen, cuts);
        let proven = {
            // Both in one step: a lease that is lost takes what is on its way, then what is retained.
            let state = inode.state.lock();
            if !state.inflight.contains_key(&piece.ticket) {
                return Err(crate::lost::over(file_name(inode)));
            }
            lane.retained(|retain| {
                retain.answered(key, cuts, (offset, piece.data.clone()), receipt, self.now());
                retain.has_proven()
            })
        };
        if proven {
            self.marks.notify_one();
        }
        if let Some(slot) = inode.state.lock().body.slot_mut(index)
            && slot.chunk == key.chunk
            && slot.fresh.is_some()
        {
            slot.written.add(ByteRange::at(offset, len));
        }
        self.mind(&lane);
        Ok(())
    }

    /// Whoever writes in order comes to the next chunk soon. If a copy of it lies here it is owned here by then, and nobody waits for the
    /// move: what is written to a chunk that moves is held meanwhile.
    fn want_next(&self, inode: &Inode, index: ChunkIndex, token: Token) {
        let next = {
            let state = inode.state.lock();
            state.body.slot(ChunkIndex(index.0 + 1)).map(|slot| (slot.container, slot.chunk))
        };
        if let Some((container, chunk)) = next {
            self.servers.want(container, chunk, token);
        }
    }

    /// Waits until the servers have made enough stable.
    async fn retained_room(self: &Arc<Self>, bytes: u64, op: Op) -> Result<()> {
        let fits = || self.memory.retained.fits(bytes, self.config.retained_bytes).then_some(());
        if fits().is_some() {
            return Ok(());
        }
        self.servers.lanes().iter().for_each(|lane: &Arc<Lane>| lane.wake.notify_one());
        let full = "room for writes that are not stable yet";
        let _waiting = self.waits.enter(&self.env, "write", full);
        let room = wait_until(&self.env, &self.memory.retained.room, op.deadline, fits).await;
        room.ok_or_else(|| timed_out("write", full))
    }
}
