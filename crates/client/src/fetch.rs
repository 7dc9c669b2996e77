//! Reading: dirty bytes over those on their way over the retained over the servers'.
//!
//! The buffer is looked at before the servers are asked. What leaves it in between is at the server by then, or
//! retained and painted over its answer; so a read sees every write that was complete when it began.

use crate::body::{Body, read_inline};
use crate::buffer::{RUN_BYTES, paint};
use crate::core::{Core, Op};
use crate::handles::FileHandle;
use crate::inode::{FileState, Inode};
use crate::local::{Local, LocalAsk};
use crate::map::key;
use crate::prefetch::Limits;
use crate::ranges::RangeSet;
use crate::readahead::{Arriving, Block, Charge};
use crate::regions::{Place, Region};
use crate::retain::ChunkKey;
use crate::wait::{Attempts, join_all, timed_out};
use braid_api::data::ReadChunk;
use braid_api::{Code, Error, Result};
use braid_env::Monotonic;
use braid_env::outcome::outcome;
use braid_types::{ByteRange, ChunkId, ChunkIndex};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Between two looks for where a chunk is whose server does not answer.
const MOVED_LOOK: Duration = Duration::from_secs(1);

/// How what is read stands to what others write.
#[derive(Clone, Copy)]
pub enum Order<'a> {
    /// They do not: the lease keeps them out.
    Any,
    /// The same, for a read that is to come: by a task, whose thread must not wait for a disk.
    Ahead,
    /// As everybody sees it who reads at this moment.
    Now,
    /// The same, and as it stays until the region is unlocked.
    Locked(&'a Region<'a>),
}

impl Order<'_> {
    fn is_ordered(self) -> bool {
        !matches!(self, Order::Any | Order::Ahead)
    }
}

enum Source {
    /// Read ahead, perhaps still on its way: the block, and where it begins.
    Block(Arriving, u64),
    Chunk,
    /// All of it is in the buffer.
    Buffer,
}

struct Segment {
    range: ByteRange,
    source: Source,
}

impl Core {
    /// The bytes of `range`, as far as the file reaches.
    pub async fn read_bytes(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        range: ByteRange,
        handle: Option<&FileHandle>,
        op: Op,
    ) -> Result<Vec<Bytes>> {
        loop {
            if let Some(pieces) = self.try_read(inode, range, handle, op).await? {
                return Ok(pieces);
            }
        }
    }

    /// None if a chunk was brought here meanwhile.
    async fn try_read(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        range: ByteRange,
        handle: Option<&FileHandle>,
        op: Op,
    ) -> Result<Option<Vec<Bytes>>> {
        self.fresh(inode, op).await?;
        let (segments, overlay, chunk_bytes, brought) = loop {
            let unknown = {
                let mut state = inode.state.lock();
                let range = ByteRange::new(range.start.min(state.size), range.end.min(state.size));
                if range.is_empty() {
                    return Ok(Some(Vec::new()));
                }
                let chunk_bytes = state.policy.chunk_bytes;
                if let Body::Inline(bytes) = &state.body {
                    return Ok(Some(vec![read_inline(bytes, range)]));
                }
                let last = ChunkIndex((range.end - 1) / chunk_bytes);
                match state.body.unknown_from(last) {
                    Some(_) => last,
                    None => {
                        let overlay = state.overlay(range);
                        break (segments(&mut state, range, &overlay), overlay, chunk_bytes, state.brought);
                    }
                }
            };
            self.know_chunk(inode, unknown, op).await?;
        };
        if let Some(handle) = handle {
            self.read_ahead(inode, handle, range);
        }
        let bytes = join_all(segments.iter().map(|s| self.fetch_segment(inode, s, chunk_bytes, op)).collect()).await;
        // Bytes that servers had are in the buffer again, and the server that was asked is another by now.
        if inode.state.lock().brought != brought {
            return Ok(None);
        }
        let mut pieces = Vec::with_capacity(segments.len());
        for (segment, bytes) in segments.iter().zip(bytes) {
            pieces.push(painted(bytes?, segment.range, &overlay));
        }
        Ok(Some(pieces))
    }

