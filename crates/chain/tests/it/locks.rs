//! The queue for locks of regions goes along with its chunk: every order of what may happen to three operations while ownership moves
//! between two servers, and back, is looked at, with the locks as servers have them (docs/design/0018-region-locks.md, *A move*).
//!
//! What is around them is as in `data-server/regions.rs`: whoever may move its chunk has all of it locked until another is known to own it;
//! each word that hands it over says who waits; who is told that another owns the chunk asks there.
#![allow(clippy::unwrap_used)]

use braid_chain::Moment;
use braid_chain::region::{Ask, Asked, Holder, LockMode, Place, Regions};
use braid_types::{ByteRange, SessionId};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

const OPERATIONS: usize = 3;
/// Until then a place from another owner is kept; operations wait for longer.
const PLACE_KEPT: Moment = Duration::from_secs(1);
const LONG: Moment = Duration::from_secs(100);
/// The owner's own lock, while its chunk may move.
const MOVE: Holder = Holder { session: SessionId(0), number: 1 };

/// What is left out, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// The word that hands the chunk over says nothing of who waits.
    Queue,
    /// The chunk moves though somebody has a lock of it.
    MoveLock,
    /// Places from another owner are never given up.
    Expiry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    /// It has not asked, or was told to ask another server.
    Out,
    WaitsAt(usize),
    HoldsAt(usize),
    /// It is over, or its session is.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    at: [Regions; 2],
    /// None while the chunk is being handed over.
    owner: Option<usize>,
    /// Its move lock stands.
    moving: Option<usize>,
    /// Words that hand the chunk over, to be heard at any time or never.
    hands: BTreeSet<(usize, Vec<u64>)>,
    operations: [Operation; OPERATIONS],
    /// Who has a place, in the order in which they came: a fact.
    order: Vec<usize>,
    // How much may still happen.
    moves: u8,
    words: u8,
    lates: u8,
    ends: u8,
    epochs: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Ask(usize, usize),
    /// The request's time is over.
    Late(usize),
    Finish(usize),
    SessionEnds(usize),
    Want,
    Keep,
    Hand,
    Hear(usize),
    Owns,
    Expire(usize),
    Epoch,
}

fn holder(operation: usize) -> Holder {
    Holder { session: SessionId(operation as u64 + 1), number: 7 }
}

/// The first and the second overlap, the third overlaps both and reads.
fn ask(operation: usize) -> Ask {
    let (mode, range) = match operation {
        0 => (LockMode::ProtectedWrite, ByteRange::new(0, 20)),
        1 => (LockMode::ProtectedWrite, ByteRange::new(10, 30)),
        _ => (LockMode::ProtectedRead, ByteRange::new(0, 30)),
    };
    Ask { holder: holder(operation), mode, range, until: LONG, again: false }
}

/// All three are in each other's way.
fn places(operations: &[u64]) -> Vec<Place> {
    let asks = operations.iter().map(|number| ask(*number as usize));
    asks.map(|Ask { holder, mode, range, .. }| Place { holder, mode, range }).collect()
}

impl State {
    fn first() -> State {
        State {
            at: Default::default(),
            owner: Some(0),
            moving: None,
            hands: BTreeSet::new(),
            operations: [Operation::Out; OPERATIONS],
            order: Vec::new(),
            moves: 2,
            words: 3,
            lates: 1,
            ends: 1,
            epochs: 1,
        }
    }

    fn actions(&self) -> Vec<Action> {
        let mut all: Vec<Action> = (0..OPERATIONS)
            .flat_map(|one| {
                [
                    Action::Ask(one, 0),
                    Action::Ask(one, 1),
                    Action::Late(one),
                    Action::Finish(one),
                    Action::SessionEnds(one),
                ]
            })
            .collect();
        all.extend([Action::Want, Action::Keep, Action::Hand, Action::Owns, Action::Epoch]);
        all.extend([Action::Expire(0), Action::Expire(1)]);
        all.extend((0..self.hands.len()).map(Action::Hear));
        all
    }

