//! A metadata server that serves beside others, each for its part of the slots (docs/design/0027-several-that-serve.md).
//!
//! Promises: what only the holder of a slot knows is answered by that one alone; whoever else is asked says [`Code::HeldElsewhere`] and has
//! changed nothing. A change that touches slots of others is transacted when each of them has said that nobody shows what it makes old,
//! under the epoch under which it commits. No answer is given under another epoch than the one its request began under. A session has ended
//! when it has at every server.
//!
//! Leaves to others: who holds what, and until when ([`Others`]).

mod asked;
mod ends;
mod files;
mod still;
mod syncing;
mod telling;

pub(crate) use still::Elsewhere;

use crate::config::PlantedBug;
use crate::leases::State;
use crate::membership::Holding;
use crate::server::MetaServer;
use braid_api::erased::Meta;
use braid_api::meta::{MetaAnswer, MetaRequest, ServeReply};
use braid_api::{Carries, Code, Context, Error, GoesTo, Result};
use braid_env::{BoxFuture, Monotonic};
use braid_lease::{Event, Happened};
use braid_members::{Question, Reply, Roster};
use braid_meta_engine::Engine;
use braid_meta_namespace::OpError;
use braid_meta_namespace::ops::session;
use braid_types::{InodeId, LeaseGen, MemberId, MembershipEpoch, SessionId, Slot, SlotSet};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use still::Stands;

/// For a word to another server, which is said again if it is not heard.
pub(crate) const WORD: Duration = Duration::from_secs(2);
/// Between two looks whether whoever is waited for is still the one.
const LOOK: Duration = Duration::from_millis(200);

/// Who serves beside this server, and which part is its own.
pub trait Others: Send + Sync + 'static {
    fn me(&self) -> MemberId;
    /// It may answer at all. To be asked when all that an answer tells of has been read.
    fn is_member(&self) -> bool;
    /// And for this slot.
    fn may_answer(&self, slot: Slot) -> bool;
    /// As it is known here.
    fn roster(&self) -> Option<Roster>;
    /// As the one that leads: how many others serve, or will, if from now on nobody else asks to.
    /// `None`: it is not known yet.
    fn count(&self) -> Option<usize> {
        self.roster().map(|roster| roster.members.len().saturating_sub(1))
    }
    /// To the one that leads.
    fn asks(&self, question: Question) -> ServeReply;
    /// As the one that leads: until then no other is to serve. Those that do stop as soon as what they were granted is over.
    fn stay_alone(&self, until: Monotonic);
    /// There is a newer roster, or may be.
    fn is_outdated(&self);
    /// To a member of the roster.
    fn way(&self, to: MemberId) -> Option<Arc<dyn Meta>>;
}

/// What such a server has more than one that serves alone.
pub(crate) struct Beside {
    pub others: Arc<dyn Others>,
    pub leads: bool,
    /// So many do what one server can do only alone.
    apart: AtomicUsize,
    /// And until then.
    apart_until: Mutex<Monotonic>,
    /// Others have not been told of the last end of `sync` here, and are told by one at a time.
    sync_due: AtomicBool,
    sync_round: tokio::sync::Mutex<()>,
    /// Of the last round that all have heard of.
    sync_floor: Mutex<LeaseGen>,
    /// When a member went for the last time, or this server began to lead: what that one granted may be in force for a session's lease from then.
    last_went: Mutex<Monotonic>,
    /// Of the last roster that was followed.
    leader: Mutex<Option<MemberId>>,
    members: Mutex<BTreeSet<MemberId>>,
    /// Held while it is looked whether anybody may join, until that one is counted.
    joining: Mutex<()>,
    /// What the leader has stand still here, by the number of its attempt; of this epoch.
    stands: Mutex<Stands>,
    /// Attempts of this server to make a snapshot.
    attempts: AtomicU64,
    /// Shut while the engine joins another epoch: what is transacted meanwhile was announced under the one before.
    gate: tokio::sync::RwLock<()>,
}

impl Beside {
    pub fn new(others: Arc<dyn Others>, leads: bool, now: Monotonic) -> Beside {
        Beside {
            others,
            leads,
            apart: AtomicUsize::new(0),
            apart_until: Mutex::default(),
            leader: Mutex::default(),
            sync_due: AtomicBool::new(false),
            sync_round: tokio::sync::Mutex::default(),
            sync_floor: Mutex::default(),
            last_went: Mutex::new(now),
            members: Mutex::default(),
            joining: Mutex::new(()),
            stands: Mutex::default(),
            attempts: AtomicU64::new(0),
            gate: tokio::sync::RwLock::new(()),
        }
    }

