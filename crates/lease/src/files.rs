//! File leases at the slot holder: per (session, inode), in one of three states, each under a generation.
//!
//! Requests for a file are served in order of arrival. The first one says what the others may keep; whoever has more is
//! recalled and answers under the number of the recall. An answer under another number changes nothing, so messages may
//! be lost, repeated and overtaken. `step.rs` has the rules of who may have what.

mod change;
mod step;
mod words;

pub use words::{Generation, Grown, Handles, HeldLock, Mode, Reasserted, Want};

use crate::command::{Command, Refusal};
use crate::few::Few;
use crate::key::AskId;
use crate::locks::{LockSpec, Locks, Space};
use crate::names::{Names, View};
use crate::time::Moment;
use braid_types::{InodeId, MembershipEpoch, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Recall {
    number: Generation,
    to: Mode,
    token: Generation,
    locks: bool,
    first: Moment,
    sent: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    mode: Mode,
    generation: Generation,
    granted: Moment,
    /// It may grant itself locks.
    locks: bool,
    handles: Handles,
    recall: Option<Recall>,
    /// `sync` of before a server that may have lost something: what is on its way is finished, and it is given up.
    void: bool,
    /// The number of the last recall it answered.
    answered: Generation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    Take(Want),
    Refresh,
    /// Nobody writes as long as this is told.
    Still {
        told: bool,
    },
    Lock {
        space: Space,
        lock: LockSpec,
        until: Option<Moment>,
    },
    TestLock {
        space: Space,
        lock: LockSpec,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    ask: AskId,
    session: SessionId,
    purpose: Purpose,
    /// Answers to recalls up to this one are older than the request.
    arrived: Generation,
    since: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct File {
    held: Few<Held>,
    queue: VecDeque<Waiter>,
    grown: Option<Grown>,
    storing: bool,
    /// What data requests carry now. Raised when the right to write passes to somebody; those who are in `sync` together
    /// share it, else the owner would take each for an older holder than the other.
    token: Generation,
    /// The token is that of sessions in `sync`.
    sync: bool,
}

/// What a step needs beside the files, and what it leaves behind.
pub struct Around<'a> {
    pub view: View<'a>,
    pub names: &'a mut Names,
    pub locks: &'a mut Locks,
    pub out: &'a mut Vec<Command>,
    /// Sessions whose term is over and that somebody waits for.
    pub end: &'a mut BTreeSet<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Files {
    leases_max: usize,
    files: BTreeMap<InodeId, File>,
    /// The last number that was given out.
    last: Generation,
    by_session: BTreeMap<SessionId, BTreeSet<InodeId>>,
    by_age: BTreeMap<Generation, (InodeId, SessionId)>,
    asks: BTreeMap<AskId, InodeId>,
    recalled: BTreeSet<(InodeId, SessionId)>,
    /// Files whose first request waits for the end of a hold.
    due: BTreeMap<InodeId, Moment>,
    /// So many want that nobody who does not write begins to.
    writes_held: u32,
}

/// File leases recalled together when memory is full.
const ROOM_BATCH: usize = 64;

impl Files {
    pub fn new(leases_max: usize) -> Self {
        Files {
            leases_max,
            files: BTreeMap::new(),
            last: Generation(0),
            by_session: BTreeMap::new(),
            by_age: BTreeMap::new(),
            asks: BTreeMap::new(),
            recalled: BTreeSet::new(),
            due: BTreeMap::new(),
            writes_held: 0,
        }
    }

    /// Generations of a new epoch are above all of older ones, whoever gave them out.
    pub fn begin_epoch(&mut self, epoch: MembershipEpoch) {
        self.last = self.last.max(Generation::begin(epoch));
    }

    fn next_number(&mut self) -> Generation {
        self.last = Generation(self.last.0.saturating_add(1));
        self.last
    }

    /// Sessions that may have the file open.
    pub fn openers(&self, inode: InodeId) -> Vec<SessionId> {
        self.files.get(&inode).into_iter().flat_map(|file| file.held.keys().copied()).collect()
    }

    pub fn leases(&self) -> usize {
        self.by_age.len()
    }

    pub fn mode(&self, session: SessionId, inode: InodeId) -> (Mode, Generation) {
        let held = self.files.get(&inode).and_then(|file| file.held.get(&session));
        held.map_or((Mode::None, Generation(0)), |held| (held.mode, held.generation))
    }

    /// Who has size and times that may not be in the row.
    pub fn owner(&self, inode: InodeId) -> Option<SessionId> {
        let held = self.files.get(&inode)?.held.iter().find(|(_, held)| held.mode == Mode::Exclusive);
        held.map(|(session, _)| *session)
    }

    /// Who has a lease of it.
    pub fn holders(&self, inode: InodeId) -> impl Iterator<Item = SessionId> + '_ {
        let held = self.files.get(&inode).into_iter().flat_map(|file| file.held.iter());
        held.filter(|(_, held)| held.mode != Mode::None).map(|(session, _)| *session)
    }

    /// Who is known to have it open for writing: told with answers to recalls, and when that changes.
    pub fn writers(&self, inode: InodeId) -> impl Iterator<Item = SessionId> + '_ {
        let held = self.files.get(&inode).into_iter().flat_map(|file| file.held.iter());
        held.filter(|(_, held)| held.handles.writes()).map(|(session, _)| *session)
    }

    /// Whoever has a lease of it only reads it, and nobody waits for one: another that reads it takes nothing from anybody.
    pub fn is_only_read(&self, inode: InodeId) -> bool {
        let Some(file) = self.files.get(&inode) else { return true };
        let only_reads = |held: &Held| matches!(held.mode, Mode::None | Mode::Shared) && !held.handles.writes();
        file.queue.is_empty() && !file.storing && file.held.iter().all(|(_, held)| only_reads(held))
    }

    // --- requests ---

    pub fn take(&mut self, ask: AskId, session: SessionId, inode: InodeId, want: Want, around: &mut Around<'_>) {
        self.enter(ask, session, inode, Purpose::Take(want), around);
    }

    pub fn refresh(&mut self, ask: AskId, session: SessionId, inode: InodeId, around: &mut Around<'_>) {
        self.enter(ask, session, inode, Purpose::Refresh, around);
    }

    pub fn still(&mut self, ask: AskId, inode: InodeId, around: &mut Around<'_>) {
        self.enter(ask, NOBODY, inode, Purpose::Still { told: false }, around);
    }

    pub fn hold_writes(&mut self, on: bool, around: &mut Around<'_>) {
        self.writes_held = if on { self.writes_held + 1 } else { self.writes_held.saturating_sub(1) };
        if self.writes_held == 0 {
            self.step_all(around);
        }
    }

    /// Files that somebody may write.
    pub fn written(&self) -> Vec<InodeId> {
        let writes = |file: &File| file.held.values().any(|held| held.mode.writes());
        self.files.iter().filter(|(_, file)| writes(file)).map(|(inode, _)| *inode).collect()
    }

    pub fn lock(
        &mut self,
        ask: AskId,
        inode: InodeId,
        (space, lock): (Space, LockSpec),
        until: Option<Moment>,
        around: &mut Around<'_>,
    ) {
        // Asked for again: it keeps its place, and has longer.
        if around.locks.wait_until(ask, until) {
            return;
        }
        if self.asks.get(&ask) == Some(&inode)
            && let Some(waiter) = self.files.get_mut(&inode).and_then(|f| f.queue.iter_mut().find(|w| w.ask == ask))
        {
            waiter.purpose = Purpose::Lock { space, lock, until };
            return;
        }
        self.enter(ask, lock.owner.session, inode, Purpose::Lock { space, lock, until }, around);
    }

    pub fn test_lock(&mut self, ask: AskId, inode: InodeId, (space, lock): (Space, LockSpec), around: &mut Around<'_>) {
        self.enter(ask, lock.owner.session, inode, Purpose::TestLock { space, lock }, around);
    }

    fn enter(&mut self, ask: AskId, session: SessionId, inode: InodeId, purpose: Purpose, around: &mut Around<'_>) {
        if let Some(why) = purpose.refusal(&around.view, session, inode) {
            return around.out.push(Command::Refuse { ask, why });
        }
        let last = self.last;
        let file = self.files.entry(inode).or_insert_with(|| File::new(last));
        let waiter = Waiter { ask, session, purpose, arrived: last, since: around.view.now };
        let same = |w: &&mut Waiter| w.session == session && matches!(w.purpose, Purpose::Take(_));
        let is_take = matches!(purpose, Purpose::Take(_));
        match file.queue.iter_mut().find(same).filter(|_| is_take) {
            // A session has one request for a file at a time; this one repeats or replaces it, and keeps its place.
            Some(old) => {
                let gone = std::mem::replace(old, Waiter { since: old.since, ..waiter });
                self.asks.remove(&gone.ask);
                around.out.push(Command::Refuse { ask: gone.ask, why: Refusal::Repeated });
            }
            None => file.queue.push_back(waiter),
        }
        self.asks.insert(ask, inode);
        self.step(inode, around);
    }

    pub fn abandon(&mut self, ask: AskId, around: &mut Around<'_>) {
        let Some(inode) = self.asks.remove(&ask) else { return };
        if let Some(file) = self.files.get_mut(&inode) {
            file.queue.retain(|waiter| waiter.ask != ask);
        }
        self.step(inode, around);
    }

    // --- what sessions say ---

    pub fn opened(
        &mut self,
        ask: AskId,
        session: SessionId,
        inode: InodeId,
        handles: Handles,
        around: &mut Around<'_>,
    ) {
        let known = self.files.get(&inode).and_then(|file| file.held.get(&session)).map(|held| held.handles);
        let is_old = known.is_some_and(|known| known.seq >= handles.seq);
        let opens = handles.any() && !known.is_some_and(Handles::any);
        if opens && !is_old {
            let refused = refusal(&around.view, session, inode);
            let unlinked = || around.names.opens_unlinked(inode, session).then_some(Refusal::Changing);
            if let Some(why) = refused.or_else(unlinked) {
                return around.out.push(Command::Refuse { ask, why });
            }
        }
        around.out.push(Command::Registered { ask });
        if is_old || (known.is_none() && !handles.any()) {
            return;
        }
        self.entry(session, inode).handles = handles;
        self.tidy(session, inode);
        self.step(inode, around);
    }

    /// The session's record on the file, made if there is none.
    fn entry(&mut self, session: SessionId, inode: InodeId) -> &mut Held {
        self.by_session.entry(session).or_default().insert(inode);
        let last = self.last;
        let nothing = Held {
            mode: Mode::None,
            generation: Generation(0),
            granted: Moment::default(),
            locks: false,
            handles: Handles::default(),
            recall: None,
            void: false,
            answered: Generation(0),
        };
        self.files.entry(inode).or_insert_with(|| File::new(last)).held.get_or_insert(session, nothing)
    }

    /// Forgets a record that says nothing.
    fn tidy(&mut self, session: SessionId, inode: InodeId) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        let empty = |held: &Held| held.mode == Mode::None && !held.handles.any() && held.recall.is_none();
        if file.held.get(&session).is_some_and(empty) {
            file.held.remove(&session);
            if let Some(inodes) = self.by_session.get_mut(&session) {
                inodes.remove(&inode);
                if inodes.is_empty() {
                    self.by_session.remove(&session);
                }
            }
        }
    }

    fn set_mode(&mut self, session: SessionId, inode: InodeId, mode: Mode, generation: Generation) {
        let held = self.entry(session, inode);
        let old = std::mem::replace(&mut held.generation, generation);
        (held.mode, held.void) = (mode, false);
        self.by_age.remove(&old);
        if mode != Mode::None {
            self.by_age.insert(generation, (inode, session));
        }
    }

    pub fn yielded(
        &mut self,
        session: SessionId,
        inode: InodeId,
        generation: Generation,
        mode: Mode,
        handed: &[HeldLock],
        around: &mut Around<'_>,
    ) {
        let Some(held) = self.files.get_mut(&inode).and_then(|file| file.held.get_mut(&session)) else { return };
        let keeps_locks = match held.recall {
            Some(recall) if recall.number == generation && mode.is_within(recall.to) => {
                held.recall = None;
                held.answered = generation;
                recall.locks && mode == Mode::Exclusive
            }
            // Of its own accord, and not crossed by a grant or a recall.
            None if held.generation == generation && mode.is_within(held.mode) => held.locks && mode == Mode::Exclusive,
            _ => return,
        };
        let hands_back = held.locks && !keeps_locks;
        held.locks &= keeps_locks;
        // Who keeps `exclusive` keeps its generation: its writes on their way stay good.
        if mode != Mode::Exclusive || held.mode != mode {
            self.set_mode(session, inode, mode, generation);
        }
        self.recalled.remove(&(inode, session));
        if hands_back && !around.locks.adopt(inode, session, handed, around.out) {
            around.out.push(Command::LocksLost { session, inode });
        }
        self.tidy(session, inode);
        self.step(inode, around);
    }

    pub fn last_number(&self) -> Generation {
        self.last
    }

    /// True if the write may return.
    pub fn extend(&mut self, session: SessionId, inode: InodeId, generation: Generation, to: Grown) -> bool {
        let Some(file) = self.files.get_mut(&inode) else { return false };
        let may = |held: &Held| held.mode == Mode::Sync && held.generation == generation;
        if !file.held.get(&session).is_some_and(may) {
            return false;
        }
        file.grow(to);
        true
    }

    pub fn stored(&mut self, inode: InodeId, stored: Grown, around: &mut Around<'_>) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        file.storing = false;
        if file.grown == Some(stored) {
            file.grown = None;
        }
        self.step(inode, around);
    }

    // --- sessions and slots ---

    /// The term is over: what could only be read under is gone. What could be written under is void only when the
    /// data servers say so, and that is asked for when somebody waits for it.
    pub fn lapsed(&mut self, session: SessionId, around: &mut Around<'_>) {
        for inode in self.inodes_of(session) {
            if self.mode(session, inode).0 == Mode::Shared {
                let number = self.next_number();
                self.set_mode(session, inode, Mode::None, number);
                self.entry(session, inode).recall = None;
                self.recalled.remove(&(inode, session));
                self.tidy(session, inode);
            } else if let Some(held) = self.files.get_mut(&inode).and_then(|file| file.held.get_mut(&session)) {
                // Of before, should it come back and say what it has.
                held.granted = Moment::default();
            }
            self.step(inode, around);
        }
    }

    pub fn ended(&mut self, session: SessionId, around: &mut Around<'_>) {
        let waited: Vec<AskId> = self
            .asks
            .iter()
            .filter(|(ask, inode)| {
                let queue = self.files.get(inode).map(|file| &file.queue);
                queue.is_some_and(|queue| queue.iter().any(|w| w.ask == **ask && w.session == session))
            })
            .map(|(ask, _)| *ask)
            .collect();
        for ask in waited {
            around.out.push(Command::Refuse { ask, why: Refusal::NoTerm });
            self.abandon(ask, around);
        }
        for inode in self.inodes_of(session) {
            self.remove(session, inode);
            self.step(inode, around);
        }
    }

    fn remove(&mut self, session: SessionId, inode: InodeId) {
        let held = self.entry(session, inode);
        (held.mode, held.handles, held.recall, held.void) = (Mode::None, Handles::default(), None, false);
        let generation = held.generation;
        self.by_age.remove(&generation);
        self.recalled.remove(&(inode, session));
        self.tidy(session, inode);
    }

    fn inodes_of(&self, session: SessionId) -> Vec<InodeId> {
        self.by_session.get(&session).into_iter().flatten().copied().collect()
    }

    /// Every file on which somebody waits looks again: a slot has settled.
    pub fn step_all(&mut self, around: &mut Around<'_>) {
        let waiting: BTreeSet<InodeId> = self.asks.values().copied().collect();
        waiting.into_iter().for_each(|inode| self.step(inode, around));
    }

    /// Repeats recalls that are not answered. Gives the sessions whose patience is over.
    pub fn pass(&mut self, around: &mut Around<'_>) -> Vec<SessionId> {
        let (now, limits) = (around.view.now, around.view.limits);
        let mut slow = Vec::new();
        for (inode, session) in self.recalled.clone() {
            let Some(held) = self.files.get_mut(&inode).and_then(|file| file.held.get_mut(&session)) else { continue };
            let Some(recall) = &mut held.recall else { continue };
            if around.view.terms.has_lapsed(session) {
                continue;
            }
            if now >= recall.first + limits.flush() {
                slow.push(session);
            }
            if now >= recall.sent + limits.resend {
                recall.sent = now;
                around.out.push(recall.told(session, inode));
            }
        }
        let due: Vec<InodeId> = self.due.iter().filter(|(_, at)| **at <= now).map(|(inode, _)| *inode).collect();
        due.into_iter().for_each(|inode| self.step(inode, around));
        slow
    }

    pub fn next(&self, view: &View<'_>) -> Option<Moment> {
        let recalls = self.recalled.iter().filter(|(_, session)| !view.terms.has_lapsed(*session));
        let resends = recalls.filter_map(|(inode, session)| {
            let held = self.files.get(inode)?.held.get(session)?;
            held.recall.map(|recall| recall.sent + view.limits.resend)
        });
        resends.chain(self.due.values().copied()).min()
    }

    /// Requests that wait: which, whose, for which file, since when, and for whom.
    pub fn waits(&self) -> impl Iterator<Item = (AskId, SessionId, InodeId, Moment, Vec<(SessionId, Mode)>)> + '_ {
        self.files.iter().flat_map(|(inode, file)| {
            let recalled = file.held.iter().filter(|(_, held)| held.recall.is_some());
            let in_the_way: Vec<_> = recalled.map(|(session, held)| (*session, held.mode)).collect();
            file.queue.iter().map(move |w| (w.ask, w.session, *inode, w.since, in_the_way.clone()))
        })
    }

    pub fn audit(&self) -> Result<(), String> {
        for (inode, file) in &self.files {
            for (one, a) in file.held.iter() {
                if let Some((other, b)) = file.held.iter().find(|(s, b)| *s != one && !a.mode.agrees_with(b.mode)) {
                    return Err(format!("{inode}: {one} has {:?} and {other} has {:?}", a.mode, b.mode));
                }
                if a.generation > self.last {
                    return Err(format!("{inode}: {one} has a generation from nowhere"));
                }
            }
        }
        Ok(())
    }
}