    async fn fetch_segment(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        segment: &Segment,
        chunk_bytes: u64,
        op: Op,
    ) -> Result<Bytes> {
        let (range, index) = (segment.range, ChunkIndex(segment.range.start / chunk_bytes));
        match &segment.source {
            Source::Buffer => return Ok(Bytes::new()),
            Source::Block(arriving, start) => {
                let left = op.deadline.left(&self.env);
                if let Ok(Some(Ok(bytes))) = self.env.timeout(left, arriving.clone().done()).await {
                    let from = (range.start - start) as usize;
                    return Ok(bytes.slice(from..from + range.len() as usize));
                }
            }
            Source::Chunk => {}
        }
        self.fetch_chunk(inode, index, ByteRange::at(range.start % chunk_bytes, range.len()), Order::Any, op).await
    }

    /// Bytes of one chunk as its server and what is retained for it say.
    pub async fn fetch_chunk(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        index: ChunkIndex,
        range: ByteRange,
        order: Order<'_>,
        op: Op,
    ) -> Result<Bytes> {
        let mut attempts = Attempts::until(op.deadline);
        let (mut waiting, mut missed) = (None, None);
        let mut looked = self.now();
        loop {
            let mut asked = None;
            let error = match self.try_fetch(inode, index, range, order, &mut asked, op).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            if order.is_ordered() && error.code == Code::StaleLease {
                return Err(error);
            }
            let is_away = matches!(
                error.code,
                Code::Unreachable | Code::Disconnected | Code::DeadlineExceeded | Code::NoServers | Code::NotFound
            );
            // A server that is away may have been drained, and the chunk be elsewhere.
            if matches!(error.code, Code::StaleTruncGen | Code::ChunkUnknown)
                || (is_away && self.now().since(looked) >= MOVED_LOOK)
            {
                self.refresh_chunk(inode, index, op).await?;
                looked = self.now();
            }
            if let (Some(key), Code::ChunkUnknown) = (asked, error.code)
                && let Some(key) = self.given_up(inode, &key, &mut missed)
            {
                self.chunk_is_lost(&key)?;
                return Ok(Bytes::from(vec![0; range.len() as usize]));
            }
            let container = asked.map(|key| key.container).unwrap_or_default();
            let who = || format!("read of inode {}", inode.id);
            waiting.get_or_insert_with(|| self.waits.enter(&self.env, who(), &error).of(inode.id).within(container));
            self.recover(&mut attempts, error, container, op).await?;
        }
    }

    /// The server does not know a chunk that is still the file's, and nobody has repeated it for long enough: the chunk as its row
    /// is now.
    fn given_up(&self, inode: &Inode, key: &ChunkKey, missed: &mut Option<(ChunkId, Monotonic)>) -> Option<ChunkKey> {
        let now = self.now();
        let since = match *missed {
            Some((chunk, since)) if chunk == key.chunk => since,
            _ => missed.insert((key.chunk, now)).1,
        };
        let known = self.lost.lock().get(&key.chunk).is_some();
        let stable = inode.state.lock().body.slot(key.index).filter(|slot| slot.chunk == key.chunk)?.stable;
        (known || now.since(since) >= self.config.lost_after).then_some(ChunkKey { stable, ..*key })
    }

