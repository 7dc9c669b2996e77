//! Region locks of the chunks this server orders: who waits is woken here, and the reasoning is [`braid_chain::region`].
//!
//! Promises: a request waits until its deadline at most, and leaves the queue then, or when it is dropped. A lock of an operation that has
//! a name stays until the operation is over ([`Regions::unlock`], or a later request of its session says that none below a number is
//! waited for), until its session ends, or until its chunk's epoch does; any other goes with its guard. Nothing here is kept on a disk: a
//! start knows of no lock, and says so (`CheckRegion`).

use braid_chain::Moment;
use braid_chain::region::{Ask, Asked, Holder, LockMode, Place, Regions as Locks};
use braid_env::{Env, Monotonic};
use braid_types::{ByteRange, ChainEpoch, ChunkId, SessionId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A client that is told to look for the next owner asks it after one pause of 5 ms; when it is not told, within a second
/// (`while_its_chain_stays`).
const PLACE_KEPT: Duration = Duration::from_secs(1);

/// What a request asks for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub chunk: ChunkId,
    /// In which the request is made: what was locked in one before is over.
    pub epoch: ChainEpoch,
    pub range: ByteRange,
    pub mode: LockMode,
    /// Whose it is, beyond this request.
    pub name: Option<Holder>,
    /// See [`Ask::again`].
    pub again: bool,
    pub until: Monotonic,
}

/// Why there is no lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotLocked {
    /// Its time is over, and these are in the way; none if that was true a moment ago.
    Late(Vec<Holder>),
    /// The operation, its session or its epoch is over.
    Over,
}

/// What is shown of all chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub held: u64,
    pub waiting: u64,
    /// Since this start: requests that had to wait, for how long in all, and those that waited in vain.
    pub waits: u64,
    pub waited_us: u64,
    pub late: u64,
}

#[derive(Default)]
pub(crate) struct Regions(Mutex<State>);

#[derive(Default)]
struct State {
    chunks: BTreeMap<ChunkId, Chunk>,
    /// Where the operations of each session have locks, or wait.
    named: BTreeMap<SessionId, BTreeMap<u64, ChunkId>>,
    last: u64,
    counts: Counts,
}

#[derive(Default)]
struct Chunk {
    epoch: ChainEpoch,
    locks: Locks,
    requests: BTreeMap<Holder, Requests>,
    /// The chunk may go to another owner: what it is locked with then.
    moving: Option<Holder>,
}

/// For one lock: its sender may have given one up and sent it again.
#[derive(Default)]
struct Requests {
    id: u64,
    under_way: u32,
    kept: bool,
    wake: Vec<oneshot::Sender<()>>,
}

/// The lock, or the place in the queue, of one request, until dropped.
pub(crate) struct Locked {
    regions: Arc<Regions>,
    chunk: ChunkId,
    holder: Holder,
    id: u64,
}

impl Locked {
    /// It stays, until the operation is over.
    pub fn keep(self) {
        if let Some(requests) = self.regions.0.lock().requests(self.chunk, self.holder, self.id) {
            requests.kept = true;
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut state = self.regions.0.lock();
        let Some(requests) = state.requests(self.chunk, self.holder, self.id) else { return };
        requests.under_way -= 1;
        if requests.under_way == 0 && !requests.kept {
            state.release(self.chunk, self.holder);
        }
    }
}

impl Regions {
    /// Waits for the lock.
    pub async fn lock(self: &Arc<Self>, env: &Env, wanted: &Wanted) -> Result<Locked, NotLocked> {
        let (locked, wake) = self.begin(wanted);
        let Some(wake) = wake else { return Ok(locked) };
        let since = env.clock.now();
        let woken = env.timeout(wanted.until.since(since), wake).await;
        let mut state = self.0.lock();
        state.counts.waited_us += env.clock.now().since(since).as_micros() as u64;
        match woken {
            Ok(Ok(())) => Ok(locked),
            Ok(Err(_)) if env.clock.now() < wanted.until => Err(NotLocked::Over),
            Ok(Err(_)) => Err(NotLocked::Late(Vec::new())),
            Err(_) => {
                state.counts.late += 1;
                let chunk = state.chunks.get(&wanted.chunk);
                let ahead = chunk.map(|chunk| chunk.locks.in_the_way_of(locked.holder)).unwrap_or_default();
                drop(state);
                Err(NotLocked::Late(ahead))
            }
        }
    }

