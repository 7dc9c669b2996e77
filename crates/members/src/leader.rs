//! The leader's side: who is a member, who may answer for how long, and when what one has lost is another's.
//!
//! Promises: a member is written out of the row only when its lease is surely over or it said so itself, and is given none from the moment on at
//! which that write begins; a lease is given only under a row that is known to be written by this leader; nobody is told that a
//! roster is settled while anybody may still answer for what it has lost.
//!
//! *A leader that takes over* knows the row and not what its predecessors granted. All of that was granted before it was elected, at `b` on its
//! clock, and is over at `b + l + l/20` with the longest lease `l` the row tells of: each of these was counted from a question asked before
//! `b`. Who was a member may until then hold anything, unless it asks, and says which roster it follows: the row's, then it holds no more
//! than the row gives it; or the new one. The predecessor itself, if the row is its own, answers nothing since before `b`: its lease as a member was the
//! election's. A leader that was elected and died before it wrote the row is a member like any other. The first thing that is written is a row of
//! one's own, under a new epoch: what a predecessor still has under way expects the one before and is refused.

use crate::follower::Follower;
use crate::{Answer, Heard, Limits, MemberId, Moment, Question, Reply, Roster, Seat};
use braid_types::{LeaderEpoch, MembershipEpoch};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing until then, unless something is heard.
    Wait(Moment),
    /// Read the row.
    Read,
    /// Write the row if it is as expected (`None`: there is none), and raise the engine's epoch, in one transaction.
    Write { expects: Option<Roster>, roster: Roster },
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// The row was not as expected: it is this.
    Not(Option<Roster>),
    /// The answer was lost, or there was none.
    Unknown,
}

/// One leadership.
#[derive(Clone, Debug)]
pub struct Leader {
    me: Seat,
    elected: LeaderEpoch,
    limits: Limits,
    /// Leads by the election until then, as of the last that was heard of it; and without a gap since then.
    until: Moment,
    since: Moment,
    /// Nobody else led any more.
    began: Moment,
    state: State,
    /// The members of the row, itself included; of a predecessor's row those that may still answer.
    followers: BTreeMap<MemberId, Follower>,
    joins: BTreeMap<MemberId, Join>,
    /// What the row said when this one took over.
    before: Option<Roster>,
    /// Nobody answers any more for what is another's under the row.
    is_settled: bool,
    /// When the row was known to be written.
    written_at: Moment,
    /// Until then nobody else is to be a member.
    alone_until: Moment,
}

#[derive(Clone, Debug)]
enum State {
    /// Has not read the row.
    Reads,
    Has {
        row: Option<Roster>,
        /// Written by this leader. Before that nobody is granted anything.
        is_own: bool,
        tried: Option<Tried>,
    },
    /// Another leads, or the row is gone.
    Over,
}

/// A row that is to take the place of the one there is. It stays the same until it has: an attempt of which nothing is heard may still come
/// through, and who is written out by it is granted nothing meanwhile.
#[derive(Clone, Debug)]
struct Tried {
    roster: Roster,
    /// To be looked at before it is written again.
    is_unknown: bool,
}

/// Wants to be a member.
#[derive(Clone, Debug)]
struct Join {
    addresses: Vec<String>,
    first: Moment,
    last: Moment,
}

impl Leader {
    /// For a process that was elected under `elected` and may answer for that until `until`; to be made when this is known, and after its
    /// [`crate::Member`] was told ([`crate::Member::leads`]).
    pub fn new(me: Seat, elected: LeaderEpoch, limits: Limits, until: Moment, now: Moment) -> Leader {
        Leader {
            me,
            elected,
            limits,
            until,
            since: now,
            began: now,
            state: State::Reads,
            followers: BTreeMap::new(),
            joins: BTreeMap::new(),
            before: None,
            is_settled: false,
            written_at: Moment::ZERO,
            alone_until: Moment::ZERO,
        }
    }

