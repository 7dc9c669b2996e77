//! One process that may answer for some slots.
//!
//! Promises: [`Member::may_answer`] is true only under a lease of the leader's, counted from when this process *asked*, and only for slots
//! of which it has been told that nobody else answers for them. What it lost is gone with the first word of a newer roster; what is said
//! under an older one changes nothing.

use crate::{Answer, Heard, Limits, MemberId, Moment, Question, Reply, Roster};
use braid_types::{MembershipEpoch, Slot, SlotSet};

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this to the leader, whoever that is. The answer is told to [`Member::hears`] with the moment of this; if there is none, nothing is.
    Ask(Question),
    Wait(Moment),
    /// This process is no member any more and will never be again: it is to start anew.
    Over,
}

/// What is held otherwise than a moment ago, with whose it is or was. `None`: not known, so somebody's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Not answered for any more, from now on; what was granted there is void.
    pub lost: Vec<(Slot, Option<MemberId>)>,
    /// The former holder answers no more. What it granted lasts for a term of the names' leases (`braid-lease`, `Gained`).
    pub gained: Vec<(Slot, Option<MemberId>)>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.gained.is_empty()
    }
}

#[derive(Clone, Debug)]
pub struct Member {
    me: MemberId,
    addresses: Vec<String>,
    limits: Limits,
    known: Option<Known>,
    /// Of these it is known that nobody else answers for them while this process has a lease.
    held: SlotSet,
    /// Nothing is answered from then on.
    until: Moment,
    ask_at: Moment,
    heard: Option<Heard>,
    /// It leads: its lease is the election's, and nobody else's word counts.
    leads: bool,
    is_over: bool,
}

#[derive(Clone, Debug)]
struct Known {
    roster: Roster,
    own: SlotSet,
    /// The one before, if it was known.
    before: Option<Roster>,
}

impl Member {
    pub fn new(me: MemberId, addresses: Vec<String>, limits: Limits) -> Member {
        Member {
            me,
            addresses,
            limits,
            known: None,
            held: SlotSet::none(),
            until: Moment::ZERO,
            ask_at: Moment::ZERO,
            heard: None,
            leads: false,
            is_over: false,
        }
    }

    pub fn roster(&self) -> Option<&Roster> {
        self.known.as_ref().map(|known| &known.roster)
    }

    /// Under which a transaction of this process may commit.
    pub fn epoch(&self) -> Option<MembershipEpoch> {
        self.roster().map(|roster| roster.epoch)
    }

    /// Whether what this process says about the slot is not outdated by another. To be asked after all that the answer tells of has been read.
    pub fn may_answer(&self, slot: Slot, now: Moment) -> bool {
        self.is_live(now) && self.held.has(slot)
    }

    /// For how long, if nothing more is heard.
    pub fn answers_until(&self) -> Moment {
        if self.is_over { Moment::ZERO } else { self.until }
    }