    async fn try_fetch(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        index: ChunkIndex,
        range: ByteRange,
        order: Order<'_>,
        asked: &mut Option<ChunkKey>,
        op: Op,
    ) -> Result<Bytes> {
        let ordered = order.is_ordered();
        let zeros = || Bytes::from(vec![0; range.len() as usize]);
        let there = |state: &FileState| {
            if let Body::Inline(bytes) = &state.body {
                // Since the read began, by a truncate.
                let first = index.0.saturating_mul(state.policy.chunk_bytes) + range.start;
                return Err(read_inline(bytes, ByteRange::at(first, range.len())));
            }
            match state.body.slot(index) {
                Some(slot) if slot.fresh.is_none() || !slot.written.is_empty() => {
                    Ok((key(inode.id, index, slot, &state.policy), state.policy))
                }
                _ => Err(zeros()),
            }
        };
        let (key, policy) = match self.with_chunk(inode, index, op, there).await? {
            Ok(found) => found,
            Err(bytes) => return Ok(bytes),
        };
        *asked = Some(key);
        let route = self.route(&policy, key.container, op).await?;
        let lane = &route.lane;
        let overlay = match ordered {
            true => Vec::new(),
            false => lane.retained(|retain| retain.overlay(key.chunk, range)),
        };
        if covers(&overlay, range) {
            return Ok(painted(Bytes::new(), range, &overlay));
        }
        let (token, cuts) = {
            let state = inode.state.lock();
            let token = if ordered { self.change_token(&state, &route)? } else { self.data_token(&state, &route) };
            (token, state.chunk_cuts(index))
        };
        let len = range.len() as u32;
        let (chunk, container, offset) = (key.chunk, key.container, range.start);
        let kept_beside = self.config.pages_above && lane.may_be_beside(&self.config.host);
        let kept_beside = kept_beside && !ordered;
        let ask = LocalAsk { chunk, container, range, cuts: &cuts, token };
        if !ordered {
            let local = match (self.read_local(lane, &ask), order) {
                (Local::Read(bytes), _) => Some(bytes),
                (Local::Waits(hand_out), Order::Ahead) => self.read_local_in_pool(hand_out, range, op).await,
                _ => None,
            };
            if let Some(bytes) = local {
                self.counters.bytes_fetched.fetch_add(range.len(), Relaxed);
                return Ok(painted(bytes, range, &overlay));
            }
        }
        let hold = match order {
            Order::Locked(region) => {
                region.is_asked_for(Place { lane: lane.clone(), token, chunk });
                Some(region.number.once(false, false))
            }
            Order::Any | Order::Ahead | Order::Now => None,
        };
        let message = ReadChunk { chunk, container, offset, len, cuts, kept_beside, ordered, hold };
        let bytes = match self.ask(lane, token, message, Bytes::new(), op).await {
            Ok((_, bytes)) if bytes.len() as u64 == range.len() => bytes,
            Ok((_, bytes)) => {
                let cause = format!("{} bytes instead of {len}", bytes.len());
                return Err(Error::new(Code::BadMessage, format!("ReadChunk at {}", lane.name()), cause));
            }
            // It restarted before the chunk was stable; what it lost is retained and will be repeated. But a chunk that was freed
            // with its session took along what had been stable, of which nothing is retained.
            Err(error)
                if error.code == Code::ChunkUnknown
                    && lane.retained(|retain| retain.has(key.chunk))
                    && holds_all_written(inode, &key, &overlay, range) =>
            {
                zeros()
            }
            Err(error) => {
                if ordered && error.code == Code::StaleLease {
                    self.refused_lease(inode.id, token);
                }
                return Err(error);
            }
        };
        self.counters.bytes_fetched.fetch_add(range.len(), Relaxed);
        Ok(painted(bytes, range, &overlay))
    }