    /// This one is to be the only member until then: others are granted nothing more, and are written out when what they have is over; nobody
    /// comes. It can be ended by a moment that has passed.
    pub fn stays_alone(&mut self, until: Moment) {
        self.alone_until = until;
        self.joins.clear();
    }

    /// The election has confirmed that this process leads.
    pub fn leads(&mut self, until: Moment, now: Moment) {
        if now >= self.until {
            self.since = now;
        }
        self.until = until;
    }

    /// As far as it is known to be written, and this leader's own.
    pub fn roster(&self) -> Option<&Roster> {
        match &self.state {
            State::Has { row: Some(row), is_own: true, .. } => Some(row),
            _ => None,
        }
    }

    /// How many others are members, or will be whatever is heard from now on: that they are to be may be written already.
    pub fn others(&self) -> usize {
        let (row, tried) = match &self.state {
            State::Has { row, tried, .. } => (row.as_ref(), tried.as_ref().map(|tried| &tried.roster)),
            State::Reads | State::Over => (None, None),
        };
        let seats = row.into_iter().chain(tried).flat_map(|roster| &roster.members);
        let ids: BTreeSet<_> = seats.map(|seat| seat.id).chain(self.joins.keys().copied()).collect();
        ids.into_iter().filter(|id| *id != self.me.id).count()
    }

    /// Another leads: whatever this one knows is worthless.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// What is to be done now. The caller does it and says what became of it, before it asks again; where a read fails it just asks again.
    pub fn next(&mut self, now: Moment) -> Step {
        if now >= self.until {
            return Step::Wait(now + self.limits.round());
        }
        self.forget_who_went(now);
        let next = match &self.state {
            State::Has { row, tried: None, is_own } => self.next_roster(row.as_ref(), *is_own, now),
            _ => None,
        };
        let due = self.due(now);
        match &mut self.state {
            State::Reads | State::Has { tried: Some(Tried { is_unknown: true, .. }), .. } => Step::Read,
            State::Has { row, tried, .. } => {
                if let Some(roster) = next {
                    *tried = Some(Tried { roster, is_unknown: false });
                }
                let Some(tried) = tried else { return Step::Wait(due) };
                Step::Write { expects: row.clone(), roster: tried.roster.clone() }
            }
            State::Over => Step::Wait(Moment::MAX),
        }
    }

    /// The row was read. An error is not this: what is to be done next stays.
    pub fn read(&mut self, found: Option<Roster>, now: Moment) {
        self.finds(found, now);
    }

    /// What became of the write that [`Leader::next`] asked for.
    pub fn wrote(&mut self, written: Written, now: Moment) {
        match (&mut self.state, written) {
            (State::Has { tried: Some(_), .. }, Written::Done) => self.has_written(now),
            (State::Has { tried: Some(tried), .. }, Written::Unknown) => tried.is_unknown = true,
            (State::Has { .. }, Written::Not(found)) => self.finds(found, now),
            _ => {}
        }
    }

    fn finds(&mut self, found: Option<Roster>, now: Moment) {
        let elected = found.as_ref().map(|row| (row.elected, row.leader));
        match &mut self.state {
            State::Reads if elected.is_none_or(|by| by.0 < self.elected || by == (self.elected, self.me.id)) => {
                self.takes_over(found, now);
            }
            State::Has { tried: Some(tried), .. } if found.as_ref() == Some(&tried.roster) => self.has_written(now),
            // Not carried out, or not yet: what is written again is the same, so that it does not matter which of the two comes through.
            State::Has { row, tried: Some(tried), .. } if found == *row => tried.is_unknown = false,
            // A predecessor's last word came through before this one's first, which expects what was there before and never will.
            State::Has { is_own: false, .. } if elected.is_some_and(|(by, _)| by < self.elected) => {
                self.takes_over(found, now);
            }
            _ => self.state = State::Over,
        }
    }

