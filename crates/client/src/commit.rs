//! Telling the metadata server what was done to a file's bytes.
//!
//! Promises: a commit speaks only of bytes that servers have answered; inline bytes are dropped by a commit only
//! when all of them are in chunks, and on stable storage if a row had them; what changes while a commit is on its way
//! stays unsaved.

use crate::body::Body;
use crate::cache::{Asking, Learnt};
use crate::core::{Core, Op};
use crate::fetch::Order;
use crate::inode::{FileState, Inode};
use crate::lost::still;
use crate::map::file_name;
use crate::wait::{Attempts, timed_out};
use braid_api::meta::{ChunkPage, ChunkRef, CommitAnswer, CommitContent, CommitFile};
use braid_api::{Code, Error, Result, Retry, When};
use braid_lease::Key;
use braid_types::{ByteRange, ChunkIndex};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::MutexGuard;

/// How far the bytes must be before the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// At the servers: what a close waits for.
    Answered,
    /// On stable storage: what fsync waits for.
    Stable,
}

/// What the file was when a commit began to collect its bytes.
struct Mark {
    size: u64,
    /// Of what is written after it nothing is said, so that it stays unsaved.
    version: u64,
    conversions: u64,
    /// A write that was given up may have ended where the size above does.
    failures: u64,
}

struct Draft {
    message: CommitFile,
    version: u64,
    lapses: u64,
    sent: Vec<ChunkRef>,
}

impl Core {
    /// Saves everything of this file. As long as bytes of it get there this goes on, however slow the way is: what the operation has left
    /// afterwards may be nothing.
    pub async fn commit(self: &Arc<Self>, inode: &Arc<Inode>, reach: Reach, op: Op) -> Result<()> {
        if reach == Reach::Answered && inode.state.lock().is_clean() {
            return Ok(());
        }
        if reach == Reach::Stable {
            self.until_known(inode, op).await?;
        }
        let (_order, op) = self.in_order(inode, op).await?;
        let op = self.commit_ordered(inode, reach, op).await?;
        match reach {
            Reach::Answered => Ok(()),
            // Its name, and whatever else was changed before.
            Reach::Stable => self.settle_changes(op).await,
        }
    }

