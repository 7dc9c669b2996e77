//! The ways to the metadata servers: to any that answers, with which the client was started, and where several serve to each of them
//! (docs/design/0027-several-that-serve.md). While one serves alone, any is that one.
//!
//! Promises: while one serves alone nothing is looked up and nothing is asked; a question to a member that does not hold the slot any
//! more is given up, since nobody may answer it; a change stays with the member that may be making it, until that has answered or is none
//! any more.
//!
//! A new roster is known here before it is known to the cache ([`crate::roster`]). So who draws a ticket at a holder sends to that one or to
//! a later one, and of a later one's answer nothing is kept.

mod destination;
mod seat;

pub use destination::Destination;
pub use seat::Seat;

use crate::config::Routing;
use braid_api::erased::{Meta, MetaPeers};
use braid_api::meta::{KnownRoster, Mark, MetaAnswer, MetaRequest};
use braid_api::{Code, Context, Error, Manner, Namespace, Result};
use braid_env::Monotonic;
use braid_lease::Roster;
use braid_types::{InodeId, MemberId, MembershipEpoch};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use tokio::sync::Notify;

/// The way to metadata servers.
#[derive(Clone)]
pub struct Ways<N> {
    /// To any of them that answers.
    pub any: N,
    /// To each, where several may serve at once. Without it a client works as long as one serves alone.
    pub each: Option<Arc<dyn MetaPeers>>,
}

/// The same of any kind.
pub struct Doors {
    any: Box<dyn Meta>,
    each: Option<Arc<dyn MetaPeers>>,
}

impl<N: Namespace> From<Ways<N>> for Doors {
    fn from(ways: Ways<N>) -> Doors {
        Doors { any: Box::new(ways.any), each: ways.each }
    }
}

/// Who serves, as it is heard.
pub struct Members {
    pub roster: Roster,
    leader: MemberId,
    addresses: BTreeMap<MemberId, Vec<String>>,
}

impl Members {
    pub fn alone(epoch: MembershipEpoch, member: MemberId) -> Members {
        Members { roster: Roster::alone(epoch, member), leader: member, addresses: BTreeMap::new() }
    }

    /// `None`: who answers holds everything, or says nothing of use.
    pub fn of(row: KnownRoster) -> Option<Members> {
        let row = row.filter(|row| !row.members.is_empty())?;
        let addresses = row.members.iter().map(|seat| (seat.id, seat.addresses.clone())).collect();
        Some(Members { roster: row.holders(), leader: row.leader, addresses })
    }

    pub fn is_several(&self) -> bool {
        self.roster.members().len() > 1
    }
}

/// Who serves.
struct Known {
    roster: Roster,
    leader: MemberId,
    seats: BTreeMap<MemberId, Arc<Seat>>,
}

impl Known {
    fn member(&self, to: Destination) -> MemberId {
        match to {
            Destination::Leader => self.leader,
            Destination::Holder(slot) => self.roster.holder(slot),
        }
    }
}

pub struct Route {
    /// For operations; and for what may wait for none of them.
    calls: Doors,
    control: Doors,
    choice: Routing,
    /// Of what goes to any.
    turn: AtomicU64,
    known: RwLock<Known>,
    /// Of what is known, for who looks often.
    is_several: AtomicBool,
    epoch: AtomicU64,
    /// Somebody serves who is in no roster: see [`Route::doubt`].
    is_doubted: AtomicBool,
    changed: Notify,
    /// Held while the roster is asked for; when it was asked for last.
    pub learning: tokio::sync::Mutex<Option<Monotonic>>,
    /// Somebody asks until it has this epoch.
    pub seeking: Mutex<Option<MembershipEpoch>>,
    /// Held while it is being taken in.
    pub adopting: Mutex<()>,
}

/// Where a request goes.
#[derive(Clone)]
pub enum Way {
    /// The one that answers: there is no other.
    Any,
    Member(Arc<Seat>),
}

