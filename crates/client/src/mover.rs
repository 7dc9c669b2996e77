//! Moves chunks with one copy off data servers that are drained, and from those that have too many to those that have few, for as long as there are any.
//!
//! It lives in the metadata server's process, and has a session only while there are any. It asks the metadata server each second what is to be moved, and says with that what cannot be: so a pause, another rate or a cancel is
//! heard within a second, and whoever looks at the drain is told why something stays. Keeps nothing but what it has under way: another one
//! goes on where this one ends.

use crate::client::Client;
use crate::config::ClientConfig;
use crate::core::Core;
use crate::moves::{Moved, Pace};
use crate::route::Ways;
use crate::wait::join_all;
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::data::{ChunkList, ChunkStatus, ListChunks};
use braid_api::meta::{ChunkRef, EndSession, ListPlaced, MOVER, MovesOn, ShiftChunks, Shifted, StuckChunk};
use braid_api::{Code, Context, DataPeers, Namespace, Result};
use braid_env::{Env, Monotonic};
use braid_types::{ChunkId, ContainerId, InodeId, ServerId, Token};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Between two words with the metadata server, and two looks at what is left.
const EVERY: Duration = Duration::from_secs(1);
/// Chunks under way: a small one is some ten messages, so that one at a time would leave both servers idle.
const AT_ONCE: usize = 4;
const PAGE: u32 = 1024;
/// Between two looks through the rows of all chunks, which is for what a server does not have.
const ROWS_EVERY: Duration = Duration::from_secs(5);
/// Before a chunk is tried again whose file is a silent mount's. It is copied anew each time.
const COME_BACK: Duration = Duration::from_secs(5);
/// Written all the while so often in a row: that is told, and tried again all the same.
const LATER_MAX: u32 = 10;

/// What it keeps is freed with its session: nobody waits for it long.
const STOP: Duration = Duration::from_secs(5);
/// For one question.
const ASK: Duration = Duration::from_secs(10);

/// Looks each second whether there is anything to be moved, and moves it. Until it is given up.
pub async fn keep_moving<N: Namespace + Clone, P: DataPeers>(
    env: Env,
    door: N,
    peers: impl Fn() -> P,
    config: ClientConfig,
) {
    keep_moving_among(env, Ways { any: door, each: None }, peers, config).await;
}

/// The same where several metadata servers may serve at once.
pub async fn keep_moving_among<N: Namespace + Clone, P: DataPeers>(
    env: Env,
    ways: Ways<N>,
    peers: impl Fn() -> P,
    config: ClientConfig,
) {
    let door = &ways.any;
    let mut is_alone = false;
    let config = ClientConfig { description: MOVER.to_owned(), ..config };
    let cx = || Context { deadline: ASK, ..Context::default() };
    loop {
        env.sleep(EVERY).await;
        // What the one before has, in this process or another, is waited for by whoever wants it.
        if !is_alone {
            match end_former(door).await {
                Ok(()) => is_alone = true,
                Err(error) => {
                    tracing::debug!(%error, "the session of a former mover has not ended yet");
                    continue;
                }
            }
        }
        match door.call(cx(), MovesOn::default()).await {
            Ok(to_move) if to_move.containers.is_empty() && to_move.shifts.is_empty() => continue,
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "whether chunks are to be moved is not known");
                continue;
            }
        }
        let client = match Client::start_among(env.clone(), ways.clone(), ways.clone(), peers(), config.clone()).await {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!(%error, "chunks with one copy are moved later");
                continue;
            }
        };
        if let Err(error) = client.move_off().await {
            tracing::warn!(%error, "chunks with one copy are moved later");
        }
        is_alone = matches!(env.timeout(STOP, client.shutdown()).await, Ok(Ok(())));
    }
}

/// There is one in each process of a metadata server, and that of before is dead, or nobody listens to it any more.
async fn end_former(door: &impl Namespace) -> Result<()> {
    let cx = Context { deadline: ASK, ..Context::default() };
    let AdminAnswer::Sessions(sessions) = door.call(cx, AdminQuery::Sessions).await? else { return Ok(()) };
    for session in sessions.into_iter().filter(|session| session.description == MOVER) {
        let token = Token { session: session.session, ..Token::default() };
        door.call(Context { token, ..cx }, EndSession {}).await?;
    }
    Ok(())
}

/// Of what may still be moved.
fn take(left: &Mutex<u64>, bytes: u64) -> bool {
    let mut left = left.lock();
    let fits = bytes <= *left;
    if fits {
        *left -= bytes;
    }
    fits
}