    /// All that serve but this one. `None`: it is not known yet who does.
    fn all_others(&self) -> Option<Vec<MemberId>> {
        let me = self.others.me();
        let roster = self.others.roster()?;
        Some(roster.members.into_iter().map(|seat| seat.id).filter(|id| *id != me).collect())
    }

    fn apart_until(&self, then: impl FnOnce(Monotonic) -> Monotonic) {
        // While nobody joins.
        let _one = self.joining.lock();
        let mut until = self.apart_until.lock();
        *until = then(*until);
        self.others.stay_alone(*until);
    }

    /// At the leader.
    fn asked(&self, question: Question, now: Monotonic) -> ServeReply {
        let _one = self.joining.lock();
        let is_new = self.others.roster().is_none_or(|roster| !roster.has(question.member));
        match is_new && (self.apart.load(SeqCst) > 0 || now < *self.apart_until.lock()) {
            true => ServeReply { reply: Reply::Wait, fence: 0 },
            false => self.others.asks(question),
        }
    }
}

/// Nobody joins, until dropped.
pub(crate) struct Apart<'a>(Option<&'a Beside>);

impl Drop for Apart<'_> {
    fn drop(&mut self) {
        if let Some(beside) = self.0 {
            beside.apart.fetch_sub(1, SeqCst);
        }
    }
}

/// Under which epoch a request began, and for which slot.
#[derive(Clone, Copy)]
pub(crate) struct Begun(Option<(MembershipEpoch, Option<Slot>)>);

impl Begun {
    /// It is answered by who holds that slot, and by nobody else until it has been told ([`MetaServer::still_own`]).
    pub fn is_at_holder(self) -> bool {
        self.0.is_none_or(|(_, slot)| slot.is_some())
    }
}

pub(crate) fn elsewhere(what: &str, cause: &str) -> Error {
    Error::new(Code::HeldElsewhere, what, cause)
}

impl MetaServer {
    /// This server is the one to ask.
    pub(crate) fn expect_own(&self, request: &MetaRequest) -> Result<Begun> {
        let Some(beside) = &self.beside else { return Ok(Begun(None)) };
        let slot = match request.goes_to() {
            GoesTo::Leader if !beside.leads => {
                return Err(elsewhere(request.name(), "this metadata server does not lead"));
            }
            GoesTo::Leader | GoesTo::Here => return Ok(Begun(None)),
            GoesTo::Holder(slot) if !self.leases.holds(slot) => {
                beside.others.is_outdated();
                return Err(elsewhere(request.name(), "another metadata server holds its slot"));
            }
            // It waits for long, and is asked again when the slot goes.
            GoesTo::Holder(_) if matches!(request, MetaRequest::SetLock(_)) => return Ok(Begun(None)),
            GoesTo::Holder(slot) => Some(slot),
            GoesTo::BestAt(inode) => Some(inode.slot()).filter(|slot| self.leases.holds(*slot)),
        };
        Ok(Begun(Some((self.leases.epoch(), slot))))
    }

    /// What was found may be told: who holds what is as it was when the request came.
    pub(crate) fn still_own(&self, name: &'static str, begun: Begun) -> Result<()> {
        let (Some(beside), Begun(Some((epoch, slot)))) = (&self.beside, begun) else { return Ok(()) };
        let is_own = slot.is_none_or(|slot| beside.others.may_answer(slot));
        match is_own && self.leases.epoch() == epoch {
            true => Ok(()),
            false => Err(elsewhere(name, "who holds what has changed meanwhile")),
        }
    }

