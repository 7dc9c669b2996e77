//! Advisory locks: which this session holds, and who grants them now (docs/design/0012-locks.md).
//!
//! Promises: what is listed here is what the session holds, wherever it was granted; under an `exclusive` lease it is granted
//! here, without a message. While a slot holder is being told what is held nothing of it is granted or freed, here or there, so that
//! what it is told stays true until it has heard it.

use crate::cache::Cache;
use braid_api::{Code, Error, HandleId, LockKind, LockRequest, LockSpace, Result};
use braid_env::Monotonic;
use braid_lease::Generation;
use braid_posix::locks::{Flavour, Lock, LockTable, Outcome, Ticket};
use braid_types::{InodeId, MemberId, SlotSet};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tokio::sync::{Notify, oneshot};

/// Owners that hold locks in one client at the most, and locks on one file: about 100 bytes each, here and at the slot holder.
const HELD_MAX: usize = 64 << 10;

struct Table {
    table: LockTable<InodeId, u64>,
    /// Who waits here; told false, it asks the slot holder.
    waiting: BTreeMap<Ticket, (InodeId, oneshot::Sender<bool>)>,
}

impl Table {
    fn new(flavour: Flavour) -> Table {
        Table { table: LockTable::new(flavour), waiting: BTreeMap::new() }
    }

    fn wake(&mut self, granted: Vec<Ticket>) {
        for ticket in granted {
            if let Some((_, waiter)) = self.waiting.remove(&ticket) {
                let _ = waiter.send(true);
            }
        }
    }
}

struct State {
    posix: Table,
    flock: Table,
    /// Requests on their way to the slot holder, by file.
    asked: BTreeMap<InodeId, u32>,
    /// What the slot holder is being told of files that it grants locks on from now on, and with the answer to which recall.
    handing: BTreeMap<InodeId, (Generation, Vec<LockRequest>)>,
    /// Holders that are being told everything, each of these slots.
    saying: BTreeMap<MemberId, SlotSet>,
    /// How often one has been.
    said: u64,
    /// Through which handles each owner took its locks.
    handles: HashMap<(InodeId, LockSpace, u64), BTreeSet<HandleId>>,
    last: u64,
    ops: BTreeSet<u64>,
}

pub struct Locks {
    state: Mutex<State>,
    /// What was being told has been heard.
    pub changed: Notify,
}

impl Default for Locks {
    fn default() -> Self {
        let state = State {
            posix: Table::new(Flavour::Posix),
            flock: Table::new(Flavour::Flock),
            asked: BTreeMap::new(),
            handing: BTreeMap::new(),
            saying: BTreeMap::new(),
            said: 0,
            handles: HashMap::new(),
            last: 0,
            ops: BTreeSet::new(),
        };
        Locks { state: Mutex::new(state), changed: Notify::new() }
    }
}

/// A place in a queue here, left when its caller is gone.
pub struct Queued<'a> {
    locks: &'a Locks,
    file: InodeId,
    request: LockRequest,
    ticket: Ticket,
    granted: oneshot::Receiver<bool>,
    done: bool,
}

impl Queued<'_> {
    /// False: the slot holder is to be asked.
    pub async fn granted(mut self) -> Result<bool> {
        let answer = (&mut self.granted).await;
        self.done = answer.is_ok();
        answer.map_err(|_| Error::bare(Code::Interrupted))
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut state = self.locks.state.lock();
        let space = state.space(self.request.space);
        space.waiting.remove(&self.ticket);
        let (waited, mut granted) = space.table.cancel(self.file, self.ticket);
        // In the same moment it was told: of a lock, which nobody would ever free, or that it is not queued any more.
        if !waited && self.granted.try_recv() == Ok(true) {
            granted = space.table.release(self.file, self.request.owner, self.request.range);
        }
        space.wake(granted);
    }
}

/// A request on its way to the slot holder.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub op: u64,
    /// What the slot holder was told before it was asked.
    pub said: u64,
}

/// How a request goes on.
pub enum Step<'a> {
    Done(Result<()>),
    /// Others of this client hold what is in the way.
    Queued(Queued<'a>),
    /// The slot holder grants it.
    Ask(Asked),
    /// The slot holder is just being told what is held: look again when [`Locks::changed`] says so.
    Later,
}

/// What an answer of the slot holder means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    Taken,
    /// The slot holder was told meanwhile what is held, without this: it is to be asked again, when it has heard that.
    Unsure,
}

fn as_lock(request: &LockRequest) -> Lock<u64> {
    let exclusive = request.kind == LockKind::Write;
    Lock { owner: request.owner, pid: request.pid, exclusive, range: request.range }
}

fn as_request(space: LockSpace, held: &Lock<u64>) -> LockRequest {
    let kind = if held.exclusive { LockKind::Write } else { LockKind::Read };
    LockRequest { space, owner: held.owner, pid: held.pid, kind, range: held.range }
}