impl Way {
    /// How a call goes about it. A member that cannot be reached may be one no more: then there is another to be asked.
    pub fn manner(&self) -> Manner {
        match self {
            Way::Any => Manner::Persistent,
            Way::Member(_) => Manner::Once,
        }
    }
}

impl Route {
    pub fn new(calls: Doors, control: Doors, choice: Routing, turn: u64) -> Route {
        let nobody = MemberId(0);
        let roster = Roster::alone(MembershipEpoch(0), nobody);
        Route {
            calls,
            control,
            choice,
            turn: AtomicU64::new(turn),
            known: RwLock::new(Known { roster, leader: nobody, seats: BTreeMap::new() }),
            is_several: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            is_doubted: AtomicBool::new(false),
            changed: Notify::new(),
            learning: Default::default(),
            seeking: Default::default(),
            adopting: Default::default(),
        }
    }

    /// More than one serves.
    pub fn is_several(&self) -> bool {
        self.is_several.load(SeqCst)
    }

    pub fn has_ways(&self) -> bool {
        self.calls.each.is_some() && self.control.each.is_some()
    }

    pub fn epoch(&self) -> MembershipEpoch {
        MembershipEpoch(self.epoch.load(SeqCst))
    }

    pub fn roster(&self) -> Roster {
        self.known.read().roster.clone()
    }

    pub fn seat(&self, member: MemberId) -> Option<Arc<Seat>> {
        self.known.read().seats.get(&member).cloned()
    }

    pub fn is_leader(&self, member: MemberId) -> bool {
        self.known.read().leader == member
    }

    /// A newer roster. Gives the members that are new; those that are none any more are told so.
    pub fn adopt(&self, members: Members) -> Vec<Arc<Seat>> {
        let Members { roster, leader, mut addresses } = members;
        let mut known = self.known.write();
        let mut new = Vec::new();
        let mut former = std::mem::take(&mut known.seats);
        for member in roster.members() {
            let seat = former.remove(member).unwrap_or_else(|| {
                let seat = Arc::new(Seat::new(*member, addresses.remove(member).unwrap_or_default()));
                new.push(seat.clone());
                seat
            });
            known.seats.insert(*member, seat);
        }
        former.into_values().for_each(|seat| seat.gone.stop());
        self.is_several.store(known.seats.len() > 1 && self.has_ways(), SeqCst);
        self.epoch.store(roster.epoch().0, SeqCst);
        (known.roster, known.leader) = (roster, leader);
        drop(known);
        self.changed.notify_waiters();
        new
    }

    /// Whoever holds the directory does not hold what is in it.
    pub fn is_of_another(&self, dir: InodeId, inode: InodeId) -> bool {
        self.is_several() && {
            let known = self.known.read();
            known.roster.holder(dir.slot()) != known.roster.holder(inode.slot())
        }
    }

    /// Who answers for the one answers for the other, under whatever roster: of several servers that is so of one slot alone.
    pub fn is_answered_with(&self, one: InodeId, other: InodeId) -> bool {
        !self.is_several() || one.slot() == other.slot()
    }

    // --- where to ---

    /// The way to who answers it now.
    pub fn way(&self, to: Destination) -> Way {
        if !self.is_several() {
            return Way::Any;
        }
        let known = self.known.read();
        known.seats.get(&known.member(to)).cloned().map_or(Way::Any, Way::Member)
    }

