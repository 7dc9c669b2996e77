//! Changes of one metadata server, announced at every holder of what they change.
//!
//! Promises: a change is transacted only when every holder concerned has said under one and the same epoch, the one it was begun
//! under, that nobody else shows what it makes old; the transaction carries that epoch, and the engine refuses it under another. Until
//! its outcome is known, or the epoch has been raised (then it has been committed before that or never will be), nothing of it is
//! released. A release is repeated until it is acknowledged or its holder is a member no more. What the session may keep is said after
//! the holders have answered, and no answer waits for that for longer than a repetition takes.
//!
//! Nobody waits in a circle: announcements do not exclude each other, and a change waits for sessions alone. Each wait has an end
//! at the holder, and for a holder that does not answer one here.
//!
//! Leaves to the caller: numbers of changes that rise; carrying messages, of which any may be lost, repeated or overtaken; what to do
//! with a change that was given up, of which nothing has been transacted: it is begun anew under another number.

use crate::key::{AnnouncementId, Key};
use crate::limits::Limits;
use crate::roster::Roster;
use crate::time::Moment;
use braid_types::{InodeId, MemberId, MembershipEpoch, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What happened to a server's changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Happened {
    /// Time passed; see [`Announcer::wakeup`].
    Tick,
    /// Another epoch has begun: the engine's fence stands at it. Told after [`crate::Event::Epoch`] to the holder here.
    EpochChanged(Roster),
    /// A change of what `keys` cover is to be made for the session. `unlinks` may lose its last name with it.
    Begin { change: u64, session: SessionId, keys: Vec<Key>, unlinks: Option<InodeId> },
    /// [`crate::Command::Ready`] of a holder.
    Ready { from: MemberId, change: u64, epoch: MembershipEpoch, open: Vec<SessionId>, unsure: bool },
    /// [`crate::Command::Void`] of a holder, which had this epoch then.
    Refused { from: MemberId, change: u64, epoch: MembershipEpoch },
    /// A holder has released the change, or knew nothing of it.
    Released { from: MemberId, change: u64, granted: Vec<Key> },
    /// The change is committed. `keep` covers what its answer tells the session.
    Answered { change: u64, keep: Vec<Key> },
    /// It has changed nothing and never will: its transaction failed for certain, or was not begun and is not wanted any more.
    Failed { change: u64 },
    /// Whether it was committed, or still will be, is not known. `Answered` or `Failed` may follow.
    Unknown { change: u64 },
}

/// Why a change is given up before it is transacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It was announced under an epoch that is over.
    EpochChanged,
    /// This holder does not hold what it changes, or takes the announcement for an old one.
    Refused(MemberId),
    /// This holder has not said for long that it is ready.
    Silent(MemberId),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// [`crate::Event::Announce`] at this holder, which may be the one here, if it is in this epoch; else it has refused.
    Announce {
        to: MemberId,
        announcement: AnnouncementId,
        session: SessionId,
        keys: Vec<Key>,
        unlinks: Option<InodeId>,
        epoch: MembershipEpoch,
    },
    /// Transact, under this epoch.
    Transact {
        change: u64,
        epoch: MembershipEpoch,
        open: Vec<SessionId>,
        unsure: bool,
    },
    /// [`crate::Event::Release`] at this holder; what it grants goes into [`Happened::Released`].
    Release {
        to: MemberId,
        announcement: AnnouncementId,
        keep: Vec<Key>,
    },
    GiveUp {
        change: u64,
        why: Why,
    },
    /// The session may be told that the change is made, and that it holds these.
    Kept {
        change: u64,
        granted: Vec<Key>,
    },
}