    /// The inode's order: until it is dropped nobody else commits, truncates or punches it, or puts a chunk of it elsewhere. And how long
    /// the operation may wait from then on: who had it before may have saved much over a slow way, and is waited for as long as that goes on.
    pub async fn in_order<'a>(&self, inode: &'a Inode, mut op: Op) -> Result<(MutexGuard<'a, ()>, Op)> {
        let mut order = std::pin::pin!(inode.order.lock());
        let mut seen = inode.state.lock().answered;
        loop {
            match self.env.timeout(op.deadline.left(&self.env), order.as_mut()).await {
                Ok(order) => return Ok((order, self.more_time(inode, &mut seen, op).unwrap_or(op))),
                Err(_) => match self.more_time(inode, &mut seen, op) {
                    Some(more) => op = more,
                    None => return Err(timed_out(file_name(inode), "another commit or truncate of it")),
                },
            }
        }
    }

    /// Another time for who waits for bytes of this file, if servers have taken some since the last one began.
    pub fn more_time(&self, inode: &Inode, seen: &mut u64, op: Op) -> Option<Op> {
        let answered = inode.state.lock().answered;
        (std::mem::replace(seen, answered) != answered).then(|| self.op(op.trace))
    }

    /// As [`Core::commit`], by the holder of the inode's order. How long the operation may wait then.
    pub async fn commit_ordered(self: &Arc<Self>, inode: &Arc<Inode>, reach: Reach, mut op: Op) -> Result<Op> {
        let (mut attempts, mut seen) = (None, inode.state.lock().answered);
        loop {
            if !inode.state.lock().is_clean() {
                self.fresh(inode, op).await?;
            }
            let mark = {
                let state = inode.state.lock();
                let (conversions, failures) = (state.conversions, state.failures);
                Mark { size: state.size, version: state.version, conversions, failures }
            };
            self.send_all(inode, op).await?;
            // That may have taken long: what follows has its own time.
            op = self.more_time(inode, &mut seen, op).unwrap_or(op);
            // Bytes in a row are durable, and this commit drops them: where they are now they must be as safe.
            let leaves_row = {
                let state = inode.state.lock();
                state.inline_row && matches!(state.body, Body::Chunked(_))
            };
            if reach == Reach::Stable || leaves_row {
                self.sync_inode(inode, op).await?;
                op = self.more_time(inode, &mut seen, op).unwrap_or(op);
            }
            self.move_inline(inode, op).await?;
            let draft = {
                let mut state = inode.state.lock();
                if !state.unsaved {
                    return Ok(op);
                }
                if state.conversions != mark.conversions || state.failures != mark.failures || state.stale {
                    continue;
                }
                let draft = self.draft(inode, &state, &mark);
                // Whether it arrives or not is not known before the answer.
                state.inline_row |= draft.message.content.is_in_row();
                draft
            };
            // Whoever asks meanwhile may see it done; what is known here is of before.
            let asking = self.cache.change(inode.id, vec![Key::Attr(inode.id)]);
            let when = if reach == Reach::Stable { When::Marked } else { When::Early };
            let saved = self.call_while(draft.message.clone(), when, op, still(inode, draft.lapses)).await;
            match saved {
                Ok(answer) => {
                    if self.committed(inode, draft, answer, asking, op).await? {
                        return Ok(op);
                    }
                }
                Err(error) => {
                    let attempts = attempts.get_or_insert_with(|| Attempts::until(op.deadline));
                    self.commit_failed(inode, attempts, error, op).await?;
                }
            }
        }
    }

    fn draft(&self, inode: &Inode, state: &FileState, mark: &Mark) -> Draft {
        let (content, sent) = match &state.body {
            Body::Inline(bytes) => (CommitContent::Inline(bytes.clone().into()), Vec::new()),
            Body::Chunked(table) => {
                let mut fresh = table.fresh();
                fresh.iter_mut().for_each(|chunk| chunk.stable = self.is_proven(chunk.chunk));
                match fresh.is_empty() {
                    true => (CommitContent::Unchanged, fresh),
                    false => (CommitContent::Chunks(fresh.clone()), fresh),
                }
            }
        };
        let atime = self.atimes.lock().get(&inode.id).map(|(atime, _)| *atime);
        let message = CommitFile {
            inode: self.cache.inode(inode.id),
            trunc_gen: state.attr.trunc_gen,
            size: if matches!(state.body, Body::Inline(_)) { state.size } else { mark.size.min(state.size) },
            mtime: state.mtime,
            atime,
            content,
            cuts_applied: state.cuts_applied,
            kill_privileges: false,
            unused: state.unused.clone(),
        };
        Draft { message, version: mark.version, lapses: state.lapses, sent }
    }

    /// Takes in the answer. False if more has to be committed.
    async fn committed(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        draft: Draft,
        answer: CommitAnswer,
        asking: Asking<'_>,
        op: Op,
    ) -> Result<bool> {
        self.servers.learn(&answer.instead.containers);
        // A change that was answered meanwhile, an unlink for example, may be newer than this answer.
        let overtaken = self.cache.changed_since(inode.id, asking.ticket);
        let now = self.cache.ticket();
        self.cache.saw(&answer.attr);
        if !overtaken {
            let learnt = [Learnt::Attr(&answer.attr, answer.grant.attr)];
            self.cache.learn(asking, now, self.now(), &learnt);
        }
        self.reported_atime(inode.id, draft.message.atime);
        let instead = &answer.instead.chunks;
        draft.sent.iter().filter(|chunk| chunk.stable).for_each(|chunk| self.marked(chunk.chunk));
        self.update(inode, |state| {
            for chunk in draft.sent.iter().filter(|sent| instead.iter().all(|other| other.index != sent.index)) {
                if let Some(slot) = state.body.slot_mut(chunk.index)
                    && slot.chunk == chunk.chunk
                {
                    (slot.fresh, slot.written, slot.stable) = (None, Default::default(), chunk.stable);
                }
            }
            if state.mtime == draft.message.mtime {
                state.mtime = None;
            }
            state.unused.retain(|chunk| !draft.message.unused.contains(chunk));
            match &draft.message.content {
                CommitContent::Inline(bytes) => state.inline_row = !bytes.is_empty(),
                CommitContent::Chunks(_) => state.inline_row = false,
                CommitContent::Unchanged => {}
            }
            if state.version == draft.version && instead.is_empty() {
                (state.unsaved, state.dirty_since, state.retry_at) = (false, None, None);
            }
            if state.unsaved {
                state.dirty_since = Some(self.now());
            }
            state.adopt_attr(&answer.attr, Some(&answer.cuts));
        });
        if let CommitContent::Inline(_) = draft.message.content {
            self.forget_chunks_of(inode);
        }
        if draft.sent.iter().any(|chunk| !chunk.stable) {
            // It may have become stable since.
            self.marks.notify_one();
        }
        if instead.is_empty() {
            return Ok(true);
        }
        self.write_instead(inode, &answer.instead, op).await?;
        Ok(false)
    }

    async fn commit_failed(&self, inode: &Inode, attempts: &mut Attempts, error: Error, op: Op) -> Result<()> {
        if inode.state.lock().is_clean() {
            // Lost with its lease: who has it open is told so.
            return Ok(());
        }
        let named = |error: Error| match error.cause() {
            cause if error.subject().is_empty() => {
                Error::new(error.code, format!("commit of {}", file_name(inode)), cause)
            }
            _ => error,
        };
        // Of rows with too few copies the map says that nothing is kept inline: the bytes move to chunks.
        if matches!(error.code, Code::StaleTruncGen | Code::FewRowCopies) {
            self.refresh_map(inode, op).await?;
        }
        match attempts.again(&self.env, named(error)).await {
            Ok(()) => Ok(()),
            Err(error) => {
                self.update(inode, |state| {
                    state.retry_at = Some(self.now() + self.config.attempt);
                    if error.retry() != Retry::No {
                        return state.fail(error.clone());
                    }
                    // The file is gone, or the session is: nothing here can be saved any more.
                    state.unsaved = false;
                    state.dirty_since = None;
                    let bytes = std::mem::take(&mut state.dirty).bytes();
                    self.counters.bytes_lost.fetch_add(bytes, Relaxed);
                    match error.code {
                        // Nobody will open it again.
                        Code::NotFound | Code::Stale => state.fail(error.clone()),
                        _ => state.lose(error.clone()),
                    }
                });
                Err(error)
            }
        }
    }

    /// After a truncate to almost nothing: the bytes that are left go inline.
    async fn move_inline(self: &Arc<Self>, inode: &Arc<Inode>, op: Op) -> Result<()> {
        let (size, version) = {
            let state = inode.state.lock();
            if !state.rewrite_inline || matches!(state.body, Body::Inline(_)) {
                return Ok(());
            }
            (state.size, state.version)
        };
        if size > u64::from(inode.state.lock().policy.inline_bytes) {
            inode.state.lock().rewrite_inline = false;
            return Ok(());
        }
        let pieces = match self.read_bytes(inode, ByteRange::new(0, size), None, op).await {
            Err(error) if error.code == Code::ChunkLost => {
                // It stays in chunks, and the file can be saved and truncated further.
                inode.state.lock().rewrite_inline = false;
                return Ok(());
            }
            pieces => pieces?,
        };
        self.update(inode, |state| {
            if state.version == version && state.dirty.is_empty() && state.inflight.is_empty() {
                let left = std::mem::replace(&mut state.body, Body::Inline(pieces.concat()));
                if let Body::Chunked(table) = left {
                    state.unused.extend(table.fresh().iter().map(|chunk| chunk.chunk));
                }
                state.rewrite_inline = false;
                state.unsaved = true;
                state.blocks.clear();
            }
        });
        Ok(())
    }

    /// The file is inline now, its chunks are freed: nothing of them is repeated.
    fn forget_chunks_of(&self, inode: &Inode) {
        for lane in self.servers.lanes() {
            lane.retained(|retain| retain.forget_file(inode.id));
        }
    }

    /// Another client put chunks where this one did: what was written here goes into those.
    async fn write_instead(self: &Arc<Self>, inode: &Arc<Inode>, instead: &ChunkPage, op: Op) -> Result<()> {
        for chunk in &instead.chunks {
            self.rescue(inode, chunk.index, chunk, op).await?;
        }
        Ok(())
    }

    /// Brings what was written to the fresh chunk at `index` back into the buffer, and puts `other` in its place.
    async fn rescue(self: &Arc<Self>, inode: &Arc<Inode>, index: ChunkIndex, other: &ChunkRef, op: Op) -> Result<()> {
        let (slot, chunk_bytes, lapses) = {
            let state = inode.state.lock();
            let Some(slot) = state.body.slot(index).cloned() else { return Ok(()) };
            (slot, state.policy.chunk_bytes, state.lapses)
        };
        let base = index.0 * chunk_bytes;
        let mut saved = Vec::new();
        for range in slot.written.iter() {
            for (unit, part) in range.split_by(crate::buffer::RUN_BYTES as u64) {
                let at = unit * crate::buffer::RUN_BYTES as u64 + part.start;
                saved.push((
                    base + at,
                    self.fetch_chunk(inode, index, ByteRange::at(at, part.len()), Order::Any, op).await?,
                ));
            }
        }
        self.update(inode, |state| {
            let Body::Chunked(table) = &mut state.body else { return };
            if state.lapses != lapses {
                return;
            }
            table.slots.insert(index, crate::body::ChunkSlot::committed(other));
            let inflight = std::mem::take(&mut state.inflight);
            // Of what is on its way nobody knows which chunk it reaches: it is written again as well.
            for write in inflight.values() {
                let under = state.dirty.gaps(write.range);
                for gap in under {
                    let from = (gap.start - write.range.start) as usize;
                    let bytes = write.data.slice(from..from + gap.len() as usize);
                    state.dirty.insert_under(gap.start, bytes, ());
                }
            }
            state.inflight = inflight;
            saved.into_iter().for_each(|(offset, bytes)| state.dirty.insert_under(offset, bytes, ()));
            state.unsaved = true;
            state.version += 1;
            state.blocks.clear();
        });
        self.servers.forget_chunk(slot.chunk);
        Ok(())
    }
}
