//! The servers of a chunk with several copies, as one: whoever sends to it sees a server that never restarts.
//!
//! Every write is answered when `min_copies` servers have it and no copy serves anything older, so that any copy may be read, also
//! by other clients, and the loss of a server loses nothing. What is answered is counted as stable when an fsync in the same epoch of
//! the chain has covered it; until then it is retained like any other write, and fsync asks for it. A take-over may leave behind what
//! was in memories only, where one server lost its power and the others did not answer: what was not stable by then is repeated.
//!
//! (With leases of files a client that holds one alone may write to the owner only, and repeat; see `braid-chain`.)

mod come_on;

use crate::servers::Lane;
use braid_api::data::*;
use braid_api::erased::Node;
use braid_api::meta::ContainerInfo;
use braid_api::{Code, Context, Error, Manner, Result};
use braid_env::{BoxFuture, Env, Monotonic};
use braid_types::{ChunkId, Durability, RequestId, ServerId, Version};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The one incarnation of servers that lose nothing together.
const INCARNATION: u64 = 1;

/// A copy that has not answered a reader for this long is given up for another: it may stand still, and whether it does is
/// known only when its lease is over. A disk that is only busy answers sooner, or the others are no faster.
const READ_PATIENCE: Duration = Duration::from_secs(1);

/// Between two words about one chunk that its writer is here. An owner that keeps it for a while looks at each (0014, *Hysteresis*).
const WANT_PAUSE: Duration = Duration::from_secs(1);

/// Every data server that is known.
pub type Servers = Arc<Mutex<HashMap<ServerId, Arc<Lane>>>>;

pub struct Copies {
    env: Env,
    servers: Servers,
    /// On this machine, to be read first.
    beside: Option<ServerId>,
    /// What is written here is to be owned by a server on this machine, if one has a copy.
    local_write: bool,
    state: Mutex<State>,
}

#[cfg_attr(test, derive(Clone))]
struct State {
    info: ContainerInfo,
    /// Who took a call for the chunk last: after a take-over each chunk of a container may have another owner.
    owners: BTreeMap<ChunkId, ServerId>,
    /// When the server here was last told that a chunk's writer is here.
    wanted: BTreeMap<ChunkId, Monotonic>,
    /// Writes are numbered as they are answered.
    last: u64,
    /// Those that no fsync has covered yet: of which chunk, and the version they made; none once it was said that it may be lost.
    open: BTreeMap<u64, (ChunkId, Option<Version>)>,
    /// How the copies stood that were looked at last, and how much had been sent of each when one of them had got more.
    looked: BTreeMap<(ServerId, ChunkId), (CopyState, u64)>,
    /// What the members said when none of them could do what was asked: told also by an attempt that had no time left.
    said: String,
}

impl State {
    fn new(info: ContainerInfo) -> State {
        State {
            info,
            owners: BTreeMap::new(),
            wanted: BTreeMap::new(),
            last: 0,
            open: BTreeMap::new(),
            looked: BTreeMap::new(),
            said: String::new(),
        }
    }

    /// Up to here all is stable.
    fn stable(&self) -> u64 {
        self.open.first_key_value().map_or(self.last, |(first, _)| first - 1)
    }

    fn answered(&mut self, answer: &CopiesAnswer) -> WriteAnswer {
        self.last += 1;
        self.open.insert(self.last, (answer.chunk, Some(answer.version)));
        let (incarnation, sequence, stable) = (INCARNATION, self.last, self.stable());
        WriteAnswer { version: answer.version, incarnation, sequence, stable }
    }