    /// Reads on where a stream goes, within the bound.
    fn read_ahead(self: &Arc<Self>, inode: &Arc<Inode>, handle: &FileHandle, range: ByteRange) {
        let limits = Limits {
            window_bytes_min: self.config.prefetch_window_min,
            window_bytes_max: self.config.prefetch_window_max,
        };
        let mut state = inode.state.lock();
        let mut window = handle.window.lock();
        let plan = window.read(range, state.size, limits);
        match plan.forget_all {
            true => state.blocks.forget(handle.id.0, u64::MAX, u64::MAX),
            false => state.blocks.forget(handle.id.0, plan.forget_before, plan.forget_served_before),
        }
        let Some(fetch) = plan.fetch else { return };
        let chunk_bytes = state.policy.chunk_bytes;
        for (unit, part) in fetch.split_by(chunk_bytes.min(RUN_BYTES as u64)) {
            let range = ByteRange::at(unit * chunk_bytes.min(RUN_BYTES as u64) + part.start, part.len());
            let index = ChunkIndex(range.start / chunk_bytes);
            let known = state.body.unknown_from(index).is_none();
            let there = state.blocks.at(range.start).is_some_and(|block| block.range.end >= range.end);
            if there || (known && state.body.slot(index).is_none()) {
                continue;
            }
            if !known || !self.memory.prefetched.take(range.len(), self.config.prefetch_bytes) {
                return window.refused(range.start);
            }
            let charge = Charge { memory: self.memory.clone(), bytes: range.len() };
            let (tell, bytes) = outcome();
            state.blocks.add(Block { range, handle: handle.id.0, bytes, served: 0, _charge: charge });
            let (core, inode) = (self.clone(), inode.clone());
            self.spawn_for("read ahead", braid_api::trace::current(), async move {
                let part = ByteRange::at(range.start % chunk_bytes, range.len());
                let bytes = core.fetch_chunk(&inode, index, part, Order::Ahead, core.own_op()).await;
                tell.tell(bytes);
            });
        }
    }

    /// Where the file's data is, within the chunk at `index`: bytes of the file.
    pub async fn data_ranges(self: &Arc<Self>, inode: &Arc<Inode>, index: ChunkIndex, op: Op) -> Result<RangeSet> {
        self.data_ranges_with(inode, index, true, op).await
    }

    /// The same; `all`: with what no server has answered for so far.
    pub async fn data_ranges_with(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        index: ChunkIndex,
        all: bool,
        op: Op,
    ) -> Result<RangeSet> {
        let there = |state: &FileState| {
            let bytes = state.policy.chunk_bytes;
            let range = ByteRange::at(index.0.saturating_mul(bytes), bytes);
            let mut set = RangeSet::default();
            let here = if all { state.overlay(range) } else { Vec::new() };
            here.iter().for_each(|(at, data)| set.add(ByteRange::at(*at, data.len() as u64)));
            let of = |slot| (key(inode.id, index, slot, &state.policy), state.policy, slot.fresh.is_some());
            (range, set, state.body.slot(index).map(of))
        };
        let (range, mut set, found) = self.with_chunk(inode, index, op, there).await?;
        let Some((mut key, policy, mut is_fresh)) = found else { return Ok(set) };
        let mut attempts = Attempts::until(op.deadline);
        loop {
            let route = self.route(&policy, key.container, op).await?;
            let retained = route.lane.retained(|retain| retain.overlay(key.chunk, ByteRange::new(0, u64::MAX)));
            let in_file = |range: ByteRange, base: u64| ByteRange::at(base + range.start, range.len());
            retained.iter().for_each(|(at, data)| set.add(in_file(ByteRange::at(*at, data.len() as u64), range.start)));
            let (token, cuts) = {
                let state = inode.state.lock();
                (self.data_token(&state, &route), state.chunk_cuts(index))
            };
            let extents_in = ByteRange::new(0, range.len());
            let message = braid_api::data::StatChunk { chunk: key.chunk, container: key.container, extents_in, cuts };
            match self.ask(&route.lane, token, message, Bytes::new(), op).await {
                Ok((status, _)) => {
                    status.extents.iter().for_each(|&extent| set.add(in_file(extent, range.start)));
                    return Ok(set);
                }
                Err(error) if error.code == Code::ChunkUnknown && !is_fresh => {
                    self.refresh_map(inode, op).await?;
                    // It is elsewhere by now.
                    let (_, now, found) = self.with_chunk(inode, index, op, there).await?;
                    if let Some((moved, _, fresh)) = found.filter(|(moved, ..)| moved.chunk != key.chunk) {
                        now.iter().for_each(|range| set.add(range));
                        (key, is_fresh) = (moved, fresh);
                        attempts.again(&self.env, error).await?;
                        continue;
                    }
                    let is_lost = |state: &FileState| {
                        state.body.slot(index).is_some_and(|slot| slot.chunk == key.chunk && slot.stable)
                    };
                    return match self.with_chunk(inode, index, op, is_lost).await? {
                        // A hole would be passed over by who copies the file.
                        true => Err(self.lost_from_disk(&key)),
                        false => Ok(set),
                    };
                }
                Err(error) if error.code == Code::ChunkUnknown => return Ok(set),
                Err(error) if error.code == Code::StaleTruncGen => {
                    self.refresh_map(inode, op).await?;
                    attempts.again(&self.env, error).await?;
                }
                Err(error) => self.recover(&mut attempts, error, key.container, op).await?,
            }
            if op.deadline.left(&self.env).is_zero() {
                return Err(timed_out(format!("inode {}", inode.id), "its map of data"));
            }
        }
    }
}

