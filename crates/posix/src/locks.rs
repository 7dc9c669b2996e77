//! The table of advisory locks, for many files and owners, as a pure state machine.
//!
//! Promises: two locks of different owners on overlapping bytes are both for reading; an owner's locks never overlap
//! (a new one replaces, splits or joins the older ones, as fcntl asks); who waits is served in order of arrival, and a
//! stream of readers cannot starve a writer; a request that would close a circle of owners who wait for locks is
//! refused at once. A request that does not wait ignores the queue, so that it agrees with [`LockTable::test`].
//!
//! The caller keeps what it waits for by [`Ticket`]; each call that could let somebody in returns the tickets granted.
//! Owners are compared across files, so one table should hold all files whose waits could form a circle. fcntl and
//! flock do not see each other: each has its own table.

use braid_types::ByteRange;
use std::collections::{BTreeMap, BTreeSet};

/// A lock that is held, wanted or in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock<O> {
    pub owner: O,
    /// Shown by F_GETLK.
    pub pid: u32,
    /// For writing.
    pub exclusive: bool,
    pub range: ByteRange,
}

impl<O: PartialEq> Lock<O> {
    /// Not both can be held.
    pub fn conflicts(&self, other: &Lock<O>) -> bool {
        self.owner != other.owner && (self.exclusive || other.exclusive) && self.range.overlaps(other.range)
    }
}

/// Names a waiting request; rises in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Granted,
    /// Somebody holds a conflicting lock, and the request did not want to wait.
    WouldBlock,
    /// The ticket will be granted later, or must be cancelled.
    Waiting(Ticket),
    /// Waiting would never end.
    Deadlock,
}