    /// The row is a predecessor's, or there is none.
    fn takes_over(&mut self, found: Option<Roster>, now: Moment) {
        if let Some(row) = &found {
            let over_at = self.began + self.limits.believed(row.lease().max(self.limits.lease));
            let me = self.me.id;
            // Whoever wrote it answers no more.
            let is_there = |id: MemberId| row.has(id) && (id == me || id != row.leader);
            self.followers.retain(|id, _| is_there(*id));
            for seat in row.members.iter().filter(|seat| is_there(seat.id)) {
                let follower = self.followers.entry(seat.id).or_insert_with(|| Follower::of_others(now));
                follower.over_at = follower.over_at.max(if seat.id == me { Moment::MAX } else { over_at });
            }
        }
        self.before = found.clone();
        self.state = State::Has { row: found, is_own: false, tried: None };
    }

    /// What was tried is the row, for sure.
    fn has_written(&mut self, now: Moment) {
        let State::Has { row, is_own, tried } = &mut self.state else { return };
        let Some(Tried { roster, .. }) = tried.take() else { return };
        self.followers.retain(|id, _| roster.has(*id));
        for (id, share) in roster.shares() {
            let over_at = match id == self.me.id {
                true => Moment::MAX,
                false => now + self.limits.believed(self.limits.lease),
            };
            let follower = self.followers.entry(id).or_insert_with(|| Follower::new(over_at, now));
            (follower.share, follower.follows) = (share, false);
            self.joins.remove(&id);
        }
        (self.is_settled, self.written_at) = (false, now);
        (*row, *is_own) = (Some(roster), true);
    }

    /// A member's sign of life, or one that wants to be a member. Its own questions too.
    pub fn asks(&mut self, question: Question, now: Moment) -> Reply {
        let Question { member, addresses, knows, heard, leaves } = question;
        if now >= self.until {
            return Reply::NotLeading;
        }
        if leaves {
            self.leaves(member);
            return Reply::Wait;
        }
        let (row, is_own, tried) = match &self.state {
            State::Has { row, is_own, tried } => (row.as_ref(), *is_own, tried.as_ref()),
            State::Reads => (None, false, None),
            State::Over => return Reply::NotLeading,
        };
        let Some(follower) = self.followers.get_mut(&member) else {
            let is_joining = tried.is_some_and(|tried| tried.roster.has(member));
            return match (knows, row) {
                (None, _) => {
                    self.wants_to_join(member, addresses, now);
                    Reply::Wait
                }
                // Of a newer row than this leader's it is not for this leader to speak.
                (Some(knows), Some(row)) if is_own && knows <= row.epoch && !is_joining => Reply::Out(row.epoch),
                _ => Reply::Wait,
            };
        };
        // It said that it answers nothing any more, or is about to be written out, or is to be.
        let is_to_go = member != self.me.id && now < self.alone_until;
        if follower.has_left || is_to_go || tried.is_some_and(|tried| !tried.roster.has(member)) {
            return Reply::Wait;
        }
        if let Some(before) = self.before.as_ref().filter(|before| knows == Some(before.epoch)) {
            follower.follows_before(&before.slots_of(member));
        }
        let Some(row) = row.filter(|_| is_own) else { return Reply::Wait };
        if let Some(Heard { elected, given }) = heard
            && elected == self.elected
        {
            follower.proven = follower.proven.max(given.min(now));
        }
        let lease = match member == self.me.id {
            true => self.until.saturating_sub(now),
            false if now >= follower.proven + self.limits.deaf() => Duration::ZERO,
            false => self.limits.lease,
        };
        follower.is_answered(knows == Some(row.epoch), lease, self.limits.believed(lease), now);
        self.is_settled = self.is_settled || self.followers.values().all(|follower| follower.is_settled(now));
        if self.is_settled
            && let Some(follower) = self.followers.get_mut(&member)
        {
            follower.is_told_that_all_is_settled();
        }
        Reply::Member(Answer { roster: row.clone(), is_settled: self.is_settled, lease, given: now })
    }

