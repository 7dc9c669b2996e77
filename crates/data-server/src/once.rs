//! Writes beside those of other sessions: each happens once in a start of this server and an epoch of its chain, however often it is
//! asked for ([`braid_api::data::Once`]).
//!
//! Who has sent one and not heard of its end may ask for it again, in another epoch from one that does not know whether it happened. If
//! others had written over it by then, that would take theirs away. So until its sender has said that the answer has come, or has
//! ended, nobody else reads or writes there.
//!
//! What was carried out in another start or epoch is not known here. That is why leases of before end then: see `gate.rs`.

use braid_api::Result;
use braid_api::data::Once;
use braid_env::Monotonic;
use braid_env::outcome::{Outcome, Tell, outcome};
use braid_types::{ByteRange, ChainEpoch, ChunkId, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use tokio::sync::Notify;

/// Whose request it is, and of which epoch of the chain.
type Who = (SessionId, ChainEpoch);

pub(crate) type Done = Result<()>;

struct Entry {
    epoch: ChainEpoch,
    outcome: Outcome<Done>,
}

/// Where something is written whose sender has not heard of its end.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Under {
    range: ByteRange,
    session: SessionId,
    number: u64,
    /// In a later one it is asked for again, if it is, before anybody begins anything.
    epoch: ChainEpoch,
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
    under_way: HashMap<ChunkId, Vec<Under>>,
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
pub(crate) struct Writes {
    state: Mutex<State>,
    /// Something has ended.
    ended: Notify,
}

impl Writes {
    /// Waits until nobody else has something under way there, and has the write itself under way if there is one. False if that has
    /// ended for its sender.
    pub async fn enter(&self, chunk: ChunkId, range: ByteRange, (session, epoch): Who, number: Option<u64>) -> bool {
        loop {
            let ended = self.ended.notified();
            let mut ended = std::pin::pin!(ended);
            // Registered before the look, so that no end between the two is missed.
            ended.as_mut().enable();
            if self.is_over(session, number) {
                return false;
            }
            if self.try_enter(chunk, range, (session, epoch), number) {
                return true;
            }
            ended.await;
        }
    }

    fn is_over(&self, session: SessionId, number: Option<u64>) -> bool {
        let state = self.state.lock();
        number.is_some_and(|number| state.sessions.get(&session).is_some_and(|known| known.is_over(number)))
    }

    fn try_enter(&self, chunk: ChunkId, range: ByteRange, (session, epoch): Who, number: Option<u64>) -> bool {
        let mut state = self.state.lock();
        let there = state.under_way.entry(chunk).or_default();
        there.retain(|under| under.epoch >= epoch);
        let is_in_the_way = |under: &Under| under.session != session && under.range.overlaps(range);
        if there.iter().any(is_in_the_way) {
            return false;
        }
        if let Some(number) = number {
            let under = Under { range, session, number, epoch };
            if !there.contains(&under) {
                there.push(under);
            }
        }
        if there.is_empty() {
            state.under_way.remove(&chunk);
        }
        true
    }

    /// Its sender knows what became of it: what is still on its way of it comes too late.
    pub fn end_write(&self, chunk: ChunkId, session: SessionId, number: u64) {
        {
            let mut state = self.state.lock();
            let known = state.sessions.entry(session).or_default();
            if !known.is_over(number) {
                known.ended.insert(number);
            }
        }
        self.leave(chunk, session, number);
    }

    /// Something of the chunk is carried out now.
    pub fn begins(&self, chunk: ChunkId, now: Monotonic) {
        let mut state = self.state.lock();
        if state.last.len() >= state.sweep_at.max(LAST_MIN) {
            state.last.retain(|_, at| now.since(*at) < STAYS_FOR);
            state.sweep_at = 2 * state.last.len();
        }
        state.last.insert(chunk, now);
    }

    /// May another server own the chunk, as far as this is concerned?
    pub fn may_move(&self, chunk: ChunkId, now: Monotonic) -> bool {
        self.state.lock().last.get(&chunk).is_none_or(|at| now.since(*at) >= STAYS_FOR)
    }

    /// It did not happen.
    pub fn leave(&self, chunk: ChunkId, session: SessionId, number: u64) {
        let mut state = self.state.lock();
        if let Some(there) = state.under_way.get_mut(&chunk) {
            there.retain(|under| (under.session, under.number) != (session, number));
            if there.is_empty() {
                state.under_way.remove(&chunk);
            }
        }
        drop(state);
        self.ended.notify_waiters();
    }

    /// The outcome, perhaps still to come; and for the first to ask, where to tell it.
    pub fn join(&self, session: SessionId, once: Once, epoch: ChainEpoch) -> (Option<Tell<Done>>, Outcome<Done>) {
        let mut state = self.state.lock();
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
        if let Some(Known { writes, .. }) = self.state.lock().sessions.get_mut(&session)
            && writes.get(&once.number).is_some_and(|known| known.epoch == epoch)
        {
            writes.remove(&once.number);
        }
    }

    /// The session has ended.
    pub fn end(&self, session: SessionId) {
        let mut state = self.state.lock();
        state.sessions.remove(&session);
        state.under_way.retain(|_, there| {
            there.retain(|under| under.session != session);
            !there.is_empty()
        });
        drop(state);
        self.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_known_in_its_epoch_until_nobody_asks_for_it_again() {
        let (writes, session) = (Writes::default(), SessionId(5));
        let once = |number, done| Once { number, done, repeated: false };
        let is_first = |once, epoch| writes.join(session, once, ChainEpoch(epoch)).0.is_some();
        assert!(is_first(once(1, 1), 1) && is_first(once(2, 1), 1), "two on their way");
        assert!(!is_first(once(1, 1), 1) && !is_first(once(2, 1), 1));
        assert!(is_first(once(2, 1), 2), "what an owner before has done is not known to this one");
        assert!(is_first(once(3, 3), 2));
        assert_eq!(writes.state.lock().sessions[&session].writes.len(), 1, "the others are done");
        writes.forget(session, once(3, 3), ChainEpoch(2));
        assert!(is_first(once(3, 3), 2));
        writes.end_write(ChunkId(1), session, 4);
        assert!(
            [1, 4].iter().all(|number| writes.is_over(session, Some(*number))),
            "a late copy of them changes nothing"
        );
        assert!(
            !writes.is_over(session, Some(3)) && !writes.is_over(session, Some(5)) && !writes.is_over(session, None)
        );
        writes.end(session);
        assert!(writes.state.lock().sessions.is_empty());
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
        assert!(writes.state.lock().last.len() <= LAST_MIN, "those are forgotten whose time is over");
    }

    #[test]
    fn nobody_else_reads_or_writes_where_a_write_may_be_repeated() {
        let (writes, chunk) = (Writes::default(), ChunkId(3));
        let (one, other) = (SessionId(5), SessionId(6));
        let range = |start| ByteRange::at(start, 100);
        let in_epoch =
            |epoch, session, start, number| writes.try_enter(chunk, range(start), (session, ChainEpoch(epoch)), number);
        let enters = |session, start, number| in_epoch(1, session, start, number);
        assert!(enters(one, 0, Some(1)) && enters(one, 50, Some(2)), "its own");
        assert!(!enters(other, 99, None) && !enters(other, 149, Some(1)));
        assert!(enters(other, 150, Some(1)) && writes.try_enter(ChunkId(4), range(0), (other, ChainEpoch(1)), None));
        writes.end_write(chunk, one, 1);
        assert!(!enters(other, 99, None), "of the second it has not heard");
        writes.end_write(chunk, one, 2);
        assert!(enters(other, 99, None) && !enters(one, 150, None));
        writes.end(other);
        assert!(enters(one, 150, None), "who has ended repeats nothing");
        assert!(enters(one, 0, Some(3)) && in_epoch(2, other, 0, None), "of an epoch that is over");
    }
}
