//! Locks at the slot holder: flock and fcntl over the tables of `braid-posix`, which queue fairly and refuse what would
//! wait in a circle. A circle through another holder's locks is not seen here: every wait has an end, and ends there.
//!
//! *Turns.* A program that only tries, and again and again, would seldom meet the moment at which one that frees its locks and takes them
//! anew has none: to ask here takes longer than that, and SQLite has bytes to read between two of its locks. So who has been refused
//! for a while because of another session is let in when that has no lock left on the file, or none in the way and asks for one that would be.

use crate::command::{Command, Refusal};
use crate::files::HeldLock;
use crate::key::AskId;
use crate::time::Moment;
use braid_posix::locks::{Flavour, Lock, LockTable, Outcome, Ticket};
use braid_types::{ByteRange, InodeId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Who has been refused for so long is let in next: about the turn that each of two has that write by turns (SQLite's transactions take
/// some 20 ms).
const REFUSED_MAX: Duration = Duration::from_millis(500);
/// If it tries at least as often. SQLite pauses for up to 100 ms between two tries.
const TRIES_EVERY: Duration = Duration::from_millis(300);
/// Who has not tried for so long has given up.
const TRIES_AGAIN: Duration = Duration::from_secs(2);
/// Who has given up is forgotten when there are so many.
const REFUSED_KEPT: usize = 1024;

/// fcntl and flock do not see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    Posix,
    Flock,
}

/// Who holds a lock: an owner as its session's kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner {
    pub session: SessionId,
    pub owner: u64,
}

pub type LockSpec = Lock<LockOwner>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockAnswer {
    Granted,
    WouldBlock,
    /// Waiting would never end.
    Deadlock,
    TimedOut,
    /// To a test: nobody is in the way.
    Free,
    /// To a test: this one is.
    Held(LockSpec),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    ask: AskId,
    inode: InodeId,
    lock: LockSpec,
    since: Moment,
    until: Moment,
}

/// Tries of a session that were refused because of other sessions: the first of those that followed each other, and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Refused {
    first: Moment,
    last: Moment,
    /// What the last was for.
    wanted: HeldLock,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Locks {
    posix: LockTable<InodeId, LockOwner>,
    flock: LockTable<InodeId, LockOwner>,
    waiting: BTreeMap<(Space, Ticket), Waiting>,
    /// Granted, and not known to be heard of: what their session says it holds may lack them.
    unheard: BTreeMap<AskId, (InodeId, SessionId)>,
    refused: BTreeMap<(InodeId, SessionId), Refused>,
}

impl Locks {
    pub fn new() -> Self {
        let (posix, flock) = (LockTable::new(Flavour::Posix), LockTable::new(Flavour::Flock));
        Locks { posix, flock, waiting: BTreeMap::new(), unheard: BTreeMap::new(), refused: BTreeMap::new() }
    }

    fn table(&mut self, space: Space) -> &mut LockTable<InodeId, LockOwner> {
        match space {
            Space::Posix => &mut self.posix,
            Space::Flock => &mut self.flock,
        }
    }