    /// Whom else than its holder a question is asked first, if it is to be asked another. Who is not the holder says so where it matters,
    /// and grants nothing.
    pub fn guess(&self, request: &MetaRequest, to: Destination) -> Option<Way> {
        if self.choice == Routing::BySlot || !self.is_several() || to == Destination::Leader {
            return None;
        }
        if !MetaRequest::QUESTIONS.contains(&request.name()) {
            return None;
        }
        let known = self.known.read();
        let turn = match self.choice {
            Routing::Sticky => self.turn.load(SeqCst),
            Routing::InTurn => self.turn.fetch_add(1, SeqCst),
            // Weyl's sequence, mixed: no need to be better, and every client's begins elsewhere.
            _ => mix(self.turn.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst)),
        };
        let seat = known.seats.values().nth((turn % known.seats.len().max(1) as u64) as usize)?;
        Some(Way::Member(seat.clone()))
    }

    // --- calls ---

    /// One attempt. Ends with [`Code::HeldElsewhere`] when the member it goes to is none any more, or another has to answer it.
    pub async fn execute(
        &self,
        way: &Way,
        to: Destination,
        cx: Context,
        request: MetaRequest,
    ) -> Result<(MetaAnswer, Mark)> {
        let (Way::Member(seat), Some(each)) = (way, &self.calls.each) else {
            return self.calls.any.execute(cx, request).await;
        };
        seat.is_used();
        let is_change = request.is_mutation();
        tokio::select! {
            biased;
            answer = seat.calls(&**each).execute(cx, request) => answer,
            () = self.until_moved(seat.id, to, is_change) => {
                Err(Error::new(Code::HeldElsewhere, format_args!("metadata server {}", seat.id.0), "it has gone, or what was asked of it"))
            }
        }
    }

    /// The same to whoever leads.
    pub async fn ask_leader(&self, cx: Context, request: MetaRequest) -> Result<(MetaAnswer, Mark)> {
        let way = self.way(Destination::Leader);
        self.execute(&way, Destination::Leader, Context { manner: way.manner(), ..cx }, request).await
    }

    /// One of those with which the client was started answers and knows of no roster: several have become one that serves alone, it may be, and
    /// nobody was left to say so. What is said to the leader next goes to any.
    pub fn doubt(&self) {
        self.is_doubted.store(true, SeqCst);
    }

    /// What is said beside operations, to whoever leads.
    pub async fn say_to_leader(&self, cx: Context, request: MetaRequest) -> Result<(MetaAnswer, Mark)> {
        match self.way(Destination::Leader) {
            Way::Member(seat) if !self.is_doubted.swap(false, SeqCst) => {
                self.say(&*seat, Context { manner: Manner::Once, ..cx }, request).await
            }
            _ => self.control.any.execute(cx, request).await,
        }
    }

    /// To one member; without one to any.
    pub async fn say(
        &self,
        seat: impl Into<Option<&Seat>>,
        cx: Context,
        request: MetaRequest,
    ) -> Result<(MetaAnswer, Mark)> {
        match (&self.control.each, seat.into()) {
            (Some(each), Some(seat)) if self.is_several() => seat.control(&**each).execute(cx, request).await,
            _ => self.control.any.execute(cx, request).await,
        }
    }

    /// All members, where they are several.
    pub fn seats(&self) -> Vec<Arc<Seat>> {
        match self.is_several() {
            true => self.known.read().seats.values().cloned().collect(),
            false => Vec::new(),
        }
    }

    /// Returns when a newer roster is known.
    pub async fn until_newer(&self, than: MembershipEpoch) {
        self.until(|| self.epoch() > than).await;
    }

    /// Returns when that holds, which may change with the roster.
    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the look, so that nothing between the two is missed.
            changed.as_mut().enable();
            if holds() {
                return;
            }
            changed.await;
        }
    }

    /// Whether the way leads to a member still. As long as it does, a change that was sent there may be made there, and is to be made nowhere
    /// else: a failure elsewhere is on no record, so that it would be answered, and made afterwards.
    pub fn is_there(&self, way: &Way) -> bool {
        match way {
            Way::Any => !self.is_several(),
            Way::Member(seat) => self.is_several() && self.known.read().seats.contains_key(&seat.id),
        }
    }

    /// Returns when the member is none any more, so that nothing of it comes late; or, of a question, when another is to be asked.
    async fn until_moved(&self, member: MemberId, to: Destination, is_change: bool) {
        let held = !is_change && self.known.read().member(to) == member;
        self.until(|| {
            let known = self.known.read();
            let is_gone = !known.seats.contains_key(&member);
            is_gone || (held && known.member(to) != member)
        })
        .await;
    }
}

fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
