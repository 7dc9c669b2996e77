//! The slot holder: sessions' terms, leases of the namespace, file leases and locks behind one call.

use crate::alone::Alone;
use crate::command::{Command, EndReason};
use crate::event::Event;
use crate::files::{Around, Files, Generation, Grown, HeldLock, Mode};
use crate::key::{AnnouncementId, AskId, Key};
use crate::limits::Limits;
use crate::locks::Locks;
use crate::names::{Names, View};
use crate::slots::Slots;
use crate::terms::Terms;
use crate::time::Moment;
use braid_types::{InodeId, MemberId, MembershipEpoch, SessionId, Slot, SlotSet};
use std::collections::BTreeSet;

/// Something that waits, for `braid admin why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// A change by a session waits for another to drop what it caches of these; without one for the former holder's grants to run
    /// out, on whatever it changes.
    Change { announcement: AnnouncementId, by: SessionId, since: Moment, session: Option<SessionId>, keys: Vec<Key> },
    /// A request for a file lease, or for size and times, waits for these sessions, which have this, or for those to drop the file's
    /// attributes, which change under the lease.
    File {
        ask: AskId,
        session: SessionId,
        inode: InodeId,
        since: Moment,
        sessions: Vec<(SessionId, Mode)>,
        attributes: Vec<SessionId>,
    },
    /// A lock waits for those of these sessions.
    Lock { ask: AskId, session: SessionId, inode: InodeId, since: Moment, sessions: Vec<SessionId> },
    /// File leases and locks wait for this session to say what it held.
    Settling { session: SessionId, until: Moment },
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    limits: Limits,
    slots: Slots,
    terms: Terms,
    names: Names,
    files: Files,
    locks: Locks,
    alone: Alone,
    /// Nothing happens by itself before this.
    wakeup: Option<Moment>,
}

macro_rules! view {
    ($self:ident, $now:expr) => {
        View { now: $now, limits: &$self.limits, terms: &$self.terms, slots: &$self.slots, alone: &$self.alone }
    };
}

/// Splits the holder into its files and what is around them.
macro_rules! around {
    ($self:ident, $now:expr, $out:expr, $end:expr) => {
        Around { view: view!($self, $now), names: &mut $self.names, locks: &mut $self.locks, out: $out, end: $end }
    };
}

impl Holder {
    /// Keeps at most so many leases of each kind; see [`Holder::memory`].
    pub fn new(limits: Limits, leases_max: usize) -> Self {
        Holder {
            limits,
            slots: Slots::new(),
            terms: Terms::default(),
            names: Names::new(leases_max),
            files: Files::new(leases_max),
            locks: Locks::new(),
            alone: Alone::default(),
            wakeup: None,
        }
    }

    /// When [`Event::Tick`] is due, if nothing else happens.
    pub fn wakeup(&self) -> Option<Moment> {
        self.wakeup
    }

    /// Takes what happened, gives what is to be done, in order. Time that passed counts first: an event cannot use what
    /// ended before it.
    pub fn on(&mut self, now: Moment, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        let mut end = BTreeSet::new();
        let due = self.wakeup.is_some_and(|at| at <= now);
        if due {
            self.pass(now, &mut out, &mut end);
        }
        // The hot path: asking and claiming leaves nothing to be repeated, unless memory is full.
        let is_claim = matches!(event, Event::Ask { .. } | Event::Claim { .. });
        self.take(now, event, &mut out, &mut end);
        let quiet = is_claim && !due && out.len() <= 1;
        for session in end {
            if self.terms.begin_end(session) {
                out.push(Command::End { session, why: EndReason::Lapsed });
            }
        }
        if !quiet {
            self.wakeup = self.next(now);
        }
        out
    }

