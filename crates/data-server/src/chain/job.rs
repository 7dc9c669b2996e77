//! Work on one copy: its content in the order of commands, its syncs and records in theirs.
//!
//! A copy's queue is worked off by one task, its syncs by another, so that writes go on while a sync runs. What is done
//! for the store runs on I/O threads.

use super::content::{self, Incoming};
use super::room::Room;
use super::same::Same;
use super::window::GIVEN_UP;
use super::{Arrival, Chains, Failure, State, blocks};
use crate::budget::Held;
use crate::error;
use crate::gate::Pass;
use braid_api::data::PeerSays;
use braid_api::{Code, Error};
use braid_chain::{BlockSet, Body, Envelope, Event, Message};
use braid_data_store::{ChunkHead, ChunkStore, Cuts, StoreError, WriteInfo};
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, ChunkIndex, ContainerId, InodeId, ServerId, TruncGen, Version};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::oneshot;

/// Of a copy whose owner has not said yet how large the chunk may become.
const CHUNK_BYTES_UNKNOWN: u64 = 1 << 40;

/// What a client's call changes, under one version.
pub(crate) struct Change {
    /// The head before the bytes; a shorter length cuts.
    pub head: Option<ChunkHead>,
    pub bytes: Option<ChangeBytes>,
    /// What the head is when all of it has been applied.
    pub head_after: ChunkHead,
    pub chunk_bytes: u64,
    pub trunc_gen: TruncGen,
    pub file: (InodeId, ChunkIndex),
    /// Kept until it is applied.
    pub _keep: (Pass, Option<Held>),
}

pub(crate) enum ChangeBytes {
    Write {
        offset: u64,
        payload: Bytes,
    },
    Zero(ByteRange),
    /// As far as `length` it begins as another chunk, of which all up to `at` is here. Its first `whole` blocks are then the other's, with
    /// nothing cut off.
    Clone {
        from: ChunkId,
        at: Version,
        length: u64,
        whole: u64,
    },
}

pub(super) enum Job {
    Apply {
        op: u64,
        version: Version,
        blocks: BlockSet,
        change: Change,
    },
    Store {
        number: u64,
        blocks: BlockSet,
        content: Arc<Incoming>,
    },
    Send {
        to: ServerId,
        envelope: Envelope,
        /// Of what is on its way; none of what was fetched.
        number: Option<u64>,
        /// What need not be sent, as all that was ordered before leaves it.
        same: Option<Same>,
        /// Once there is some.
        room: Option<Room>,
    },
    /// Goes on in the other queue, behind all that is in this one.
    Sync {
        number: u64,
    },
    Seal {
        blocks: BlockSet,
    },
    /// The content goes, and the record with it.
    Remove {
        done: Option<oneshot::Sender<Result<(), Error>>>,
    },
}

impl Job {
    /// Blocks that are others when it has been done.
    pub fn changes(&self) -> Option<&BlockSet> {
        match self {
            Job::Apply { blocks, .. } | Job::Store { blocks, .. } => Some(blocks),
            _ => None,
        }
    }
}

pub(super) enum SyncJob {
    Sync {
        number: u64,
    },
    Persist {
        number: u64,
        record: Vec<u8>,
    },
    /// Everything before has been done.
    Reached(oneshot::Sender<()>),
}

/// What a job leads to.
#[derive(Default)]
struct Done {
    event: Option<Event>,
    send: Option<(ServerId, PeerSays, Bytes, Room)>,
    /// What is on its way under this number: these blocks.
    on_way: Option<(u64, BlockSet)>,
    /// Blocks of which older content may be on its way.
    changed: BlockSet,
    /// The call's own error; the change counts as carried out, because what is here is what the others get.
    refused: Option<(u64, Error)>,
    sync: Option<u64>,
    /// Blocks that verify now, and blocks that were found not to.
    whole: BlockSet,
    flawed: BlockSet,
    head_changed: bool,
    /// What the copy is made from is in it, or is not after all.
    cloned: Option<(u64, bool)>,
    /// What was to be taken from another chunk here could not be.
    wants_bytes: bool,
    /// A block of another chunk that was found not to verify.
    flawed_other: Option<(ChunkId, u64)>,
    /// Why this server can take no part any more.
    halt: Option<StoreError>,
}