    fn begin(self: &Arc<Self>, wanted: &Wanted) -> (Locked, Option<oneshot::Receiver<()>>) {
        let Wanted { chunk, epoch, range, mode, name, again, until } = *wanted;
        let mut state = self.0.lock();
        state.last += 1;
        let last = state.last;
        let holder = name.unwrap_or(Holder { session: SessionId(0), number: last });
        state.begins(chunk, epoch);
        if name.is_some() {
            state.named.entry(holder.session).or_default().insert(holder.number, chunk);
        }
        let of_chunk = state.chunks.entry(chunk).or_default();
        of_chunk.epoch = of_chunk.epoch.max(epoch);
        let ask = Ask { holder, mode, range, until: moment(until), again };
        let (asked, granted) = of_chunk.locks.request(ask);
        let requests = of_chunk.requests.entry(holder).or_insert_with(|| Requests { id: last, ..Requests::default() });
        requests.under_way += 1;
        let id = requests.id;
        let wake = (asked == Asked::Waiting).then(|| {
            let (wake, woken) = oneshot::channel();
            requests.wake.push(wake);
            woken
        });
        // Of those whose locks are taken over nothing is left to wait for: who asks is told that they are not held.
        let Chunk { locks, requests, .. } = of_chunk;
        requests.retain(|holder, _| locks.holds(*holder) || locks.waits(*holder));
        of_chunk.wake(&granted);
        state.counts.waits += u64::from(wake.is_some());
        (Locked { regions: self.clone(), chunk, holder, id }, wake)
    }

    /// The operation is over.
    pub fn unlock(&self, chunk: ChunkId, holder: Holder) {
        self.0.lock().release(chunk, holder);
    }

    /// Locks all of the chunk, if nobody has or wants any of it: its ownership may move. True also if it is so already.
    pub fn begin_move(&self, chunk: ChunkId, epoch: ChainEpoch) -> bool {
        let mut state = self.0.lock();
        state.begins(chunk, epoch);
        state.last += 1;
        let holder = Holder { session: SessionId(0), number: state.last };
        let of_chunk = state.chunks.entry(chunk).or_default();
        of_chunk.epoch = of_chunk.epoch.max(epoch);
        if of_chunk.moving.is_some() {
            return true;
        }
        let range = ByteRange::new(0, u64::MAX);
        let ask = Ask { holder, mode: LockMode::Exclusive, range, until: Moment::MAX, again: false };
        // There is something of the chunk if it is refused, so that no empty entry stays.
        let may = of_chunk.locks.try_now(ask);
        of_chunk.moving = may.then_some(holder);
        may
    }

    /// It does not move any more.
    pub fn end_move(&self, chunk: ChunkId) {
        let mut state = self.0.lock();
        let moving = state.chunks.get_mut(&chunk).and_then(|of_chunk| of_chunk.moving.take());
        if let Some(holder) = moving {
            state.release(chunk, holder);
        }
    }

    /// Who waits, for the next owner.
    pub fn queue(&self, chunk: ChunkId) -> Vec<Place> {
        self.0.lock().chunks.get(&chunk).map(|of_chunk| of_chunk.locks.queue()).unwrap_or_default()
    }

    /// At the next owner: who waited at the one before keeps its place for as long as its client may take to come here.
    pub fn take(self: &Arc<Self>, env: &Env, chunk: ChunkId, epoch: ChainEpoch, queue: &[Place]) {
        if queue.is_empty() {
            return;
        }
        let mut state = self.0.lock();
        state.begins(chunk, epoch);
        for Place { holder, .. } in queue {
            state.named.entry(holder.session).or_default().insert(holder.number, chunk);
        }
        let of_chunk = state.chunks.entry(chunk).or_default();
        of_chunk.epoch = of_chunk.epoch.max(epoch);
        of_chunk.locks.take(queue, moment(env.clock.now() + PLACE_KEPT));
        drop(state);
        let (regions, of_env) = (Arc::downgrade(self), env.clone());
        env.spawn("places of who waited at another owner", async move {
            of_env.sleep(PLACE_KEPT).await;
            if let Some(regions) = regions.upgrade() {
                regions.expire(chunk, of_env.clock.now());
            }
        });
    }

