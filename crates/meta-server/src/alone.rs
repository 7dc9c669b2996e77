//! Sessions that work alone in a slot (docs/design/0029-removals-behind.md; the rules are `braid-lease`'s `Alone`).
//!
//! Promises: while a session has a slot to itself nobody else's request reads or changes anything there; it waits until the session has
//! left, and then sees all that the session has told its programs. It waits for no longer than for a file. After a crash of this server
//! the session is waited for before anybody is answered, since it is on record as keeping something all the while.

use crate::config::PlantedBug;
use crate::leases::Leases;
use crate::server::MetaServer;
use braid_api::meta::{LeaveSlots, MetaAnswer, MetaRequest, TakeSlot};
use braid_api::{Code, Error, Result, trace};
use braid_lease::{Alone, Key, Moment};
use braid_types::{InodeId, MembershipEpoch, SessionId, Slot, TraceId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a request reads or changes.
pub(crate) enum Touched {
    Slots(BTreeSet<Slot>),
    /// It goes along a path, of which only the beginning is known.
    Anywhere,
}

impl Touched {
    pub fn of(inodes: impl IntoIterator<Item = InodeId>) -> Touched {
        Touched::Slots(inodes.into_iter().filter(|inode| inode.0 != 0).map(InodeId::slot).collect())
    }

    fn has(&self, slot: Slot) -> bool {
        match self {
            Touched::Slots(slots) => slots.contains(&slot),
            Touched::Anywhere => true,
        }
    }

    pub fn by(request: &MetaRequest) -> Touched {
        match request {
            MetaRequest::Resolve(_) | MetaRequest::AtPath(_) => Touched::Anywhere,
            MetaRequest::Walk(m) => Touched::of([m.from]),
            MetaRequest::Rename(m) => Touched::of([m.from.id, m.to.id]),
            MetaRequest::Link(m) => Touched::of([m.inode.id, m.parent.id]),
            other => Touched::of([other.about().inode]),
        }
    }

    /// What an answer tells of, beyond what was asked for: a name may lead into any slot.
    pub fn told_in(answer: &MetaAnswer) -> Touched {
        match answer {
            MetaAnswer::Lookup(a) => Touched::of(a.attr.map(|attr| attr.id)),
            MetaAnswer::LookToOpen(a) => Touched::of(a.found.attr.map(|attr| attr.id)),
            // With what it leads to, each directory that it was looked for in.
            MetaAnswer::Walk(a) => Touched::of(a.found.attrs.iter().map(|attr| attr.id)),
            MetaAnswer::OpenAhead(a) => Touched::of(a.iter().flatten().map(|opened| opened.attr.id)),
            MetaAnswer::StatNames(a) => Touched::of(a.iter().flatten().map(|attr| attr.id)),
            MetaAnswer::ReadDir(a) => Touched::of(a.entries.iter().filter_map(|(.., attr)| Some(attr.as_ref()?.id))),
            _ => Touched::of([]),
        }
    }
}

/// A slot that a session is about to have. Dropped before it is given, it is nobody's again.
struct Taking {
    leases: Arc<Leases>,
    slot: Slot,
    /// `None` when it is given.
    serial: Option<u64>,
}

impl Taking {
    fn given(mut self) {
        self.serial = None;
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let Some(serial) = self.serial else { return };
        let now = self.leases.now();
        self.leases.state.lock().holder.alone_mut().give_up(now, self.slot, serial);
        self.leases.left.notify_waiters();
    }
}

/// A request that waits for who works alone.
pub(crate) struct Outside {
    pub session: SessionId,
    pub others: BTreeSet<SessionId>,
    pub since: Moment,
    pub trace: TraceId,
}

/// Its place among those that wait, until dropped.
struct Waits<'a>(&'a Leases, u64);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.state.lock().outside.remove(&self.1);
    }
}

/// Nobody works alone anywhere, until dropped.
pub(crate) struct Together(Arc<Leases>);

impl Drop for Together {
    fn drop(&mut self) {
        self.0.state.lock().holder.alone_mut().open();
    }
}

impl Leases {
    /// Somebody other than the session has a slot to itself.
    pub(crate) fn others_work_alone(&self, session: SessionId) -> bool {
        self.state.lock().holder.alone().others(session).next().is_some()
    }

    pub(crate) fn works_alone(&self, session: SessionId) -> bool {
        self.state.lock().holder.alone().has_any(session)
    }

    fn leave_slots(&self, session: SessionId, slots: &[(Slot, u64)]) {
        let (mut state, now) = (self.state.lock(), self.now());
        slots.iter().for_each(|(slot, number)| state.holder.alone_mut().leave(now, session, *slot, *number));
        drop(state);
        self.left.notify_waiters();
    }

    pub(crate) fn leaves_slots(&self, session: SessionId, left: &LeaveSlots) {
        // What was agreed with another start is over.
        let is_of_this = left.epoch == self.state.lock().holder.epoch();
        if is_of_this {
            self.leave_slots(session, &left.slots);
        }
    }

