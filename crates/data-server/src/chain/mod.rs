//! Copies in chains: the loop around `braid_chain::DataServer` (docs/design/0006-replica-chains.md).
//!
//! What happens goes into the machine, and its commands are carried out: on the store in the order of each copy's queue,
//! everything else at once. Everything the machine knows is behind one lock, under which nothing waits.
//!
//! Promises: commands of one copy are carried out in their order; content that is sent is read before any later change;
//! what a call is answered with is what the machine says; after an error of the store that leaves unknown what it has,
//! nothing is answered any more.

mod blocks;
mod call;
mod content;
mod copy;
mod early;
mod job;
mod links;
mod on_way;
mod order;
mod parked;
mod room;
mod same;
mod start;
mod window;

pub(crate) use blocks::{head, of_bytes, with_head};
pub(crate) use call::{Call as CopyCall, Failure, members, words};
pub(crate) use job::{Change, ChangeBytes};
pub use links::{ChainLinks, SharedLinks, WireLinks};
pub use on_way::Arrival;
pub use room::{Room, Waiting};

use crate::late::Late;
use crate::local::Local;
use crate::once::Writes;
use crate::regions::Regions;
use braid_api::data::{CopyState, PeerSays};
use braid_api::{Code, Error};
use braid_chain::{
    Answer, Behind, BlockSet, Body, Command, Envelope, Event, FromLeader, Lacks, Limits, Message, Moment, ToLeader,
};
use braid_data_store::ChunkStore;
use braid_env::{Env, Monotonic};
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId};
use bytes::Bytes;
use content::Incoming;
use copy::Copy;
use early::{Early, Word};
use job::{Job, SyncJob};
use parking_lot::{Mutex, RwLock};
use same::Same;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;

pub(crate) struct Chains {
    env: Env,
    store: Arc<dyn ChunkStore>,
    id: ServerId,
    incarnation: u64,
    limits: Limits,
    state: Mutex<State>,
    links: RwLock<Option<Arc<dyn ChainLinks>>>,
    /// Bad blocks that were taken from another copy.
    mended: AtomicU64,
    /// Chunks that this server came to own because their writers are here.
    moves: AtomicU64,
    agreed: AtomicU64,
    copied_bytes: AtomicU64,
    /// What it knows of writes beside others stays with it, and so do their chunks.
    once: Arc<Writes>,
    /// What comes late, wherever the chunk is owned next.
    late: Late,
    /// While an operation has a region of it locked a chunk stays, and while it moves nobody locks any.
    regions: Arc<Regions>,
    /// What readers on this host have, where they get anything.
    pub local: OnceLock<Arc<Local>>,
}

struct State {
    machine: braid_chain::DataServer,
    behind: Behind,
    copies: BTreeMap<ChunkId, Copy>,
    /// Calls that are not answered.
    ops: BTreeMap<u64, Op>,
    next_op: u64,
    epochs: BTreeMap<ContainerId, ChainEpoch>,
    /// Chunks that were deleted before anything of them was heard here, the last so many: what others still say of them
    /// is late, and must not make a copy.
    gone: VecDeque<ChunkId>,
    early: Early,
    /// Chunks that are locked because they were asked for by another server.
    moving: BTreeMap<ChunkId, ContainerId>,
    /// Why this server takes no part any more.
    halted: Option<String>,
}

/// Late means within seconds: a content message has ten.
const GONE_MAX: usize = 1024;

struct Op {
    answer: oneshot::Sender<Result<Answer, Failure>>,
    /// Until it is ordered.
    change: Option<Change>,
    /// The store refused it.
    refused: Option<Error>,
}

/// What a server would do with calls for a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stands {
    /// Answer writes.
    pub acknowledges: bool,
    /// Answer reads of the bytes that were asked about, with all that it has been told of up to this version.
    pub serves: Option<braid_types::Version>,
}

/// When it is done.
pub(crate) type Removal = oneshot::Receiver<Result<(), Error>>;

