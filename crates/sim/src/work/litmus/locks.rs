//! flock and fcntl locks of one file: tried, waited for and freed by tasks of both mounts. Who can be silent for too long may lose
//! what it holds, and is told so when it asks for another through the same handle (docs/design/0012-locks.md).

use super::{History, PAUSE_MS_MAX, TASKS, number_of, on_mount};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::Mount;
use crate::seed::Stream;
use crate::witness::Granter;
use crate::work::bytes::opened_as;
use crate::work::{Task, Work};
use braid_api::{Code, FileSystem, HandleId, LockKind, LockRequest, LockSpace, Result};
use braid_model::objects::{Lock, LockAnswer, LockOp};
use braid_types::ByteRange;
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const RANGES: usize = 3;
/// The flock, and each range.
const ALL: [Option<usize>; RANGES + 1] = [None, Some(0), Some(1), Some(2)];

pub struct Locks {
    histories: BTreeMap<Option<usize>, History<Lock>>,
    owners: AtomicU64,
    asking: Mutex<BTreeMap<(Option<usize>, u64), Asking>>,
}

/// A call under way. What a server grants, and ends before that is heard, or the session does, is asked for again as if it had not been
/// granted: meanwhile it may have kept others out.
struct Asking {
    write: bool,
    take: u64,
    /// By whom it was granted, from when that said so if it was tried: the grant, and that it is forgotten.
    unheard: BTreeMap<Granter, [u64; 2]>,
}

enum Call {
    Ask {
        at: Option<usize>,
        write: bool,
        wait: bool,
    },
    Free(Option<usize>),
    /// So that the mount has the file to itself again, and may grant its own locks.
    Write,
}

/// One open file.
struct Life<'a> {
    process: &'a Process,
    fs: &'a Mount,
    handle: HandleId,
    owner: u64,
    /// As far as is known: for writing or not.
    held: BTreeMap<Option<usize>, bool>,
    /// Calls that ask for it.
    takes: BTreeMap<Option<usize>, u64>,
    /// It has freed some since it took one last, or a change took one: perhaps they had been lost by then, which such a call
    /// does not tell.
    had: bool,
}

fn draw(random: &mut Stream, holds: bool) -> Call {
    let at = ALL[random.random_range(0..ALL.len())];
    match random.random_range(0..12) {
        0..4 => Call::Ask { at, write: random.random_bool(0.5), wait: false },
        // Who holds nothing waits in no circle.
        4 | 5 => Call::Ask { at, write: random.random_bool(0.5), wait: !holds },
        6 => Call::Write,
        _ => Call::Free(at),
    }
}