/// A change at one holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    to: MemberId,
    /// To be told again; nothing is lost on the way to the holder here.
    keys: Vec<Key>,
    unlinks: Option<InodeId>,
    ready: bool,
    keep: Vec<Key>,
    /// Its answer to the release has come, or never will.
    released: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Waiting,
    Transacting,
    /// Not known, and not under way any more for all that is known here.
    Unknown,
    /// `tells`: what is kept is still to be said.
    Releasing {
        tells: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Change {
    session: SessionId,
    epoch: MembershipEpoch,
    stage: Stage,
    since: Moment,
    sent: Moment,
    /// Most changes have one, and need no second allocation.
    first: Part,
    others: Vec<Part>,
    open: Vec<SessionId>,
    unsure: bool,
    granted: Vec<Key>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcer {
    here: MemberId,
    roster: Roster,
    resend: Duration,
    patience: Duration,
    changes: BTreeMap<u64, Change>,
    /// Of them, those of which something may have to be told again.
    elsewhere: BTreeSet<u64>,
    /// Those that wait for holders, in the order in which they were begun.
    waiting: BTreeSet<u64>,
}

impl Part {
    fn new(to: MemberId) -> Self {
        Part { to, keys: Vec::new(), unlinks: None, ready: false, keep: Vec::new(), released: false }
    }
}

impl Change {
    fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }

    fn part(&mut self, at: MemberId) -> Option<&mut Part> {
        self.parts_mut().find(|part| part.to == at)
    }

    fn part_or_new(&mut self, at: MemberId) -> &mut Part {
        let found = self.others.iter().position(|part| part.to == at);
        match found {
            _ if self.first.to == at => &mut self.first,
            Some(place) => &mut self.others[place],
            None => {
                self.others.push(Part::new(at));
                let last = self.others.len() - 1;
                &mut self.others[last]
            }
        }
    }

    /// Says what is kept, if all that keep something have answered, or `now` is too late for the rest.
    fn tell(&mut self, change: u64, late: bool, steps: &mut Vec<Step>) {
        let answered = self.parts().all(|part| part.released || part.keep.is_empty());
        if self.stage == (Stage::Releasing { tells: true }) && (answered || late) {
            self.stage = Stage::Releasing { tells: false };
            steps.push(Step::Kept { change, granted: std::mem::take(&mut self.granted) });
        }
    }
}

impl Announcer {
    /// `here` is this start of the server.
    pub fn new(limits: &Limits, here: MemberId, roster: Roster) -> Self {
        let patience = limits.longest_wait_for_a_session() + limits.session_lease;
        Announcer {
            here,
            roster,
            resend: limits.resend,
            patience,
            changes: BTreeMap::new(),
            elsewhere: BTreeSet::new(),
            waiting: BTreeSet::new(),
        }
    }

    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Changes that are not over.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// When [`Happened::Tick`] is due, if nothing else happens.
    pub fn wakeup(&self) -> Option<Moment> {
        let resends = self.elsewhere.iter().filter_map(|id| self.changes.get(id)).filter(|change| change.repeats());
        let oldest = self.waiting.first().and_then(|id| self.changes.get(id));
        let patience = oldest.map(|change| change.since + self.patience);
        resends.map(|change| change.sent + self.resend).chain(patience).min()
    }

    /// Takes what happened, adds what is to be done, in order.
    pub fn on(&mut self, now: Moment, happened: Happened, steps: &mut Vec<Step>) {
        match happened {
            Happened::Tick => self.tick(now, steps),
            Happened::EpochChanged(roster) => self.epoch_changed(now, roster, steps),
            Happened::Begin { change, session, keys, unlinks } => {
                self.begin(now, change, session, (keys, unlinks), steps);
            }
            Happened::Ready { from, change, epoch, open, unsure } => {
                self.ready(change, (from, epoch), (open, unsure), steps);
            }
            Happened::Refused { from, change, epoch } => {
                let waits = |c: &Change| c.stage == Stage::Waiting && c.parts().any(|part| part.to == from);
                // One that has not heard of the epoch yet is asked again.
                if self.changes.get(&change).is_some_and(|c| waits(c) && epoch >= c.epoch) {
                    self.give_up(now, change, Why::Refused(from), steps);
                }
            }
            Happened::Released { from, change, granted } => {
                let Some(found) = self.changes.get_mut(&change) else { return };
                let releasing = matches!(found.stage, Stage::Releasing { .. });
                if let Some(part) = found.part(from).filter(|part| releasing && !part.released) {
                    part.released = true;
                    found.granted.extend(granted);
                    found.tell(change, false, steps);
                    self.forget(change);
                }
            }
            Happened::Answered { change, keep } => self.release(now, change, Some(keep), steps),
            Happened::Failed { change } => self.release(now, change, None, steps),
            Happened::Unknown { change } => {
                let Some(found) = self.changes.get_mut(&change) else { return };
                if found.stage == Stage::Transacting {
                    found.stage = Stage::Unknown;
                    let over = found.epoch < self.roster.epoch();
                    // Fenced: what has not been committed never will be.
                    if over {
                        self.release(now, change, None, steps);
                    }
                }
            }
        }
    }

    fn begin(
        &mut self,
        now: Moment,
        id: u64,
        session: SessionId,
        (keys, unlinks): (Vec<Key>, Option<InodeId>),
        steps: &mut Vec<Step>,
    ) {
        let epoch = self.roster.epoch();
        let holder = keys.first().map(|key| self.roster.holder_of(key));
        let holder = holder.or(unlinks.map(|inode| self.roster.holder(inode.slot()))).unwrap_or(self.here);
        let mut change = Change {
            session,
            epoch,
            stage: Stage::Waiting,
            since: now,
            sent: now,
            first: Part::new(holder),
            others: Vec::new(),
            open: Vec::new(),
            unsure: false,
            granted: Vec::new(),
        };
        if keys.iter().all(|key| self.roster.holder_of(key) == holder) {
            change.first.keys = keys;
        } else {
            for key in keys {
                let at = self.roster.holder_of(&key);
                change.part_or_new(at).keys.push(key);
            }
        }
        if let Some(inode) = unlinks {
            change.part_or_new(self.roster.holder(inode.slot())).unlinks = unlinks;
        }
        let here = self.here;
        for part in change.parts_mut() {
            let keys = if part.to == here { std::mem::take(&mut part.keys) } else { part.keys.clone() };
            let (to, announcement) = (part.to, AnnouncementId { server: here, number: id });
            steps.push(Step::Announce { to, announcement, session, keys, unlinks: part.unlinks, epoch });
        }
        if change.parts().any(|part| part.to != here) {
            self.elsewhere.insert(id);
        }
        self.waiting.insert(id);
        self.changes.insert(id, change);
    }

    fn ready(
        &mut self,
        id: u64,
        (from, epoch): (MemberId, MembershipEpoch),
        (open, unsure): (Vec<SessionId>, bool),
        steps: &mut Vec<Step>,
    ) {
        let Some(change) = self.changes.get_mut(&id) else { return };
        // Under another epoch it says nothing of the one that the transaction is going to carry.
        if change.stage != Stage::Waiting || epoch != change.epoch {
            return;
        }
        let Some(part) = change.part(from).filter(|part| !part.ready) else { return };
        part.ready = true;
        change.open.extend(open);
        change.unsure |= unsure;
        if change.parts().all(|part| part.ready) {
            change.stage = Stage::Transacting;
            self.waiting.remove(&id);
            let (open, unsure) = (std::mem::take(&mut change.open), change.unsure);
            steps.push(Step::Transact { change: id, epoch, open, unsure });
        }
    }

    fn give_up(&mut self, now: Moment, change: u64, why: Why, steps: &mut Vec<Step>) {
        steps.push(Step::GiveUp { change, why });
        self.release(now, change, None, steps);
    }

    /// The change's end is known. With `keep` it was committed.
    fn release(&mut self, now: Moment, id: u64, keep: Option<Vec<Key>>, steps: &mut Vec<Step>) {
        let Some(change) = self.changes.get_mut(&id) else { return };
        if matches!(change.stage, Stage::Releasing { .. }) {
            return;
        }
        change.stage = Stage::Releasing { tells: keep.is_some() };
        self.waiting.remove(&id);
        change.sent = now;
        for key in keep.unwrap_or_default() {
            // What has moved meanwhile is kept by nobody.
            if let Some(part) = change.part(self.roster.holder_of(&key)) {
                part.keep.push(key);
            }
        }
        let announcement = AnnouncementId { server: self.here, number: id };
        for part in change.parts_mut() {
            part.released = !self.roster.members().contains(&part.to);
            if !part.released {
                steps.push(Step::Release { to: part.to, announcement, keep: part.keep.clone() });
            }
        }
        change.tell(id, false, steps);
        self.forget(id);
    }

    fn forget(&mut self, id: u64) {
        let over = |c: &Change| matches!(c.stage, Stage::Releasing { .. }) && c.parts().all(|part| part.released);
        if self.changes.get(&id).is_some_and(over) {
            self.changes.remove(&id);
            self.elsewhere.remove(&id);
        }
    }

    fn epoch_changed(&mut self, now: Moment, roster: Roster, steps: &mut Vec<Step>) {
        if roster.epoch() <= self.roster.epoch() {
            return;
        }
        self.roster = roster;
        let ids: Vec<u64> = self.changes.keys().copied().collect();
        for id in ids {
            let Some(change) = self.changes.get_mut(&id) else { continue };
            match change.stage {
                // Its transaction would fail, and who holds what it changes may be another.
                Stage::Waiting => self.give_up(now, id, Why::EpochChanged, steps),
                // The engine will say what became of it.
                Stage::Transacting => {}
                Stage::Unknown => self.release(now, id, None, steps),
                Stage::Releasing { .. } => {
                    let members = self.roster.members();
                    change.parts_mut().for_each(|part| part.released |= !members.contains(&part.to));
                    change.tell(id, false, steps);
                    self.forget(id);
                }
            }
        }
    }

    fn tick(&mut self, now: Moment, steps: &mut Vec<Step>) {
        let waiting = self.waiting.iter().filter_map(|id| Some((*id, self.changes.get(id)?)));
        let late = waiting.filter(|(_, change)| now >= change.since + self.patience);
        let late: Vec<(u64, MemberId)> =
            late.filter_map(|(id, c)| Some((id, c.parts().find(|p| !p.ready)?.to))).collect();
        for (id, silent) in late {
            self.give_up(now, id, Why::Silent(silent), steps);
        }
        for id in &self.elsewhere {
            let Some(change) = self.changes.get_mut(id) else { continue };
            if !change.repeats() || now < change.sent + self.resend {
                continue;
            }
            change.sent = now;
            change.repeat(self.here, *id, steps);
            // It is late: the holder may believe that the session has more than it is told.
            change.tell(*id, true, steps);
        }
    }
}

impl Change {
    fn repeats(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Releasing { .. })
    }

    fn repeat(&self, here: MemberId, id: u64, steps: &mut Vec<Step>) {
        let announcement = AnnouncementId { server: here, number: id };
        let (session, epoch) = (self.session, self.epoch);
        for part in self.parts().filter(|part| part.to != here) {
            let (to, unlinks) = (part.to, part.unlinks);
            match self.stage {
                Stage::Waiting if !part.ready => {
                    let keys = part.keys.clone();
                    steps.push(Step::Announce { to, announcement, session, keys, unlinks, epoch });
                }
                Stage::Releasing { .. } if !part.released => {
                    steps.push(Step::Release { to, announcement, keep: part.keep.clone() });
                }
                _ => {}
            }
        }
    }
}