    fn wants_to_join(&mut self, member: MemberId, addresses: Vec<String>, now: Moment) {
        self.forget_who_went(now);
        if now < self.alone_until {
            return;
        }
        // As many as one roster has room for: more could not be taken in at once.
        if self.joins.len() >= self.limits.members_max && !self.joins.contains_key(&member) {
            return;
        }
        let join = self.joins.entry(member).or_insert(Join { addresses, first: now, last: now });
        join.last = now;
    }

    /// One that asked a lease ago and has not asked since has gone.
    fn forget_who_went(&mut self, now: Moment) {
        let lease = self.limits.lease;
        self.joins.retain(|_, join| now < join.last + lease);
    }

    /// A member stops in order: it answers nothing any more.
    pub fn leaves(&mut self, member: MemberId) {
        self.joins.remove(&member);
        if member != self.me.id
            && let Some(follower) = self.followers.get_mut(&member)
        {
            follower.has_left = true;
        }
    }

    /// What the row is to say instead, if anything: all that is due is one epoch.
    fn next_roster(&self, row: Option<&Roster>, is_own: bool, now: Moment) -> Option<Roster> {
        let is_out = |id: MemberId| {
            self.followers.get(&id).is_none_or(|follower| follower.has_left || self.is_silent(follower, now))
        };
        let members = row.map_or(&[][..], |row| &row.members);
        let mut seats: BTreeMap<MemberId, Vec<String>> =
            members.iter().filter(|seat| !is_out(seat.id)).map(|seat| (seat.id, seat.addresses.clone())).collect();
        if is_own && self.waits_for_followers(now).is_some() {
            return None;
        }
        let goes = seats.len() < members.len();
        let comes = self.joins.values().any(|join| now >= join.first + self.limits.gather);
        if is_own && !goes && !comes {
            return None;
        }
        if !is_own {
            seats.insert(self.me.id, self.me.addresses.clone());
        }
        for (id, join) in &self.joins {
            if seats.len() < self.limits.members_max {
                seats.entry(*id).or_insert_with(|| join.addresses.clone());
            }
        }
        let is_same = seats.keys().copied().eq(members.iter().map(|seat| seat.id));
        if is_own && is_same {
            return None;
        }
        let own = self.limits.lease;
        let longest = row.map_or(own, |row| row.lease().max(own));
        let lease = if now >= self.began + self.limits.believed(longest) { own } else { longest };
        Some(Roster {
            epoch: row.map_or(MembershipEpoch(0), |row| row.epoch).next(),
            elected: self.elected,
            leader: self.me.id,
            lease_ms: lease.as_millis() as u64,
            members: seats.into_iter().map(|(id, addresses)| Seat { id, addresses }).collect(),
        })
    }

    /// Until then there is no next row while somebody has not said that he follows this one: who misses one takes all that he has for moved,
    /// which is a pause of what stays. So long takes a question, its answer, and the next question.
    fn waits_for_followers(&self, now: Moment) -> Option<Moment> {
        let until = self.written_at + self.limits.round() * 2;
        (now < until && self.followers.values().any(|follower| follower.is_behind(now))).then_some(until)
    }

    /// Its lease is over, and there was time to ask: a leader that was none for a while has heard of nobody, and need not count out everybody.
    fn is_silent(&self, follower: &Follower, now: Moment) -> bool {
        now >= follower.over_at && now >= self.since + self.limits.lease
    }

    /// When something may be to be done if nothing is heard.
    fn due(&self, now: Moment) -> Moment {
        if let Some(until) = self.waits_for_followers(now) {
            return until.min(now + self.limits.round());
        }
        let silent = self.followers.values().map(|follower| follower.over_at.max(self.since + self.limits.lease));
        let joins = self.joins.values().map(|join| join.first + self.limits.gather).filter(|at| *at > now);
        silent.chain(joins).fold(now + self.limits.round(), Moment::min).max(now)
    }
}
