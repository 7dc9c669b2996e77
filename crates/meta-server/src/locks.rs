//! Locks that several mounts want: flock and fcntl at the slot holder (docs/design/0012-locks.md).
//!
//! Promises: a lock that was answered for is held until its session frees it, ends, or says that it does not hold it any more;
//! a message that is repeated, or comes late, takes and frees nothing a second time; who waits keeps its place while it asks
//! again, and no message waits for longer than [`WAIT_MAX`].

use crate::leases::{Leases, State};
use braid_api::lease::{FoundLock, LOCK_PATIENCE, LeaveLock, LockReply, SetLock, TestLock};
use braid_api::{Code, Error, LockKind, LockRequest, LockSpace, Result};
use braid_lease::{AskId, Command, Event, HeldLock, LockAnswer, LockOwner, LockSpec, Moment, Refusal, Space};
use braid_types::{InodeId, SessionId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What its connection's end does not tell is noticed by then.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// So long somebody waits at most with a lock that it could have, if another is to be let in (`braid-lease`, *Turns*): until that has
/// tried again, which SQLite does every 100 ms.
const LETS_IN_MAX: Duration = Duration::from_millis(300);
/// Between two looks whether it has been.
const LETS_IN_LOOK: Duration = Duration::from_millis(5);
/// Of one session: about 200 bytes each. A kernel has at most as many threads that wait.
const WAITING_MAX: usize = 64 << 10;

/// What a session has asked for and may ask for again.
struct LockOp {
    ask: AskId,
    /// 0 of one that is only known to be over.
    inode: InodeId,
    answer: Option<LockAnswer>,
    /// The session does not want it any more.
    left: bool,
    bell: Arc<Notify>,
}

#[derive(Default)]
struct OfSession {
    done: u64,
    ops: BTreeMap<u64, LockOp>,
}

#[derive(Default)]
pub struct LockOps {
    sessions: BTreeMap<SessionId, OfSession>,
    asks: BTreeMap<AskId, (SessionId, u64)>,
}

impl LockOps {
    fn op(&mut self, ask: AskId) -> Option<&mut LockOp> {
        let (session, op) = self.asks.get(&ask)?;
        self.sessions.get_mut(session)?.ops.get_mut(op)
    }

    /// What the holder says of a lock. The command, if it is of none here.
    pub fn heard(&mut self, command: Command) -> Option<Command> {
        match command {
            Command::Locked { ask, answer } if self.asks.contains_key(&ask) => {
                if let Some(op) = self.op(ask) {
                    op.answer = Some(answer);
                    op.bell.notify_waiters();
                }
            }
            Command::Refuse { ask, .. } if self.asks.contains_key(&ask) => {
                // Whoever waits asks again, as for the first time.
                if let Some((session, op)) = self.asks.remove(&ask)
                    && let Some(op) = self.sessions.get_mut(&session).and_then(|of| of.ops.remove(&op))
                {
                    op.bell.notify_waiters();
                }
            }
            other => return Some(other),
        }
        None
    }

    fn remove(&mut self, session: SessionId, op: u64) -> Option<LockOp> {
        let gone = self.sessions.get_mut(&session)?.ops.remove(&op)?;
        self.asks.remove(&gone.ask);
        gone.bell.notify_waiters();
        Some(gone)
    }

    /// Of files that another server answers for from now on nothing is answered here, also not again.
    pub fn keep(&mut self, is_here: impl Fn(InodeId) -> bool) {
        for (session, of) in &mut self.sessions {
            let gone = of.ops.extract_if(.., |_, op| op.inode != InodeId(0) && !is_here(op.inode));
            for (_, op) in gone {
                self.asks.remove(&op.ask);
                op.bell.notify_waiters();
                tracing::trace!(%session, inode = op.inode.0, "a lock is another server's to answer for");
            }
        }
    }

    pub fn session_over(&mut self, session: SessionId) {
        let gone = self.sessions.remove(&session);
        for op in gone.into_iter().flat_map(|of| of.ops.into_values()) {
            self.asks.remove(&op.ask);
            op.bell.notify_waiters();
        }
    }

    /// Whoever waits is told that it will not be answered here.
    pub fn stop(&mut self) {
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        sessions.into_iter().for_each(|session| self.session_over(session));
    }
}

fn space_of(space: LockSpace) -> Space {
    match space {
        LockSpace::Posix => Space::Posix,
        LockSpace::Flock => Space::Flock,
    }
}

fn spec_of(session: SessionId, lock: &LockRequest) -> LockSpec {
    let exclusive = lock.kind == LockKind::Write;
    let owner = LockOwner { session, owner: lock.owner };
    LockSpec { owner, pid: lock.pid, exclusive, range: lock.range }
}

/// What a session says it holds.
pub fn held_by(session: SessionId, locks: &[LockRequest]) -> Vec<HeldLock> {
    let held = locks.iter().filter(|lock| lock.kind != LockKind::Unlock);
    held.map(|lock| HeldLock { space: space_of(lock.space), lock: spec_of(session, lock) }).collect()
}

fn of_inode(inode: InodeId, code: Code, cause: &str) -> Error {
    Error::new(code, format_args!("a lock on inode {inode}"), cause)
}

fn refused(inode: InodeId, why: Refusal) -> Error {
    match why {
        Refusal::NotHere => of_inode(inode, Code::HeldElsewhere, "another metadata server holds its slot"),
        _ => of_inode(inode, Code::Busy, "the session is out of touch"),
    }
}

impl Leases {
    /// What is answered at the session is not remembered here any more.
    pub(crate) fn locks_done(&self, state: &mut State, session: SessionId, done: u64) {
        if !state.caching.contains_key(&session) {
            return;
        }
        let of = state.locks.sessions.entry(session).or_default();
        if of.done >= done {
            return;
        }
        of.done = done;
        let over: Vec<u64> = of.ops.range(..done).map(|(op, _)| *op).collect();
        for op in over {
            if let Some(LockOp { ask, .. }) = state.locks.remove(session, op) {
                // One that was granted has been heard of: what the session says it holds has it from now on.
                self.on(state, Event::Abandon { ask });
            }
        }
    }

    /// The session has said what it holds. What was granted before and not heard of is not among it: who asks for it asks anew.
    pub(crate) fn locks_said(&self, state: &mut State, session: SessionId) {
        let ops = state.locks.sessions.get(&session).map(|of| &of.ops);
        let answered = |(op, of): (&u64, &LockOp)| (of.answer.is_some() && !of.left).then_some(*op);
        let answered: Vec<u64> = ops.into_iter().flatten().filter_map(answered).collect();
        for op in answered {
            if let Some(LockOp { ask, .. }) = state.locks.remove(session, op) {
                self.on(state, Event::Abandon { ask });
            }
        }
    }

    /// Finds what was asked before, or asks. The bell rings when there is an answer.
    fn ask_lock(&self, state: &mut State, session: SessionId, m: &SetLock) -> Result<Arc<Notify>> {
        let until = m.wait_ms.map(|_| self.now() + LOCK_PATIENCE);
        let (space, lock) = (space_of(m.lock.space), spec_of(session, &m.lock));
        let of = state.locks.sessions.entry(session).or_default();
        // It has waited for too long without being asked for.
        if of.ops.get(&m.op).is_some_and(|op| op.answer == Some(LockAnswer::TimedOut)) {
            state.locks.remove(session, m.op);
        }
        let of = state.locks.sessions.entry(session).or_default();
        let known = of.ops.get(&m.op).map(|op| (op.ask, op.bell.clone(), op.answer));
        if let Some((ask, bell, answer)) = known {
            if answer.is_none() && until.is_some() {
                self.on(state, Event::Lock { ask, inode: m.inode, space, lock, until });
            }
            return Ok(bell);
        }
        if of.ops.len() >= WAITING_MAX {
            return Err(of_inode(m.inode, Code::Busy, "too many of this session wait for locks"));
        }
        state.last += 1;
        let (ask, bell) = (AskId(state.last), Arc::new(Notify::new()));
        of.ops.insert(m.op, LockOp { ask, inode: m.inode, answer: None, left: false, bell: bell.clone() });
        state.locks.asks.insert(ask, (session, m.op));
        self.on(state, Event::Lock { ask, inode: m.inode, space, lock, until });
        Ok(bell)
    }

    pub async fn set_lock(&self, session: SessionId, m: &SetLock) -> Result<LockReply> {
        // What does not wait for other locks may still wait until a session hands its own in.
        let longest = self.limits.longest_wait_for_a_file() + self.limits.session_lease;
        let patience = m.wait_ms.map_or(longest, |ms| Duration::from_millis(ms.into()).min(WAIT_MAX));
        let end: Moment = self.now() + patience;
        if m.lock.kind != LockKind::Unlock {
            let asks = HeldLock { space: space_of(m.lock.space), lock: spec_of(session, &m.lock) };
            self.let_in(m.inode, &asks).await;
        }
        let bell = {
            let mut state = self.state.lock();
            self.begin_lock(&mut state, session, m.op, m.done)?;
            if m.lock.kind == LockKind::Unlock {
                let owner = LockOwner { session, owner: m.lock.owner };
                let (inode, space, range) = (m.inode, space_of(m.lock.space), m.lock.range);
                self.on(&mut state, Event::Unlock { inode, space, owner, range });
                return Ok(LockReply::Granted);
            }
            self.ask_lock(&mut state, session, m)?
        };
        loop {
            let rung = bell.notified();
            let mut rung = std::pin::pin!(rung);
            // Registered before the look, so that nothing between the two is missed.
            rung.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.stopped {
                    return Err(of_inode(m.inode, Code::NotServing, "this server is about to stop"));
                }
                let of = state.locks.sessions.get_mut(&session);
                let Some(op) = of.and_then(|of| of.ops.get_mut(&m.op)) else {
                    let is_here = state.holder.holds(m.inode.slot());
                    return Err(refused(m.inode, if is_here { Refusal::NoTerm } else { Refusal::NotHere }));
                };
                match op.answer {
                    Some(LockAnswer::Granted) => return Ok(LockReply::Granted),
                    Some(LockAnswer::Deadlock) => return Ok(LockReply::Deadlock),
                    Some(LockAnswer::TimedOut) => return Ok(LockReply::Waiting),
                    Some(_) => return Ok(LockReply::WouldBlock),
                    None => {}
                }
            }
            let left = end.since(self.now());
            if left.is_zero() {
                return match m.wait_ms {
                    Some(_) => Ok(LockReply::Waiting),
                    None => Err(of_inode(m.inode, Code::Busy, "another session does not hand its locks in")),
                };
            }
            let _ = self.env.timeout(left, rung).await;
        }
    }

    async fn let_in(&self, inode: InodeId, asks: &HeldLock) {
        let end: Moment = self.now() + LETS_IN_MAX;
        while self.state.lock().holder.lets_in(inode, asks, self.now()) && self.now() < end {
            self.env.sleep(LETS_IN_LOOK).await;
        }
    }

    fn begin_lock(&self, state: &mut State, session: SessionId, op: u64, done: u64) -> Result<()> {
        if !state.caching.contains_key(&session) {
            let who = format_args!("session {session}");
            return Err(Error::new(Code::SessionUnknown, who, "it has ended, or does not cache"));
        }
        self.locks_done(state, session, done);
        let known = state.locks.sessions.get(&session).map_or(0, |of| of.done);
        match op < known {
            true => Err(Error::new(Code::Invalid, format_args!("lock request {op}"), "it was answered before")),
            false => Ok(()),
        }
    }

    pub fn leave_lock(&self, session: SessionId, m: &LeaveLock) -> Result<LockReply> {
        let mut state = self.state.lock();
        self.begin_lock(&mut state, session, m.op, m.done)?;
        let ops = state.locks.sessions.get(&session).map(|of| &of.ops);
        if ops.and_then(|ops| ops.get(&m.op)).is_some_and(|op| op.answer == Some(LockAnswer::Granted)) {
            return Ok(LockReply::Granted);
        }
        if let Some(LockOp { ask, .. }) = state.locks.remove(session, m.op) {
            self.on(&mut state, Event::Abandon { ask });
        }
        // It may still come, or come again: it is to find that it is over.
        state.last += 1;
        let (ask, answer, bell) = (AskId(state.last), Some(LockAnswer::WouldBlock), Arc::default());
        let left = LockOp { ask, inode: InodeId(0), answer, left: true, bell };
        state.locks.sessions.entry(session).or_default().ops.insert(m.op, left);
        Ok(LockReply::WouldBlock)
    }

    pub async fn test_lock(&self, session: SessionId, m: &TestLock) -> Result<FoundLock> {
        let (inode, space, lock) = (m.inode, space_of(m.lock.space), spec_of(session, &m.lock));
        let found = self.ask_for_lock(inode, |ask| Event::TestLock { ask, inode, space, lock }).await?;
        let found = match found {
            Ok(LockAnswer::Held(held)) => held,
            Ok(_) => return Ok(FoundLock { lock: None, own: false }),
            Err(why) => return Err(refused(inode, why)),
        };
        let own = found.owner.session == session;
        let kind = if found.exclusive { LockKind::Write } else { LockKind::Read };
        let lock =
            LockRequest { space: m.lock.space, owner: found.owner.owner, pid: found.pid, kind, range: found.range };
        Ok(FoundLock { lock: Some(lock), own })
    }
}