/// Who asks for the server itself.
const NOBODY: SessionId = SessionId(0);

impl Purpose {
    /// What speaks against it. The server itself has no term.
    fn refusal(self, view: &View<'_>, session: SessionId, inode: InodeId) -> Option<Refusal> {
        match self {
            Purpose::Still { .. } => (!view.slots.holds(inode.slot())).then_some(Refusal::NotHere),
            _ => refusal(view, session, inode),
        }
    }
}

/// What speaks against a request of the session on the inode.
fn refusal(view: &View<'_>, session: SessionId, inode: InodeId) -> Option<Refusal> {
    if !view.slots.holds(inode.slot()) {
        Some(Refusal::NotHere)
    } else if !view.terms.is_live(session, view.now) || view.terms.is_ending(session) {
        Some(Refusal::NoTerm)
    } else {
        None
    }
}

impl File {
    /// What is not known here is not newer than `last`.
    fn new(last: Generation) -> Self {
        File { held: Few::default(), queue: VecDeque::new(), grown: None, storing: false, token: last, sync: false }
    }

    fn grow(&mut self, to: Grown) {
        let old = self.grown.unwrap_or(to);
        self.grown = Some(Grown { size: old.size.max(to.size), mtime: old.mtime.max(to.mtime) });
    }
}

impl Recall {
    fn told(&self, session: SessionId, inode: InodeId) -> Command {
        Command::Recall { session, inode, generation: self.number, token: self.token, to: self.to, locks: self.locks }
    }
}
