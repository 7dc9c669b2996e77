//! Slots in which one session works alone, so that it may tell its programs of changes before it is answered
//! (docs/design/0029-removals-behind.md).
//!
//! Promises: of a slot that a session has to itself no other is granted anything of the namespace, and it is not given while another's
//! change of something in it is under way. It stays the session's until it has left it or has ended, also when its term is over: what it
//! has told its programs may still be on its way.
//!
//! Leaves to the caller: that others' requests wait ([`Alone::others`]), and that what they cached before is revoked before the session
//! is told.

use crate::time::Moment;
use braid_types::{SessionId, Slot};
use std::collections::BTreeMap;
use std::time::Duration;

/// A slot that somebody else wanted is nobody's alone for so long: two mounts that work in it would take it from each other for each
/// change, which is two messages more than asking.
const CONTENDED: Duration = Duration::from_secs(1);
/// Before a session is asked again: the word may have been lost with its connection.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Slots remembered as contended; as many as there are at the most.
const REMEMBERED_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Taken {
    session: SessionId,
    number: u64,
    /// Of this giving, to tell it from others of the same number.
    serial: u64,
    /// Somebody wants it, and the session was told so then.
    asked: Option<Moment>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Alone {
    taken: BTreeMap<Slot, Taken>,
    last_serial: u64,
    /// Until when a slot is given to nobody.
    contended: BTreeMap<Slot, Moment>,
    /// So many want that nobody works alone anywhere.
    closed: u32,
}

impl Alone {
    /// The session may have the slot. One that has it already has it under the new number, if it is none that comes late. Gives the
    /// number of this giving.
    pub fn take(&mut self, now: Moment, session: SessionId, slot: Slot, number: u64) -> Option<u64> {
        let free = match self.taken.get(&slot) {
            Some(taken) => taken.session == session && taken.asked.is_none() && taken.number <= number,
            None => true,
        };
        let quiet = self.contended.get(&slot).is_none_or(|until| *until <= now);
        if self.closed > 0 || !free || !quiet {
            return None;
        }
        self.last_serial += 1;
        let serial = self.last_serial;
        self.taken.insert(slot, Taken { session, number, serial, asked: None });
        Some(serial)
    }

    /// It is still that giving, and nobody wants the slot.
    pub fn is_quiet(&self, slot: Slot, serial: u64) -> bool {
        self.taken.get(&slot).is_some_and(|taken| taken.serial == serial && taken.asked.is_none())
    }

    /// The session was not told of this giving, and will not be.
    pub fn give_up(&mut self, now: Moment, slot: Slot, serial: u64) {
        if self.taken.get(&slot).is_some_and(|taken| taken.serial == serial) {
            self.free(now, slot);
        }
    }

    /// The session has nothing on its way in the slot any more. What is said under an older number ends no newer hold.
    pub fn leave(&mut self, now: Moment, session: SessionId, slot: Slot, number: u64) {
        if self.taken.get(&slot).is_some_and(|taken| taken.session == session && taken.number <= number) {
            self.free(now, slot);
        }
    }

    fn free(&mut self, now: Moment, slot: Slot) {
        let was_wanted = self.taken.remove(&slot).is_some_and(|taken| taken.asked.is_some());
        if was_wanted {
            if self.contended.len() >= REMEMBERED_MAX {
                self.contended.retain(|_, until| *until > now);
            }
            self.contended.insert(slot, now + CONTENDED);
        }
    }

    pub fn session_over(&mut self, now: Moment, session: SessionId) {
        let of_it: Vec<Slot> = self.taken.iter().filter(|(_, t)| t.session == session).map(|(slot, _)| *slot).collect();
        of_it.into_iter().for_each(|slot| self.free(now, slot));
    }

    /// These slots are another server's, or come from one: what was agreed there is over.
    pub fn forget(&mut self, lost: impl Fn(Slot) -> bool) {
        self.taken.retain(|slot, _| !lost(*slot));
    }

    /// Nobody is given a slot, until as often as this [`Alone::open`] is called.
    pub fn close(&mut self) {
        self.closed += 1;
    }

    pub fn open(&mut self) {
        self.closed = self.closed.saturating_sub(1);
    }

    /// Who, other than `session`, has the slot.
    pub fn other(&self, session: SessionId, slot: Slot) -> Option<SessionId> {
        self.taken.get(&slot).map(|taken| taken.session).filter(|holder| *holder != session)
    }

    /// Slots that others have.
    pub fn others(&self, session: SessionId) -> impl Iterator<Item = (Slot, SessionId)> + '_ {
        self.taken.iter().filter(move |(_, taken)| taken.session != session).map(|(slot, taken)| (*slot, taken.session))
    }

    pub fn has_any(&self, session: SessionId) -> bool {
        self.taken.values().any(|taken| taken.session == session)
    }

    /// Somebody waits for the slot. True if the session that has it is to be told so now.
    pub fn want(&mut self, now: Moment, slot: Slot) -> bool {
        let Some(taken) = self.taken.get_mut(&slot) else { return false };
        let due = taken.asked.is_none_or(|asked| now >= asked + ASK_AGAIN);
        if due {
            taken.asked = Some(now);
        }
        due
    }

    /// Between two calls of [`Alone::want`] by whoever waits.
    pub const LOOK_AGAIN: Duration = ASK_AGAIN;
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const SLOT: Slot = Slot(7);

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    #[test]
    fn a_slot_is_one_sessions_until_it_leaves() {
        let mut alone = Alone::default();
        assert!(alone.take(at(0), A, SLOT, 1).is_some() && alone.take(at(0), B, SLOT, 1).is_none());
        assert_eq!((alone.other(A, SLOT), alone.other(B, SLOT)), (None, Some(A)));
        assert!(alone.take(at(0), A, SLOT, 2).is_some(), "its own again");
        assert!(alone.take(at(0), A, SLOT, 1).is_none(), "and not by what comes late");
        alone.leave(at(1), A, SLOT, 1);
        alone.leave(at(1), B, SLOT, 9);
        assert!(alone.has_any(A), "neither an old word nor another's ends it");
        alone.leave(at(1), A, SLOT, 2);
        assert!(!alone.has_any(A) && alone.take(at(1), B, SLOT, 1).is_some(), "nobody had wanted it");
    }

    #[test]
    fn what_was_wanted_is_nobodys_for_a_while() {
        let mut alone = Alone::default();
        assert!(alone.take(at(0), A, SLOT, 1).is_some());
        assert!(alone.want(at(10), SLOT), "told at once");
        assert!(!alone.want(at(20), SLOT) && alone.want(at(510), SLOT), "and again, in case that was lost");
        assert!(alone.take(at(600), A, SLOT, 2).is_none(), "it is to leave, and not to take it anew");
        alone.leave(at(700), A, SLOT, 1);
        assert!(alone.take(at(1_699), A, SLOT, 3).is_none() && alone.take(at(1_700), A, SLOT, 3).is_some());
    }

    /// A message that was repeated: the first attempt ends after the second was given what it asks for.
    #[test]
    fn a_giving_that_is_given_up_ends_no_other() {
        let mut alone = Alone::default();
        let (first, second) = (alone.take(at(0), A, SLOT, 1).unwrap_or(0), alone.take(at(1), A, SLOT, 1).unwrap_or(0));
        alone.give_up(at(2), SLOT, first);
        assert!(alone.is_quiet(SLOT, second) && !alone.is_quiet(SLOT, first));
        assert!(alone.want(at(3), SLOT) && !alone.is_quiet(SLOT, second), "wanted meanwhile, it is not given any more");
        alone.give_up(at(4), SLOT, second);
        assert!(!alone.has_any(A));
    }

    #[test]
    fn who_has_ended_has_left_and_while_it_is_closed_nobody_enters() {
        let mut alone = Alone::default();
        assert!(alone.take(at(0), A, SLOT, 1).is_some() && alone.take(at(0), B, Slot(8), 1).is_some());
        alone.session_over(at(1), A);
        assert_eq!(alone.others(SessionId(0)).collect::<Vec<_>>(), [(Slot(8), B)]);
        alone.close();
        assert!(alone.take(at(1), A, SLOT, 2).is_none());
        alone.open();
        assert!(alone.take(at(1), A, SLOT, 2).is_some());
        alone.forget(|slot| slot == SLOT);
        assert!(!alone.has_any(A) && alone.has_any(B));
    }
}