struct Mover {
    core: Arc<Core>,
    pace: Pace,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Containers that are to be emptied, and where they are.
    containers: BTreeMap<ContainerId, ServerId>,
    stuck: BTreeMap<ChunkId, StuckChunk>,
    /// How often each was written while it was copied.
    later: BTreeMap<ChunkId, u32>,
    /// Not to be tried before then.
    not_before: BTreeMap<ChunkId, Monotonic>,
    moved: u64,
    /// To even servers out.
    shifts: Vec<ShiftChunks>,
    /// What was done of them and has not been said.
    shifted: BTreeMap<(ServerId, ServerId), Shifted>,
    /// Before then rows are not looked through again.
    rows_at: Option<Monotonic>,
}

impl State {
    /// Without what was done of them and has not been said.
    fn shifts_left(&self) -> Vec<ShiftChunks> {
        let left = |shift: &ShiftChunks| {
            let done = self.shifted.get(&(shift.from, shift.to));
            let bytes = shift.bytes.saturating_sub(done.map_or(0, |done| done.bytes));
            let goes_on = bytes > 0 && done.is_none_or(|done| !done.is_over);
            goes_on.then(|| ShiftChunks { bytes, ..shift.clone() })
        };
        self.shifts.iter().filter_map(left).collect()
    }
}

impl Core {
    /// Returns when there is nothing to be moved, or the metadata server does not answer.
    pub async fn move_off(self: &Arc<Self>) -> Result<()> {
        let mover = Mover { core: self.clone(), pace: Pace::new(1), state: Mutex::default() };
        if !mover.hear().await? {
            return Ok(());
        }
        tokio::select! {
            done = mover.keep_hearing() => done,
            () = mover.work() => Ok(()),
        }
    }
}

impl Mover {
    async fn keep_hearing(&self) -> Result<()> {
        loop {
            self.core.env.sleep(EVERY).await;
            if !self.hear().await? {
                return Ok(());
            }
        }
    }

    /// Says what does not move, and hears what is to. False: nothing.
    async fn hear(&self) -> Result<bool> {
        let says = {
            let mut state = self.state.lock();
            let stuck = state.stuck.values().take(MovesOn::MAX).cloned().collect();
            state.shifts = state.shifts_left();
            MovesOn { stuck: Some(stuck), shifted: std::mem::take(&mut state.shifted).into_values().collect() }
        };
        let to_move = self.core.call(says, self.core.own_op()).await?;
        self.pace.set(to_move.bytes_per_s);
        let mut state = self.state.lock();
        state.containers = to_move.containers.into_iter().collect();
        state.shifts = to_move.shifts;
        let State { containers, shifts, stuck, not_before, .. } = &mut *state;
        let is_meant =
            |id: &ContainerId| containers.contains_key(id) || shifts.iter().any(|it| it.containers.contains(id));
        stuck.retain(|_, stuck| is_meant(&stuck.container));
        not_before.retain(|chunk, _| stuck.contains_key(chunk));
        Ok(!containers.is_empty() || !shifts.is_empty())
    }

    async fn work(&self) {
        loop {
            let mut servers: Vec<ServerId> = self.state.lock().containers.values().copied().collect();
            servers.sort_unstable();
            servers.dedup();
            for server in servers {
                if let Err(error) = self.empty(server).await {
                    tracing::warn!(%error, server = server.0, "chunks with one copy are moved later");
                }
            }
            let shifts = self.state.lock().shifts_left();
            for shift in shifts {
                if let Err(error) = self.shift(&shift).await {
                    tracing::warn!(%error, from = shift.from.0, to = shift.to.0, "servers are evened out later");
                }
            }
            self.core.env.sleep(EVERY).await;
        }
    }

    /// One look through what the server has, for what is small enough.
    async fn shift(&self, shift: &ShiftChunks) -> Result<()> {
        let (mut after, left) = (ChunkId(0), Mutex::new(shift.bytes));
        loop {
            let page = self.list(shift.from, after).await?;
            let Some(last) = page.last() else { break };
            after = last;
            let is_meant = |found: &ChunkStatus| found.occupied > 0 && shift.containers.contains(&found.container);
            let queue: Mutex<VecDeque<ChunkStatus>> = Mutex::new(page.chunks.into_iter().filter(is_meant).collect());
            join_all((0..AT_ONCE).map(|_| self.shift_in_turns(&queue, shift, &left)).collect()).await;
            if !page.more {
                break;
            }
        }
        self.was_shifted(shift, |done| done.is_over = true);
        Ok(())
    }

    async fn shift_in_turns(&self, queue: &Mutex<VecDeque<ChunkStatus>>, shift: &ShiftChunks, left: &Mutex<u64>) {
        loop {
            let Some(found) = queue.lock().pop_front() else { return };
            let is_due = {
                let (state, now) = (self.state.lock(), self.core.now());
                // Not any more, since it was paused or cancelled, or a server is drained.
                state.shifts.iter().any(|it| (it.from, it.to) == (shift.from, shift.to))
                    && state.not_before.get(&found.chunk).is_none_or(|at| *at <= now)
            };
            if !is_due || !take(left, found.occupied) {
                continue;
            }
            let moved = self.core.move_chunk(&found, Some(shift.to), &self.pace).await;
            match &moved {
                Ok(Moved::Done) => self.was_shifted(shift, |done| {
                    (done.chunks, done.bytes) = (done.chunks + 1, done.bytes + found.occupied);
                }),
                _ => *left.lock() += found.occupied,
            }
            self.became(&found, moved);
        }
    }