    fn take(&mut self, now: Moment, event: Event, out: &mut Vec<Command>, end: &mut BTreeSet<SessionId>) {
        let view = view!(self, now);
        match event {
            Event::Tick => {}
            Event::Gained { epoch, slots, sessions } => self.gained(now, epoch, slots, sessions),
            Event::Epoch { epoch, members, keeps } => self.begin_epoch(now, epoch, members, keeps, out),
            Event::Renew { session } => self.renew(now, session, out),
            Event::Gone { session } => {
                self.slots.gone(session);
                self.terms.gone(session, now);
                self.pass(now, out, end);
            }
            Event::Ending { session } => _ = self.terms.begin_end(session),
            Event::Ended { session } => self.ended(now, session, out, end),

            Event::Ask { ask, session } => self.names.ask(ask, session),
            Event::Claim { ask, keys } => self.names.claim(&view, ask, keys, out),
            Event::Abandon { ask } => {
                self.names.abandon(ask);
                self.locks.abandon(ask, out);
                self.files.abandon(ask, &mut around!(self, now, out, end));
            }
            Event::Announce { announcement, session, keys, unlinks } => {
                let unlinks = unlinks.map(|inode| (inode, self.files.openers(inode)));
                self.names.announce(&view, announcement, session, keys, unlinks, out);
            }
            Event::Release { announcement, keep } => self.names.release(&view, announcement, keep, out),
            Event::Acknowledge { session, revocation, open } => {
                if let Some(inode) = self.names.acknowledge(&view, session, revocation, open, out) {
                    self.files.step(inode, &mut around!(self, now, out, end));
                }
            }
            Event::Reassert { session, round, files } => {
                // What was said under an older number is about leases that are long over.
                let Some(first) = self.terms.says(session, round) else { return };
                let all = first && self.terms.says_all(session);
                self.files.reassert(session, &files, (first, all), &mut around!(self, now, out, end));
                self.terms.settle(session);
                if self.slots.settle(session) {
                    self.settled(now, out, end);
                }
            }
            other => self.take_of_file(now, other, out, end),
        }
    }

    fn take_of_file(&mut self, now: Moment, event: Event, out: &mut Vec<Command>, end: &mut BTreeSet<SessionId>) {
        let around = &mut around!(self, now, out, end);
        let files = &mut self.files;
        match event {
            Event::Opened { ask, session, inode, handles } => files.opened(ask, session, inode, handles, around),
            Event::Take { ask, session, inode, want } => files.take(ask, session, inode, want, around),
            Event::Refresh { ask, session, inode } => files.refresh(ask, session, inode, around),
            Event::Still { ask, inode } => files.still(ask, inode, around),
            Event::HoldWrites { on } => files.hold_writes(on, around),
            Event::Yield { session, inode, generation, mode, locks } => {
                files.yielded(session, inode, generation, mode, &locks, around);
            }
            Event::Extend { ask, session, inode, generation, size, mtime } => {
                let ending = around.view.terms.is_ending(session);
                let accepted = !ending && files.extend(session, inode, generation, Grown { size, mtime });
                around.out.push(Command::Extended { ask, accepted });
            }
            Event::EndSync => files.end_sync(around),
            Event::Above { floor } => files.above(floor, around),
            Event::Stored { inode, size, mtime } => files.stored(inode, Grown { size, mtime }, around),
            Event::Lock { ask, inode, space, lock, until } => files.lock(ask, inode, (space, lock), until, around),
            Event::TestLock { ask, inode, space, lock } => files.test_lock(ask, inode, (space, lock), around),
            Event::Unlock { inode, space, owner, range } => {
                around.locks.release(inode, space, owner, range, around.out);
            }
            Event::LocksClosed { inode, space, owner } => around.locks.closed(inode, space, owner, around.out),
            _ => {}
        }
    }

    // --- time ---

    fn pass(&mut self, now: Moment, out: &mut Vec<Command>, end: &mut BTreeSet<SessionId>) {
        for session in self.terms.lapse(now) {
            // Not of one whose process has gone, or that is being ended.
            if !self.terms.is_ending(session) {
                out.push(Command::Lapsed { session });
            }
            let bars = self.names.session_over(&view!(self, now), session, out);
            self.files.lapsed(session, &mut around!(self, now, out, end));
            bars.into_iter().for_each(|inode| self.files.step(inode, &mut around!(self, now, out, end)));
        }
        let waited_for = self.locks.blockers();
        end.extend(waited_for.into_iter().filter(|session| self.terms.has_lapsed(*session)));
        let mut slow = self.names.pass(&view!(self, now), out);
        slow.extend(self.files.pass(&mut around!(self, now, out, end)));
        slow.into_iter().for_each(|session| self.terms.condemn(session));
        self.locks.pass(now, out);
        if self.slots.until().is_some_and(|until| until <= now) {
            for session in self.slots.unknown().clone() {
                if self.terms.begin_end(session) {
                    out.push(Command::End { session, why: EndReason::Unsettled });
                }
            }
        }
    }