impl Chains {
    pub(super) fn enqueue(self: &Arc<Self>, state: &mut State, container: ContainerId, chunk: ChunkId, job: Job) {
        let copy = state.copies.entry(chunk).or_default();
        copy.container = container;
        match &job {
            Job::Remove { .. } => copy.forget_parked(),
            job => job.changes().into_iter().for_each(|changed| copy.changes_parked(changed)),
        }
        copy.jobs.push_back(job);
        if !std::mem::replace(&mut copy.at_work, true) {
            let this = self.clone();
            self.env.spawn("work on a copy", async move { this.work(container, chunk).await });
        }
    }

    pub(super) fn enqueue_sync(self: &Arc<Self>, state: &mut State, chunk: ChunkId, job: SyncJob) {
        let copy = state.copies.entry(chunk).or_default();
        let container = copy.container;
        copy.syncs.push_back(job);
        if !std::mem::replace(&mut copy.syncing, true) {
            let this = self.clone();
            self.env.spawn("sync of a copy", async move { this.sync(container, chunk).await });
        }
    }

    /// What is on its way there already is not sent again.
    pub(super) fn enqueue_content(self: &Arc<Self>, state: &mut State, to: ServerId, mut envelope: Envelope) {
        let (container, chunk) = (envelope.container, envelope.chunk);
        let (mut number, mut same) = (None, None);
        if let Body::Blocks { blocks, .. } = &mut envelope.body {
            // However many were asked for: a message has an end.
            let mut wanted = blocks.first(self.limits.pull_blocks);
            let whom = (to, envelope.epoch, envelope.term);
            let given_up_after = self.links.read().as_ref().map_or(GIVEN_UP, |links| links.given_up_after(to));
            let copy = state.copies.entry(chunk).or_default();
            // What costs no bytes goes with it, all at once: no later change of it is in this either.
            let free = copy.same.as_ref().map(|same| same.blocks_for(to)).unwrap_or_default();
            if !wanted.intersection(&free).is_empty() {
                wanted.union(&free);
                same = copy.same.clone();
            }
            let Some((sent, rest)) = copy.on_way.send(whom, wanted, self.now(), given_up_after) else { return };
            (*blocks, number) = (rest, Some(sent));
        }
        self.enqueue(state, container, chunk, Job::Send { to, envelope, number, same, room: None });
    }

    fn arrival(self: &Arc<Self>, chunk: ChunkId, number: u64) -> Arrival {
        let this = Arc::downgrade(self);
        Arrival::new(move || {
            let Some(this) = this.upgrade() else { return };
            if let Some(copy) = this.state.lock().copies.get_mut(&chunk) {
                copy.on_way.ends(number, this.now());
            }
        })
    }

    async fn work(self: Arc<Self>, container: ContainerId, chunk: ChunkId) {
        loop {
            let (mut job, exists, torn, same) = {
                let mut state = self.state.lock();
                let Some(copy) = state.copies.get_mut(&chunk) else { return };
                let Some(mut job) = copy.jobs.pop_front() else {
                    copy.at_work = false;
                    return;
                };
                if copy.is_parked(&mut job) {
                    continue;
                }
                (job, copy.exists, copy.torn.clone(), copy.same.clone())
            };
            match &mut job {
                Job::Remove { .. } => self.let_syncs_end(chunk).await,
                Job::Send { to, envelope, room: room @ None, .. } => {
                    match self.room_soon(*to, self.content_bytes(&envelope.body)).await {
                        Ok(granted) => *room = Some(granted),
                        Err(waiting) => {
                            self.park(container, chunk, job, waiting);
                            continue;
                        }
                    }
                }
                _ => {}
            }
            let this = self.clone();
            let run = move || this.execute(container, chunk, exists, &torn, same.as_ref(), job);
            let (exists, done) = self.env.blocking(run).await;
            self.finish(container, chunk, exists, done);
        }
    }