    /// The servers say that these versions are stable. That says nothing of a write of another epoch: the take-over may have left it
    /// behind, and the opening of an epoch is above every version before it. Such a chunk is to be written again, as if they did not
    /// know it.
    fn synced(&mut self, chunks: &[ChunkId], upto: u64, stable: &BTreeMap<ChunkId, Version>) -> Result<SyncAnswer> {
        let covers = |known: &Version, made: Version| known.chain_epoch == made.chain_epoch && *known >= made;
        let is_lost = |(number, (chunk, made)): (&u64, &(ChunkId, Option<Version>))| {
            let made = made.filter(|_| *number <= upto && chunks.contains(chunk));
            made.is_some_and(|made| !stable.get(chunk).is_some_and(|known| covers(known, made)))
        };
        if let Some(chunk) = self.open.iter().find(|write| is_lost(*write)).map(|(_, (chunk, _))| *chunk) {
            // Not looked for again: what is written instead has a version of its own. Of several chunks each is asked for again by
            // itself (`sync_lane`), and must hear it then.
            if chunks.len() == 1 {
                let of_chunk = self.open.range_mut(..=upto).filter(|(_, (of, _))| *of == chunk);
                of_chunk.for_each(|(_, (_, made))| *made = None);
            }
            let cause = "its chain is another since it was answered, and may have left it behind";
            return Err(Error::new(Code::ChunkUnknown, format_args!("chunk {chunk}"), cause));
        }
        self.open.retain(|number, (chunk, _)| *number > upto || !chunks.contains(chunk));
        Ok(SyncAnswer { incarnation: INCARNATION, stable: self.stable(), deletions: 0 })
    }
}

/// What a server that cannot help says, so that another may.
fn is_for_another(error: &Error) -> bool {
    matches!(
        error.code,
        Code::NotOwner
            | Code::StaleEpoch
            | Code::NotServing
            | Code::Busy
            | Code::Unreachable
            | Code::Disconnected
            | Code::DeadlineExceeded
    )
}

impl Copies {
    pub fn new(
        env: Env,
        servers: Servers,
        beside: Option<ServerId>,
        local_write: bool,
        info: &ContainerInfo,
    ) -> Copies {
        Copies { env, servers, beside, local_write, state: Mutex::new(State::new(info.clone())) }
    }

    /// The chain is another.
    pub fn learn(&self, info: &ContainerInfo) {
        let mut state = self.state.lock();
        if info.epoch > state.info.epoch {
            state.info = info.clone();
            state.owners.clear();
        }
    }

    /// Who is waited for by whoever waits for all of them.
    pub fn servers_name(&self) -> String {
        let chain = self.state.lock().info.chain.clone();
        let ids: Vec<String> = chain.iter().map(ServerId::to_string).collect();
        match ids.as_slice() {
            [id] => format!("data server {id}"),
            _ => format!("data servers {}", ids.join(", ")),
        }
    }

    /// The members in the order in which they are asked: `first`, then as the chain has them.
    fn members(&self, first: Option<ServerId>) -> VecDeque<(ServerId, Arc<dyn Node>)> {
        let mut chain = self.state.lock().info.chain.clone();
        if let Some(at) = first.and_then(|first| chain.iter().position(|server| *server == first)) {
            chain[..=at].rotate_right(1);
        }
        let servers = self.servers.lock();
        chain.into_iter().filter_map(|id| Some((id, servers.get(&id)?.node()))).collect()
    }

