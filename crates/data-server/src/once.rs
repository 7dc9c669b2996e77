//! Writes beside those of other sessions: each happens once in a start of this server and an epoch of its chain, however often it is
//! asked for ([`braid_api::data::Once`]).
//!
//! Who has sent one and not heard of its end may ask for it again, in another epoch from one that does not know whether it happened. If
//! others had written over it by then, that would take theirs away. So its region stays locked until its sender has said that the
//! answer has come, or has ended (`regions.rs`).
//!
//! What was carried out in another start or epoch is not known here. That is why leases of before end then: see `gate.rs`.

use braid_api::Result;
use braid_api::data::Once;
use braid_env::Monotonic;
use braid_env::outcome::{Outcome, Tell, outcome};
use braid_types::{ChainEpoch, ChunkId, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

pub(crate) type Done = Result<()>;

struct Entry {
    epoch: ChainEpoch,
    outcome: Outcome<Done>,
}

/// Of a session.
#[derive(Default)]
struct Known {
    /// None below is asked for again, nor any of these.
    done: u64,
    ended: BTreeSet<u64>,
    writes: BTreeMap<u64, Entry>,
}

impl Known {
    fn is_over(&self, number: u64) -> bool {
        number < self.done || self.ended.contains(&number)
    }

    fn done(&mut self, done: u64) {
        if done > self.done {
            self.done = done;
            self.writes = self.writes.split_off(&done);
            self.ended = self.ended.split_off(&done);
        }
    }
}

#[derive(Default)]
struct State {
    sessions: HashMap<SessionId, Known>,
    /// When something was last carried out of a chunk.
    last: HashMap<ChunkId, Monotonic>,
    /// Those whose time is over go when there are this many.
    sweep_at: usize,
}

/// So long after the last of them a chunk stays with this server, which alone knows what was carried out, in the epoch: what is still on
/// its way would be carried out again by another owner. As long as TCP keeps it, see `newest.rs`.
const STAYS_FOR: Duration = Duration::from_secs(1200);
const LAST_MIN: usize = 4096;

#[derive(Default)]
pub(crate) struct Writes(Mutex<State>);

impl Writes {
    /// It has ended for its sender.
    pub fn is_over(&self, session: SessionId, number: Option<u64>) -> bool {
        let state = self.0.lock();
        number.is_some_and(|number| state.sessions.get(&session).is_some_and(|known| known.is_over(number)))
    }

    /// Its sender knows what became of it: what is still on its way of it comes too late.
    pub fn end(&self, session: SessionId, number: u64) {
        let mut state = self.0.lock();
        let known = state.sessions.entry(session).or_default();
        if !known.is_over(number) {
            known.ended.insert(number);
        }
    }

    /// None of the session below is asked for again.
    pub fn done(&self, session: SessionId, below: u64) {
        if let Some(known) = self.0.lock().sessions.get_mut(&session) {
            known.done(below);
        }
    }

    /// Something of the chunk is carried out now.
    pub fn begins(&self, chunk: ChunkId, now: Monotonic) {
        let mut state = self.0.lock();
        if state.last.len() >= state.sweep_at.max(LAST_MIN) {
            state.last.retain(|_, at| now.since(*at) < STAYS_FOR);
            state.sweep_at = 2 * state.last.len();
        }
        state.last.insert(chunk, now);
    }

    /// May another server own the chunk, as far as this is concerned?
    pub fn may_move(&self, chunk: ChunkId, now: Monotonic) -> bool {
        self.0.lock().last.get(&chunk).is_none_or(|at| now.since(*at) >= STAYS_FOR)
    }

    /// The outcome, perhaps still to come; and for the first to ask, where to tell it.
    pub fn join(&self, session: SessionId, once: Once, epoch: ChainEpoch) -> (Option<Tell<Done>>, Outcome<Done>) {
        let mut state = self.0.lock();
        let known = state.sessions.entry(session).or_default();
        known.done(once.done);
        let writes = &mut known.writes;
        if let Some(known) = writes.get(&once.number).filter(|known| known.epoch == epoch) {
            return (None, known.outcome.clone());
        }
        let (tell, outcome) = outcome();
        writes.insert(once.number, Entry { epoch, outcome: outcome.clone() });
        (Some(tell), outcome)
    }

    /// It did not happen, and may be asked for again.
    pub fn forget(&self, session: SessionId, once: Once, epoch: ChainEpoch) {
        if let Some(Known { writes, .. }) = self.0.lock().sessions.get_mut(&session)
            && writes.get(&once.number).is_some_and(|known| known.epoch == epoch)
        {
            writes.remove(&once.number);
        }
    }

    /// The session has ended.
    pub fn end_session(&self, session: SessionId) {
        self.0.lock().sessions.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_known_in_its_epoch_until_nobody_asks_for_it_again() {
        let (writes, session) = (Writes::default(), SessionId(5));
        let once = |number, done| Once { number, done, repeated: false, again: false };
        let is_first = |once, epoch| writes.join(session, once, ChainEpoch(epoch)).0.is_some();
        assert!(is_first(once(1, 1), 1) && is_first(once(2, 1), 1), "two on their way");
        assert!(!is_first(once(1, 1), 1) && !is_first(once(2, 1), 1));
        assert!(is_first(once(2, 1), 2), "what an owner before has done is not known to this one");
        assert!(is_first(once(3, 3), 2));
        assert_eq!(writes.0.lock().sessions[&session].writes.len(), 1, "the others are done");
        writes.forget(session, once(3, 3), ChainEpoch(2));
        assert!(is_first(once(3, 3), 2));
        writes.end(session, 4);
        assert!(
            [1, 4].iter().all(|number| writes.is_over(session, Some(*number))),
            "a late copy of them changes nothing"
        );
        assert!(
            !writes.is_over(session, Some(3)) && !writes.is_over(session, Some(5)) && !writes.is_over(session, None)
        );
        writes.end_session(session);
        assert!(writes.0.lock().sessions.is_empty());
    }

    #[test]
    fn a_chunk_of_which_something_was_carried_out_once_stays_for_as_long_as_it_may_be_asked_for_again() {
        let (writes, at) = (Writes::default(), |s| Monotonic(Duration::from_secs(s)));
        writes.begins(ChunkId(3), at(10));
        assert!(!writes.may_move(ChunkId(3), at(1209)) && writes.may_move(ChunkId(3), at(1210)));
        assert!(writes.may_move(ChunkId(4), at(10)));
        for n in 0..4 * LAST_MIN as u64 {
            writes.begins(ChunkId(n), at(n));
        }
        assert!(writes.0.lock().last.len() <= LAST_MIN, "those are forgotten whose time is over");
    }
}