    /// Of a message, at most.
    fn content_bytes(&self, body: &Body) -> usize {
        let blocks = match body {
            Body::Blocks { blocks, .. } | Body::Fetched { blocks } => blocks.len(),
            _ => 0,
        };
        (blocks.min(self.limits.pull_blocks) * BLOCK_BYTES) as usize
    }

    async fn let_syncs_end(self: &Arc<Self>, chunk: ChunkId) {
        let (send, reached) = oneshot::channel();
        self.enqueue_sync(&mut self.state.lock(), chunk, SyncJob::Reached(send));
        let _ = reached.await;
    }

    fn finish(self: &Arc<Self>, container: ContainerId, chunk: ChunkId, exists: bool, done: Done) {
        {
            let mut state = self.state.lock();
            let flaws = state.machine.flaws(container, chunk);
            let Some(copy) = state.copies.get_mut(&chunk) else { return };
            copy.exists = exists;
            copy.torn.subtract(&done.whole);
            copy.on_way.changed(&done.changed);
            if let Some((number, blocks)) = &done.on_way {
                copy.on_way.holds(*number, blocks);
            }
            if matches!(done.event, Some(Event::Stored { .. })) {
                self.mended.fetch_add(flaws.intersection(&done.whole).len(), Relaxed);
            }
            if done.head_changed {
                copy.forget_head();
            }
            copy.wants_bytes |= done.wants_bytes;
            if let Some((op, is_made)) = done.cloned
                && copy.same.as_ref().is_some_and(|same| same.is_of(op))
            {
                match is_made {
                    true => copy.same.iter_mut().for_each(Same::applied),
                    false => copy.same = None,
                }
            }
            if let Some((op, error)) = done.refused
                && let Some(op) = state.ops.get_mut(&op)
            {
                // A block that was not known to be bad is mended before the write is tried again.
                let is_new = !done.flawed.is_empty() && !done.flawed.without(&flaws).is_empty();
                op.refused = Some(match is_new {
                    true => Error::new(Code::NotServing, format_args!("data server {}", self.id), error.cause()),
                    false => error,
                });
            }
            if let Some(number) = done.sync {
                self.enqueue_sync(&mut state, chunk, SyncJob::Sync { number });
            }
            if let Some(error) = done.halt {
                self.halt(&mut state, container, chunk, &error);
            }
        }
        if let Some((to, message, payload, room)) = done.send {
            let arrival = done.on_way.map_or_else(Arrival::default, |(number, _)| self.arrival(chunk, number));
            self.to_peer(to, message, payload, room, arrival);
        }
        if let Some((other, block)) = done.flawed_other {
            self.flawed(other, [block]);
        }
        if !done.flawed.is_empty() {
            self.on(Event::Flawed { container, chunk, blocks: done.flawed }, None);
        }
        if let Some(event) = done.event {
            self.on(event, None);
        }
    }