    /// Asks one member after the other until one answers, or says what all of them would say.
    async fn ask<T, F: Future<Output = Result<T>>>(
        &self,
        cx: Context,
        first: Option<ServerId>,
        goes_on: fn(&Error) -> bool,
        patience: Duration,
        doubt: bool,
        ask: impl Fn(Arc<dyn Node>, Context) -> F,
    ) -> Result<(ServerId, T)> {
        let begun = self.env.clock.now();
        let mut members = self.members(first);
        let (nobody, mut said, mut unknown, mut unsure) = (members.is_empty(), Vec::new(), None, false);
        while let Some((id, node)) = members.pop_front() {
            let left = cx.deadline.saturating_sub(self.env.clock.now().since(begun));
            // One that does not answer leaves half of the time to the others.
            let left = if members.is_empty() { left } else { (left / 2).min(patience) };
            if left.is_zero() {
                break;
            }
            // One that cannot be reached is not waited for: who goes on is known elsewhere, or soon will be.
            let asked = ask(node, Context { deadline: left, manner: Manner::Once, ..cx });
            let answer = self.env.timeout(left + Duration::from_millis(50), asked).await;
            match answer.unwrap_or_else(|_| Err(Error::new(Code::DeadlineExceeded, id, "no answer"))) {
                Ok(answer) => return Ok((id, answer)),
                Err(error) if error.code == Code::ChunkUnknown && goes_on(&error) => unknown = Some(error),
                Err(error) if goes_on(&error) => {
                    // It knows who is to be asked instead.
                    let owner = error.owner().and_then(|owner| members.iter().position(|(id, _)| *id == owner));
                    if let Some(next) = owner.and_then(|at| members.remove(at)) {
                        members.push_front(next);
                    }
                    unsure |= matches!(error.code, Code::DeadlineExceeded | Code::Disconnected);
                    said.push(match error.subject().is_empty() {
                        true => format!("data server {id}: {error}"),
                        false => error.to_string(),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        let info = {
            let mut state = self.state.lock();
            if !said.is_empty() {
                state.said = said.join("; ");
            }
            state.info.clone()
        };
        let subject = format_args!("copies of container {}", info.id);
        match unknown {
            // Who did not answer may know it.
            Some(error) if said.is_empty() => Err(error),
            _ if nobody => Err(Error::new(Code::Unreachable, subject, "none of its servers is known")),
            // One of them may have done it.
            _ if unsure && doubt => Err(Error::new(Code::Disconnected, subject, &self.state.lock().said)),
            _ => Err(Error::new(Code::StaleEpoch, subject, &self.state.lock().said)),
        }
    }

    /// A call that only the owner of these chunks takes.
    async fn at_owner<M>(&self, cx: Context, chunks: &[ChunkId], message: M, payload: Bytes) -> Result<M::Answer>
    where
        M: braid_api::Carries<DataRequest, DataAnswer> + Clone + Send,
    {
        self.at_owner_once(cx, chunks, message, payload, false).await
    }

    /// `doubt`: who may have done it without saying so is told from those that did not.
    async fn at_owner_once<M>(
        &self,
        cx: Context,
        chunks: &[ChunkId],
        message: M,
        payload: Bytes,
        doubt: bool,
    ) -> Result<M::Answer>
    where
        M: braid_api::Carries<DataRequest, DataAnswer> + Clone + Send,
    {
        let owner = chunks.first().and_then(|chunk| self.state.lock().owners.get(chunk).copied());
        let call = |node: Arc<dyn Node>, cx| {
            let (message, payload) = (message.clone(), payload.clone());
            async move { node.execute(cx, message.wrap(), payload).await }
        };
        let (id, (answer, _)) = self.ask(cx, owner, is_for_another, Duration::MAX, doubt, call).await?;
        self.state.lock().owners.extend(chunks.iter().map(|chunk| (*chunk, id)));
        M::unwrap(answer).ok_or(Error::bare(Code::BadMessage))
    }

    /// From any copy that may be read (`ordered`: and orders the writes); one whose blocks are bad is passed over.
    async fn at_a_copy<M>(&self, cx: Context, chunk: ChunkId, message: M, ordered: bool) -> Result<(M::Answer, Bytes)>
    where
        M: braid_api::Carries<DataRequest, DataAnswer> + Clone + Send,
    {
        let owner = self.state.lock().owners.get(&chunk).copied();
        let goes_on = |error: &Error| {
            is_for_another(error) || matches!(error.code, Code::ChunkUnknown | Code::BadBlock | Code::DiskError)
        };
        let call = |node: Arc<dyn Node>, cx| {
            let message = message.clone();
            async move { node.execute(cx, message.wrap(), Bytes::new()).await }
        };
        // Who orders its writes is then the only one to answer.
        let first = if ordered { owner } else { self.beside.or(owner) };
        // It may wait for writes to be over, and must not lose its place.
        let patience = if ordered { Duration::MAX } else { READ_PATIENCE };
        let (id, (answer, payload)) = self.ask(cx, first, goes_on, patience, false, call).await?;
        if ordered {
            self.state.lock().owners.insert(chunk, id);
        }
        Ok((M::unwrap(answer).ok_or(Error::bare(Code::BadMessage))?, payload))
    }

    /// Who took a call for the chunk last.
    fn owner(&self, chunk: ChunkId) -> Option<Arc<dyn Node>> {
        let owner = self.state.lock().owners.get(&chunk).copied()?;
        Some(self.servers.lock().get(&owner)?.node())
    }

    /// A member on this machine, if there is one: the chunk's owner, which has all of it, before any other.
    fn on_this_host(&self, chunk: ChunkId) -> Option<(ServerId, Arc<dyn Node>)> {
        let (chain, owner) = {
            let state = self.state.lock();
            (state.info.chain.clone(), state.owners.get(&chunk).copied())
        };
        let servers = self.servers.lock();
        let host = servers.get(&self.beside?)?.host();
        let owner = owner.filter(|owner| chain.contains(owner));
        let mut all = owner.into_iter().chain(chain).filter_map(|id| servers.get(&id));
        all.find(|lane| lane.is_beside(&host)).map(|lane| (lane.id, lane.node()))
    }

    /// Nobody waits for the chunk to be stable.
    pub fn forget(&self, chunk: ChunkId) {
        self.state.lock().open.retain(|_, (of, _)| *of != chunk);
    }

    /// The chunk is written from here. If its owner is elsewhere, the copy on this host had better own it; that it does is found out by
    /// a later write, and whatever becomes of the message harms nothing.
    pub fn want(&self, cx: Context, chunk: ChunkId) {
        if !self.local_write {
            return;
        }
        // What costs least is asked first: this is done with each write.
        let now = self.env.clock.now();
        let needs_none = |state: &State, here: Option<ServerId>| {
            let is_told = state.wanted.get(&chunk).is_some_and(|at| now.since(*at) < WANT_PAUSE);
            is_told || (here.is_some() && state.owners.get(&chunk).copied() == here)
        };
        if needs_none(&self.state.lock(), self.beside) {
            return;
        }
        let Some((here, node)) = self.on_this_host(chunk) else { return };
        let container = {
            let mut state = self.state.lock();
            if needs_none(&state, Some(here)) {
                return;
            }
            state.wanted.insert(chunk, now);
            state.info.id
        };
        let cx = Context { deadline: WANT_PAUSE, manner: Manner::Once, ..cx };
        self.env.spawn("a word that a writer is here", async move {
            let want = DataRequest::WantChunk(WantChunk { chunk, container });
            if let Err(error) = node.execute(cx, want, Bytes::new()).await {
                tracing::debug!("chunk {chunk}: data server {here} was told that its writer is here: {error}");
            }
        });
    }

    async fn write(&self, cx: Context, write: WriteChunk, payload: Bytes) -> Result<WriteAnswer> {
        let (chunk, is_once, is_alone) = (write.chunk, write.once.is_some(), write.alone);
        let message = WriteCopies { write, durability: Durability::Fsync };
        let answer = self.at_owner_once(cx, &[chunk], message, payload, is_once).await?;
        if is_alone {
            self.want(cx, chunk);
        }
        let mut state = self.state.lock();
        if is_once {
            // It is where it belongs: there is nothing to be synced or repeated.
            let (incarnation, sequence, stable) = (INCARNATION, state.last, state.stable());
            return Ok(WriteAnswer { version: answer.version, incarnation, sequence, stable });
        }
        Ok(state.answered(&answer))
    }

    async fn sync(&self, cx: Context, chunks: Vec<ChunkId>) -> Result<SyncAnswer> {
        if chunks.is_empty() {
            // How the owner is, for a chunk that it does not know. Of a server and not of a container, among whose changes it has its place.
            let cx = Context { request: RequestId(0), behind: 0, ..cx };
            return self.at_owner(cx, &[], SyncChunks::of(chunks), Bytes::new()).await;
        }
        let begun = self.env.clock.now();
        let (upto, by_owner) = {
            let state = self.state.lock();
            let mut by_owner: BTreeMap<Option<ServerId>, Vec<ChunkId>> = BTreeMap::new();
            for chunk in &chunks {
                by_owner.entry(state.owners.get(chunk).copied()).or_default().push(*chunk);
            }
            (state.last, by_owner.into_values())
        };
        let left =
            |cx: Context| Context { deadline: cx.deadline.saturating_sub(self.env.clock.now().since(begun)), ..cx };
        let mut stable = BTreeMap::new();
        for chunks in by_owner {
            match self.wait(left(cx), chunks.clone()).await {
                // What one server owned a moment ago may have several owners now.
                Err(error) if error.code == Code::StaleEpoch && chunks.len() > 1 => {
                    for chunk in chunks {
                        stable.extend(self.wait(left(cx), vec![chunk]).await?);
                    }
                }
                waited => stable.extend(waited?),
            }
        }
        self.state.lock().synced(&chunks, upto, &stable)
    }

    /// Of chunks with one owner, if all is as it was. Gives the versions that are stable.
    async fn wait(&self, cx: Context, chunks: Vec<ChunkId>) -> Result<Vec<(ChunkId, Version)>> {
        let container = self.state.lock().info.id;
        let (wait, held, durability) = (WaitFor::Settle, Held::Exclusive, Durability::Fsync);
        let message = WaitCopies { container, chunks: chunks.clone(), wait, held, durability };
        let answers = self.at_owner(cx, &chunks, message, Bytes::new()).await?;
        Ok(answers.iter().map(|answer| (answer.chunk, answer.version)).collect())
    }

    /// On every member that answers; and the chunk is made, because a row is going to name it.
    async fn reserve(&self, cx: Context, m: ReserveChunk) -> Result<()> {
        let ReserveChunk { chunk, container, chunk_bytes, bytes, make } = m;
        let write = WriteChunk {
            chunk,
            container,
            offset: 0,
            chunk_bytes,
            inode: Default::default(),
            index: Default::default(),
            cuts: Vec::new(),
            sync: true,
            make,
            kept_beside: false,
            alone: false,
            once: None,
        };
        self.write(cx, write, Bytes::new()).await?;
        for (_, node) in self.members(None) {
            let message = ReserveCopy { chunk, container, chunk_bytes, bytes, make: Make::Yes };
            match node.execute(cx, DataRequest::ReserveCopy(message), Bytes::new()).await {
                Err(error) if !is_for_another(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// At every member that answers.
    async fn reserve_room(&self, cx: Context, m: ReserveRoom) -> Result<Vec<ChunkId>> {
        let mut granted: Vec<ChunkId> = m.chunks.iter().map(|(chunk, _)| *chunk).collect();
        for (_, node) in self.members(None) {
            match node.execute(cx, DataRequest::ReserveRoom(m.clone()), Bytes::new()).await {
                Ok((DataAnswer::ReserveRoom(here), _)) => granted.retain(|chunk| here.contains(chunk)),
                Err(error) if error.code == Code::DiskFull => return Err(error),
                _ => {}
            }
        }
        Ok(granted)
    }

    async fn unreserve(&self, cx: Context, chunks: Vec<ChunkId>) {
        for (_, node) in self.members(None) {
            let message = UnreserveChunks { chunks: chunks.clone() };
            // What a server that does not answer holds goes with the session.
            let _ = node.execute(cx, DataRequest::UnreserveChunks(message), Bytes::new()).await;
        }
    }

    async fn answer(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        let at_least = Version::default();
        let answer = match request {
            DataRequest::WriteChunk(m) => DataAnswer::WriteChunk(self.write(cx, m, payload).await?),
            DataRequest::ReadChunk(m) => {
                let ReadChunk { chunk, container, offset, len, cuts, kept_beside, ordered, hold } = m;
                // The copy beside is asked first, if there is one.
                let kept_beside = kept_beside && self.beside.is_some();
                let message = ReadCopy { chunk, container, offset, len, cuts, at_least, kept_beside, ordered, hold };
                let (answer, bytes) = self.at_a_copy(cx, chunk, message, ordered).await?;
                return Ok((DataAnswer::ReadChunk(answer), bytes));
            }
            DataRequest::StatChunk(m) => {
                let StatChunk { chunk, container, extents_in, cuts } = m;
                let message = StatCopy { chunk, container, extents_in, cuts, at_least };
                DataAnswer::StatChunk(self.at_a_copy(cx, chunk, message, false).await?.0)
            }
            DataRequest::SyncChunks(m) => {
                if !m.release.is_empty() {
                    self.unreserve(cx, m.release).await;
                }
                DataAnswer::SyncChunks(self.sync(cx, m.chunks).await?)
            }
            DataRequest::CutChunk(m) => {
                let CutChunk { chunk, container, cuts } = m;
                let message = CutCopies { chunk, container, cuts };
                DataAnswer::CutChunk(self.at_owner(cx, &[chunk], message, Bytes::new()).await?)
            }
            DataRequest::PunchChunk(m) => {
                let PunchChunk { chunk, container, range, cuts } = m;
                let (held, durability) = (Held::Sync, Durability::Fsync);
                let message = PunchCopies { chunk, container, range, cuts, held, durability };
                let answer = self.at_owner(cx, &[chunk], message, Bytes::new()).await?;
                DataAnswer::PunchChunk(self.state.lock().answered(&answer))
            }
            DataRequest::ReserveChunk(m) => DataAnswer::ReserveChunk(self.reserve(cx, m).await?),
            DataRequest::CloneChunk(clone) => {
                let chunk = clone.chunk;
                let message = CloneCopies { clone, durability: Durability::Fsync };
                let answer = self.at_owner(cx, &[chunk], message, Bytes::new()).await?;
                // It is where it belongs: there is nothing to be synced or repeated.
                let state = self.state.lock();
                let (incarnation, sequence, stable) = (INCARNATION, state.last, state.stable());
                DataAnswer::CloneChunk(WriteAnswer { version: answer.version, incarnation, sequence, stable })
            }
            DataRequest::OpenLocal(m) => {
                let (code, subject) = (Code::NotSupported, format!("chunk {}", m.chunk));
                let node = self.on_this_host(m.chunk);
                let (_, node) = node.ok_or_else(|| Error::new(code, subject, "no copy is on this host"))?;
                return node.execute(cx, DataRequest::OpenLocal(m), Bytes::new()).await;
            }
            DataRequest::UnlockRegion(m) => {
                // Whoever answered: an owner of later has carried out and locked nothing of before.
                if let Some(node) = self.owner(m.chunk) {
                    node.execute(cx, DataRequest::UnlockRegion(m), Bytes::new()).await?;
                }
                DataAnswer::UnlockRegion(())
            }
            DataRequest::CheckRegion(m) => {
                let subject = format!("chunk {}", m.chunk);
                let unknown =
                    || Error::new(Code::StaleEpoch, subject, "its chain is another, or its owner is not known");
                let node = self.owner(m.chunk).ok_or_else(unknown)?;
                return node.execute(cx, DataRequest::CheckRegion(m), Bytes::new()).await;
            }
            DataRequest::UnreserveChunks(m) => {
                self.unreserve(cx, m.chunks).await;
                DataAnswer::UnreserveChunks(())
            }
            DataRequest::ReserveRoom(m) => DataAnswer::ReserveRoom(self.reserve_room(cx, m).await?),
            other => return Err(Error::new(Code::NotSupported, other.name(), "of several copies at once")),
        };
        Ok((answer, Bytes::new()))
    }
}

/// As a lane holds it.
pub struct CopiesNode(pub Arc<Copies>);

impl Node for CopiesNode {
    fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> BoxFuture<'_, Result<(DataAnswer, Bytes)>> {
        Box::pin(self.0.answer(cx, request, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::{ChainEpoch, ContainerId};

    #[test]
    fn a_write_counts_as_stable_when_an_fsync_has_covered_it_and_all_before() {
        let mut state = of_two();
        let of = |chunk| CopiesAnswer { chunk: ChunkId(chunk), ..CopiesAnswer::default() };
        let answers = [5, 6, 5].map(|chunk| state.answered(&of(chunk)));
        assert_eq!(answers.map(|answer| (answer.sequence, answer.stable)), [(1, 0), (2, 0), (3, 0)]);
        let synced = |state: &mut State, chunks: &[u64], upto| {
            let chunks: Vec<ChunkId> = chunks.iter().map(|chunk| ChunkId(*chunk)).collect();
            let stable = chunks.iter().map(|chunk| (*chunk, Version::default())).collect();
            state.synced(&chunks, upto, &stable).unwrap().stable
        };
        assert_eq!(synced(&mut state, &[5], 2), 1, "the second is another's, the third came later");
        assert_eq!(synced(&mut state, &[6], 3), 2);
        assert_eq!(state.answered(&of(6)).stable, 2);
        assert_eq!(synced(&mut state, &[5, 6], 4), 4);
    }

    #[test]
    fn what_all_servers_have_lost_together_is_not_stable_because_they_say_so() {
        let mut state = of_two();
        let chunk = ChunkId(5);
        let at = |epoch, counter| Version { chain_epoch: ChainEpoch(epoch), counter, ..Version::default() };
        let write = |version| CopiesAnswer { chunk, version, ..CopiesAnswer::default() };
        let says = |version| BTreeMap::from([(chunk, version)]);
        state.answered(&write(at(1, 1)));
        state.answered(&write(at(1, 2)));
        // The opening of the next epoch is above all versions of this one, and may be without them.
        for lost in [says(at(1, 1)), says(at(2, 0)), says(Version::default()), BTreeMap::new()] {
            let mut state = state.clone();
            assert_eq!(state.synced(&[chunk], 2, &lost).unwrap_err().code, Code::ChunkUnknown);
            // It is repeated, in a new epoch.
            assert_eq!(state.answered(&write(at(2, 1))).stable, 0);
            assert_eq!(state.synced(&[chunk], 3, &says(at(2, 1))).unwrap().stable, 3);
        }
        assert_eq!(state.synced(&[chunk], 2, &says(at(1, 2))).unwrap().stable, 2);
    }

    #[test]
    fn what_may_be_lost_of_two_chunks_is_told_of_each_that_is_synced_by_itself() {
        let mut state = of_two();
        let at = |epoch, counter| Version { chain_epoch: ChainEpoch(epoch), counter, ..Version::default() };
        let chunks = [ChunkId(5), ChunkId(6)];
        for chunk in chunks {
            state.answered(&CopiesAnswer { chunk, version: at(1, 1), ..CopiesAnswer::default() });
        }
        let now = chunks.map(|chunk| (chunk, at(2, 0))).into();
        assert!(state.synced(&chunks, 2, &now).is_err());
        for chunk in chunks {
            assert!(state.synced(&[chunk], 2, &now).is_err(), "{chunk}");
        }
    }

    fn of_two() -> State {
        let chain = vec![ServerId(1), ServerId(2)];
        State::new(ContainerInfo { id: ContainerId(1), epoch: ChainEpoch(1), chain })
    }
}