    fn expire(&self, chunk: ChunkId, now: Monotonic) {
        let mut state = self.0.lock();
        let Some(of_chunk) = state.chunks.get_mut(&chunk) else { return };
        let (late, granted) = of_chunk.locks.expire(moment(now));
        late.iter().for_each(|holder| drop(of_chunk.requests.remove(holder)));
        of_chunk.wake(&granted);
        let is_empty = of_chunk.locks.is_empty();
        late.into_iter().for_each(|holder| state.unname(holder));
        if is_empty {
            state.chunks.remove(&chunk);
        }
    }

    pub fn holds(&self, chunk: ChunkId, holder: Holder) -> bool {
        self.0.lock().chunks.get(&chunk).is_some_and(|chunk| chunk.locks.holds(holder))
    }

    /// All operations of the session below this number are over.
    pub fn done(&self, session: SessionId, below: u64) {
        let mut state = self.0.lock();
        while let Some((number, chunk)) = state.first_of(session).filter(|(number, _)| *number < below) {
            state.release(chunk, Holder { session, number });
        }
    }

    /// The session has ended.
    pub fn end(&self, session: SessionId) {
        self.done(session, u64::MAX);
    }

    /// All others have ended.
    pub fn end_unless(&self, may_live: impl Fn(SessionId) -> bool) {
        let known: Vec<SessionId> = self.0.lock().named.keys().copied().collect();
        known.into_iter().filter(|session| !may_live(*session)).for_each(|session| self.end(session));
    }

    pub fn counts(&self) -> Counts {
        let state = self.0.lock();
        let all = state.chunks.values();
        let sum = all.fold((0, 0), |(held, waiting), chunk| {
            (held + chunk.locks.holders().count() as u64, waiting + chunk.locks.waiting() as u64)
        });
        Counts { held: sum.0, waiting: sum.1, ..state.counts }
    }
}

/// Of the clock by which deadlines are counted here.
fn moment(at: Monotonic) -> Moment {
    at.0
}

impl State {
    fn requests(&mut self, chunk: ChunkId, holder: Holder, id: u64) -> Option<&mut Requests> {
        let requests = self.chunks.get_mut(&chunk)?.requests.get_mut(&holder)?;
        (requests.id == id).then_some(requests)
    }

    fn first_of(&self, session: SessionId) -> Option<(u64, ChunkId)> {
        self.named.get(&session)?.first_key_value().map(|(number, chunk)| (*number, *chunk))
    }

    fn unname(&mut self, holder: Holder) {
        if let Some(numbers) = self.named.get_mut(&holder.session) {
            numbers.remove(&holder.number);
            if numbers.is_empty() {
                self.named.remove(&holder.session);
            }
        }
    }

    fn release(&mut self, chunk: ChunkId, holder: Holder) {
        self.unname(holder);
        let Some(of_chunk) = self.chunks.get_mut(&chunk) else { return };
        of_chunk.requests.remove(&holder);
        let (_, granted) = of_chunk.locks.release(holder);
        of_chunk.wake(&granted);
        if of_chunk.locks.is_empty() {
            self.chunks.remove(&chunk);
        }
    }

    /// In a newer epoch nothing of before holds, and who waited asks again, if at all.
    fn begins(&mut self, chunk: ChunkId, epoch: ChainEpoch) {
        // 0 is not used: such a request is of whatever epoch there is.
        let is_old = |known: &Chunk| known.epoch.0 != 0 && known.epoch < epoch;
        if self.chunks.get(&chunk).is_some_and(is_old) {
            let old = self.chunks.remove(&chunk).unwrap_or_default();
            old.requests.into_keys().for_each(|holder| self.unname(holder));
        }
    }
}

impl Chunk {
    fn wake(&mut self, granted: &[Holder]) {
        for holder in granted {
            let waiting = self.requests.get_mut(holder).map(|requests| std::mem::take(&mut requests.wake));
            for wake in waiting.into_iter().flatten() {
                // One whose request was dropped does not listen.
                let _ = wake.send(());
            }
        }
    }
}