    /// On an I/O thread. Whether the copy exists afterwards, and what is to be done.
    fn execute(
        &self,
        container: ContainerId,
        chunk: ChunkId,
        mut exists: bool,
        torn: &BlockSet,
        same_now: Option<&Same>,
        job: Job,
    ) -> (bool, Done) {
        let mut done = Done::default();
        let store = self.store.as_ref();
        match job {
            Job::Apply { op, version, blocks, change } => {
                done.changed = blocks;
                done.event = Some(Event::Applied { container, chunk, version });
                let applied = self.make(container, chunk, &mut exists, change.chunk_bytes);
                match applied.and_then(|()| apply(store, chunk, version, &change)) {
                    Ok(()) => {
                        if change.head.is_some() {
                            // Handed out since it was ordered, and not cut then.
                            self.end_local(chunk);
                        }
                        match &change.bytes {
                            Some(ChangeBytes::Write { offset, payload }) => {
                                done.whole = blocks::of_bytes(ByteRange::at(*offset, payload.len() as u64));
                            }
                            Some(ChangeBytes::Clone { length, .. }) => {
                                done.whole = blocks::of_bytes(ByteRange::new(0, *length));
                                done.cloned = Some((op, true));
                            }
                            Some(ChangeBytes::Zero(_)) | None => {}
                        }
                    }
                    Err(error) => {
                        if let (StoreError::BadBlock { block, .. }, Some(ChangeBytes::Write { .. })) =
                            (&error, &change.bytes)
                        {
                            // Found before anything was written. Were it told as a change, the others would give up what
                            // they have of the block for what is not here.
                            done.flawed = blocks::of_data(*block..block + 1);
                            let kept = if change.head.is_some() { blocks::head() } else { BlockSet::new() };
                            done.event = Some(Event::Unchanged { container, chunk, version, kept });
                        }
                        done.refused = Some((op, error::of_store(self.id, chunk, &error)));
                        // The head may not be what was ordered.
                        done.head_changed = true;
                        let mut ends = ends_all(&error);
                        if let Some(ChangeBytes::Clone { from, .. }) = &change.bytes {
                            done.cloned = Some((op, false));
                            // The other chunk may have been deleted meanwhile: that says nothing of this one.
                            ends &= !matches!(&error, StoreError::NoSuchChunk(chunk) if chunk == from);
                            if let StoreError::BadBlock { chunk, block, .. } = &error {
                                done.flawed_other = Some((*chunk, *block));
                            }
                        }
                        done.halt = ends.then_some(error);
                    }
                }
            }
            Job::Store { number, blocks, content } => {
                let made = self.make(container, chunk, &mut exists, content.head().chunk_bytes);
                match made.and_then(|()| content.store(store, chunk, &blocks)) {
                    Ok(()) => {
                        done.head_changed = true;
                        done.event = Some(Event::Stored { container, chunk, number });
                        done.changed = blocks.clone();
                        done.whole = blocks;
                    }
                    // It does not wait here: what is behind it may be what makes room.
                    Err(error) if error.is_no_space() => {
                        tracing::error!("data server {}: a copy waits for room: {error}", self.id);
                        done.head_changed = true;
                        done.event = Some(Event::Unstored { container, chunk, number });
                    }
                    Err(error) if content.is_of_other(&error) => {
                        tracing::warn!("data server {}, chunk {chunk}: bytes are asked for: {error}", self.id);
                        done.wants_bytes = true;
                        done.head_changed = true;
                        done.event = Some(Event::Unstored { container, chunk, number });
                    }
                    Err(error) => done.halt = Some(error),
                }
            }
            Job::Send { to, mut envelope, number, same, room } => {
                let is_fetch = matches!(envelope.body, Body::Fetched { .. });
                let (Body::Blocks { blocks, .. } | Body::Fetched { blocks }) = &mut envelope.body else {
                    return (exists, done);
                };
                let mut free = same_now.zip(same.as_ref()).map(|(now, then)| now.still(then)).unwrap_or_default();
                free = free.intersection(blocks);
                let bytes = blocks.without(&free).first(self.limits.pull_blocks);
                *blocks = free.clone();
                blocks.union(&bytes);
                // What does not verify anywhere is taken as it is: whoever asks has been told so.
                let taken_as_is = if is_fetch { torn.intersection(blocks) } else { BlockSet::new() };
                let read =
                    self.seal_now(chunk, &taken_as_is).and_then(|()| content::read(store, chunk, exists, &bytes));
                match read {
                    Ok(mut outgoing) => {
                        outgoing.content.same = same.filter(|_| !free.is_empty()).map(|same| same.say(&free));
                        blocks.subtract(&outgoing.unreadable);
                        if !outgoing.unreadable.is_empty() {
                            let count = outgoing.unreadable.len();
                            tracing::error!("data server {}, chunk {chunk}: {count} blocks are bad here", self.id);
                            done.flawed = outgoing.unreadable;
                        }
                        done.on_way = number.map(|number| (number, blocks.clone()));
                        if !blocks.is_empty() {
                            let (message, content) = (envelope.encode(), Some(outgoing.content));
                            let message = PeerSays { from: self.id, message, content, wants_bytes: false };
                            done.send = Some((to, message, outgoing.payload, room.unwrap_or_default()));
                        }
                    }
                    // It is asked for again.
                    Err(error) => {
                        tracing::error!("data server {}: content for {to}: {error}", self.id);
                        done.on_way = number.map(|number| (number, BlockSet::new()));
                    }
                }
            }
            Job::Sync { number } => match self.make(container, chunk, &mut exists, 0) {
                Ok(()) => done.sync = Some(number),
                Err(error) if error.is_no_space() => {
                    tracing::error!("data server {}: a copy waits for room: {error}", self.id);
                    done.event = Some(Event::Unsynced { container, chunk, number });
                }
                Err(error) => done.halt = Some(error),
            },
            Job::Seal { blocks } => match self.seal_now(chunk, &blocks) {
                Ok(()) => done.whole = blocks,
                Err(error) => done.halt = Some(error),
            },
            Job::Remove { done: reply } => {
                let removed = store.delete(&[chunk]);
                exists = false;
                done.head_changed = true;
                if let Some(reply) = reply {
                    let removed = removed.as_ref().map(drop).map_err(|error| error::of_store(self.id, chunk, error));
                    let _ = reply.send(removed);
                } else if let Err(error) = removed {
                    // Others have blocks of it, and no room for them: it is found again, as one that is in no chain, with the next start.
                    tracing::error!("data server {}, chunk {chunk}: it is not removed: {error}", self.id);
                    done.halt = (!error.is_no_space()).then_some(error);
                }
            }
        }
        (exists, done)
    }

