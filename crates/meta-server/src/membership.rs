//! The loops around `braid-members`: this process among those that serve the metadata of one database at once
//! (docs/design/0027-several-that-serve.md, *Members, as built*).
//!
//! Promises: [`Membership::may_answer`] is true of a slot only while no other process answers for it, and only from when [`Holding`] has taken it
//! in until the first word of a roster that gives it to another. [`Holding`] is told one thing after the other, of each roster before of what is
//! gained by it; the leader hears that a roster is followed only when [`Holding`] follows it, so that nobody takes a slot over of which something
//! may still be under way here.
//!
//! The election, and whoever writes the row, has an engine of its own beside that of [`Holding`]: a candidate joins whatever epoch holds
//! ([`Lead::win`]), a leader begins the next before there is a roster for it; what a member changes, and what the leader itself does as one, is to
//! fail in an epoch of which it follows no roster.

mod asking;
mod leading;
mod telling;

use crate::beside::Others;
use crate::lead::Lead;
use braid_api::Result;
use braid_api::erased::{Meta, MetaPeers};
use braid_api::meta::ServeReply;
use braid_env::{BoxFuture, Env, Monotonic};
use braid_members::{Change, Leader, Limits, Member, MemberId, Moment, Question, Reply, Roster, Seat};
use braid_meta_engine::AnyEngine;
use braid_meta_namespace::rows::RosterRow;
use braid_types::{MembershipEpoch, Slot, SlotSet};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// After a failure of the database, or of what is told of a roster, before it is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// Between two looks at what is to be done, at the latest.
const LOOK: Duration = Duration::from_secs(2);
/// However many say that there is something to be asked, the leader is not asked sooner again.
const GAP: Duration = Duration::from_millis(20);
/// For the last word of one that stops.
const LAST_WORD: Duration = Duration::from_secs(1);
/// Of those that left, so many are remembered by a leader that does not know yet who is there: more than a roster has members.
const LEFT_MAX: usize = 256;

/// What is told of who holds what.
///
/// When the membership ends nobody waits any more for what is being told.
pub trait Holding: Send + Sync + 'static {
    /// A newer roster. Of the slots here those in `stays` go on as they are; all others are not answered for any more, and nothing of them is
    /// under way when this has returned. In between the engine is to join the epoch `fence`, under which all of this roster change rows. `stays` is
    /// empty where a roster in between was missed: others who were told of it took all for moved.
    ///
    /// An error: it does not follow yet, and is told again, of this roster or a newer one.
    fn follows<'a>(&'a self, roster: &'a Roster, fence: u64, stays: &'a SlotSet) -> BoxFuture<'a, Result<()>>;

    /// For these slots of the roster that was followed last nobody answers any more: this one may, from when this has returned. An error: told again.
    fn gains(&self, epoch: MembershipEpoch, slots: SlotSet) -> BoxFuture<'_, Result<()>>;
}

/// This start of a metadata server as a member.
pub struct Membership {
    env: Env,
    /// For the row of the roster.
    engine: AnyEngine,
    seat: Seat,
    limits: Limits,
    way: Arc<dyn MetaPeers>,
    state: Mutex<State>,
    /// The leader may have something to be asked.
    to_ask: Notify,
    /// [`Holding`] may have something to be told.
    to_tell: Notify,
    /// As the leader: something may be due.
    to_lead: Notify,
    over: watch::Sender<bool>,
}

struct State {
    member: Member,
    /// The engine's epoch that belongs to the roster which the member follows.
    fence: u64,
    /// The last roster that [`Holding`] follows.
    followed: Option<MembershipEpoch>,
    /// What [`Holding`] has taken in, and it has not been lost since.
    taken: SlotSet,
    /// Lost since [`Holding`] was told last of what is gained.
    lost: SlotSet,
    leading: Option<Leading>,
    /// Where the leader of the newest roster is.
    leader_at: Option<(MembershipEpoch, Vec<String>)>,
    /// That one did not answer, or says that it does not lead.
    must_look: bool,
    asked: Moment,
}