impl Life<'_> {
    async fn set(&self, at: Option<usize>, kind: LockKind, wait: bool) -> Result<()> {
        let (space, range) = match at {
            Some(at) => (LockSpace::Posix, ByteRange::new(at as u64 * 10, at as u64 * 10 + 10)),
            None => (LockSpace::Flock, ByteRange::new(0, u64::MAX)),
        };
        let lock = LockRequest { space, owner: self.owner, pid: self.owner as u32, kind, range };
        self.fs.set_lock(self.handle, lock, wait).await
    }

    /// So that the mount has the file to itself again. False if locks, or what was written, were lost.
    async fn write(&self) -> Result<bool> {
        match self.fs.write(self.handle, 0, vec![1].into()).await {
            Ok(_) => Ok(true),
            Err(error) if error.code == Code::SessionFenced && self.may_lose() => Ok(false),
            Err(error) if error.code == Code::WriteLost && self.process.cluster.settings.sessions_end => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Only who holds a lock can lose it, now or while it was freeing it.
    fn may_lose(&self) -> bool {
        self.process.cluster.settings.sessions_end && (self.had || !self.held.is_empty())
    }

    fn messages(&self) -> u64 {
        self.fs.stats().sent("SetLock")
    }
}

impl Locks {
    pub fn work() -> Arc<dyn Work> {
        let history = |at: Option<usize>| (at, History::new(Lock::new(at.is_none()), Invariant::LocksExclude));
        let histories = ALL.map(history).into();
        Arc::new(Locks { histories, owners: AtomicU64::new(0), asking: Mutex::default() })
    }

    fn granted(&self, by: Granter, lock: &LockRequest) {
        let at = (lock.space == LockSpace::Posix).then_some(lock.range.start as usize / 10);
        self.may_be_granted(by, (at, lock.owner));
    }

    /// From now on, if it is being asked for.
    fn may_be_granted(&self, by: Granter, (at, owner): (Option<usize>, u64)) {
        if let Some(asking) = self.asking.lock().get_mut(&(at, owner))
            && let Some(history) = self.histories.get(&at)
        {
            let ops = [LockOp::Grant(owner, asking.write, asking.take), LockOp::Forget(owner)];
            asking.unheard.entry(by).or_insert_with(|| ops.map(|op| history.begin_quietly(&op)));
        }
    }

    /// False if locks were lost.
    async fn ask(&self, life: &mut Life<'_>, at: Option<usize>, write: bool, wait: bool) -> Result<bool> {
        let (process, history, op) = (life.process, &self.histories[&at], LockOp::Take(life.owner, write));
        process.note(format_args!("{at:?}, waits: {wait}"));
        let (before, id) = (life.messages(), history.begin(process, &op));
        let is_changed = at.is_none() && life.held.get(&at).is_some_and(|had| *had != write);
        let change = is_changed.then(|| history.begin(process, &LockOp::Change(life.owner, write)));
        *life.takes.entry(at).or_default() += 1;
        self.asking.lock().insert((at, life.owner), Asking { write, take: life.takes[&at], unheard: BTreeMap::new() });
        if wait {
            // Granted while no message is there that it could be said to.
            self.may_be_granted(Granter::default(), (at, life.owner));
        }
        let around = |life: &Life| (life.fs.stats().sessions_lost, process.cluster.meta_starts());
        let since = around(life);
        let kind = if write { LockKind::Write } else { LockKind::Read };
        let answer = match life.set(at, kind, wait).await {
            Ok(()) => LockAnswer::Done,
            Err(error) if error.code == Code::WouldBlock && !wait => LockAnswer::WouldBlock,
            Err(error) if error.code == Code::SessionFenced && life.may_lose() => LockAnswer::Told,
            Err(error) => return Err(error),
        };
        if let Some(change) = change {
            history.perhaps(change);
        }
        let asking = self.asking.lock().remove(&(at, life.owner));
        for id in asking.into_iter().flat_map(|asking| asking.unheard.into_values()).flatten() {
            if around(life) == since { history.never(id) } else { history.perhaps(id) }
        }
        history.end(process, id, &op, &answer);
        let coverage = &process.cluster.coverage;
        match answer {
            LockAnswer::Done => {
                life.held.insert(at, write);
                life.had = false;
                let is_own = life.messages() == before;
                coverage.count(if is_own { "lock taken without a message" } else { "lock taken by a message" });
            }
            LockAnswer::WouldBlock => {
                if is_changed {
                    // What it had is gone: by the change, or with the session before, which is told to the next call.
                    life.had |= life.held.remove(&at).is_some();
                }
                coverage.count("lock in the way");
            }
            LockAnswer::Told => coverage.count("living client told that locks went with its session"),
        }
        Ok(answer != LockAnswer::Told)
    }

    async fn free(&self, life: &mut Life<'_>, at: Option<usize>) -> Result<()> {
        let (history, op) = (&self.histories[&at], LockOp::Free(life.owner));
        life.process.note(format_args!("{at:?}"));
        life.had |= !life.held.is_empty();
        let id = history.begin(life.process, &op);
        life.set(at, LockKind::Unlock, false).await?;
        life.held.remove(&at);
        history.end(life.process, id, &op, &LockAnswer::Done);
        Ok(())
    }

    /// From now on its locks may go with the session.
    fn may_lose(&self, life: &Life<'_>) -> Vec<(&History<Lock>, u64)> {
        let (process, op) = (life.process, LockOp::Lose(life.owner));
        let histories = self.histories.values().filter(|_| process.cluster.settings.sessions_end);
        histories.map(|history| (history, history.begin(process, &op))).collect()
    }

    /// From an open to the close, until locks are lost or it is calm.
    async fn life(&self, life: &mut Life<'_>, random: &mut Stream) -> Result<()> {
        let process = life.process;
        let (mut lost, mut losing) = (life.fs.stats().sessions_lost, self.may_lose(life));
        while !process.cluster.is_calm() {
            process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
            let goes_on = match draw(random, !life.held.is_empty()) {
                Call::Ask { at, write, wait } => self.ask(life, at, write, wait).await?,
                Call::Free(at) => {
                    self.free(life, at).await?;
                    true
                }
                Call::Write => life.write().await?,
            };
            if !goes_on {
                break;
            }
            // Each session may be lost once.
            if std::mem::replace(&mut lost, life.fs.stats().sessions_lost) != life.fs.stats().sessions_lost {
                losing.into_iter().for_each(|(history, id)| history.perhaps(id));
                losing = self.may_lose(life);
            }
        }
        for at in ALL {
            self.free(life, at).await?;
        }
        life.fs.release(life.handle).await;
        losing.into_iter().for_each(|(history, id)| history.perhaps(id));
        for history in self.histories.values() {
            let op = LockOp::Close(life.owner);
            let id = history.begin(process, &op);
            history.end(process, id, &op, &LockAnswer::Done);
        }
        Ok(())
    }

    async fn task(self: Arc<Self>, process: Process, fs: Arc<Mount>, number: usize) {
        let mut random = process.stream(&format!("locks {number}"));
        while !process.cluster.is_calm() {
            let handle = opened_as(&process, &fs, "locked", false).await;
            let owner = self.owners.fetch_add(1, Relaxed) + 1;
            process.note(format_args!("task {} is owner {owner}", number_of(&process, number)));
            let mut life = Life {
                process: &process,
                fs: &fs,
                handle,
                owner,
                held: BTreeMap::new(),
                takes: BTreeMap::new(),
                had: false,
            };
            if let Err(error) = self.life(&mut life, &mut random).await {
                let text = format_args!("owner {owner}: {error}");
                return process.cluster.around.failures.add(Invariant::OperationsSurviveFaults, text);
            }
        }
    }
}

impl Work for Locks {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            let this = self.clone();
            process.cluster.witness.watch_locks(move |by, lock| this.granted(by, lock));
            on_mount(&process, TASKS, |fs, number| self.clone().task(process.clone(), fs, number)).await;
        })
    }
}