    /// Others serve beside it, or it is not known yet.
    pub(crate) fn has_others(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.others.count() != Some(0))
    }

    /// For what this server does without asking others: they must not be there, and do not come before it is done.
    pub(crate) fn apart(&self, what: &str) -> Result<Apart<'_>> {
        let Some(beside) = &self.beside else { return Ok(Apart(None)) };
        let (apart, others) = {
            let _one = beside.joining.lock();
            beside.apart.fetch_add(1, SeqCst);
            (Apart(Some(beside)), beside.others.count())
        };
        match others {
            Some(0) => Ok(apart),
            None => Err(Error::new(Code::Busy, what, "it is not known yet which metadata servers serve")),
            Some(others) => {
                let cause = format!("{others} metadata servers serve beside the one that leads");
                Err(Error::new(Code::Busy, what, cause))
            }
        }
    }

    /// Nobody joins for so long from now, and who serves beside this one stops, which takes as long as a member's lease.
    pub(crate) fn stay_apart(&self, span: Duration) {
        if let Some(beside) = &self.beside {
            beside.apart_until(|until| until.max(self.env.clock.now() + span));
        }
    }

    /// Others may serve beside this one again.
    pub(crate) fn end_apart(&self) {
        if let Some(beside) = &self.beside {
            beside.apart_until(|_| self.env.clock.now());
        }
    }

    /// What a request failed with: in an epoch that is over nothing is changed, and the leader knows the next.
    pub(crate) fn may_be_outdated(&self, error: &Error) {
        if error.code == Code::NotServing
            && let Some(beside) = &self.beside
        {
            beside.others.is_outdated();
        }
    }

    pub(crate) fn leads(&self) -> bool {
        self.beside.as_ref().is_none_or(|beside| beside.leads)
    }

    /// A session that comes to a server which does not lead is looked for in its row.
    pub(crate) async fn meet(&self, session: SessionId) -> Result<()> {
        if self.leads() || session == SessionId(0) || self.sessions.is_known(session) {
            return Ok(());
        }
        let found = self.engine.read(0, session::FindSession { session }).await.map_err(Error::from)?;
        let unknown = |cause: &str| Error::new(Code::SessionUnknown, format_args!("session {session}"), cause);
        let row = found.filter(|row| !row.has_ended()).ok_or_else(|| unknown("it was ended or never began"))?;
        let now = self.env.clock.now();
        if !self.leases.admits(session, row.caches) {
            return Err(unknown("it is being ended"));
        }
        self.sessions.insert(session, crate::sessions::SessionState::new(row.epoch, row.description, row.host, now));
        Ok(())
    }

    /// Who holds what is another from now on; to be told in the order of the epochs. Of what is held here `stays` goes on. What was announced
    /// under the epoch before and is not committed never will be: members of the roster commit under `fence`.
    pub async fn follow(&self, roster: &Roster, fence: u64, stays: &SlotSet) -> Result<()> {
        let Some(beside) = &self.beside else { return Ok(()) };
        let _shut = beside.gate.write().await;
        self.engine.join_at(fence).await.map_err(OpError::from)?;
        self.leases.follows(roster, stays.clone());
        // Who had it stand still commits nothing under the epoch before.
        beside.stands.lock().clear();
        let leader = beside.leader.lock().replace(roster.leader);
        let members: BTreeSet<MemberId> = roster.members.iter().map(|seat| seat.id).collect();
        let before = std::mem::replace(&mut *beside.members.lock(), members.clone());
        if !before.is_subset(&members) {
            *beside.last_went.lock() = self.env.clock.now();
            self.look_for_orphans();
        }
        if leader.is_some_and(|before| before != roster.leader) {
            // The one before may not have come to their ends.
            self.leases.end_again();
        }
        Ok(())
    }

    /// These slots are held here from now on, because their former holders answer for them no more.
    pub async fn gain(&self, epoch: MembershipEpoch, slots: SlotSet) -> Result<()> {
        if !self.leads() {
            // What was made while this one was no member.
            self.read_snapshots().await?;
        }
        let rows = self.engine.read(0, session::ListSessions).await.map_err(Error::from)?;
        let (mut caching, now) = (Vec::new(), self.env.clock.now());
        for (id, row) in rows.into_iter().filter(|(_, row)| !row.has_ended()) {
            if row.caches {
                caching.push(id);
            }
            if self.leads() || self.leases.is_over(id) {
                continue;
            }
            self.sessions.insert(id, crate::sessions::SessionState::new(row.epoch, row.description, row.host, now));
        }
        if self.config.planted == Some(PlantedBug::GainedAtOnce) {
            caching.clear();
        }
        self.leases.gains(epoch, slots, caching);
        Ok(())
    }

    /// Held until a change is over that was announced.
    pub(crate) async fn gate(&self) -> Option<tokio::sync::RwLockReadGuard<'_, ()>> {
        match &self.beside {
            Some(beside) => Some(beside.gate.read().await),
            None => None,
        }
    }

    /// Says something to another server, once.
    pub(crate) async fn say_to<M>(&self, to: MemberId, message: M, deadline: Duration) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        let way = self.beside.as_ref().and_then(|beside| beside.others.way(to));
        let way = way.ok_or_else(|| elsewhere("a metadata server", "it is no member any more"))?;
        let request = message.wrap();
        let name = request.name();
        let cx = Context { deadline, trace: braid_api::trace::current(), ..Context::default() };
        let answer = self.env.timeout(deadline, way.execute(cx, request)).await;
        let (answer, _) = answer.map_err(|_| Error::new(Code::DeadlineExceeded, name, "no answer in time"))??;
        M::unwrap(answer).ok_or(Error::bare(Code::BadMessage))
    }

    /// The same of what takes its time, as long as `still` says that it is the one to be told.
    pub(crate) async fn say_while<M>(
        &self,
        to: MemberId,
        message: M,
        deadline: Duration,
        still: impl Fn() -> bool,
    ) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        let saying = self.say_to(to, message, deadline);
        let mut saying = std::pin::pin!(saying);
        loop {
            if let Ok(answer) = self.env.timeout(LOOK, saying.as_mut()).await {
                return answer;
            }
            if !still() {
                return Err(elsewhere("a word to a metadata server", "it is not the one to be told any more"));
            }
        }
    }

    /// Who holds the inode's slot, if that is not this server.
    pub(crate) fn foreign(&self, inode: InodeId) -> Option<MemberId> {
        let beside = self.beside.as_ref()?;
        if self.leases.holds(inode.slot()) {
            return None;
        }
        Some(beside.others.roster().and_then(|roster| roster.holder_of(inode.slot())).unwrap_or_default())
    }
}