    /// Somebody other than the session works alone in what is touched.
    pub(crate) fn is_in_the_way(&self, session: SessionId, touched: &Touched) -> bool {
        let (state, now) = (self.state.lock(), self.now());
        let others = state.holder.alone().others(session).filter(|(slot, _)| touched.has(*slot));
        others.into_iter().any(|(slot, _)| state.holder.alone_in(session, slot, now).is_some())
    }

    /// Of what is touched, what somebody other than the session has to itself. They are told that it is wanted.
    fn in_the_way(&self, session: SessionId, touched: &Touched) -> BTreeSet<SessionId> {
        let (mut state, now) = (self.state.lock(), self.now());
        let holder = &state.holder;
        let others = holder.alone().others(session).filter(|(slot, _)| touched.has(*slot));
        let others: Vec<_> = others.filter(|(slot, _)| holder.alone_in(session, *slot, now).is_some()).collect();
        for (slot, holder) in &others {
            // What it has told its programs may still be on its way when its term is over, but not when it has ended.
            if !state.holder.is_live(*holder, now) {
                state.to_end.insert(*holder);
                self.to_end.notify_one();
            }
            if state.holder.alone_mut().want(now, *slot) {
                state.tell(*holder, |mailbox| _ = mailbox.slots.insert(*slot));
            }
        }
        others.into_iter().map(|(_, holder)| holder).collect()
    }

    /// Returns when nobody but the session works alone in what is touched.
    pub(crate) async fn until_left(&self, session: SessionId, touched: &Touched) -> Result<()> {
        let end = self.env.clock.now() + self.limits.longest_wait_for_a_file() + self.limits.session_lease;
        let mut waits = None;
        loop {
            let left = self.left.notified();
            let mut left = std::pin::pin!(left);
            // Registered before the look, so that nothing between the two is missed.
            left.as_mut().enable();
            let others = self.in_the_way(session, touched);
            let Some(other) = others.first() else { return Ok(()) };
            if waits.is_none() {
                waits = Some(self.waits_outside(session, &others));
            }
            let rest = end.since(self.env.clock.now());
            if rest.is_zero() || self.state.lock().stopped {
                let cause = format!("waits until session {other} has sent what it has changed");
                return Err(Error::new(Code::Busy, "what another session works on alone", cause));
            }
            let _ = self.env.timeout(rest.min(Alone::LOOK_AGAIN), left).await;
        }
    }

    fn waits_outside(&self, session: SessionId, others: &BTreeSet<SessionId>) -> Waits<'_> {
        let (mut state, now) = (self.state.lock(), self.now());
        state.last += 1;
        let number = state.last;
        let outside = Outside { session, others: others.clone(), since: now, trace: trace::current() };
        state.outside.insert(number, outside);
        Waits(self, number)
    }

    /// Nobody begins to work alone, and who does has left.
    pub(crate) async fn together(self: &Arc<Self>) -> Result<Together> {
        self.state.lock().holder.alone_mut().close();
        let together = Together(self.clone());
        self.until_left(SessionId(0), &Touched::Anywhere).await?;
        Ok(together)
    }
}

impl MetaServer {
    /// Others have dropped what they show of the slot when it is given.
    pub(crate) async fn take_slot(&self, session: SessionId, m: TakeSlot) -> Result<Option<MembershipEpoch>> {
        let TakeSlot { slot, number } = m;
        if self.leases.others.is_some() {
            // Whoever changes something there would have to be told by those that others serve.
            return Ok(None);
        }
        let shown = {
            let (mut state, now) = (self.leases.state.lock(), self.leases.now());
            let caches = state.caching.get(&session).is_some_and(|mailbox| mailbox.not_before.is_empty());
            if caches { state.holder.take_slot(now, session, slot, number) } else { None }
        };
        let Some((serial, shown)) = shown else { return Ok(None) };
        let taking = Taking { leases: self.leases.clone(), slot, serial: Some(serial) };
        if !shown.is_empty() && self.config.planted != Some(PlantedBug::AloneTooEarly) {
            let Some(mut announced) = self.leases.announce(session, shown, true).await? else { return Ok(None) };
            announced.release(Vec::new());
        }
        // It is on record, and stays so while it has a slot (`settle_idle`): a restart waits for what it has told its programs.
        let keeps = self.sessions.with(session, |s| s.keeps_since.is_some()).unwrap_or_default();
        // And nobody has wanted it meanwhile.
        if !keeps || !self.leases.state.lock().holder.alone().is_quiet(slot, serial) {
            return Ok(None);
        }
        taking.given();
        Ok(Some(self.leases.state.lock().holder.epoch()))
    }
}

/// For the keys of a change.
pub(crate) fn touched(keys: &[Key]) -> Touched {
    Touched::Slots(keys.iter().map(Key::slot).collect())
}
