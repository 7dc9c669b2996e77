//! A client's side: what it holds of one slot holder, what it may answer from its cache now, what it must do before it
//! acknowledges a revocation.
//!
//! Promises: nothing is served after the lease's end, which is counted on the client's clock from when the renewal was
//! asked for; an answer that was overtaken by a revocation, by a change made here or by the lease's end is not kept; an
//! acknowledgement is never given before [`Seen::Dropped`] or [`Seen::Flushed`] says that nobody, the kernel included,
//! shows what was revoked.
//!
//! The values lie with the caller: it asks [`Holdings::may_serve`] before it shows one, under the lock under which it
//! passes events here.

mod files;
mod many;

pub use many::{ManyHoldings, ManyTodo, Renewal};

use crate::files::{Generation, HeldLock, Mode, Want};
use crate::key::{Key, KeyRef, RevocationId};
use crate::limits::Limits;
use crate::table::Table;
use crate::time::{Moment, usable};
use braid_types::{InodeId, MembershipEpoch, Name, Slot};
use files::{FileHeld, Granted, Recalled};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A moment before something was asked for. Rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What happened to a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Time passed; see [`Holdings::wakeup`].
    Tick,
    /// The holder's answer to a renewal that was sent at `asked`.
    Renewed {
        asked: Moment,
        term: Duration,
        prolonged: bool,
        epoch: MembershipEpoch,
        reassert: Option<u64>,
    },
    /// The session has ended at the servers.
    SessionLost,

    /// The holder wants these dropped. `open`: what it unlinks is open here, or an open that may be of it is on its way.
    Revoke {
        revocation: RevocationId,
        keys: Vec<Key>,
        open: bool,
    },
    /// Daemon and kernel have let go of what the revocation named.
    Dropped {
        revocation: RevocationId,
    },

    /// A file lease is needed.
    Need {
        inode: InodeId,
        want: Want,
    },
    /// A grant; without `ticket` it answers a reassertion.
    Granted {
        ticket: Option<Ticket>,
        inode: InodeId,
        mode: Mode,
        generation: Generation,
        token: Generation,
        locks: bool,
    },
    /// A data server refused the token: a newer one is asked for.
    Stale {
        inode: InodeId,
        token: Generation,
        want: Want,
    },
    Refused {
        ticket: Ticket,
        inode: InodeId,
    },
    Recall {
        inode: InodeId,
        generation: Generation,
        token: Generation,
        to: Mode,
        locks: bool,
    },
    /// What [`Todo::Flush`] asked for is done. `held` are this session's locks on the file.
    Flushed {
        inode: InodeId,
        generation: Generation,
        held: Vec<HeldLock>,
    },
    /// The file is not needed beyond `to` any more; flushed as for a recall.
    GiveUp {
        inode: InodeId,
        to: Mode,
        held: Vec<HeldLock>,
    },
    /// A reasserted file lease is not this session's any more.
    Lost {
        inode: InodeId,
    },
}