    fn held(&self, inode: InodeId) -> impl Iterator<Item = HeldLock> + '_ {
        let posix = self.posix.held(inode).iter().map(|lock| HeldLock { space: Space::Posix, lock: *lock });
        posix.chain(self.flock.held(inode).iter().map(|lock| HeldLock { space: Space::Flock, lock: *lock }))
    }

    /// The session may grant itself locks on the file: nobody else has one, waits for one or tries again and again, and it knows of all
    /// it has.
    pub fn may_delegate(&self, inode: InodeId, session: SessionId, now: Moment) -> bool {
        let of_file = (inode, SessionId(0))..=(inode, SessionId(u64::MAX));
        let tries = |((_, other), refused): (&(InodeId, SessionId), &Refused)| {
            *other != session && now.since(refused.last) < TRIES_AGAIN
        };
        self.held(inode).all(|held| held.lock.owner.session == session)
            && self.waiting.values().all(|waiting| waiting.inode != inode)
            && self.unheard.values().all(|of| *of != (inode, session))
            && !self.refused.range(of_file).any(tries)
    }

    /// Gives the sessions in the way.
    pub fn set(
        &mut self,
        ask: AskId,
        inode: InodeId,
        space: Space,
        lock: LockSpec,
        (since, until): (Moment, Option<Moment>),
        out: &mut Vec<Command>,
    ) -> Vec<SessionId> {
        let session = lock.owner.session;
        let in_the_way = self.in_the_way(inode, space, &lock);
        let (outcome, others) = self.table(space).acquire(inode, lock, until.is_some());
        let answer = match (outcome, until) {
            (Outcome::Granted, _) => Some(LockAnswer::Granted),
            (Outcome::Deadlock, _) => Some(LockAnswer::Deadlock),
            (Outcome::Waiting(ticket), Some(until)) => {
                self.waiting.insert((space, ticket), Waiting { ask, inode, lock, since, until });
                None
            }
            (Outcome::WouldBlock | Outcome::Waiting(_), _) => Some(LockAnswer::WouldBlock),
        };
        if answer == Some(LockAnswer::WouldBlock) && in_the_way.iter().any(|other| *other != session) {
            self.is_refused(inode, HeldLock { space, lock }, since);
        }
        if answer == Some(LockAnswer::Granted) {
            self.is_granted(ask, inode, &lock);
        }
        out.extend(answer.map(|answer| Command::Locked { ask, answer }));
        self.granted(space, others, out);
        in_the_way
    }

    fn is_refused(&mut self, inode: InodeId, wanted: HeldLock, now: Moment) {
        let session = wanted.lock.owner.session;
        if self.refused.len() >= REFUSED_KEPT {
            self.refused.retain(|_, refused| now.since(refused.last) < TRIES_AGAIN);
        }
        let refused = self.refused.entry((inode, session)).or_insert(Refused { first: now, last: now, wanted });
        if now.since(refused.last) >= TRIES_AGAIN {
            refused.first = now;
        }
        (refused.last, refused.wanted) = (now, wanted);
    }

    fn is_granted(&mut self, ask: AskId, inode: InodeId, lock: &LockSpec) {
        self.unheard.insert(ask, (inode, lock.owner.session));
        // A lock for reading is often the first of two, and the other is what it is about.
        if lock.exclusive {
            self.refused.remove(&(inode, lock.owner.session));
        }
    }

    /// Another session has been refused for long, longer than this one, and tries again and again; this one has no lock on the file. If it
    /// waits for a moment with the next, nobody waits for what it has, and the other is let in. The same if what it has is not in the way
    /// of the other and what it asks for would be: SQLite with a write-ahead log keeps a lock for as long as the database is open.
    pub fn lets_in(&self, inode: InodeId, asks: &HeldLock, now: Moment) -> bool {
        let session = asks.lock.owner.session;
        let own = self.refused.get(&(inode, session)).map(|refused| refused.first);
        let of_file = (inode, SessionId(0))..=(inode, SessionId(u64::MAX));
        let others =
            self.refused.range(of_file).filter(|((_, other), _)| *other != session).map(|(_, refused)| refused);
        let mut due = others.filter(|refused| {
            let is_due = now.since(refused.first) >= REFUSED_MAX && now.since(refused.last) < TRIES_EVERY;
            is_due && own.is_none_or(|own| refused.first < own)
        });
        let has: Vec<HeldLock> = self.held(inode).filter(|held| held.lock.owner.session == session).collect();
        due.any(|refused| {
            has.is_empty() || asks.excludes(&refused.wanted) && !has.iter().any(|held| held.excludes(&refused.wanted))
        })
    }

    /// A request that waits does so until then. False if it does not wait.
    pub fn wait_until(&mut self, ask: AskId, until: Option<Moment>) -> bool {
        let found = self.waiting.values_mut().find(|waiting| waiting.ask == ask);
        match (found, until) {
            (Some(waiting), Some(until)) => {
                waiting.until = until;
                true
            }
            (found, _) => found.is_some(),
        }
    }

    fn in_the_way(&self, inode: InodeId, space: Space, lock: &LockSpec) -> Vec<SessionId> {
        let wanted = HeldLock { space, lock: *lock };
        let against = |held: &HeldLock| held.excludes(&wanted);
        self.held(inode).filter(against).map(|held| held.lock.owner.session).collect()
    }

    fn granted(&mut self, space: Space, tickets: Vec<Ticket>, out: &mut Vec<Command>) {
        for ticket in tickets {
            if let Some(waiting) = self.waiting.remove(&(space, ticket)) {
                self.is_granted(waiting.ask, waiting.inode, &waiting.lock);
                out.push(Command::Locked { ask: waiting.ask, answer: LockAnswer::Granted });
            }
        }
    }

    pub fn release(
        &mut self,
        inode: InodeId,
        space: Space,
        owner: LockOwner,
        range: ByteRange,
        out: &mut Vec<Command>,
    ) {
        let granted = self.table(space).release(inode, owner, range);
        self.granted(space, granted, out);
    }

    pub fn closed(&mut self, inode: InodeId, space: Space, owner: LockOwner, out: &mut Vec<Command>) {
        self.waiting.retain(|(s, _), w| *s != space || w.inode != inode || w.lock.owner != owner);
        let granted = self.table(space).release_owner(inode, owner);
        self.granted(space, granted, out);
    }

    pub fn test(&mut self, inode: InodeId, space: Space, lock: &LockSpec) -> LockAnswer {
        self.table(space).test(inode, lock).map_or(LockAnswer::Free, LockAnswer::Held)
    }

    /// A request that waits is not wanted any more, or its answer has been heard.
    pub fn abandon(&mut self, ask: AskId, out: &mut Vec<Command>) {
        self.unheard.remove(&ask);
        let found = self.waiting.iter().find(|(_, waiting)| waiting.ask == ask).map(|(key, w)| (*key, w.inode));
        if let Some(((space, ticket), inode)) = found {
            self.waiting.remove(&(space, ticket));
            let (_, granted) = self.table(space).cancel(inode, ticket);
            self.granted(space, granted, out);
        }
    }

    /// What `session` holds on the file is exactly `list`: it granted these itself, or says that it holds them. False
    /// if somebody else has a lock that excludes one of them.
    pub fn adopt(&mut self, inode: InodeId, session: SessionId, list: &[HeldLock], out: &mut Vec<Command>) -> bool {
        let mut all = true;
        for space in [Space::Posix, Space::Flock] {
            let own = list.iter().filter(|held| held.space == space && held.lock.owner.session == session);
            let own: Vec<LockSpec> = own.map(|held| held.lock).collect();
            let (taken, granted) = self.table(space).replace(inode, |owner| owner.session == session, &own);
            all &= taken;
            self.granted(space, granted, out);
        }
        all
    }

    pub fn session_over(&mut self, session: SessionId, out: &mut Vec<Command>) {
        self.waiting.retain(|_, waiting| waiting.lock.owner.session != session);
        self.unheard.retain(|_, (_, of)| *of != session);
        self.refused.retain(|(_, of), _| *of != session);
        for space in [Space::Posix, Space::Flock] {
            let granted = self.table(space).owners_gone(|owner| owner.session == session);
            self.granted(space, granted, out);
        }
    }

    /// Forgets the file: its slot is another's.
    pub fn forget(&mut self, lost: impl Fn(InodeId) -> bool, out: &mut Vec<Command>) {
        // All of them first: none is granted because another in front of it is forgotten.
        let waiting: Vec<_> =
            self.waiting.iter().filter(|(_, w)| lost(w.inode)).map(|(key, w)| (*key, w.ask, w.inode)).collect();
        for (key, ..) in &waiting {
            self.waiting.remove(key);
        }
        for ((space, ticket), ask, inode) in waiting {
            _ = self.table(space).cancel(inode, ticket);
            out.push(Command::Refuse { ask, why: Refusal::NotHere });
        }
        self.unheard.retain(|_, (inode, _)| !lost(*inode));
        self.refused.retain(|(inode, _), _| !lost(*inode));
        for space in [Space::Posix, Space::Flock] {
            let inodes: Vec<InodeId> = self.table(space).files().filter(|inode| lost(*inode)).collect();
            for inode in inodes {
                let owners: Vec<LockOwner> = self.table(space).held(inode).iter().map(|lock| lock.owner).collect();
                owners.into_iter().for_each(|owner| _ = self.table(space).release_owner(inode, owner));
            }
        }
    }

    /// Sessions that somebody waits for.
    pub fn blockers(&self) -> BTreeSet<SessionId> {
        let all = self.waiting.iter();
        all.flat_map(|((space, _), waiting)| self.in_the_way(waiting.inode, *space, &waiting.lock)).collect()
    }

    /// Ends the waits that have lasted long enough.
    pub fn pass(&mut self, now: Moment, out: &mut Vec<Command>) {
        let over: Vec<AskId> = self.waiting.values().filter(|w| w.until <= now).map(|w| w.ask).collect();
        for ask in over {
            self.abandon(ask, out);
            out.push(Command::Locked { ask, answer: LockAnswer::TimedOut });
        }
    }

    pub fn next(&self) -> Option<Moment> {
        self.waiting.values().map(|waiting| waiting.until).min()
    }

    /// Requests that wait: which, whose, for what file, since when, and for whom.
    pub fn waits(&self) -> impl Iterator<Item = (AskId, SessionId, InodeId, Moment, Vec<SessionId>)> + '_ {
        self.waiting.iter().map(|((space, _), w)| {
            let in_the_way = self.in_the_way(w.inode, *space, &w.lock);
            (w.ask, w.lock.owner.session, w.inode, w.since, in_the_way)
        })
    }
}