    fn next(&self, now: Moment) -> Option<Moment> {
        let view = view!(self, now);
        let slots = self.slots.until().filter(|until| now < *until);
        let all = [slots, self.terms.next(), self.names.next(&self.limits), self.files.next(&view), self.locks.next()];
        all.into_iter().flatten().min()
    }

    // --- sessions and membership ---

    fn renew(&mut self, now: Moment, session: SessionId, out: &mut Vec<Command>) {
        let (until, prolonged) = self.terms.renew(session, now + self.limits.session_lease);
        let (reassert, anew) = self.terms.asked(session).unzip();
        let (epoch, anew) = (self.slots.epoch, anew.unwrap_or_default());
        out.push(Command::Renewed { session, until, prolonged, epoch, reassert, anew });
    }

    fn ended(&mut self, now: Moment, session: SessionId, out: &mut Vec<Command>, end: &mut BTreeSet<SessionId>) {
        self.terms.remove(session);
        self.alone.session_over(now, session);
        let bars = self.names.session_over(&view!(self, now), session, out);
        self.locks.session_over(session, out);
        self.files.ended(session, &mut around!(self, now, out, end));
        bars.into_iter().for_each(|inode| self.files.step(inode, &mut around!(self, now, out, end)));
        if self.slots.settle(session) {
            self.settled(now, out, end);
        }
    }

    fn gained(&mut self, now: Moment, epoch: MembershipEpoch, slots: SlotSet, sessions: Vec<SessionId>) {
        let is_early = epoch > self.slots.epoch && self.names.knows_members();
        if epoch < self.slots.epoch || is_early {
            // They may be another's by now; or what went with that epoch is still here.
            return;
        }
        self.slots.epoch = epoch;
        self.files.begin_epoch(epoch);
        if slots.is_empty() {
            return;
        }
        self.names.slots_gained();
        // A client counts at most 98 % of a term from before the former holder's end: at 1.01/0.99 of drift that is less
        // than a whole term on this clock (0.98 × 1.0203 = 0.9999).
        self.slots.gain(slots, now + self.limits.session_lease, &sessions);
        sessions.into_iter().for_each(|session| self.terms.inherit(session));
    }

    fn begin_epoch(
        &mut self,
        now: Moment,
        epoch: MembershipEpoch,
        members: BTreeSet<MemberId>,
        keeps: SlotSet,
        out: &mut Vec<Command>,
    ) {
        if epoch <= self.slots.epoch {
            return;
        }
        let follows = epoch.0 == self.slots.epoch.0.saturating_add(1);
        let lost = self.slots.held_without(&if follows { keeps } else { SlotSet::none() });
        self.slots.epoch = epoch;
        self.files.begin_epoch(epoch);
        if !lost.is_empty() {
            self.slots.lose(&lost);
            self.alone.forget(|slot| lost.has(slot));
            self.names.slots_lost(|slot| lost.has(slot), out);
            self.locks.forget(|inode| lost.has(inode.slot()), out);
            self.files.slots_lost(|inode| lost.has(inode.slot()), out);
        }
        if !follows {
            // Sessions that saw every epoch take what is here for what stayed.
            self.terms.forget();
        }
        self.names.members_are(&view!(self, now), members, out);
    }

    /// Everybody has said what he holds, or has ended.
    fn settled(&mut self, now: Moment, out: &mut Vec<Command>, end: &mut BTreeSet<SessionId>) {
        _ = self.names.pass(&view!(self, now), out);
        self.files.step_all(&mut around!(self, now, out, end));
    }

    // --- sessions that work alone ---

    /// The session wants the slot to itself. Given is what others may show of it, which is to be revoked before the session is told: from
    /// now on they are granted nothing there; and the number of this giving. `None`: it cannot have it now.
    pub fn take_slot(&mut self, now: Moment, session: SessionId, slot: Slot, number: u64) -> Option<(u64, Vec<Key>)> {
        // Who has not said what it holds may show something of before.
        let is_settled = self.slots.unknown().is_empty() && self.slots.holds(slot);
        if !is_settled || !self.terms.is_live(session, now) || self.names.is_changed_by_others(session, slot) {
            return None;
        }
        let serial = self.alone.take(now, session, slot, number)?;
        Some((serial, self.names.shown_by_others(session, slot)))
    }