    /// What it may answer for while its lease lasts.
    pub fn held(&self) -> &SlotSet {
        &self.held
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    fn is_live(&self, now: Moment) -> bool {
        !self.is_over && now < self.until
    }

    pub fn next(&mut self, now: Moment) -> Next {
        if self.is_over {
            return Next::Over;
        }
        if now < self.ask_at {
            return Next::Wait(self.ask_at);
        }
        self.ask_at = now + self.limits.round();
        Next::Ask(Question {
            member: self.me,
            addresses: self.addresses.clone(),
            knows: self.epoch(),
            heard: self.heard,
            leaves: false,
        })
    }

    /// What one that has stopped says to the leader, so that nobody waits for the end of its lease.
    pub fn last_word(&self) -> Question {
        Question { member: self.me, addresses: Vec::new(), knows: self.epoch(), heard: self.heard, leaves: true }
    }

    /// A transaction failed under this one's epoch, or a client knows a newer one: there is something to be asked at once.
    pub fn is_outdated(&mut self, now: Moment) {
        self.ask_at = self.ask_at.min(now);
    }

    /// The leader's answer to what was asked at `asked`.
    pub fn hears(&mut self, reply: Reply, asked: Moment, now: Moment) -> Change {
        match reply {
            Reply::Member(answer) if !self.leads || answer.roster.leader == self.me => {
                self.hears_answer(answer, asked, now)
            }
            Reply::Out(epoch) if !self.leads && self.epoch().is_some_and(|known| known < epoch) => self.ends(),
            _ => Change::default(),
        }
    }

    fn hears_answer(&mut self, answer: Answer, asked: Moment, now: Moment) -> Change {
        let Answer { roster, is_settled, lease, given } = answer;
        let (epoch, elected) = (roster.epoch, roster.elected);
        if self.is_over || self.epoch().is_some_and(|known| epoch < known) {
            return Change::default();
        }
        let mut change = self.follows(roster, now);
        if self.is_over {
            return change;
        }
        if is_settled {
            change.gained = self.settles();
            // What was lost and gained in one is both: another may have held it in between.
        }
        self.heard = self.heard.max(Some(Heard { elected, given }));
        // As leader its lease is exactly the election's, which may be shorter than what a former leader gave.
        self.until = if self.leads { asked + lease } else { self.until.max(asked + lease) };
        change
    }

    /// The row as it stands, read by this process itself: it need not wait for an answer to answer no more for what it lost. A row that is
    /// older than what is known, or the same, changes nothing.
    pub fn learns(&mut self, roster: Roster, now: Moment) -> Change {
        if self.is_over || self.leads || self.epoch().is_none_or(|known| roster.epoch <= known) {
            return Change::default();
        }
        self.follows(roster, now)
    }

    /// A newer roster, or the same: what it takes is lost.
    fn follows(&mut self, roster: Roster, now: Moment) -> Change {
        if !roster.has(self.me) {
            return self.ends();
        }
        let former = self.known.take();
        if let Some(known) = &former
            && known.roster.epoch >= roster.epoch
        {
            self.known = former;
            return Change::default();
        }
        let own = roster.slots_of(self.me);
        // A roster that was not heard of may have given all of it to others, who give it back by this one. Not while a lease lasts: the
        // leader waits for its end before it lets anybody else have what this process may still believe in.
        let is_next = former.as_ref().is_none_or(|known| known.roster.epoch.next() == roster.epoch);
        let stays = if is_next || self.is_live(now) { self.held.both(&own) } else { SlotSet::none() };
        let lost = self.held.without(&stays);
        let lost = lost.iter().map(|slot| (slot, roster.holder_of(slot).filter(|holder| *holder != self.me)));
        let change = Change { lost: lost.collect(), gained: Vec::new() };
        self.held = stays;
        let before = former.map(|known| known.roster).filter(|_| is_next);
        self.known = Some(Known { roster, own, before });
        change
    }

    /// What is its under the roster it follows is its alone.
    fn settles(&mut self) -> Vec<(Slot, Option<MemberId>)> {
        let Some(known) = &self.known else { return Vec::new() };
        let gained = known.own.without(&self.held);
        let former = |slot| known.before.as_ref().and_then(|roster| roster.holder_of(slot));
        let gained = gained.iter().map(|slot| (slot, former(slot).filter(|holder| *holder != self.me))).collect();
        self.held = known.own.clone();
        gained
    }

    /// This process leads, and may answer until then by the election. To be told as soon as it is known that it does, before a [`crate::Leader`]
    /// writes anything, and after each sign of life: from then on a lease of a former leader counts only as far as this. Its successor takes
    /// it for one that answers nothing (`Roster::leader`).
    pub fn leads(&mut self, until: Moment, now: Moment) {
        self.leads = true;
        // One that is over comes back with the own leader's answer, which says what happened meanwhile.
        if self.is_live(now) {
            self.until = until;
        }
    }

    /// Stops in order: it answers nothing from now on, and may tell the leader so ([`Member::last_word`]).
    pub fn leaves(&mut self) -> Change {
        self.ends()
    }

    fn ends(&mut self) -> Change {
        self.is_over = true;
        let held = std::mem::replace(&mut self.held, SlotSet::none());
        Change { lost: held.iter().map(|slot| (slot, None)).collect(), gained: Vec::new() }
    }
}