fn covers(overlay: &[(u64, Bytes)], range: ByteRange) -> bool {
    if overlay.is_empty() {
        return false;
    }
    let mut set = RangeSet::default();
    overlay.iter().for_each(|(at, bytes)| set.add(ByteRange::at(*at, bytes.len() as u64)));
    set.next(range.start, false).is_none_or(|hole| hole >= range.end)
}

/// What was written to a fresh chunk within the range is in the overlay.
fn holds_all_written(inode: &Inode, key: &ChunkKey, overlay: &[(u64, Bytes)], range: ByteRange) -> bool {
    let state = inode.state.lock();
    let fresh = state.body.slot(key.index).filter(|slot| slot.chunk == key.chunk && slot.fresh.is_some());
    let holds = |part: ByteRange| part.intersect(range).is_none_or(|part| covers(overlay, part));
    fresh.is_none_or(|slot| slot.written.iter().all(holds))
}

/// `bytes` (or zeros, where they are left out) with the overlay on top. Untouched bytes are not copied.
fn painted(bytes: Bytes, range: ByteRange, overlay: &[(u64, Bytes)]) -> Bytes {
    let touched = |(at, data): &(u64, Bytes)| ByteRange::at(*at, data.len() as u64).overlaps(range);
    if !overlay.iter().any(touched) {
        return bytes;
    }
    if let Some((at, data)) = overlay.last()
        && ByteRange::at(*at, data.len() as u64).contains(range)
    {
        let from = (range.start - at) as usize;
        return data.slice(from..from + range.len() as usize);
    }
    let mut out = BytesMut::from(&bytes[..]);
    out.resize(range.len() as usize, 0);
    paint(&mut out, range.start, overlay);
    out.freeze()
}

/// Cuts a range at chunks, at messages of 1 MiB and at blocks that were read ahead.
fn segments(state: &mut FileState, range: ByteRange, overlay: &[(u64, Bytes)]) -> Vec<Segment> {
    let unit = state.policy.chunk_bytes.min(RUN_BYTES as u64);
    let mut segments = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let limit = range.end.min((at / unit + 1) * unit);
        let (end, source) = match state.blocks.serve(at, limit) {
            Some((block, bytes)) => (limit.min(block.end), Source::Block(bytes, block.start)),
            None => {
                let end = state.blocks.next_after(at).map_or(limit, |next| limit.min(next));
                (end, Source::Chunk)
            }
        };
        let range = ByteRange::new(at, end);
        let source = if covers(overlay, range) { Source::Buffer } else { source };
        segments.push(Segment { range, source });
        at = end;
    }
    segments
}
