//! A client's side where several servers hold slots: one [`Holdings`] for each, and what moves between them with a new roster.
//!
//! Promises: a key counts under the term of the holder that its slot has in the roster that is known here, and of no other. What a
//! new roster moves is not shown any more from then on, and no renewal of a newer epoch counts before its roster is known: so a
//! holder that has lost a slot cannot prolong what it granted in it. No holder hears what this client has before daemon and kernel
//! have let go of the names that moved: it takes that word for the end of all that was granted before. A term that runs out takes
//! that holder's keys alone. A revocation takes a key wherever it is counted.

use super::{Holdings, Seen, Ticket, Todo};
use crate::files::{Generation, Mode};
use crate::key::{Key, KeyRef};
use crate::limits::Limits;
use crate::roster::Roster;
use crate::time::Moment;
use braid_types::{InodeId, MemberId, MembershipEpoch, Name, SLOT_COUNT, Slot, SlotSet};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a client of several holders is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ManyTodo {
    /// What [`Todo`] says, at this holder. Never [`Todo::DropAll`].
    Of(MemberId, Todo),
    /// Drop every name, attribute and page of these slots, have the kernel do so, then say [`ManyHoldings::dropped`]. Unsent writes
    /// stay.
    DropSlots { number: u64, slots: SlotSet },
    /// Find the roster of this epoch, or a newer one, and say [`ManyHoldings::roster_is`].
    Learn { epoch: MembershipEpoch },
    /// Renew at this holder, now too: slots that came to it wait for what this client has.
    Renew(MemberId),
}

/// The answer of a holder to a renewal, see [`crate::Command::Renewed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    pub asked: Moment,
    pub term: Duration,
    pub prolonged: bool,
    pub epoch: MembershipEpoch,
    pub reassert: Option<u64>,
    pub anew: bool,
}

/// Which word of this client a holder waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owed {
    Nothing,
    /// Slots come to it; it has not asked yet.
    ToBeAsked,
    Asked,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    held: Holdings,
    /// The last call to say what is held that was heard.
    round: u64,
    owed: Owed,
    /// An epoch was missed: slots may have been away and come back, and what is said is said of all.
    unsure: bool,
    /// To be said when everything is dropped.
    held_back: Option<u64>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManyHoldings {
    limits: Limits,
    roster: Roster,
    places: BTreeMap<MemberId, Place>,
    /// Tickets rise over all holders, so that one serves for a change at several.
    seq: u64,
    /// What is being dropped for good.
    dropping: BTreeSet<u64>,
    drops: u64,
}

/// Of one [`Holdings`] here: it is told of one epoch only, epochs are looked at here.
const NO_EPOCH: MembershipEpoch = MembershipEpoch(0);

impl Place {
    fn new(limits: &Limits) -> Self {
        Place { held: Holdings::new(limits), round: 0, owed: Owed::Nothing, unsure: false, held_back: None }
    }

    fn is_renewed_at(&self) -> bool {
        !self.held.keys.is_empty() || !self.held.files.is_empty() || self.owed != Owed::Nothing
    }
}

impl ManyHoldings {
    pub fn new(limits: &Limits, roster: Roster) -> Self {
        let places = roster.members().iter().map(|server| (*server, Place::new(limits))).collect();
        ManyHoldings { limits: limits.clone(), roster, places, seq: 0, dropping: BTreeSet::new(), drops: 0 }
    }

    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// What is held of the holder of the inode's slot, to ask it what may be done with the file.
    pub fn of(&self, inode: InodeId) -> Option<&Holdings> {
        self.at(self.roster.holder(inode.slot()))
    }

    /// What is held of this holder.
    pub fn at(&self, server: MemberId) -> Option<&Holdings> {
        self.places.get(&server).map(|place| &place.held)
    }

    /// What is held of each.
    pub fn all(&self) -> impl Iterator<Item = (MemberId, &Holdings)> {
        self.places.iter().map(|(server, place)| (*server, &place.held))
    }