/// While this process leads.
struct Leading {
    leader: Leader,
    lead: Arc<Lead>,
    /// As it was found or written last.
    row: Option<RosterRow>,
    /// Said that they stop before this leader knew who is there.
    left: BTreeSet<MemberId>,
}

impl Leading {
    fn has_left(&mut self, member: MemberId) {
        self.leader.leaves(member);
        if self.leader.roster().is_none() && self.left.len() < LEFT_MAX {
            self.left.insert(member);
        }
    }
}

impl State {
    /// What has been heard of the election since.
    fn hears_of_lead(&mut self, now: Moment) {
        if let Some(Leading { leader, lead, .. }) = &mut self.leading
            && let Some((_, until)) = lead.term()
        {
            self.member.leads(until, now);
            leader.leads(until, now);
        }
    }

    fn changes(&mut self, change: &Change) {
        let lost = change.lost.iter().map(|(slot, _)| *slot).collect();
        self.taken.remove(&lost);
        self.lost.extend(&lost);
    }

    /// Who is to be asked by this roster, if none is newer.
    fn sees(&mut self, roster: &Roster) {
        if self.leader_at.as_ref().is_none_or(|(epoch, _)| *epoch <= roster.epoch) {
            let seat = roster.members.iter().find(|seat| seat.id == roster.leader);
            self.leader_at = seat.map(|seat| (roster.epoch, seat.addresses.clone()));
        }
    }

    /// The fence that was told with a roster.
    fn belongs(&mut self, fence: u64, epoch: MembershipEpoch) {
        if self.member.epoch() == Some(epoch) {
            self.fence = fence;
        }
    }

    fn is_outdated(&mut self, now: Moment) {
        self.member.is_outdated(now.max(self.asked + GAP));
    }
}

impl Membership {
    /// `me`: drawn at this start. `addresses`: where it is reached by others and by clients. `engine`: for the row of the roster; the one of the
    /// election, if it is to lead, and never what [`Holding`] changes rows through.
    pub fn new(
        env: Env,
        engine: AnyEngine,
        me: MemberId,
        addresses: Vec<String>,
        way: Arc<dyn MetaPeers>,
        limits: Limits,
    ) -> Arc<Membership> {
        let state = State {
            member: Member::new(me, addresses.clone(), limits.clone()),
            fence: 0,
            followed: None,
            taken: SlotSet::none(),
            lost: SlotSet::none(),
            leading: None,
            leader_at: None,
            must_look: true,
            asked: Moment::ZERO,
        };
        Arc::new(Membership {
            env,
            engine,
            seat: Seat { id: me, addresses },
            limits,
            way,
            state: Mutex::new(state),
            to_ask: Notify::new(),
            to_tell: Notify::new(),
            to_lead: Notify::new(),
            over: watch::Sender::new(false),
        })
    }

    pub fn me(&self) -> MemberId {
        self.seat.id
    }

    fn now(&self) -> Moment {
        self.env.clock.now().0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.hears_of_lead(self.now());
        state
    }

    /// Whether what is said here of the slot is not outdated by another. To be asked after everything has been read that an answer tells of.
    pub fn may_answer(&self, slot: Slot) -> bool {
        let state = self.state();
        state.taken.has(slot) && state.member.may_answer(slot, self.now())
    }

    /// Under a lease, whatever it holds.
    pub fn is_member(&self) -> bool {
        let state = self.state();
        state.member.roster().is_some() && self.now() < state.member.answers_until()
    }

    /// The newest of which has been heard.
    pub fn roster(&self) -> Option<Roster> {
        self.state.lock().member.roster().cloned()
    }