    fn was_shifted(&self, shift: &ShiftChunks, change: impl FnOnce(&mut Shifted)) {
        let (from, to) = (shift.from, shift.to);
        let nothing = Shifted { from, to, chunks: 0, bytes: 0, is_over: false };
        change(self.state.lock().shifted.entry((from, to)).or_insert(nothing));
    }

    /// One look through everything that the server has.
    async fn empty(&self, server: ServerId) -> Result<()> {
        let before = self.state.lock().moved;
        let mut after = ChunkId(0);
        loop {
            let page = self.list(server, after).await?;
            let Some(last) = page.last() else { break };
            after = last;
            for damaged in page.damaged.iter().filter(|damaged| damaged.header) {
                tracing::warn!(server = server.0, chunk = damaged.chunk.0, cause = damaged.cause, "cannot be moved");
            }
            let queue: Mutex<VecDeque<ChunkStatus>> = Mutex::new(page.chunks.into());
            join_all((0..AT_ONCE).map(|_| self.take_turns(&queue)).collect()).await;
            if !page.more {
                break;
            }
        }
        // What is left may be in rows alone.
        let (is_over, now) = (self.state.lock().moved == before, self.core.now());
        if !is_over || self.state.lock().rows_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        self.fill_places(server).await?;
        // However many rows there are, they are read for a tenth of the time at most.
        let end = self.core.now();
        self.state.lock().rows_at = Some(end + ROWS_EVERY.max(end.since(now) * 10));
        Ok(())
    }

    /// Chunks that rows name and their server does not have.
    async fn fill_places(&self, server: ServerId) -> Result<()> {
        let mut after = None;
        loop {
            let of_server = |(id, at): (&ContainerId, &ServerId)| (*at == server).then_some(*id);
            let containers: Vec<ContainerId> = self.state.lock().containers.iter().filter_map(of_server).collect();
            if containers.is_empty() {
                return Ok(());
            }
            let page = self.core.call(ListPlaced { containers, after }, self.core.own_op()).await?;
            let named = |(inode, row): (InodeId, ChunkRef)| {
                let ChunkRef { index, chunk, container, .. } = row;
                ChunkStatus { chunk, container, inode, index, ..ChunkStatus::default() }
            };
            let queue: Mutex<VecDeque<ChunkStatus>> = Mutex::new(page.chunks.into_iter().map(named).collect());
            join_all((0..AT_ONCE).map(|_| self.take_turns(&queue)).collect()).await;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn list(&self, server: ServerId, after: ChunkId) -> Result<ChunkList> {
        let op = self.core.own_op();
        let lane = self.core.lane_of(server, op).await?;
        let list = ListChunks { after, limit: PAGE };
        Ok(self.core.ask(&lane, self.core.session.token(), list, Bytes::new(), op).await?.0)
    }

    async fn take_turns(&self, queue: &Mutex<VecDeque<ChunkStatus>>) {
        loop {
            let Some(found) = queue.lock().pop_front() else { return };
            let is_due = {
                let (state, now) = (self.state.lock(), self.core.now());
                // Not any more, since the drain was paused or cancelled.
                state.containers.contains_key(&found.container)
                    && state.not_before.get(&found.chunk).is_none_or(|at| *at <= now)
            };
            if !is_due {
                continue;
            }
            let moved = self.core.move_chunk(&found, None, &self.pace).await;
            self.became(&found, moved);
        }
    }

    fn became(&self, found: &ChunkStatus, moved: Result<Moved>) {
        let mut state = self.state.lock();
        let (container, chunk, inode) = (found.container, found.chunk, found.inode);
        let is_stuck = |state: &mut State, cause: String| {
            let stuck = StuckChunk { container, chunk, inode, cause };
            state.stuck.insert(chunk, stuck);
        };
        match moved {
            Ok(done @ (Moved::Done | Moved::InNoFile)) => {
                state.moved += u64::from(done == Moved::Done);
                state.later.remove(&chunk);
                state.stuck.remove(&chunk);
                state.not_before.remove(&chunk);
            }
            Ok(Moved::Later) => {
                let later = state.later.entry(chunk).or_default();
                *later += 1;
                if *later >= LATER_MAX {
                    let cause = format!("it was being written each of the last {later} times; it is tried again");
                    is_stuck(&mut state, cause);
                }
            }
            Err(error) => {
                tracing::debug!(%error, chunk = chunk.0, "not moved");
                if error.code == Code::TextBusy {
                    state.not_before.insert(chunk, self.core.now() + COME_BACK);
                }
                is_stuck(&mut state, error.to_string());
            }
        }
    }
}