    /// Does something with one of them, whose tickets go on from the last of any.
    fn with<T>(&mut self, server: MemberId, does: impl FnOnce(&mut Holdings) -> T) -> Option<T> {
        let place = self.places.get_mut(&server)?;
        place.held.seq = self.seq;
        let done = does(&mut place.held);
        self.seq = place.held.seq;
        Some(done)
    }

    // --- names ---

    /// To be drawn before something of the inode is asked for, which is asked of its holder.
    pub fn ask(&mut self, inode: InodeId) -> Ticket {
        let holder = self.roster.holder(inode.slot());
        self.with(holder, Holdings::ask).unwrap_or_default()
    }

    /// See [`Holdings::answered`]. A key of a slot that is not the asked holder's is not kept.
    pub fn answered(&mut self, now: Moment, ticket: Ticket, keys: Vec<Key>) -> Vec<Key> {
        let which = self.answers(now, ticket, keys.clone());
        keys.into_iter().zip(which).filter_map(|(key, holds)| holds.then_some(key)).collect()
    }

    /// The same; says of each key whether it holds.
    pub fn answers(&mut self, now: Moment, ticket: Ticket, keys: Vec<Key>) -> Vec<bool> {
        let mut which = vec![false; keys.len()];
        let asked = |(_, place): &(&MemberId, &Place)| place.held.asks.contains(&ticket);
        let asked: Vec<MemberId> = self.places.iter().filter(asked).map(|(id, _)| *id).collect();
        let holders: Vec<MemberId> = keys.iter().map(|key| self.roster.holder_of(key)).collect();
        // As a rule all is of one holder.
        if let [server] = asked[..]
            && holders.iter().all(|holder| *holder == server)
        {
            return self.with(server, |held| held.answers(now, ticket, keys)).unwrap_or(which);
        }
        let mut rest: Vec<(usize, Key)> = keys.into_iter().enumerate().collect();
        for server in asked {
            let (own, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(at, _)| holders[*at] == server);
            rest = others;
            let (at, own): (Vec<usize>, Vec<Key>) = own.into_iter().unzip();
            let held = self.with(server, |held| held.answers(now, ticket, own)).unwrap_or_default();
            at.into_iter().zip(held).for_each(|(at, held)| which[at] = held);
        }
        which
    }

    pub fn is_overtaken(&self, ticket: Ticket, key: &Key) -> bool {
        self.at(self.roster.holder_of(key)).is_none_or(|held| held.is_overtaken(ticket, key))
    }

    /// This client is about to change what the keys cover, at whichever holders. Ends with [`ManyHoldings::answered`].
    pub fn changing(&mut self, keys: &[Key]) -> Ticket {
        for key in keys {
            self.with(self.roster.holder_of(key), |held| held.void(key.clone()));
        }
        self.seq += 1;
        let ticket = Ticket(self.seq);
        for key in keys {
            self.with(self.roster.holder_of(key), |held| _ = held.asks.insert(ticket));
        }
        ticket
    }

    /// See [`Holdings::changed`]. `granted`: under this epoch its holder has granted it with the answer; under another it was not the
    /// one it counts under here.
    pub fn changed(&mut self, now: Moment, ticket: Ticket, key: &Key, granted: Option<MembershipEpoch>) -> bool {
        let granted = granted == Some(self.roster.epoch());
        self.with(self.roster.holder_of(key), |held| held.changed(now, ticket, key, granted)).unwrap_or_default()
    }

    pub fn forget(&mut self, key: &Key) {
        self.with(self.roster.holder_of(key), |held| held.forget(key));
    }