/// What a client is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Todo {
    /// Drop what the keys cover, have the kernel drop it, then say [`Seen::Dropped`].
    Drop {
        revocation: RevocationId,
        keys: Vec<Key>,
    },
    Acknowledge {
        revocation: RevocationId,
        open: bool,
    },
    /// The lease is over: drop every name, attribute and page, have the kernel do so. Unsent writes stay.
    DropAll,
    Take {
        ticket: Ticket,
        inode: InodeId,
        want: Want,
    },
    /// Finish the operations that run under the lease and begin none. If `to` is less than what is held, have the kernel
    /// write back and unmap, and send what is buffered. Store size and times, in the attributes cached here too, then say
    /// [`Seen::Flushed`].
    Flush {
        inode: InodeId,
        generation: Generation,
        to: Mode,
        locks: bool,
    },
    Yield {
        inode: InodeId,
        generation: Generation,
        mode: Mode,
        held: Vec<HeldLock>,
    },
    /// Tell the holder all that is held, see [`Holdings::reassertion`].
    Reassert {
        round: u64,
    },
    /// What was written under the lease and not sent cannot be, what was locked is not: the file's handles fail.
    Fail {
        inode: InodeId,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holdings {
    drop_margin: Duration,
    file_hold: Duration,
    epoch: MembershipEpoch,
    /// Nothing is served from here on.
    end: Moment,
    /// What there was has been dropped at `end`.
    over: bool,
    /// The last call to say what is held that was heard.
    round: u64,
    seq: u64,
    /// What is held, and the ticket it was got with.
    keys: Table<Key, Ticket>,
    asks: BTreeSet<Ticket>,
    /// Answers to asks before these moments are not kept.
    voided: Table<Key, Ticket>,
    void_before: Ticket,
    /// Revocations that are being carried out, and their answer.
    dropping: BTreeMap<RevocationId, bool>,
    files: BTreeMap<InodeId, FileHeld>,
    /// Of them, those that are recalled and kept for a moment: all others need no look at the clock.
    kept_a_while: BTreeSet<InodeId>,
}

/// Keys remembered for asks under way; more void them all.
const VOIDED_MAX: usize = 16 << 10;

impl Holdings {
    pub fn new(limits: &Limits) -> Self {
        Holdings {
            drop_margin: limits.drop_margin,
            file_hold: limits.file_hold,
            epoch: MembershipEpoch(0),
            end: Moment::default(),
            over: true,
            round: 0,
            seq: 0,
            keys: Table::default(),
            asks: BTreeSet::new(),
            voided: Table::default(),
            void_before: Ticket(0),
            dropping: BTreeMap::new(),
            files: BTreeMap::new(),
            kept_a_while: BTreeSet::new(),
        }
    }

    fn draw(&mut self) -> Ticket {
        self.seq += 1;
        Ticket(self.seq)
    }

    // --- what is held ---

    /// To be drawn before something is asked for that is to be kept.
    pub fn ask(&mut self) -> Ticket {
        let ticket = self.draw();
        self.asks.insert(ticket);
        ticket
    }

    /// The answer came with leases on `keys`. Gives those that hold: what they cover may be kept. Every ticket ends here,
    /// an answer without leases or none at all with no keys.
    pub fn answered(&mut self, now: Moment, ticket: Ticket, keys: Vec<Key>) -> Vec<Key> {
        let which = self.answers(now, ticket, keys.clone());
        keys.into_iter().zip(which).filter_map(|(key, holds)| holds.then_some(key)).collect()
    }

    /// The same; says of each key whether it holds.
    pub fn answers(&mut self, now: Moment, ticket: Ticket, keys: Vec<Key>) -> Vec<bool> {
        let is_awaited = self.asks.remove(&ticket) && now < self.end && ticket >= self.void_before;
        let keep = |key: Key| {
            let holds = is_awaited && self.voided.get(&key).is_none_or(|at| *at < ticket);
            if holds {
                self.keys.insert(key, ticket);
            }
            holds
        };
        let which = keys.into_iter().map(keep).collect();
        self.forget_voided();
        which
    }

    /// An answer to this ticket may be of before what has been revoked, changed or given up here since. Attributes of a
    /// file that was owned when they were asked for, and is not any more, are then asked for again.
    pub fn is_overtaken(&self, ticket: Ticket, key: &Key) -> bool {
        ticket < self.void_before || self.voided.get(key).is_some_and(|at| *at > ticket)
    }

    /// This client is about to change what the keys cover. What it asked for before may be of before the change.
    pub fn changing(&mut self, keys: &[Key]) -> Ticket {
        keys.iter().for_each(|key| self.void(key.clone()));
        self.ask()
    }

    /// The change is answered. True if what the answer says of the key is to be kept in place of what was known, which
    /// needs a lease held since the change was sent, or one that came with the answer (`granted`). Else nothing is to be
    /// kept, in the kernel neither: a lease got in between may be of before the change or of after a later one.
    pub fn changed(&mut self, now: Moment, ticket: Ticket, key: &Key, granted: bool) -> bool {
        let live = now < self.end && ticket >= self.void_before;
        let untouched = self.voided.get(key).is_none_or(|at| *at < ticket);
        let throughout = self.keys.get(key).is_some_and(|got| *got < ticket);
        let keep = live && (throughout || (granted && untouched && self.asks.contains(&ticket)));
        match keep {
            true => _ = self.keys.insert(key.clone(), ticket),
            false => _ = self.keys.remove(key),
        }
        // What was asked for meanwhile may be of before the change.
        self.void(key.clone());
        keep
    }

    /// The caller does not keep what the key covers any more. The holder is not told: it asks before it matters.
    pub fn forget(&mut self, key: &Key) {
        self.keys.remove(key);
    }

    pub(crate) fn void(&mut self, key: Key) {
        let at = self.draw();
        if self.voided.len() >= VOIDED_MAX {
            self.voided.clear();
            self.void_before = at;
        }
        self.voided.insert(key, at);
    }

    fn forget_voided(&mut self) {
        if self.asks.is_empty() {
            self.voided.clear();
        }
    }

    /// What is held, to be told to a cache above that has it.
    pub fn held(&self) -> impl Iterator<Item = &Key> {
        self.keys.keys_in_order()
    }

    /// What the key covers may be shown.
    pub fn may_serve<'a>(&self, now: Moment, key: impl Into<KeyRef<'a>>) -> bool {
        now < self.end && self.keys.has(&key.into())
    }

    /// What is known of a name may be shown: the entry, or with the listing its absence too.
    pub fn may_serve_name(&self, now: Moment, dir: InodeId, name: &Name) -> bool {
        self.may_serve(now, KeyRef::Dir(dir)) || self.may_serve(now, KeyRef::Name(dir, name))
    }

    /// For how long the kernel may be told to keep what is held.
    pub fn left(&self, now: Moment) -> Duration {
        self.end.since(now)
    }

    /// The lease is over by its time, and that is noticed with whatever happens next.
    pub fn is_running_out(&self, now: Moment) -> bool {
        !self.over && now >= self.end
    }

    /// When [`Seen::Tick`] is due.
    pub fn wakeup(&self) -> Option<Moment> {
        let end = (!self.over).then_some(self.end);
        let holds = self.kept_a_while.iter().filter_map(|inode| self.files.get(inode)?.hold_ends());
        holds.chain(end).min()
    }

    // --- events ---

    /// Takes what happened, gives what is to be done. Time that passed counts first.
    pub fn on(&mut self, now: Moment, seen: Seen) -> Vec<Todo> {
        let mut todo = Vec::new();
        if now >= self.end && !self.over {
            self.lease_over(&mut todo);
        }
        self.end_holds(now, &mut todo);
        match seen {
            Seen::Tick => {}
            Seen::Renewed { asked, term, prolonged, epoch, reassert } => {
                self.renewed(now, asked, prolonged.then_some(term), epoch, reassert, &mut todo);
            }
            Seen::SessionLost => self.session_lost(&mut todo),
            Seen::Revoke { revocation, keys, open } => self.revoke(revocation, keys, open, &mut todo),
            Seen::Dropped { revocation } => {
                if let Some(open) = self.dropping.remove(&revocation) {
                    todo.push(Todo::Acknowledge { revocation, open });
                }
            }
            Seen::Need { inode, want } => self.need(now, inode, want, &mut todo),
            Seen::Granted { ticket, inode, mode, generation, token, locks } => {
                self.granted(now, ticket, inode, Granted { mode, generation, token, locks }, &mut todo);
            }
            Seen::Stale { inode, token, want } => self.stale(now, inode, token, want, &mut todo),
            Seen::Refused { ticket, inode } => self.refused(ticket, inode),
            Seen::Recall { inode, generation, token, to, locks } => {
                self.recall(now, inode, Recalled { number: generation, token, to, locks }, &mut todo);
            }
            Seen::Flushed { inode, generation, held } => self.flushed(inode, generation, held, &mut todo),
            Seen::GiveUp { inode, to, held } => self.give_up(inode, to, held, &mut todo),
            Seen::Lost { inode } => self.lost(inode, &mut todo),
        }
        todo
    }

    fn renewed(
        &mut self,
        now: Moment,
        asked: Moment,
        term: Option<Duration>,
        epoch: MembershipEpoch,
        reassert: Option<u64>,
        todo: &mut Vec<Todo>,
    ) {
        if epoch < self.epoch {
            return;
        }
        if epoch > self.epoch {
            // Another holder, or this one anew: it knows nothing of what was granted, so nothing of that is renewed.
            (self.epoch, self.round) = (epoch, 0);
            // Its revocations have numbers of their own.
            self.dropping.clear();
            self.lease_over(todo);
        }
        match reassert {
            // It took the names away in between, and asks what is left.
            Some(round) if round > self.round => {
                self.round = round;
                self.lease_over(todo);
                self.files.values_mut().for_each(FileHeld::reassert);
                todo.push(Todo::Reassert { round });
            }
            Some(round) if round == self.round => todo.push(Todo::Reassert { round }),
            Some(_) => return,
            None => {}
        }
        // A term counts from when it was asked for: the holder heard of it later.
        let end = asked + usable(term.unwrap_or_default()).saturating_sub(self.drop_margin);
        if end > self.end && now < end {
            (self.end, self.over) = (end, false);
            if reassert.is_none() {
                // The holder's term did not run out: what was only suspended here is good.
                self.files.values_mut().for_each(FileHeld::resume);
            }
        }
    }

    /// Nothing is served any more; answers to what was asked until now are not kept.
    fn lease_over(&mut self, todo: &mut Vec<Todo>) {
        self.over = true;
        self.end = Moment::default();
        self.keys.clear();
        self.voided.clear();
        self.void_before = self.draw();
        self.files.retain(|_, file| file.suspend());
        todo.push(Todo::DropAll);
    }

    /// Slots have gone to another holder, or may have: what `moves` is not held here any more, and answers on their way are not kept.
    /// Gives the files of slots that `goes` which are written under; they are to be said to that holder.
    fn leave(&mut self, moves: impl Fn(Slot) -> bool, goes: impl Fn(Slot) -> bool) -> Vec<(InodeId, FileHeld)> {
        self.keys.retain(|key, _| !moves(key.slot()));
        self.void_before = self.draw();
        let gone = self.files.extract_if(.., |inode, _| goes(inode.slot()));
        gone.filter_map(|(inode, file)| Some((inode, file.moved()?))).collect()
    }

    fn session_lost(&mut self, todo: &mut Vec<Todo>) {
        self.lease_over(todo);
        self.dropping.clear();
        let files = std::mem::take(&mut self.files);
        let failing = files.into_iter().filter(|(_, file)| file.is_written());
        todo.extend(failing.map(|(inode, _)| Todo::Fail { inode }));
    }

    fn revoke(&mut self, revocation: RevocationId, keys: Vec<Key>, open: bool, todo: &mut Vec<Todo>) {
        for key in &keys {
            self.keys.remove(key);
            self.void(key.clone());
        }
        self.forget_voided();
        // A repetition of what is being done needs no second hand; of what was done, its acknowledgement was lost.
        if self.dropping.insert(revocation, open).is_none() {
            todo.push(Todo::Drop { revocation, keys });
        }
    }
}