    /// The copy, made if it is not there; what was there under its id and is no copy goes.
    fn make(
        &self,
        container: ContainerId,
        chunk: ChunkId,
        exists: &mut bool,
        chunk_bytes: u64,
    ) -> Result<(), StoreError> {
        if *exists {
            return Ok(());
        }
        if !matches!(self.store.stat(chunk), Err(StoreError::NoSuchChunk(_))) {
            tracing::warn!("data server {}, chunk {chunk}: what a crash left of it is no copy and is removed", self.id);
            self.store.delete(&[chunk])?;
        }
        let chunk_bytes = if chunk_bytes > 0 { chunk_bytes } else { CHUNK_BYTES_UNKNOWN };
        self.store.create_copy(chunk, container, chunk_bytes)?;
        *exists = true;
        Ok(())
    }

    fn seal_now(&self, chunk: ChunkId, blocks: &BlockSet) -> Result<(), StoreError> {
        for run in blocks::data(blocks) {
            let sealed = self.store.seal(chunk, run)?;
            if sealed > 0 {
                tracing::warn!("data server {}, chunk {chunk}: {sealed} blocks are whole nowhere", self.id);
            }
        }
        Ok(())
    }

    async fn sync(self: Arc<Self>, container: ContainerId, chunk: ChunkId) {
        loop {
            let (job, mark) = {
                let mut state = self.state.lock();
                let Some(copy) = state.copies.get_mut(&chunk) else { return };
                match copy.syncs.pop_front() {
                    None => {
                        copy.syncing = false;
                        return;
                    }
                    Some(job @ SyncJob::Persist { number, .. }) => {
                        let mark = copy.marks.remove(&number);
                        // Older syncs have no record to come.
                        copy.marks.retain(|other, _| *other > number);
                        (job, mark)
                    }
                    Some(job) => (job, None),
                }
            };
            let store = self.store.clone();
            let number = match &job {
                SyncJob::Sync { number } | SyncJob::Persist { number, .. } => *number,
                SyncJob::Reached(_) => 0,
            };
            let event = match (job, mark) {
                (SyncJob::Sync { number }, _) => match self.env.blocking(move || store.sync_copy(chunk)).await {
                    Ok(mark) => {
                        if let Some(copy) = self.state.lock().copies.get_mut(&chunk) {
                            copy.marks.insert(number, mark);
                        }
                        Ok(Event::Synced { container, chunk, number })
                    }
                    Err(error) => Err(error),
                },
                (SyncJob::Persist { number, record }, Some(mark)) => {
                    let kept = self.env.blocking(move || store.put_record(chunk, &mark, &record)).await;
                    kept.map(|()| Event::Persisted { container, chunk, number })
                }
                (SyncJob::Persist { .. }, None) => continue,
                (SyncJob::Reached(reached), _) => {
                    let _ = reached.send(());
                    continue;
                }
            };
            match event {
                Ok(event) => self.on(event, None),
                // Removed meanwhile: nobody waits for this any more.
                Err(StoreError::NoSuchChunk(_)) => {}
                // Less is stable than could be, and nothing more is promised. A store that does not know any more what it has says
                // another error the next time.
                Err(error) if error.is_no_space() => {
                    tracing::error!("data server {}: a copy waits for room: {error}", self.id);
                    self.on(Event::Unsynced { container, chunk, number }, None);
                }
                Err(error) => self.halt(&mut self.state.lock(), container, chunk, &error),
            }
        }
    }