/// How a table treats an owner's second lock on the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// fcntl: the old lock is kept until the new one is granted.
    Posix,
    /// flock: the old lock is given up first, as Linux documents; so nobody holds while waiting, and nothing deadlocks.
    Flock,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter<O> {
    ticket: Ticket,
    lock: Lock<O>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FileLocks<O> {
    held: Vec<Lock<O>>,
    /// In order of arrival.
    waiting: Vec<Waiter<O>>,
}

impl<O> Default for FileLocks<O> {
    fn default() -> Self {
        FileLocks { held: Vec::new(), waiting: Vec::new() }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockTable<F, O> {
    flavour: Flavour,
    files: BTreeMap<F, FileLocks<O>>,
    /// Where each waiting owner waits; an owner may have several threads.
    waits: BTreeMap<O, BTreeSet<(F, Ticket)>>,
    next_ticket: u64,
}

impl<F: Ord + Copy, O: Ord + Copy> LockTable<F, O> {
    pub fn new(flavour: Flavour) -> Self {
        LockTable { flavour, files: BTreeMap::new(), waits: BTreeMap::new(), next_ticket: 1 }
    }

    /// Takes `lock` now, or with `wait` joins the queue. The second part are others' requests that were granted,
    /// because the owner gave something up (a downgrade) or because its waiting settled a dispute about the order.
    pub fn acquire(&mut self, file: F, lock: Lock<O>, wait: bool) -> (Outcome, Vec<Ticket>) {
        if lock.range.is_empty() {
            return (Outcome::Granted, Vec::new());
        }
        let mut given_up = false;
        if self.flavour == Flavour::Flock
            && let Some(locks) = self.files.get_mut(&file)
        {
            let kept = |held: &Lock<O>| held.owner != lock.owner || held.exclusive == lock.exclusive;
            let before = locks.held.len();
            locks.held.retain(kept);
            given_up = locks.held.len() < before;
        }
        let outcome = self.enter(file, lock, wait);
        let settles = given_up || outcome != Outcome::WouldBlock;
        let granted = if settles { self.promote_all(file, outcome) } else { Vec::new() };
        match outcome {
            Outcome::Waiting(ticket) if granted.contains(&ticket) => {
                (Outcome::Granted, granted.into_iter().filter(|&t| t != ticket).collect())
            }
            _ => (outcome, granted),
        }
    }

    /// Another table has granted the lock, and this one remembers it: in whatever order it hears of what was granted and given up.
    pub fn note(&mut self, file: F, lock: Lock<O>) {
        if !lock.range.is_empty() {
            self.grant(file, lock);
        }
    }

    /// What the owners of whom `is_of` is true hold on `file` is `list`, and nothing else: another table has granted them these, and taken
    /// the others, in an order that this one does not know. False if somebody else has a lock that excludes one of the list, which
    /// is left out then. Nobody who waits steps in between the old ones and the new ones.
    pub fn replace(&mut self, file: F, is_of: impl Fn(O) -> bool, list: &[Lock<O>]) -> (bool, Vec<Ticket>) {
        if let Some(locks) = self.files.get_mut(&file) {
            locks.held.retain(|held| !is_of(held.owner));
        }
        let mut all = true;
        for lock in list.iter().filter(|lock| !lock.range.is_empty()) {
            let is_free = self.holders_against(file, lock).all(&is_of);
            if is_free {
                self.grant(file, *lock);
            }
            all &= is_free;
        }
        (all, self.promote(file))
    }

    fn enter(&mut self, file: F, lock: Lock<O>, wait: bool) -> Outcome {
        let blocked = self.holders_against(file, &lock).next().is_some();
        if !blocked && (!wait || !self.queue_against(file, &lock, Ticket(u64::MAX))) {
            self.grant(file, lock);
            return Outcome::Granted;
        }
        if !wait {
            return Outcome::WouldBlock;
        }
        if self.flavour == Flavour::Posix {
            let holders: Vec<O> = self.holders_against(file, &lock).collect();
            if self.reaches(holders, lock.owner, false) {
                return Outcome::Deadlock;
            }
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.files.entry(file).or_default().waiting.push(Waiter { ticket, lock });
        self.waits.entry(lock.owner).or_default().insert((file, ticket));
        Outcome::Waiting(ticket)
    }

    /// Frees the owner's locks in `range` of `file`.
    pub fn release(&mut self, file: F, owner: O, range: ByteRange) -> Vec<Ticket> {
        if let Some(locks) = self.files.get_mut(&file) {
            cut(&mut locks.held, owner, range);
        }
        self.promote(file)
    }

    /// The first lock in the way of `lock`.
    pub fn test(&self, file: F, lock: &Lock<O>) -> Option<Lock<O>> {
        let held = &self.files.get(&file)?.held;
        held.iter().filter(|held| held.conflicts(lock)).min_by_key(|held| held.range.start).copied()
    }

    /// The request does not want to wait any more. False if it was granted (or unknown) before: the owner has the lock.
    pub fn cancel(&mut self, file: F, ticket: Ticket) -> (bool, Vec<Ticket>) {
        let Some(locks) = self.files.get_mut(&file) else { return (false, Vec::new()) };
        let Some(position) = locks.waiting.iter().position(|w| w.ticket == ticket) else { return (false, Vec::new()) };
        let waiter = locks.waiting.remove(position);
        self.forget_wait(waiter.lock.owner, file, ticket);
        (true, self.promote(file))
    }

    /// Frees and forgets everything of `owner` on `file`: its last handle was closed.
    pub fn release_owner(&mut self, file: F, owner: O) -> Vec<Ticket> {
        self.drop_owners(file, &|o| o == owner);
        self.promote(file)
    }

    /// Frees and forgets every owner that `gone` names, on every file: a client was declared dead.
    pub fn owners_gone(&mut self, gone: impl Fn(O) -> bool) -> Vec<Ticket> {
        let files: Vec<F> = self.files.keys().copied().collect();
        for &file in &files {
            self.drop_owners(file, &gone);
        }
        files.into_iter().flat_map(|file| self.promote(file)).collect()
    }

    /// What is held on `file`, for `status` and for reassertion.
    pub fn held(&self, file: F) -> &[Lock<O>] {
        self.files.get(&file).map_or(&[], |locks| &locks.held)
    }

    /// Files on which somebody holds or waits.
    pub fn files(&self) -> impl Iterator<Item = F> + '_ {
        self.files.keys().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    fn drop_owners(&mut self, file: F, gone: &impl Fn(O) -> bool) {
        let Some(locks) = self.files.get_mut(&file) else { return };
        locks.held.retain(|held| !gone(held.owner));
        let mut left = Vec::new();
        locks.waiting.retain(|w| {
            let stays = !gone(w.lock.owner);
            if !stays {
                left.push((w.lock.owner, w.ticket));
            }
            stays
        });
        for (owner, ticket) in left {
            self.forget_wait(owner, file, ticket);
        }
    }

    fn forget_wait(&mut self, owner: O, file: F, ticket: Ticket) {
        if let Some(waits) = self.waits.get_mut(&owner) {
            waits.remove(&(file, ticket));
            if waits.is_empty() {
                self.waits.remove(&owner);
            }
        }
    }

    fn holders_against(&self, file: F, lock: &Lock<O>) -> impl Iterator<Item = O> {
        let lock = *lock;
        let held = self.held(file);
        held.iter().filter(move |held| held.conflicts(&lock)).map(|held| held.owner)
    }

    fn earlier_against(&self, file: F, lock: &Lock<O>, before: Ticket) -> impl Iterator<Item = O> {
        let lock = *lock;
        let waiting = self.files.get(&file).map_or(&[][..], |locks| &locks.waiting);
        waiting
            .iter()
            .take_while(move |w| w.ticket < before)
            .filter(move |w| w.lock.conflicts(&lock))
            .map(|w| w.lock.owner)
    }

    /// Does somebody who came earlier go first? Not if he waits, through whomever, for the one who came later: keeping
    /// the order would then make a deadlock where the locks alone make none.
    fn queue_against(&self, file: F, lock: &Lock<O>, before: Ticket) -> bool {
        self.earlier_against(file, lock, before).any(|earlier| !self.reaches(vec![earlier], lock.owner, true))
    }

    /// Does one of `from` wait, directly or through others, for `target`? With `queued` also counts who stands before
    /// whom in a queue.
    fn reaches(&self, from: Vec<O>, target: O, queued: bool) -> bool {
        let mut seen = BTreeSet::new();
        let mut todo = from;
        while let Some(owner) = todo.pop() {
            if owner == target {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            for &(file, ticket) in self.waits.get(&owner).into_iter().flatten() {
                let waiting = self.files.get(&file).map_or(&[][..], |locks| &locks.waiting);
                let Some(waiter) = waiting.iter().find(|w| w.ticket == ticket) else { continue };
                todo.extend(self.holders_against(file, &waiter.lock));
                if queued {
                    todo.extend(self.earlier_against(file, &waiter.lock, ticket));
                }
            }
        }
        false
    }

    fn grant(&mut self, file: F, lock: Lock<O>) {
        insert(&mut self.files.entry(file).or_default().held, lock);
    }

    /// After a new wait the order may have to yield on other files too: its edges can close a circle anywhere.
    fn promote_all(&mut self, file: F, outcome: Outcome) -> Vec<Ticket> {
        let mut granted = self.promote(file);
        if matches!(outcome, Outcome::Waiting(_)) && self.flavour == Flavour::Posix {
            let owners_files: BTreeSet<F> = self.waits.values().flatten().map(|&(file, _)| file).collect();
            granted.extend(owners_files.into_iter().flat_map(|file| self.promote(file)));
        }
        granted
    }

    /// Grants whoever may go now, in order.
    fn promote(&mut self, file: F) -> Vec<Ticket> {
        let mut granted = Vec::new();
        loop {
            let waiting = self.files.get(&file).map_or(&[][..], |locks| &locks.waiting);
            let next = waiting.iter().position(|w| {
                self.holders_against(file, &w.lock).next().is_none() && !self.queue_against(file, &w.lock, w.ticket)
            });
            let (Some(position), Some(locks)) = (next, self.files.get_mut(&file)) else { break };
            let Waiter { ticket, lock } = locks.waiting.remove(position);
            insert(&mut locks.held, lock);
            self.forget_wait(lock.owner, file, ticket);
            granted.push(ticket);
        }
        if self.files.get(&file).is_some_and(|locks| locks.held.is_empty() && locks.waiting.is_empty()) {
            self.files.remove(&file);
        }
        granted
    }
}

/// Takes `range` out of the owner's locks.
fn cut<O: Copy + PartialEq>(held: &mut Vec<Lock<O>>, owner: O, range: ByteRange) {
    let mut tails = Vec::new();
    held.retain_mut(|lock| {
        if lock.owner != owner || !lock.range.overlaps(range) {
            return true;
        }
        let whole = lock.range;
        if range.end < whole.end {
            tails.push(Lock { range: ByteRange::new(range.end, whole.end), ..*lock });
        }
        lock.range = ByteRange::new(whole.start, range.start.max(whole.start));
        !lock.range.is_empty()
    });
    held.extend(tails);
}

/// Puts `lock` in the place of what its owner had there, and joins equal neighbours.
fn insert<O: Copy + PartialEq>(held: &mut Vec<Lock<O>>, mut lock: Lock<O>) {
    cut(held, lock.owner, lock.range);
    held.retain(|old| {
        let touches = old.range.end == lock.range.start || lock.range.end == old.range.start;
        let joins = touches && old.owner == lock.owner && old.exclusive == lock.exclusive;
        if joins {
            lock.range = ByteRange::new(old.range.start.min(lock.range.start), old.range.end.max(lock.range.end));
        }
        !joins
    });
    held.push(lock);
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