    /// Locks were granted at a server.
    fn granted(&mut self, left: Left, at: usize, granted: &[Holder]) -> Result<(), String> {
        for granted in granted.iter().filter(|granted| **granted != MOVE) {
            let one = (granted.session.0 - 1) as usize;
            if self.owner != Some(at) && left != Left::MoveLock {
                // It finds out that it asked the wrong one, and lets go.
                self.operations[one] = Operation::Out;
                let (_, next) = self.at[at].release(*granted);
                self.granted(left, at, &next)?;
                continue;
            }
            self.operations[one] = Operation::HoldsAt(at);
            let before = self.order.iter().take_while(|other| **other != one);
            if let Some(other) = before.copied().find(|other| !matches!(self.operations[*other], Operation::HoldsAt(_)))
            {
                return Err(format!("{one} goes before {other}, which came first"));
            }
        }
        let holding: Vec<usize> =
            (0..OPERATIONS).filter(|one| matches!(self.operations[*one], Operation::HoldsAt(_))).collect();
        if holding.len() > 1 {
            return Err(format!("{holding:?} hold what is in each other's way"));
        }
        Ok(())
    }

    fn leaves(&mut self, one: usize) {
        self.order.retain(|other| *other != one);
    }

    /// None if it may not happen.
    fn step(&self, left: Left, action: Action) -> Option<Result<State, String>> {
        let mut next = self.clone();
        let done = next.act(left, action)?;
        Some(done.map(|()| next))
    }

    fn act(&mut self, left: Left, action: Action) -> Option<Result<(), String>> {
        match action {
            Action::Ask(one, at) => {
                let is_known_there = self.owner == Some(at) || self.moving == Some(at);
                (self.operations[one] == Operation::Out && is_known_there).then_some(())?;
                self.operations[one] = Operation::WaitsAt(at);
                if self.owner == Some(at) && !self.order.contains(&one) {
                    self.order.push(one);
                }
                let (asked, mut granted) = self.at[at].request(ask(one));
                if asked == Asked::Granted {
                    granted.insert(0, holder(one));
                }
                Some(self.granted(left, at, &granted))
            }
            Action::Late(one) => {
                let Operation::WaitsAt(at) = self.operations[one] else { return None };
                self.lates = self.lates.checked_sub(1)?;
                self.operations[one] = Operation::Out;
                let (_, granted) = self.at[at].release(holder(one));
                // Its place may be kept at the next owner.
                if !self.at[1 - at].waits(holder(one)) {
                    self.leaves(one);
                }
                Some(self.granted(left, at, &granted))
            }
            Action::Finish(one) => {
                let Operation::HoldsAt(at) = self.operations[one] else { return None };
                self.operations[one] = Operation::Done;
                self.leaves(one);
                let (_, granted) = self.at[at].release(holder(one));
                Some(self.granted(left, at, &granted))
            }
            Action::SessionEnds(one) => {
                self.ends = self.ends.checked_sub(1)?;
                (self.operations[one] != Operation::Done).then_some(())?;
                self.operations[one] = Operation::Done;
                self.leaves(one);
                let mut done = Ok(());
                for at in 0..2 {
                    let granted = self.at[at].fence(holder(one).session);
                    done = done.and_then(|()| self.granted(left, at, &granted));
                }
                Some(done)
            }
            Action::Want => {
                let owner = self.owner.filter(|_| self.moving.is_none())?;
                self.moves = self.moves.checked_sub(1)?;
                let all = ByteRange::new(0, u64::MAX);
                let ask = Ask { holder: MOVE, mode: LockMode::Exclusive, range: all, until: Moment::MAX, again: false };
                (self.at[owner].try_now(ask) || left == Left::MoveLock).then_some(())?;
                self.moving = Some(owner);
                Some(Ok(()))
            }
            Action::Keep => {
                let owner = self.owner.filter(|owner| self.moving == Some(*owner))?;
                self.moving = None;
                let (_, granted) = self.at[owner].release(MOVE);
                Some(self.granted(left, owner, &granted))
            }
            // The first time, and again until another owns it.
            Action::Hand => {
                let from = self.moving.filter(|from| self.owner.is_none_or(|owner| owner == *from))?;
                let queue = self.at[from].queue().iter().map(|place| place.holder.session.0 - 1).collect();
                self.owner = None;
                self.words = self.words.checked_sub(1)?;
                self.hands.insert((1 - from, if left == Left::Queue { Vec::new() } else { queue }));
                Some(Ok(()))
            }
            Action::Hear(which) => {
                let (to, queue) = self.hands.iter().nth(which).cloned()?;
                (self.owner.is_none() && self.moving == Some(1 - to)).then_some(())?;
                self.owner = Some(to);
                self.at[to].take(&places(&queue), PLACE_KEPT);
                // Who came to the owner before after it had said this comes as if it had not.
                if left != Left::Queue {
                    self.order = queue.iter().map(|one| *one as usize).collect();
                }
                Some(Ok(()))
            }
            Action::Owns => {
                let past = self.moving.filter(|past| self.owner.is_some_and(|owner| owner != *past))?;
                self.moving = None;
                self.hands.clear();
                let (_, granted) = self.at[past].release(MOVE);
                Some(self.granted(left, past, &granted))
            }
            Action::Expire(at) => {
                (left != Left::Expiry).then_some(())?;
                let (late, granted) = self.at[at].expire(PLACE_KEPT);
                (!late.is_empty()).then_some(())?;
                late.iter().for_each(|late| self.leaves((late.session.0 - 1) as usize));
                Some(self.granted(left, at, &granted))
            }
            Action::Epoch => {
                self.epochs = self.epochs.checked_sub(1)?;
                self.at = Default::default();
                (self.owner, self.moving) = (Some(self.owner.unwrap_or(0)), None);
                self.hands.clear();
                self.order.clear();
                let asks_again =
                    |one: &mut Operation| *one = if *one == Operation::Done { *one } else { Operation::Out };
                self.operations.iter_mut().for_each(asks_again);
                Some(Ok(()))
            }
        }
    }
}