impl State {
    fn space(&mut self, space: LockSpace) -> &mut Table {
        match space {
            LockSpace::Posix => &mut self.posix,
            LockSpace::Flock => &mut self.flock,
        }
    }

    fn of_file(&self, file: InodeId) -> Vec<LockRequest> {
        let posix = self.posix.table.held(file).iter().map(|held| as_request(LockSpace::Posix, held));
        posix.chain(self.flock.table.held(file).iter().map(|held| as_request(LockSpace::Flock, held))).collect()
    }

    fn is_saying(&self, file: InodeId) -> bool {
        self.saying.values().any(|slots| slots.has(file.slot()))
    }

    fn files(&self) -> BTreeSet<InodeId> {
        self.posix.table.files().chain(self.flock.table.files()).collect()
    }

    fn release(&mut self, file: InodeId, request: &LockRequest) {
        let space = self.space(request.space);
        let granted = space.table.release(file, request.owner, request.range);
        space.wake(granted);
        if space.table.held(file).iter().all(|held| held.owner != request.owner) {
            self.handles.remove(&(file, request.space, request.owner));
        }
    }

    fn ask(&mut self, file: InodeId) -> Step<'static> {
        self.last += 1;
        self.ops.insert(self.last);
        *self.asked.entry(file).or_default() += 1;
        Step::Ask(Asked { op: self.last, said: self.said })
    }

    /// Who waits here for a lock on the file asks the slot holder from now on.
    fn send_away(&mut self, file: InodeId) {
        for space in [&mut self.posix, &mut self.flock] {
            let waiting: Vec<Ticket> =
                space.waiting.iter().filter(|(_, (of, _))| *of == file).map(|(ticket, _)| *ticket).collect();
            for ticket in waiting {
                let (_, granted) = space.table.cancel(file, ticket);
                if let Some((_, waiter)) = space.waiting.remove(&ticket) {
                    let _ = waiter.send(false);
                }
                space.wake(granted);
            }
        }
    }

    /// The handles whose locks on the file are gone.
    fn lose(&mut self, file: InodeId) -> BTreeSet<HandleId> {
        self.send_away(file);
        let mut lost = BTreeSet::new();
        for lock in self.of_file(file) {
            lost.extend(self.handles.remove(&(file, lock.space, lock.owner)).unwrap_or_default());
            let space = self.space(lock.space);
            let _ = space.table.release_owner(file, lock.owner);
        }
        lost
    }
}