    /// A member's question, answered as the leader.
    pub fn asks(&self, question: Question) -> ServeReply {
        let mut state = self.state();
        let Some(leading) = &mut state.leading else {
            return ServeReply { reply: Reply::NotLeading, fence: 0 };
        };
        let now = self.now();
        if question.leaves {
            leading.has_left(question.member);
        }
        let reply = leading.leader.asks(question, now);
        self.to_lead.notify_one();
        match (&reply, &leading.row) {
            (Reply::Member(answer), Some(row)) if answer.roster == row.roster => {
                let fence = row.fence;
                ServeReply { reply, fence }
            }
            (Reply::Member(_), _) => ServeReply { reply: Reply::Wait, fence: 0 },
            _ => ServeReply { reply, fence: 0 },
        }
    }

    /// As the leader: a member has stopped, and answers nothing any more. For whoever knows it without a message, as of the member that this
    /// process was before it led.
    pub fn has_left(&self, member: MemberId) {
        if let Some(leading) = &mut self.state().leading {
            leading.has_left(member);
            self.to_lead.notify_one();
        }
    }

    /// A transaction failed in the fence, or somebody knows a newer epoch: the leader is asked at once.
    pub fn is_outdated(&self) {
        self.state.lock().is_outdated(self.now());
        self.to_ask.notify_one();
    }

    /// Runs until this process is no member any more and never will be under this id, so that it is to start anew; or until [`Membership::stop`].
    pub async fn run(self: Arc<Self>, holding: Arc<dyn Holding>) {
        tokio::select! {
        biased;
                   () = self.ended() => {}
                   () = self.keep_asking() => {}
                   () = self.keep_telling(&*holding) => {}
               }
        self.ends();
    }

    /// Returns when it is no member any more.
    pub async fn ended(&self) {
        let mut over = self.over.subscribe();
        // Who says so lives as long as this.
        let _ = over.wait_for(|is_over| *is_over).await;
    }

    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// It answers nothing any more, and says so to nobody.
    pub fn ends(&self) {
        let mut state = self.state.lock();
        let change = state.member.leaves();
        state.changes(&change);
        state.leading = None;
        drop(state);
        self.over.send_replace(true);
        self.to_lead.notify_one();
    }

    /// Leaves in order. It answers nothing any more from the beginning of this on; when it has returned the leader knows that, if it is to be reached.
    pub async fn stop(&self) {
        let is_known = {
            let state = self.state.lock();
            // Whoever leads next goes by the row, which says who led.
            state.leading.is_none() && state.leader_at.is_some()
        };
        self.ends();
        if is_known {
            let _ = self.env.timeout(LAST_WORD, self.say_last_word()).await;
        }
    }
}

impl Others for Membership {
    fn me(&self) -> MemberId {
        Membership::me(self)
    }

    fn is_member(&self) -> bool {
        Membership::is_member(self)
    }

    fn may_answer(&self, slot: Slot) -> bool {
        Membership::may_answer(self, slot)
    }

    fn roster(&self) -> Option<Roster> {
        Membership::roster(self)
    }

    fn count(&self) -> Option<usize> {
        let state = self.state.lock();
        // What it knows as a member comes later than what it does as the leader.
        let leading = state.leading.as_ref()?;
        leading.leader.roster()?;
        let as_member = state.member.roster().map_or(0, |roster| roster.members.len().saturating_sub(1));
        Some(as_member.max(leading.leader.others()))
    }

    fn asks(&self, question: Question) -> ServeReply {
        Membership::asks(self, question)
    }

    fn stay_alone(&self, until: Monotonic) {
        if let Some(leading) = &mut self.state.lock().leading {
            leading.leader.stays_alone(until.0);
        }
        self.to_lead.notify_one();
    }

    fn is_outdated(&self) {
        Membership::is_outdated(self);
    }

    fn way(&self, to: MemberId) -> Option<Arc<dyn Meta>> {
        let state = self.state.lock();
        let seat = state.member.roster()?.members.iter().find(|seat| seat.id == to)?;
        Some(self.way.meta(&seat.addresses))
    }
}