    /// Who, other than `session`, has the slot and is to be waited for. Of two that are being ended, and show nothing any more, neither waits
    /// for the other: each would for the other's end.
    pub fn alone_in(&self, session: SessionId, slot: Slot, now: Moment) -> Option<SessionId> {
        let is_over = |of: SessionId| self.terms.is_ending(of) && !self.terms.is_live(of, now);
        self.alone.other(session, slot).filter(|other| !(is_over(session) && is_over(*other)))
    }

    pub fn alone(&self) -> &Alone {
        &self.alone
    }

    pub fn alone_mut(&mut self) -> &mut Alone {
        &mut self.alone
    }

    // --- looking ---

    /// Leases kept: of the namespace, of files.
    pub fn leases(&self) -> (usize, usize) {
        (self.names.leases(), self.files.leases())
    }

    pub fn has(&self, session: SessionId, key: &Key) -> bool {
        self.names.has(session, key)
    }

    pub fn mode(&self, session: SessionId, inode: InodeId) -> (Mode, Generation) {
        self.files.mode(session, inode)
    }

    /// Files that somebody may write.
    pub fn written(&self) -> Vec<InodeId> {
        self.files.written()
    }

    /// What was granted to it here may be in force.
    pub fn is_live(&self, session: SessionId, now: Moment) -> bool {
        self.terms.is_live(session, now)
    }

    /// When what was granted to it here is over, if it is not renewed.
    pub fn live_until(&self, session: SessionId) -> Option<Moment> {
        self.terms.end(session)
    }

    pub fn holds(&self, slot: Slot) -> bool {
        self.slots.holds(slot)
    }

    /// Under which announcements are ready here.
    pub fn epoch(&self) -> MembershipEpoch {
        self.slots.epoch
    }

    /// The last number that was given out of file leases.
    pub fn last_number(&self) -> Generation {
        self.files.last_number()
    }

    /// The session that has the file's bytes, size and times to itself.
    pub fn owner(&self, inode: InodeId) -> Option<SessionId> {
        self.files.owner(inode)
    }

    /// Sessions that have a lease of the file.
    pub fn holders(&self, inode: InodeId) -> impl Iterator<Item = SessionId> + '_ {
        self.files.holders(inode)
    }

    /// See [`Files::is_only_read`].
    pub fn is_only_read(&self, inode: InodeId) -> bool {
        self.files.is_only_read(inode)
    }

    /// Sessions that are known to have it open for writing. Of one that was never in anybody's way nothing is known.
    pub fn writers(&self, inode: InodeId) -> impl Iterator<Item = SessionId> + '_ {
        self.files.writers(inode)
    }

    /// Sessions that may have had it to themselves when slots came here, and have not said whether.
    pub fn may_own(&self, inode: InodeId) -> impl Iterator<Item = SessionId> + '_ {
        self.slots.may_own(inode)
    }

    /// The session should wait for a moment before it asks for a lock: see [`Locks::lets_in`].
    pub fn lets_in(&self, inode: InodeId, asks: &HeldLock, now: Moment) -> bool {
        self.locks.lets_in(inode, asks, now)
    }

    /// The session was asked under this number, and under no other since.
    pub fn has_asked(&self, session: SessionId, round: u64) -> bool {
        self.terms.says(session, round).is_some()
    }

    /// Sessions that have not said what they hold.
    pub fn unsaid(&self) -> usize {
        self.slots.unknown().len()
    }

    /// It is one of them.
    pub fn awaits(&self, session: SessionId) -> bool {
        self.slots.unknown().contains(&session)
    }

    /// One of them.
    pub fn has_not_said(&self) -> Option<SessionId> {
        self.slots.unknown().first().copied()
    }

    /// Everything that waits, and for whom.
    pub fn waits(&self) -> Vec<Waits> {
        let changes = self.names.waits();
        let files = self.files.waits().map(|(ask, session, inode, since, sessions)| Waits::File {
            ask,
            session,
            inode,
            since,
            sessions,
            attributes: self.names.barred_by(inode),
        });
        let locks = self.locks.waits().map(|(ask, session, inode, since, sessions)| Waits::Lock {
            ask,
            session,
            inode,
            since,
            sessions,
        });
        let until = self.slots.until().unwrap_or_default();
        let settling = self.slots.unknown().iter().map(|session| Waits::Settling { session: *session, until });
        changes.chain(files).chain(locks).chain(settling).collect()
    }

    /// Checks what must hold between the tables at every moment; for tests and simulations.
    pub fn audit(&self, now: Moment) -> Result<(), String> {
        self.names.audit(&view!(self, now))?;
        self.files.audit()
    }
}