impl Locks {
    /// Takes or frees the lock here if the slot holder leaves that to this client, or says who does. `handle` is what it is taken
    /// through.
    pub fn begin(
        &self,
        cache: &Cache,
        now: Monotonic,
        (file, handle): (InodeId, HandleId),
        request: &LockRequest,
        wait: bool,
    ) -> Step<'_> {
        let mut state = self.state.lock();
        let is_asked = state.asked.contains_key(&file);
        let is_told = state.is_saying(file) || state.handing.contains_key(&file);
        if request.kind == LockKind::Unlock {
            let mine = |held: &Lock<u64>| held.owner == request.owner && held.range.overlaps(request.range);
            if !is_asked && !state.space(request.space).table.held(file).iter().any(mine) {
                return Step::Done(Ok(()));
            }
            if is_told {
                return Step::Later;
            }
            state.release(file, request);
            return match !is_asked && cache.grants_locks(file) {
                true => Step::Done(Ok(())),
                false => state.ask(file),
            };
        }
        if is_told {
            return Step::Later;
        }
        if state.handles.len() >= HELD_MAX || state.space(request.space).table.held(file).len() >= HELD_MAX {
            return Step::Done(Err(Error::new(
                Code::TooManyLocks,
                format_args!("inode {file}"),
                "held by this client",
            )));
        }
        if is_asked || !cache.may_lock(file, now) {
            // flock gives up what it has before it asks for another kind, so that the slot holder has it no more either.
            let exclusive = request.kind == LockKind::Write;
            let other = |held: &Lock<u64>| held.owner == request.owner && held.exclusive != exclusive;
            if request.space == LockSpace::Flock && state.flock.table.held(file).iter().any(other) {
                state.release(file, request);
            }
            return state.ask(file);
        }
        let space = state.space(request.space);
        let (outcome, others) = space.table.acquire(file, as_lock(request), wait);
        space.wake(others);
        match outcome {
            Outcome::Granted => {
                state.handles.entry((file, request.space, request.owner)).or_default().insert(handle);
                Step::Done(Ok(()))
            }
            Outcome::WouldBlock => Step::Done(Err(Error::bare(Code::WouldBlock))),
            Outcome::Deadlock => Step::Done(Err(Error::bare(Code::Deadlock))),
            Outcome::Waiting(ticket) => {
                let (tell, granted) = oneshot::channel();
                space.waiting.insert(ticket, (file, tell));
                state.handles.entry((file, request.space, request.owner)).or_default().insert(handle);
                Step::Queued(Queued { locks: self, file, request: *request, ticket, granted, done: false })
            }
        }
    }

    /// All requests with lower numbers have been answered.
    pub fn done(&self) -> u64 {
        let state = self.state.lock();
        state.ops.first().copied().unwrap_or(state.last + 1)
    }

    /// The slot holder has granted the lock.
    pub fn taken(&self, (file, handle): (InodeId, HandleId), request: &LockRequest, asked: Asked) -> Answered {
        let mut state = self.state.lock();
        let is_sure = state.said == asked.said && !state.is_saying(file);
        if is_sure && request.kind != LockKind::Unlock {
            // Of two answers the later may come first: another process here may still seem to hold what it has given up.
            state.space(request.space).table.note(file, as_lock(request));
            state.handles.entry((file, request.space, request.owner)).or_default().insert(handle);
        }
        if !is_sure {
            return Answered::Unsure;
        }
        state.over(file, asked);
        Answered::Taken
    }

    /// What slot holders have been told, if the file's is not just being told.
    pub fn said(&self, file: InodeId) -> Option<u64> {
        let state = self.state.lock();
        (!state.is_saying(file)).then_some(state.said)
    }

    /// The request has ended without a lock.
    pub fn not_taken(&self, file: InodeId, asked: Asked) {
        self.state.lock().over(file, asked);
    }

    /// The first lock in the way that this client knows of; and whether no other client can have one.
    pub fn test(
        &self,
        cache: &Cache,
        now: Monotonic,
        file: InodeId,
        request: &LockRequest,
    ) -> (Option<LockRequest>, bool) {
        let mut state = self.state.lock();
        let is_told = state.is_saying(file) || state.handing.contains_key(&file);
        let all = !is_told && !state.asked.contains_key(&file) && cache.may_lock(file, now);
        let held = state.space(request.space).table.test(file, &as_lock(request));
        (held.map(|held| as_request(request.space, &held)), all)
    }

    // --- what the slot holder is told ---

    /// The file's locks are the slot holder's to grant from now on: what it is to be told is kept until it has heard it.
    pub fn hand_back(&self, file: InodeId, recall: Generation, granted_here: bool) {
        let mut state = self.state.lock();
        state.send_away(file);
        let held = state.of_file(file);
        if granted_here || !held.is_empty() {
            state.handing.insert(file, (recall, held));
        }
    }

    /// What is to be said with the answer to this recall, also if a later one is being answered: the slot holder takes what it hears for all
    /// there is.
    pub fn handing(&self, file: InodeId, recall: Generation) -> Option<Vec<LockRequest>> {
        let state = self.state.lock();
        let handing = state.handing.get(&file).filter(|(with, _)| *with >= recall);
        handing.map(|(_, held)| held.clone())
    }

    /// It has been heard, or is not going to be said: the recall is not to be answered any more.
    pub fn handed(&self, file: InodeId, recall: Generation) {
        let mut state = self.state.lock();
        if state.handing.get(&file).is_some_and(|(with, _)| *with == recall) {
            state.handing.remove(&file);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Everything that is held in a holder's slots; until [`Locks::heard_all`] nothing of it changes.
    pub fn say_all(&self, holder: MemberId, slots: &SlotSet) -> Vec<(InodeId, Vec<LockRequest>)> {
        let mut state = self.state.lock();
        state.saying.insert(holder, slots.clone());
        state.said += 1;
        let files = state.files().into_iter().filter(|file| slots.has(file.slot()));
        files.map(|file| (file, state.of_file(file))).collect()
    }

    pub fn heard_all(&self, holder: MemberId) {
        let mut state = self.state.lock();
        if let Some(slots) = state.saying.remove(&holder) {
            state.handing.retain(|file, _| !slots.has(file.slot()));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// What was being said to others than these is not heard any more: whoever holds the slots now asks for it.
    pub fn holders_are(&self, members: &BTreeSet<MemberId>) {
        self.state.lock().saying.retain(|holder, _| members.contains(holder));
        self.changed.notify_waiters();
    }

    /// The locks on a file are another's. Gives the handles that relied on them.
    pub fn lose(&self, file: InodeId) -> BTreeSet<HandleId> {
        self.state.lock().lose(file)
    }

    /// All are gone with the session. Gives the handles that relied on them.
    pub fn lose_all(&self) -> BTreeSet<HandleId> {
        let mut state = self.state.lock();
        (state.saying, state.said) = (BTreeMap::new(), state.said + 1);
        state.handing.clear();
        let files = state.files();
        let lost = files.into_iter().flat_map(|file| state.lose(file)).collect();
        drop(state);
        self.changed.notify_waiters();
        lost
    }
}

impl State {
    fn over(&mut self, file: InodeId, asked: Asked) {
        self.ops.remove(&asked.op);
        if let Some(count) = self.asked.get_mut(&file) {
            *count -= 1;
            if *count == 0 {
                self.asked.remove(&file);
            }
        }
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
