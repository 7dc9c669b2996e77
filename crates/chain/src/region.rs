//! Region locks of one chunk, at its owner (AwareFS table 1; docs/design/0018-region-locks.md).
//!
//! Promises: no two locks are granted whose regions overlap and whose modes do not go together. Requests that are in each other's way
//! are granted in the order in which they came, so nobody starves: who waits is passed by nobody who is in its way, and what it waits
//! for only becomes less. A waiter whose time is over leaves. What a session holds or waits for goes with it. Every step that frees
//! something says who has a lock now that did not before.
//!
//! One lock has one [`Holder`]: an operation, not a session, so that two operations of one mount exclude each other as well.
//! Nothing is converted: who asks again under the same name is told how it stands.
//!
//! A request costs a look at each lock of the chunk, freeing one a look at each pair of those that wait. They are as many as there
//! are operations under way on one chunk: 32 mounts with 8 threads each on the same bytes are 33,000 pairs, 0.1 ms.

use crate::limits::Moment;
use braid_types::{ByteRange, SessionId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What a lock is for. The names are those of the VAX lock manager, which AwareFS has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockMode {
    /// Reads that may see half of a write.
    ConcurrentRead,
    /// Changes that are in no other's way; whoever reads in peace is kept out.
    ConcurrentWrite,
    /// Reads: nobody changes it meanwhile.
    ProtectedRead,
    /// Changes, alone; only who may see half of it reads.
    ProtectedWrite,
    /// Alone: the chunk goes to another owner.
    Exclusive,
}

impl LockMode {
    pub const ALL: [LockMode; 5] = [
        LockMode::ConcurrentRead,
        LockMode::ConcurrentWrite,
        LockMode::ProtectedRead,
        LockMode::ProtectedWrite,
        LockMode::Exclusive,
    ];

    /// May both be granted where they overlap? Table 1 of the paper.
    pub fn goes_with(self, other: LockMode) -> bool {
        use LockMode::*;
        match (self, other) {
            (Exclusive, _) | (_, Exclusive) => false,
            (ConcurrentRead, _) | (_, ConcurrentRead) => true,
            (ConcurrentWrite, ConcurrentWrite) | (ProtectedRead, ProtectedRead) => true,
            (ConcurrentWrite | ProtectedRead | ProtectedWrite, _) => false,
        }
    }
}

/// An operation that locks. Session 0 is the owner's own: what lasts no longer than one request, and moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    pub session: SessionId,
    pub number: u64,
}

/// A lock that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    pub holder: Holder,
    pub mode: LockMode,
    pub range: ByteRange,
    /// It leaves the queue then.
    pub until: Moment,
    /// Its operation had this lock, and it was lost with an owner or an epoch: it goes before all who came since, and takes it from
    /// those who got it, except from those of which the same is true.
    pub again: bool,
}

/// A place in the queue that goes along with the chunk to its next owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    pub holder: Holder,
    pub mode: LockMode,
    pub range: ByteRange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Granted,
    Waiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lock {
    ask: Ask,
    /// It came from the owner before, and nobody has asked for it here: it keeps its place and is not granted.
    absent: bool,
}

impl Lock {
    fn is_in_the_way_of(&self, other: &Lock) -> bool {
        self.ask.range.overlaps(other.ask.range) && !self.ask.mode.goes_with(other.ask.mode)
    }
}

/// The locks of one chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Regions {
    granted: Vec<Lock>,
    /// In the order in which they are granted where they are in each other's way: what is asked for again first.
    waiting: VecDeque<Lock>,
}

impl Regions {
    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    pub fn holds(&self, holder: Holder) -> bool {
        self.granted.iter().any(|lock| lock.ask.holder == holder)
    }