impl Holding for MetaServer {
    fn follows<'a>(&'a self, roster: &'a Roster, fence: u64, stays: &'a SlotSet) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.follow(roster, fence, stays))
    }

    fn gains(&self, epoch: MembershipEpoch, slots: SlotSet) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.gain(epoch, slots))
    }
}

impl crate::leases::Leases {
    /// Under which it holds what it holds.
    pub(crate) fn epoch(&self) -> MembershipEpoch {
        self.state.lock().holder.epoch()
    }

    /// Under this epoch, all of these.
    fn has_all(&self, epoch: MembershipEpoch, slots: &SlotSet) -> bool {
        let state = self.state.lock();
        state.holder.epoch() == epoch && slots.iter().all(|slot| state.holder.holds(slot))
    }

    pub(crate) fn holds(&self, slot: Slot) -> bool {
        self.state.lock().holder.holds(slot)
    }

    /// The session may be granted something from its first renewal on. False: it is being ended.
    fn admits(&self, session: SessionId, caches: bool) -> bool {
        let mut state = self.state.lock();
        if state.ending.contains_key(&session) {
            return false;
        }
        if caches {
            state.caching.entry(session).or_default();
        }
        true
    }

    pub(crate) fn is_ending(&self, session: SessionId) -> bool {
        self.state.lock().ending.contains_key(&session)
    }

    /// Sessions that were to end, and are not known to have, are ended by who leads now.
    fn end_again(&self) {
        let mut state = self.state.lock();
        let unfinished: Vec<SessionId> =
            state.ending.iter().filter(|(_, over)| over.is_none()).map(|(id, _)| *id).collect();
        state.to_end.extend(unfinished);
        drop(state);
        self.to_end.notify_one();
    }

    fn follows(&self, roster: &Roster, keeps: SlotSet) {
        let holders = roster.holders();
        let members = holders.members().clone();
        let mut state = self.state.lock();
        self.on(&mut state, Event::Epoch { epoch: roster.epoch, members, keeps });
        self.watch(&mut state, |state, now| state.announce(now, Happened::EpochChanged(holders)));
        let State { seals, locks, announcing, holder, .. } = &mut *state;
        seals.keep(|inode| holder.holds(inode.slot()));
        locks.keep(|inode| holder.holds(inode.slot()));
        announcing.of_others.retain(|announcement, _| roster.has(announcement.server));
        // Who listens hears of the epoch.
        state.ring_all();
        drop(state);
        self.said.notify_waiters();
        self.seals.notify_waiters();
    }

    /// It has ended while others served.
    fn is_over(&self, session: SessionId) -> bool {
        self.state.lock().is_over(session)
    }

    fn gains(&self, epoch: MembershipEpoch, slots: SlotSet, mut sessions: Vec<SessionId>) {
        let mut state = self.state.lock();
        // Those of which the end was not in the rows yet.
        sessions.retain(|session| !state.is_over(*session));
        for session in &sessions {
            state.caching.entry(*session).or_default();
        }
        self.on(&mut state, Event::Gained { epoch, slots, sessions });
        // Who has nothing here would not come by himself.
        state.ring_all();
    }
}