/// To be sent when the lock is free.
type Sends = Vec<(ServerId, PeerSays)>;

impl Chains {
    fn now(&self) -> Moment {
        self.env.clock.now().0
    }

    /// Something happened; with it came `content`.
    fn on(self: &Arc<Self>, event: Event, content: Option<&Arc<Incoming>>) {
        let mut sends = Vec::new();
        self.handle(&mut self.state.lock(), event, content, &mut sends);
        self.send(sends);
    }

    fn handle(self: &Arc<Self>, state: &mut State, event: Event, content: Option<&Arc<Incoming>>, sends: &mut Sends) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            if state.halted.is_some() {
                return;
            }
            let commands = state.machine.on(self.now(), event);
            self.carry_out(state, commands, content, &mut events, sends);
        }
        self.end_moves(state);
    }

    /// Whoever waits for a chunk that does not move any more goes on, or is told that it is owned elsewhere.
    fn end_moves(&self, state: &mut State) {
        let State { machine, moving, .. } = state;
        let over = moving.extract_if(.., |chunk, container| !machine.is_moving(*container, *chunk));
        over.for_each(|(chunk, _)| self.regions.end_move(chunk));
    }

    fn carry_out(
        self: &Arc<Self>,
        state: &mut State,
        commands: Vec<Command>,
        content: Option<&Arc<Incoming>>,
        events: &mut VecDeque<Event>,
        sends: &mut Sends,
    ) {
        for command in commands {
            match command {
                Command::Apply { op, container, chunk, version, blocks } => {
                    let change = state.ops.get_mut(&op).and_then(|op| op.change.take());
                    if change.as_ref().is_some_and(|change| change.head.is_some()) {
                        // It is cut.
                        self.end_local(chunk);
                    }
                    match change {
                        Some(change) => {
                            let copy = state.copies.entry(chunk).or_default();
                            if let Some(same) = &mut copy.same {
                                same.changed(&blocks);
                            }
                            if let Some(ChangeBytes::Clone { from, at, whole, .. }) = &change.bytes {
                                copy.same = Some(Same::new(op, *from, *at, blocks::of_data(0..*whole)));
                            }
                            self.enqueue(state, container, chunk, Job::Apply { op, version, blocks, change })
                        }
                        // Nothing changes under this version.
                        None => events.push_back(Event::Applied { container, chunk, version }),
                    }
                }
                Command::Answer { op, result } => self.answered(state, op, result),
                Command::Send { to, mut envelope } => {
                    let mut late = None;
                    if let Body::Hand { told, moves } = envelope.body {
                        late = Some(self.late.words(envelope.container, envelope.chunk));
                        let queue = self.regions.queue(envelope.chunk);
                        if !queue.is_empty() {
                            envelope.body = Body::HandQueue { told, moves, queue };
                        }
                    }
                    let wants_bytes = matches!(envelope.body, Body::Pull { .. })
                        && state.copies.get(&envelope.chunk).is_some_and(|copy| copy.wants_bytes);
                    let message = [envelope.encode(), late.unwrap_or_default()].concat();
                    sends.push((to, PeerSays { from: self.id, message, content: None, wants_bytes }));
                }
                Command::SendContent { to, envelope } => {
                    self.enqueue_content(state, to, envelope);
                }
                Command::Store { number, container, chunk, blocks } => {
                    self.end_local(chunk);
                    if let Some(same) = state.copies.get_mut(&chunk).and_then(|copy| copy.same.as_mut()) {
                        same.changed(&blocks);
                    }
                    if let Some(content) = content.cloned() {
                        self.enqueue(state, container, chunk, Job::Store { number, blocks, content });
                    }
                }
                // No page is cached outside this process. A read that runs began before this, so that it may see what was before.
                Command::Invalidate { container, chunk, upto, .. } => {
                    self.end_local(chunk);
                    events.push_back(Event::Invalidated { container, chunk, upto });
                }
                Command::HandsOff { container, epoch } => {
                    self.end_container(state, container);
                    events.push_back(Event::HandsOff { container, epoch });
                }
                Command::Sync { number, container, chunk } => {
                    self.enqueue(state, container, chunk, Job::Sync { number });
                }
                Command::Persist { number, chunk, record, .. } => {
                    self.enqueue_sync(state, chunk, SyncJob::Persist { number, record });
                }
                Command::Discard { container, chunk } => {
                    self.end_local(chunk);
                    self.enqueue(state, container, chunk, Job::Remove { done: None });
                }
                Command::Agreed { chunk, upto } => {
                    tracing::debug!(%chunk, ?upto, "all copies have it on stable storage");
                    self.agreed.fetch_add(1, Relaxed);
                }
                Command::Remove { container, epoch, server } => {
                    self.to_leader(&ToLeader::Remove { container, epoch, server });
                }
                Command::ToLeader(message) => {
                    if let ToLeader::Installed { container, epoch } = &message
                        && state.epochs.insert(*container, *epoch) != Some(*epoch)
                    {
                        self.installed(state, *container);
                    }
                    self.to_leader(&message);
                }
            }
        }
    }

    /// A new epoch: who owns what is another, and what this server goes on from.
    fn installed(self: &Arc<Self>, state: &mut State, container: ContainerId) {
        state.early.forget(container);
        self.end_container(state, container);
        let mut seals = Vec::new();
        for (chunk, copy) in state.copies.iter_mut().filter(|(_, copy)| copy.container == container) {
            copy.forget_head();
            copy.forget_parked();
            (copy.same, copy.wants_bytes) = (None, false);
            if let Some(status) = state.machine.copy(container, *chunk)
                && !copy.torn.is_empty()
                && status.is_owner
            {
                // The leader decided that these blocks go on as they are here: no copy has them whole.
                seals.push((*chunk, copy.torn.without(&status.invalid)));
            }
        }
        for (chunk, blocks) in seals.into_iter().filter(|(_, blocks)| !blocks.is_empty()) {
            self.enqueue(state, container, chunk, Job::Seal { blocks });
        }
    }

    pub fn hands_out(&self, local: Arc<Local>) {
        let _ = self.local.set(local);
    }

    /// Up to when copies may be read here, if they may.
    pub fn serves_until(&self) -> Option<Monotonic> {
        let state = self.state.lock();
        state.halted.is_none().then(|| Monotonic(state.machine.lease().until()))
    }

    /// What was handed out of the chunk to readers on this host is not used any more when this returns.
    pub fn end_local(&self, chunk: ChunkId) {
        if let Some(local) = self.local.get() {
            local.end(chunk);
        }
    }

    fn end_container(&self, state: &State, container: ContainerId) {
        if let Some(local) = self.local.get() {
            let of_it = state.copies.iter().filter(|(_, copy)| copy.container == container);
            of_it.for_each(|(chunk, _)| local.end(*chunk));
        }
    }

    fn answered(&self, state: &mut State, op: u64, result: Result<Answer, braid_chain::Refusal>) {
        let Some(op) = state.ops.remove(&op) else { return };
        let result = match op.refused {
            Some(error) => Err(Failure::Store(error)),
            None => result.map_err(Failure::Refused),
        };
        let _ = op.answer.send(result);
    }

    fn send(&self, sends: Sends) {
        for (to, message) in sends {
            self.to_peer(to, message, Bytes::new(), Room::default(), Arrival::default());
        }
    }

    fn to_peer(&self, to: ServerId, message: PeerSays, payload: Bytes, room: Room, arrival: Arrival) {
        self.copied_bytes.fetch_add(payload.len() as u64, Relaxed);
        if let Some(links) = self.links.read().as_ref() {
            links.to_peer(to, message, payload, room, arrival);
        }
    }

    fn to_leader(&self, message: &ToLeader) {
        if let Some(links) = self.links.read().as_ref() {
            links.to_leader(self.incarnation, message.encode());
        }
    }

    /// From another data server, with content if it brings some.
    pub fn heard_of_peer(self: &Arc<Self>, message: &PeerSays, payload: Bytes) -> Result<(), String> {
        let (envelope, behind) = Envelope::decode_first(&message.message).map_err(|e| e.to_string())?;
        // Before it owns anything. If the word itself is late it is still so.
        if matches!(envelope.body, Body::Hand { .. } | Body::HandQueue { .. })
            && !self.late.hear(envelope.container, envelope.chunk, behind, self.env.clock.now())
        {
            return Err("what is behind it is damaged".to_owned());
        }
        let content = match &message.content {
            Some(content) => Some(Incoming::new(content, payload).ok_or("its content does not fit its payload")?),
            None if payload.is_empty() => None,
            None => return Err("its payload has no description".to_owned()),
        };
        let mut sends = Vec::new();
        {
            let mut state = self.state.lock();
            let (container, chunk) = (envelope.container, envelope.chunk);
            let known = state.machine.copy(container, chunk);
            if state.gone.contains(&chunk) && known.is_none() {
                return Ok(());
            }
            if message.wants_bytes
                && let Some(copy) = state.copies.get_mut(&chunk)
                && copy.same.as_mut().is_some_and(|same| same.send_bytes(message.from))
            {
                copy.on_way.is_lost(message.from);
            }
            let word = Word { from: message.from, envelope, content: content.map(Arc::new) };
            if let Some(word) = state.early.take_in(word, known.as_ref()) {
                self.hear(&mut state, word, &mut sends);
            }
            while let Some(told) = state.machine.copy(container, chunk).map(|copy| copy.told)
                && let Some(word) = state.early.next(container, chunk, told)
            {
                self.hear(&mut state, word, &mut sends);
            }
        }
        self.send(sends);
        Ok(())
    }

    fn hear(self: &Arc<Self>, state: &mut State, word: Word, sends: &mut Sends) {
        let Word { from, mut envelope, content } = word;
        let (container, chunk) = (envelope.container, envelope.chunk);
        if let Some(content) = &content
            && self.leaves_out(state, from, &mut envelope, content, sends)
        {
            return;
        }
        // Looked at under the lock under which changes are ordered: from the move's beginning on none is.
        if matches!(envelope.body, Body::Want) {
            if !self.once.may_move(chunk, self.env.clock.now()) || !self.regions.begin_move(chunk, envelope.epoch) {
                return;
            }
            // Until it is known not to move, or not any more: at once, if this is nothing that moves it.
            state.moving.insert(chunk, container);
        }
        let (epoch, queue) = match &envelope.body {
            Body::Hand { .. } => (envelope.epoch, Some(Vec::new())),
            Body::HandQueue { queue, .. } => (envelope.epoch, Some(queue.clone())),
            _ => (envelope.epoch, None),
        };
        let owns = |state: &State| state.machine.copy(container, chunk).is_some_and(|copy| copy.is_owner);
        let owned = queue.is_some() && owns(state);
        self.handle(state, Event::FromPeer { from, envelope }, content.as_ref(), sends);
        if let Some(queue) = queue.filter(|_| !owned && owns(state)) {
            self.moves.fetch_add(1, Relaxed);
            self.regions.take(&self.env, chunk, epoch, &queue);
        }
    }

    /// What is said to be the same as in a chunk that is not here as it should be is left out, and asked for in bytes; true if that is all.
    fn leaves_out(
        &self,
        state: &mut State,
        from: ServerId,
        envelope: &mut Envelope,
        content: &Incoming,
        sends: &mut Sends,
    ) -> bool {
        let (container, chunk, epoch, term) = (envelope.container, envelope.chunk, envelope.epoch, envelope.term);
        let (Body::Blocks { blocks, .. }, Some(same)) = (&mut envelope.body, content.same()) else { return false };
        if same.from != chunk && state.has_all(container, same.from, same.at, epoch) {
            return false;
        }
        let refused = blocks.intersection(&same.blocks);
        blocks.subtract(&refused);
        let rest_is_empty = blocks.is_empty();
        let lacks = state.machine.copy(container, chunk).map(|copy| copy.invalid).unwrap_or_default();
        let wanted = refused.intersection(&lacks).first(self.limits.pull_blocks);
        if let Some(copy) = state.copies.get_mut(&chunk) {
            copy.wants_bytes = true;
        }
        if !wanted.is_empty() {
            let pull = Envelope { container, chunk, epoch, term, body: Body::Pull { blocks: wanted } };
            sends.push((from, PeerSays { from: self.id, message: pull.encode(), content: None, wants_bytes: true }));
        }
        rest_is_empty
    }

    pub fn heard_of_leader(self: &Arc<Self>, incarnation: u64, message: &[u8]) -> Result<(), String> {
        let message = FromLeader::decode(message).map_err(|e| e.to_string())?;
        self.on(Event::FromLeader { incarnation, message }, None);
        Ok(())
    }

    /// May these blocks be read here, or all of them?
    pub fn may_serve(
        &self,
        container: ContainerId,
        chunk: ChunkId,
        blocks: Option<&BlockSet>,
        at_least: braid_types::Version,
    ) -> Result<(), Failure> {
        let state = self.state.lock();
        if let Some(cause) = &state.halted {
            return Err(Failure::Halted(cause.clone()));
        }
        state.machine.may_serve(self.now(), container, chunk, blocks, at_least).map_err(Failure::Refused)
    }

    /// What this server would do at this moment.
    pub fn stands(&self, container: ContainerId, chunk: ChunkId, blocks: &BlockSet) -> Stands {
        let state = self.state.lock();
        if state.halted.is_some() {
            return Stands::default();
        }
        let (machine, now) = (&state.machine, self.now());
        let serves = machine.may_serve(now, container, chunk, Some(blocks), Default::default()).is_ok();
        Stands {
            acknowledges: machine.may_acknowledge(now, container, chunk),
            serves: machine.copy(container, chunk).filter(|_| serves).map(|copy| copy.told),
        }
    }

    /// Blocks of the store that were read and do not verify: they are fetched from another copy, if there is one.
    pub fn flawed(self: &Arc<Self>, chunk: ChunkId, found: impl IntoIterator<Item = u64>) {
        let container = self.state.lock().machine.container_of(chunk);
        if let Some(container) = container {
            let mut flawed = BlockSet::new();
            found.into_iter().for_each(|block| flawed.union(&blocks::of_data(block..block.saturating_add(1))));
            self.on(Event::Flawed { container, chunk, blocks: flawed }, None);
        }
    }

    /// Of a chunk that has a copy here.
    pub fn container_of(&self, chunk: ChunkId) -> Option<ContainerId> {
        self.state.lock().machine.container_of(chunk)
    }

    /// Was it found or made here, and is nothing being done about that?
    pub fn should_be_here(&self, chunk: ChunkId) -> bool {
        self.state.lock().copies.get(&chunk).is_some_and(|copy| copy.exists && !copy.at_work)
    }

    /// What copies lack of what the chains were told of.
    pub fn lacks(&self) -> Lacks {
        self.state.lock().machine.lacks()
    }

    /// What was written that long ago is not at all copies of what is owned here.
    pub fn behind(&self) -> Duration {
        let mut state = self.state.lock();
        let State { machine, behind, .. } = &mut *state;
        behind.look(self.now(), machine);
        behind.longest(self.now())
    }

    /// Chunks that came to be owned here since this start because their writers are here.
    pub fn moves(&self) -> u64 {
        self.moves.load(Relaxed)
    }

    /// As [`Self::moves`], times that a chunk owned here came to be on stable storage at all of its servers.
    pub fn agreed(&self) -> u64 {
        self.agreed.load(Relaxed)
    }

    /// Bytes of content that were given to the links for other copies since this start.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Relaxed)
    }

    /// Bad blocks that were mended since this start.
    pub fn mended(&self) -> u64 {
        self.mended.load(Relaxed)
    }

    pub fn epoch(&self, container: ContainerId) -> Option<ChainEpoch> {
        self.state.lock().machine.epoch(container)
    }

    pub fn copy(&self, container: ContainerId, chunk: ChunkId) -> Option<CopyState> {
        self.copy_state(&self.state.lock(), container, chunk)
    }

    /// Copies after this chunk, by id.
    pub fn list(&self, after: ChunkId, limit: usize) -> Vec<CopyState> {
        let state = self.state.lock();
        let mut chunks: Vec<(ContainerId, ChunkId)> = state.machine.chunks().filter(|(_, id)| *id > after).collect();
        chunks.sort_by_key(|(_, chunk)| *chunk);
        chunks.truncate(limit);
        chunks.into_iter().filter_map(|(container, chunk)| self.copy_state(&state, container, chunk)).collect()
    }

    /// Copies of these chunks.
    pub fn list_of(&self, chunks: impl Iterator<Item = ChunkId>) -> Vec<CopyState> {
        let state = self.state.lock();
        let of = |chunk| self.copy_state(&state, state.machine.container_of(chunk)?, chunk);
        chunks.filter_map(of).collect()
    }

    /// The copy's files are gone: with the next epoch, if it begins soon, so is what is known of it here.
    pub fn lose(&self, container: ContainerId, chunk: ChunkId) -> bool {
        self.state.lock().machine.lose(self.now(), container, chunk)
    }

    /// Removes a copy; the answer comes when it is gone from the store. `None`: there is none. With an epoch, it is the
    /// leader's word that this server is in no chain up to that one: refused if a newer is known.
    pub fn remove(self: &Arc<Self>, chunk: ChunkId, outside: ChainEpoch) -> Option<Removal> {
        let mut sends = Vec::new();
        let removed = {
            let mut state = self.state.lock();
            let known = state.machine.container_of(chunk);
            let Some(container) = known.or_else(|| state.copies.get(&chunk).map(|copy| copy.container)) else {
                if state.gone.len() == GONE_MAX {
                    state.gone.pop_front();
                }
                state.gone.push_back(chunk);
                return None;
            };
            let promised = state.machine.promised(container);
            if outside.0 != 0 && promised > outside {
                let cause = format_args!("container {container} is at epoch {promised}, the word is of {outside}");
                let subject = format_args!("data server {}, chunk {chunk}", self.id);
                let (done, removed) = oneshot::channel();
                let _ = done.send(Err(Error::new(Code::StaleEpoch, subject, cause)));
                return Some(removed);
            }
            let commands = state.machine.forget(self.now(), container, chunk);
            let mut events = VecDeque::new();
            self.carry_out(&mut state, commands, None, &mut events, &mut sends);
            for event in events {
                self.handle(&mut state, event, None, &mut sends);
            }
            let (done, removed) = oneshot::channel();
            self.end_local(chunk);
            self.enqueue(&mut state, container, chunk, Job::Remove { done: Some(done) });
            removed
        };
        self.send(sends);
        Some(removed)
    }

    fn copy_state(&self, state: &State, container: ContainerId, chunk: ChunkId) -> Option<CopyState> {
        let status = state.machine.copy(container, chunk)?;
        let links = self.links.read();
        let takes = |to| links.as_ref().is_some_and(|links| links.takes(to));
        Some(CopyState {
            chunk,
            container,
            epoch: status.epoch.unwrap_or_default(),
            owner: status.owner,
            is_owner: status.is_owner,
            is_open: status.is_open,
            told: status.told,
            complete: status.complete,
            stable: status.stable,
            invalid_blocks: status.invalid.len(),
            sent: state.copies.get(&chunk).map_or(0, |copy| copy.on_way.ended()),
            is_sent: state.copies.get(&chunk).is_some_and(|copy| copy.on_way.whom(self.now()).any(takes)),
        })
    }
}