    pub fn waits(&self, holder: Holder) -> bool {
        self.waiting.iter().any(|lock| lock.ask.holder == holder)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Who has what is granted now.
    pub fn holders(&self) -> impl Iterator<Item = (Holder, LockMode, ByteRange)> {
        self.granted.iter().map(|lock| (lock.ask.holder, lock.ask.mode, lock.ask.range))
    }

    /// Whom `holder` waits for: who is in its way and has what it asks for, or was there before it.
    pub fn in_the_way_of(&self, holder: Holder) -> Vec<Holder> {
        let Some(at) = self.waiting.iter().position(|lock| lock.ask.holder == holder) else { return Vec::new() };
        let before = self.granted.iter().chain(self.waiting.range(..at));
        before.filter(|lock| lock.is_in_the_way_of(&self.waiting[at])).map(|lock| lock.ask.holder).collect()
    }

    /// Granted, now or before; or it waits, with the later of both deadlines if it did already. Others may have got a lock when this
    /// is granted: see the answer's second part.
    pub fn request(&mut self, ask: Ask) -> (Asked, Vec<Holder>) {
        if self.holds(ask.holder) {
            return (Asked::Granted, Vec::new());
        }
        let lock = Lock { ask, absent: false };
        if let Some(place) = self.waiting.iter_mut().find(|lock| lock.ask.holder == ask.holder) {
            place.ask.until = place.ask.until.max(ask.until);
            place.absent = false;
        } else if ask.again {
            self.granted.retain(|other| other.ask.again || !other.is_in_the_way_of(&lock));
            let at = self.waiting.iter().position(|other| !other.ask.again).unwrap_or(self.waiting.len());
            self.waiting.insert(at, lock);
        } else {
            self.waiting.push_back(lock);
        }
        let mut granted = self.settle();
        match granted.iter().position(|other| *other == ask.holder) {
            Some(at) => {
                granted.remove(at);
                (Asked::Granted, granted)
            }
            None => (Asked::Waiting, granted),
        }
    }

    /// The same for whoever does not wait.
    pub fn try_now(&mut self, ask: Ask) -> bool {
        let lock = Lock { ask, absent: false };
        let is_free = !self.granted.iter().chain(&self.waiting).any(|other| other.is_in_the_way_of(&lock));
        if is_free {
            self.granted.push(lock);
        }
        is_free
    }

    /// Frees the lock or leaves the queue. True if it was held.
    pub fn release(&mut self, holder: Holder) -> (bool, Vec<Holder>) {
        let was_held = self.holds(holder);
        self.without(|lock| lock.ask.holder == holder).map_or((false, Vec::new()), |granted| (was_held, granted))
    }

    /// The session has ended.
    pub fn fence(&mut self, session: SessionId) -> Vec<Holder> {
        self.without(|lock| lock.ask.holder.session == session).unwrap_or_default()
    }

    /// Who has waited for too long, and who has a lock since they do not wait any more.
    pub fn expire(&mut self, now: Moment) -> (Vec<Holder>, Vec<Holder>) {
        let is_late = |lock: &Lock| lock.ask.until <= now;
        let late: Vec<Holder> = self.waiting.iter().filter(|lock| is_late(lock)).map(|lock| lock.ask.holder).collect();
        if late.is_empty() {
            return (late, Vec::new());
        }
        self.waiting.retain(|lock| !is_late(lock));
        let granted = self.settle();
        (late, granted)
    }

    /// What the next owner is to be told: who waits, by the names under which they will ask there.
    pub fn queue(&self) -> Vec<Place> {
        let named = self.waiting.iter().filter(|lock| lock.ask.holder.session.0 != 0);
        named.map(|Lock { ask, .. }| Place { holder: ask.holder, mode: ask.mode, range: ask.range }).collect()
    }

    /// At the next owner, before anybody asks: who waited keeps its place until it asks here, or until `until`.
    pub fn take(&mut self, queue: &[Place], until: Moment) {
        for Place { holder, mode, range } in queue.iter().copied() {
            if !self.holds(holder) && !self.waits(holder) {
                let ask = Ask { holder, mode, range, until, again: false };
                self.waiting.push_back(Lock { ask, absent: true });
            }
        }
    }

    /// None if there is nothing of it.
    fn without(&mut self, goes: impl Fn(&Lock) -> bool) -> Option<Vec<Holder>> {
        let before = self.granted.len() + self.waiting.len();
        self.granted.retain(|lock| !goes(lock));
        self.waiting.retain(|lock| !goes(lock));
        (self.granted.len() + self.waiting.len() < before).then(|| self.settle())
    }

    /// Grants what nothing is in the way of, neither granted nor in front.
    fn settle(&mut self) -> Vec<Holder> {
        let (mut now, mut at) = (Vec::new(), 0);
        while let Some(lock) = self.waiting.get(at).copied() {
            let mut before = self.granted.iter().chain(self.waiting.range(..at));
            match lock.absent || before.any(|other| other.is_in_the_way_of(&lock)) {
                true => at += 1,
                false => {
                    self.waiting.remove(at);
                    self.granted.push(lock);
                    now.push(lock.ask.holder);
                }
            }
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockMode::*;
    use std::time::Duration;

    fn holder(session: u64, number: u64) -> Holder {
        Holder { session: SessionId(session), number }
    }

    const LATE: Moment = Duration::from_secs(1000);

    fn ask(session: u64, number: u64, mode: LockMode, range: (u64, u64)) -> Ask {
        Ask {
            holder: holder(session, number),
            mode,
            range: ByteRange::new(range.0, range.1),
            until: LATE,
            again: false,
        }
    }

    /// The paper's table, line by line.
    #[test]
    fn modes_go_together_as_in_the_table() {
        let table = [
            (ConcurrentRead, [1, 1, 1, 1, 0]),
            (ConcurrentWrite, [1, 1, 0, 0, 0]),
            (ProtectedRead, [1, 0, 1, 0, 0]),
            (ProtectedWrite, [1, 0, 0, 0, 0]),
            (Exclusive, [0, 0, 0, 0, 0]),
        ];
        for (mode, line) in table {
            assert_eq!(LockMode::ALL.map(|other| u8::from(mode.goes_with(other))), line, "{mode:?}");
        }
    }

    #[test]
    fn what_does_not_overlap_is_granted_and_readers_do_not_pass_a_writer_that_waits() {
        let mut regions = Regions::default();
        let mut asks = |session, mode, range| regions.request(ask(session, 1, mode, range)).0;
        assert_eq!(asks(1, ProtectedRead, (0, 100)), Asked::Granted);
        assert_eq!(asks(2, ProtectedWrite, (50, 150)), Asked::Waiting);
        assert_eq!(
            asks(3, ProtectedRead, (100, 200)),
            Asked::Waiting,
            "behind the writer, though nothing there is locked"
        );
        assert_eq!(asks(4, ProtectedRead, (0, 50)), Asked::Granted, "in front of where it writes");
        assert_eq!(asks(5, ProtectedWrite, (150, 160)), Asked::Waiting, "behind the third");
        assert_eq!(asks(6, ConcurrentRead, (0, 300)), Asked::Granted);
        assert_eq!(regions.in_the_way_of(holder(3, 1)), [holder(2, 1)]);
        assert_eq!(regions.release(holder(1, 1)), (true, vec![holder(2, 1)]));
        assert_eq!(regions.release(holder(2, 1)), (true, vec![holder(3, 1)]));
        assert_eq!(regions.release(holder(3, 1)), (true, vec![holder(5, 1)]));
        assert_eq!(regions.release(holder(3, 1)), (false, vec![]), "once");
        for session in [4, 5, 6] {
            assert!(regions.release(holder(session, 1)).0);
        }
        assert!(regions.is_empty());
    }

    #[test]
    fn who_asks_again_under_its_name_is_told_how_it_stands() {
        let mut regions = Regions::default();
        let (first, second) = (ask(1, 1, ProtectedWrite, (0, 10)), ask(1, 2, ProtectedWrite, (5, 15)));
        assert_eq!(regions.request(first).0, Asked::Granted);
        assert_eq!(regions.request(first).0, Asked::Granted);
        assert_eq!(regions.request(second).0, Asked::Waiting, "of one session, and another operation");
        assert_eq!(regions.request(second).0, Asked::Waiting);
        assert_eq!(regions.waiting(), 1);
        assert_eq!(regions.release(first.holder).1, [second.holder]);
        assert_eq!(regions.request(second).0, Asked::Granted);
    }

    #[test]
    fn who_waits_too_long_leaves_and_lets_others_in() {
        let mut regions = Regions::default();
        let at = Duration::from_secs;
        regions.request(ask(1, 1, ProtectedRead, (0, 10)));
        regions.request(Ask { until: at(5), ..ask(2, 1, ProtectedWrite, (0, 10)) });
        regions.request(ask(3, 1, ProtectedRead, (0, 10)));
        assert_eq!(regions.expire(at(4)), (vec![], vec![]));
        assert_eq!(regions.expire(at(5)), (vec![holder(2, 1)], vec![holder(3, 1)]));
        assert!(regions.holds(holder(1, 1)) && !regions.waits(holder(2, 1)), "what is granted has no deadline");
    }

    #[test]
    fn a_session_that_ends_leaves_nothing() {
        let mut regions = Regions::default();
        regions.request(ask(1, 1, ProtectedWrite, (0, 10)));
        regions.request(ask(1, 2, ProtectedWrite, (0, 10)));
        regions.request(ask(2, 1, ProtectedWrite, (0, 10)));
        assert_eq!(regions.fence(SessionId(1)), [holder(2, 1)]);
        assert_eq!(regions.fence(SessionId(2)), []);
        assert!(regions.is_empty());
    }

    #[test]
    fn a_move_begins_only_where_nobody_has_or_wants_anything_and_keeps_all_out() {
        let mut regions = Regions::default();
        let whole = ask(0, 7, Exclusive, (0, u64::MAX));
        regions.request(ask(1, 1, ConcurrentRead, (5, 6)));
        assert!(!regions.try_now(whole));
        assert!(!regions.waits(whole.holder), "it is refused, and does not wait");
        regions.release(holder(1, 1));
        assert!(regions.try_now(whole));
        for (session, mode) in [(1, ProtectedWrite), (2, ConcurrentRead), (0, ProtectedRead)] {
            assert_eq!(regions.request(ask(session, 1, mode, (5, 6))).0, Asked::Waiting);
        }
        assert_eq!(regions.queue().len(), 2, "what nobody asks for again under the same name does not travel");
        assert_eq!(regions.clone().release(whole.holder).1, [holder(1, 1), holder(2, 1)]);
        // At the next owner the places are kept for who does not come at once.
        let mut next = Regions::default();
        next.take(&regions.queue(), Duration::from_secs(2));
        next.take(&regions.queue(), Duration::from_secs(9));
        assert_eq!(next.request(ask(3, 1, ProtectedWrite, (0, 10))).0, Asked::Waiting, "behind both");
        assert_eq!(next.request(ask(2, 1, ConcurrentRead, (5, 6))).0, Asked::Granted, "they were in nobody's way");
        assert_eq!(next.expire(Duration::from_secs(2)), (vec![holder(1, 1)], vec![holder(3, 1)]));
    }

    #[test]
    fn who_lost_a_lock_with_an_owner_has_it_again_before_all_who_came_since() {
        let mut regions = Regions::default();
        let again = |session, range| Ask { again: true, ..ask(session, 2, ProtectedWrite, range) };
        regions.request(ask(1, 1, ProtectedWrite, (0, 10)));
        regions.request(ask(2, 1, ProtectedWrite, (20, 30)));
        regions.request(ask(3, 1, ProtectedWrite, (0, 10)));
        assert_eq!(regions.request(again(4, (5, 15))).0, Asked::Granted);
        assert!(!regions.holds(holder(1, 1)) && regions.holds(holder(2, 1)), "only what is in its way");
        assert_eq!(regions.request(again(5, (5, 15))).0, Asked::Waiting, "of which the same is true");
        assert_eq!(regions.release(holder(4, 2)).1, [holder(5, 2)], "before the third");
        assert_eq!(regions.release(holder(5, 2)).1, [holder(3, 1)]);
    }

    /// Obvious: all requests in their order, and a look at all pairs until nothing changes.
    #[derive(Default)]
    struct Model(Vec<(Ask, bool)>);

    impl Model {
        fn settle(&mut self) {
            loop {
                let free = (0..self.0.len()).find(|&at| {
                    let (ask, is_granted) = self.0[at];
                    let bars = |other: usize| {
                        let (it, has) = self.0[other];
                        let (from, to) = (it.range.start.max(ask.range.start), it.range.end.min(ask.range.end));
                        (has || other < at) && from < to && !it.mode.goes_with(ask.mode)
                    };
                    !is_granted && !(0..self.0.len()).any(|other| other != at && bars(other))
                });
                let Some(at) = free else { return };
                self.0[at].1 = true;
            }
        }

        fn has(&self, granted: bool) -> Vec<Holder> {
            let mut has: Vec<_> = self.0.iter().filter(|(_, it)| *it == granted).map(|(ask, _)| ask.holder).collect();
            has.sort_unstable();
            has
        }
    }

    struct Random(u64);

    impl Random {
        /// xorshift64: the same numbers in each run.
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % n
        }
    }

    fn compare(regions: &Regions, model: &Model, step: &str) {
        let sorted = |mut holders: Vec<Holder>| {
            holders.sort_unstable();
            holders
        };
        assert_eq!(sorted(regions.granted.iter().map(|lock| lock.ask.holder).collect()), model.has(true), "{step}");
        assert_eq!(sorted(regions.waiting.iter().map(|lock| lock.ask.holder).collect()), model.has(false), "{step}");
        for (n, one) in regions.granted.iter().enumerate() {
            let others = &regions.granted[n + 1..];
            assert!(!others.iter().any(|other| other.is_in_the_way_of(one)), "{step}: two that exclude each other");
        }
    }

    #[test]
    fn random_requests_stand_as_in_an_obvious_model_and_every_waiter_has_its_turn() {
        let (mut waited, mut most) = (0, 0);
        for seed in 1..=300 {
            let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
            let (mut regions, mut model, mut now) = (Regions::default(), Model::default(), 0);
            for step in 0..80u64 {
                let name = format!("seed {seed}, step {step}");
                match random.below(10) {
                    0..=5 => {
                        let (start, len) = (random.below(40), 1 + random.below(20));
                        let mode = LockMode::ALL[random.below(5) as usize];
                        let until = Duration::from_secs(now + 1 + random.below(30));
                        let ask = Ask { until, ..ask(1 + random.below(4), step, mode, (start, start + len)) };
                        model.0.push((ask, false));
                        model.settle();
                        let (asked, others) = regions.request(ask);
                        assert!(others.is_empty(), "{name}: a request lets nobody else in");
                        assert_eq!(asked == Asked::Granted, model.has(true).contains(&ask.holder), "{name}");
                    }
                    6..=7 if !model.0.is_empty() => {
                        let at = random.below(model.0.len() as u64) as usize;
                        let (ask, was_held) = model.0.remove(at);
                        model.settle();
                        assert_eq!(regions.release(ask.holder).0, was_held, "{name}");
                    }
                    8 => {
                        let session = SessionId(1 + random.below(4));
                        model.0.retain(|(ask, _)| ask.holder.session != session);
                        model.settle();
                        regions.fence(session);
                        let all = regions.granted.iter().chain(&regions.waiting);
                        assert!(
                            all.clone().all(|lock| lock.ask.holder.session != session),
                            "{name}: it leaves something"
                        );
                    }
                    _ => {
                        now += random.below(10);
                        let late = Duration::from_secs(now);
                        model.0.retain(|(ask, granted)| *granted || ask.until > late);
                        model.settle();
                        regions.expire(late);
                    }
                }
                compare(&regions, &model, &name);
                most = most.max(regions.waiting());
            }
            // Whoever has a lock gives it back, and nobody new comes: each round lets at least the first waiter in.
            let mut rounds = 0;
            while regions.waiting() > 0 {
                let (first, before) = (regions.waiting[0].ask.holder, regions.waiting());
                let held: Vec<Holder> = regions.holders().map(|(holder, ..)| holder).collect();
                held.into_iter().for_each(|holder| drop(regions.release(holder)));
                assert!(regions.holds(first), "seed {seed}: {first:?} is still not granted");
                (rounds, waited) = (rounds + 1, waited + before - regions.waiting());
            }
            assert!(rounds <= 80);
        }
        assert!(waited > 500 && most > 10, "{waited} waited, {most} at once: the test does not get there");
    }

    /// New readers come without an end, and each stays until after the next has come.
    #[test]
    fn a_stream_of_readers_does_not_starve_a_writer_nor_writers_a_reader() {
        for (stream, one) in [(ProtectedRead, ProtectedWrite), (ProtectedWrite, ProtectedRead)] {
            let mut regions = Regions::default();
            regions.request(ask(1, 0, stream, (0, 10)));
            regions.request(ask(2, 0, one, (0, 10)));
            for n in 1..100 {
                regions.request(ask(1, n, stream, (0, 10)));
                regions.release(holder(1, n - 1));
                assert!(regions.holds(holder(2, 0)), "it was next");
            }
        }
    }
}