    /// A copy that cannot be written or synced must not go on promising: the server takes no part any more, its lease
    /// runs out, and others go on.
    fn halt(&self, state: &mut State, container: ContainerId, chunk: ChunkId, error: &StoreError) {
        if state.machine.is_deleted(container, chunk) {
            return;
        }
        tracing::error!("data server {} takes no part in chains until it is started again: {error}", self.id);
        let cause = error.to_string();
        for (_, op) in std::mem::take(&mut state.ops) {
            let here = format_args!("data server {}", self.id);
            let error = Error::new(Code::NotServing, here, &cause);
            let _ = op.answer.send(Err(Failure::Store(error)));
        }
        state.halted = Some(cause);
        if let Some(local) = self.local.get() {
            // If it fails the copies are believed for as long as they were.
            let _ = local.extend(None);
        }
    }
}

/// Does nobody know after this error what the store has?
fn ends_all(error: &StoreError) -> bool {
    let says_no = matches!(
        error,
        StoreError::BadBlock { .. } | StoreError::StaleTruncGen { .. } | StoreError::BeyondChunk { .. }
    );
    !says_no && !error.is_no_space()
}

fn apply(store: &dyn ChunkStore, chunk: ChunkId, version: Version, change: &Change) -> Result<(), StoreError> {
    if let Some(head) = &change.head {
        store.set_head(chunk, head)?;
    }
    let cuts = Cuts { trunc_gen: change.trunc_gen, list: &[] };
    let (inode, index) = change.file;
    let info = WriteInfo { version, cuts, inode, index, ..WriteInfo::default() };
    match &change.bytes {
        Some(ChangeBytes::Write { offset, payload }) => store.write(chunk, *offset, payload, &info).map(drop),
        Some(ChangeBytes::Zero(range)) => store.punch(chunk, *range, &info).map(drop),
        Some(ChangeBytes::Clone { from, length, .. }) => {
            store.clone_blocks(chunk, *from, 0..length.div_ceil(BLOCK_BYTES), &info)?;
            // Also if it was longer, from an attempt that was not carried through.
            store.set_head(chunk, &change.head_after)
        }
        None => Ok(()),
    }
}