/// What is wrong, with the way to it; or how many states there are, and how many of them are ends.
fn explore(left: Left) -> Result<(usize, usize), String> {
    let mut known: HashMap<State, Option<(State, Action)>> = HashMap::from([(State::first(), None)]);
    let (mut open, mut ends) = (VecDeque::from([State::first()]), 0);
    while let Some(state) = open.pop_front() {
        let way = |last: String| {
            let (mut lines, mut at) = (vec![last], &state);
            while let Some((before, action)) = known[at].as_ref() {
                lines.push(format!("{action:?}"));
                at = before;
            }
            lines.reverse();
            lines.join("\n")
        };
        let mut is_end = true;
        let mut found = Vec::new();
        for action in state.actions() {
            match state.step(left, action) {
                None => {}
                Some(Ok(next)) => {
                    // What may be had for ever is no way out.
                    is_end &= next == state
                        || matches!(action, Action::SessionEnds(_) | Action::Late(_) | Action::Epoch | Action::Want);
                    found.push((next, action));
                }
                Some(Err(wrong)) => return Err(way(format!("{action:?}: {wrong}"))),
            }
        }
        if is_end {
            ends += 1;
            if state.operations.iter().any(|one| *one != Operation::Done) {
                return Err(way(format!("nothing goes on: {state:?}")));
            }
        }
        for (next, action) in found {
            if !known.contains_key(&next) {
                known.insert(next.clone(), Some((state.clone(), action)));
                open.push_back(next);
            }
        }
    }
    Ok((known.len(), ends))
}

#[test]
fn who_waits_keeps_its_place_at_the_next_owner_whatever_comes_between() {
    let (states, ends) = explore(Left::Nothing).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{states} states, {ends} ends");
    assert!(states > 10_000 && ends > 0, "{states} states, {ends} ends");
}

#[test]
fn a_queue_that_stays_behind_is_found() {
    assert!(explore(Left::Queue).unwrap_err().contains("which came first"));
}

#[test]
fn a_chunk_that_moves_though_it_is_locked_is_found() {
    assert!(explore(Left::MoveLock).unwrap_err().contains("hold what is in each other's way"));
}

#[test]
fn a_place_that_nobody_comes_for_is_found() {
    assert!(explore(Left::Expiry).unwrap_err().contains("nothing goes on"));
}