    pub fn may_serve<'a>(&self, now: Moment, key: impl Into<KeyRef<'a>>) -> bool {
        let key = key.into();
        self.at(self.roster.holder_of(key)).is_some_and(|held| held.may_serve(now, key))
    }

    pub fn may_serve_name(&self, now: Moment, dir: InodeId, name: &Name) -> bool {
        self.of(dir).is_some_and(|held| held.may_serve_name(now, dir, name))
    }

    /// For how long the kernel may be told to keep what is held of the inode, or in it.
    pub fn left(&self, now: Moment, inode: InodeId) -> Duration {
        self.of(inode).map(|held| held.left(now)).unwrap_or_default()
    }

    // --- files, see [`Holdings`] ---

    pub fn keep_at_most(&mut self, inode: InodeId, number: Generation, to: Mode) {
        self.with(self.roster.holder(inode.slot()), |held| held.keep_at_most(inode, number, to));
    }

    pub fn said_again(&mut self, inode: InodeId, mode: Mode, generation: Generation, token: Generation) {
        self.with(self.roster.holder(inode.slot()), |held| held.said_again(inode, mode, generation, token));
    }

    pub fn forget_file(&mut self, inode: InodeId) {
        self.with(self.roster.holder(inode.slot()), |held| held.forget_file(inode));
    }

    // --- events ---

    pub fn wakeup(&self) -> Option<Moment> {
        self.places.values().filter_map(|place| place.held.wakeup()).min()
    }

    /// Members that are to be renewed at: those that something is held of, and those that wait for a word.
    pub fn renews_at(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.places.iter().filter(|(_, place)| place.is_renewed_at()).map(|(server, _)| *server)
    }

    pub fn tick(&mut self, now: Moment) -> Vec<ManyTodo> {
        self.at_all(now, &Seen::Tick)
    }

    fn at_all(&mut self, now: Moment, seen: &Seen) -> Vec<ManyTodo> {
        let servers: Vec<MemberId> = self.places.keys().copied().collect();
        servers.into_iter().flat_map(|server| self.pass(now, server, seen.clone())).collect()
    }

    /// Takes what happened. `from` says which holder it came from; what this client does itself goes to the holder of the inode.
    pub fn on(&mut self, now: Moment, from: MemberId, seen: Seen) -> Vec<ManyTodo> {
        let own = |inode: &InodeId| self.roster.holder(inode.slot());
        match seen {
            Seen::Tick | Seen::SessionLost => self.at_all(now, &seen),
            Seen::Renewed { asked, term, prolonged, epoch, reassert } => {
                let anew = reassert.is_some();
                self.renewed(now, from, Renewal { asked, term, prolonged, epoch, reassert, anew })
            }
            Seen::Revoke { ref keys, .. } => {
                for key in keys {
                    let holder = self.roster.holder_of(key);
                    if holder != from {
                        self.with(holder, |held| {
                            held.keys.remove(key);
                            held.void(key.clone());
                        });
                    }
                }
                self.pass(now, from, seen)
            }
            Seen::Dropped { .. } => self.pass(now, from, seen),
            Seen::Need { ref inode, .. }
            | Seen::Stale { ref inode, .. }
            | Seen::Flushed { ref inode, .. }
            | Seen::GiveUp { ref inode, .. } => {
                let holder = own(inode);
                self.pass(now, holder, seen)
            }
            // Of one that does not hold the file any more it has been taken away, and it will hear of that.
            Seen::Granted { ref inode, .. }
            | Seen::Refused { ref inode, .. }
            | Seen::Recall { ref inode, .. }
            | Seen::Lost { ref inode } => match own(inode) == from {
                true => self.pass(now, from, seen),
                false => Vec::new(),
            },
        }
    }

    fn pass(&mut self, now: Moment, server: MemberId, seen: Seen) -> Vec<ManyTodo> {
        let todo = self.with(server, |held| held.on(now, seen)).unwrap_or_default();
        todo.into_iter().filter_map(|todo| self.told(server, todo)).collect()
    }

    fn told(&mut self, server: MemberId, todo: Todo) -> Option<ManyTodo> {
        match todo {
            Todo::DropAll => {
                let slots = self.roster.slots_of(server);
                (!slots.is_empty()).then(|| self.drop_slots(slots))
            }
            Todo::Reassert { round } if !self.dropping.is_empty() => {
                self.places.get_mut(&server)?.held_back = Some(round);
                None
            }
            todo => Some(ManyTodo::Of(server, todo)),
        }
    }

    fn drop_slots(&mut self, slots: SlotSet) -> ManyTodo {
        self.drops += 1;
        self.dropping.insert(self.drops);
        ManyTodo::DropSlots { number: self.drops, slots }
    }

    /// Daemon and kernel have let go of what [`ManyTodo::DropSlots`] named.
    pub fn dropped(&mut self, number: u64) -> Vec<ManyTodo> {
        self.dropping.remove(&number);
        if !self.dropping.is_empty() {
            return Vec::new();
        }
        let owing = self.places.iter_mut().filter_map(|(id, place)| Some((*id, place.held_back.take()?)));
        owing.map(|(server, round)| ManyTodo::Of(server, Todo::Reassert { round })).collect()
    }

    pub fn renewed(&mut self, now: Moment, from: MemberId, renewal: Renewal) -> Vec<ManyTodo> {
        let Renewal { asked, term, prolonged, epoch, reassert, anew } = renewal;
        if epoch > self.roster.epoch() {
            return vec![ManyTodo::Learn { epoch }];
        }
        let behind = epoch < self.roster.epoch();
        let Some(place) = self.places.get_mut(&from) else { return Vec::new() };
        // One that has not heard of the epoch would take what has moved to it for somebody else's.
        if reassert.is_some_and(|round| behind || round < place.round) {
            return Vec::new();
        }
        let part = reassert.filter(|_| !anew);
        match reassert {
            Some(round) => {
                if part.is_some() && place.unsure && round > place.round {
                    place.unsure = false;
                    place.held.files.values_mut().for_each(super::FileHeld::reassert);
                }
                (place.round, place.owed) = (round, Owed::Asked);
            }
            None if place.owed == Owed::Asked && !behind => place.owed = Owed::Nothing,
            None => {}
        }
        let reassert = reassert.filter(|_| anew);
        let mut todo = self.pass(now, from, Seen::Renewed { asked, term, prolonged, epoch: NO_EPOCH, reassert });
        // What came there is said, and the rest goes on.
        todo.extend(part.and_then(|round| self.told(from, Todo::Reassert { round })));
        todo
    }

    /// What this holder is to be told of files; the caller adds what else it has open or locked in slots that came to it.
    pub fn reassertion(&self, server: MemberId) -> Vec<(InodeId, Mode)> {
        self.at(server).map(Holdings::to_be_said).unwrap_or_default()
    }

    /// A new roster. Of what has moved names are dropped and files go to the new holder, where they wait until it has heard of them.
    pub fn roster_is(&mut self, now: Moment, roster: Roster) -> Vec<ManyTodo> {
        if roster.epoch() <= self.roster.epoch() {
            return Vec::new();
        }
        let mut todo = self.tick(now);
        let before = std::mem::replace(&mut self.roster, roster.clone());
        let moves = |slot: Slot| !roster.keeps(&before, slot);
        let goes = |slot: Slot| roster.holder(slot) != before.holder(slot);
        let servers: Vec<MemberId> = self.places.keys().copied().collect();
        let mut files = Vec::new();
        for server in servers {
            files.extend(self.with(server, |held| held.leave(moves, goes)).unwrap_or_default());
        }
        self.places.retain(|server, _| roster.members().contains(server));
        for server in roster.members() {
            self.places.entry(*server).or_insert_with(|| Place::new(&self.limits));
        }
        for (inode, file) in files {
            if let Some(place) = self.places.get_mut(&roster.holder(inode.slot())) {
                place.held.files.insert(inode, file);
            }
        }
        let moved: BTreeSet<Slot> = (0..SLOT_COUNT).map(Slot).filter(|slot| moves(*slot)).collect();
        let missed = roster.epoch().0 > before.epoch().0 + 1;
        let gaining: BTreeSet<MemberId> = moved.iter().map(|slot| roster.holder(*slot)).collect();
        if !moved.is_empty() {
            todo.push(self.drop_slots(moved.into_iter().collect()));
        }
        for server in gaining {
            if let Some(place) = self.places.get_mut(&server) {
                (place.owed, place.unsure) = (Owed::ToBeAsked, place.unsure | missed);
                todo.push(ManyTodo::Renew(server));
            }
        }
        todo
    }
}
