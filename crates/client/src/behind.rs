//! Removals that a program is told of before the metadata server has answered (docs/design/0029-removals-behind.md).
//!
//! Promises: so only where this session works alone in the slot and the removal can only succeed, so that nobody else can see, and no answer
//! say, that it has not happened yet. What this client asks afterwards of names in the slot waits for it, as do fsync and the end of the session;
//! when somebody else wants the slot it is left, and that is when nothing is on its way any more.

use crate::cache::Learnt;
use crate::core::{Core, Op};
use crate::wait::{Deadline, timed_out, wait_until};
use braid_api::meta::{LeaveSlots, MetaRequest, TakeSlot, Unlink};
use braid_api::{Carries, Code, Result, When};
use braid_env::{Env, Monotonic};
use braid_types::{InodeId, MembershipEpoch, Name, SessionId, Slot, TraceId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// After so many removals in a row in one directory its slot is asked for: the message is worth it from about three more on.
const IN_A_ROW: u32 = 4;
/// Longer between two and it is no row.
const ROW_PAUSE: Duration = Duration::from_secs(1);
/// A slot in which nothing was removed for so long is left: others need not ask then, and a restart need not wait for this client.
const IDLE: Duration = Duration::from_secs(1);
/// Before a slot that was refused is asked for again.
const REFUSED: Duration = Duration::from_secs(1);
/// Removals on their way. Whoever waits for all of them waits for 64 of some 50 µs.
const UNANSWERED_MAX: usize = 64;
/// `rm -rf` goes through some hundred directories a second, and each slot is kept for as long.
const SLOTS_MAX: usize = 512;
/// A slot in which so many went behind was worth it, and those of the next directories are asked for with their first removal.
const WORTH: u32 = 3;
/// Nothing of what was told is given up for being late: it ends with the session.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asked,
    Alone,
    Leaving,
}

struct Mine {
    number: u64,
    session: SessionId,
    epoch: MembershipEpoch,
    stage: Stage,
    used: Monotonic,
    /// Removals that went behind.
    count: u32,
}

#[derive(Default)]
struct State {
    slots: BTreeMap<Slot, Mine>,
    /// By slot, in the order in which they were told.
    unanswered: BTreeMap<Slot, BTreeSet<u64>>,
    last_removal: u64,
    refused: BTreeMap<Slot, Monotonic>,
    last: u64,
    /// Where names were removed last, how many in a row, and when.
    row: Option<(InodeId, u32, Monotonic)>,
    /// When a slot was worth it last.
    worth_it: Option<Monotonic>,
    /// Somebody looks for idle ones.
    is_swept: bool,
}

#[derive(Default)]
pub struct Behind {
    state: Mutex<State>,
    /// All of `unanswered`: looked at before each message.
    count: AtomicUsize,
    changed: Notify,
}

/// A removal that its program has been told of, until it is answered.
struct UnderWay {
    core: Arc<Core>,
    slot: Slot,
    removal: u64,
    /// Of the slot, as it was when it began.
    number: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let behind = &self.core.behind;
        let mut state = behind.state.lock();
        let is_last = state.unanswered.get_mut(&self.slot).is_some_and(|removals| {
            removals.remove(&self.removal);
            removals.is_empty()
        });
        if is_last {
            state.unanswered.remove(&self.slot);
            self.core.cache.no_more_guesses(self.slot);
        }
        behind.count.fetch_sub(1, SeqCst);
        drop(state);
        behind.changed.notify_waiters();
    }
}

/// What a message has to come after.
enum After {
    Nothing,
    /// Removals in the slots of what it is about.
    These([Slot; 2]),
    All,
}

impl After {
    fn of(request: &MetaRequest, when: When) -> After {
        match request {
            MetaRequest::RemoveDir(_)
            | MetaRequest::Rename(_)
            | MetaRequest::Resolve(_)
            | MetaRequest::AtPath(_)
            | MetaRequest::Walk(_)
            | MetaRequest::ChangeTree(_)
            | MetaRequest::SetPolicy(_)
            | MetaRequest::SealFile(_)
            | MetaRequest::AdminQuery(_)
            | MetaRequest::GetStatFs(_)
            | MetaRequest::Settle(_)
            | MetaRequest::CloseSession(_) => After::All,
            // It is durable with all before it.
            request if request.is_mutation() && when != When::Early => After::All,
            // About bytes, of files that nobody removes while they are written here.
            MetaRequest::CommitFile(_) | MetaRequest::DropChunks(_) => After::Nothing,
            MetaRequest::Link(m) => After::These([m.inode.id.slot(), m.parent.id.slot()]),
            MetaRequest::GetPlace(m) => After::These([m.id.slot(); 2]),
            MetaRequest::GetPolicy(m) => After::These([m.inode.id.slot(); 2]),
            other => match other.about().inode {
                InodeId(0) => After::Nothing,
                inode => After::These([inode.slot(); 2]),
            },
        }
    }
}

impl State {
    fn alone(&self, slot: Slot) -> Option<&Mine> {
        self.slots.get(&slot).filter(|mine| mine.stage == Stage::Alone)
    }

    /// All removals in the slot up to this one have been answered.
    fn has_answered(&self, slot: Slot, last: u64) -> bool {
        self.unanswered.get(&slot).and_then(BTreeSet::first).is_none_or(|first| *first > last)
    }

    fn has_answered_all(&self, last: u64) -> bool {
        self.unanswered.keys().all(|slot| self.has_answered(*slot, last))
    }
}

impl Behind {
    /// Returns when what the request has to come after has been answered.
    pub async fn until_done(&self, env: &Env, request: &MetaRequest, when: When, deadline: Deadline) -> Result<()> {
        if self.count.load(SeqCst) == 0 {
            return Ok(());
        }
        let after = After::of(request, when);
        // Those that are told from now on are none of its business: there may always be some.
        let last = self.state.lock().last_removal;
        self.until(env, deadline, |state| match &after {
            After::Nothing => true,
            After::These(slots) => slots.iter().all(|slot| state.has_answered(*slot, last)),
            After::All => state.has_answered_all(last),
        })
        .await
    }

    /// Returns when all that programs have been told of until now has been answered.
    pub async fn until_all_done(&self, env: &Env, deadline: Deadline) -> Result<()> {
        let last = self.state.lock().last_removal;
        self.until(env, deadline, |state| state.has_answered_all(last)).await
    }

    async fn until(&self, env: &Env, deadline: Deadline, done: impl Fn(&State) -> bool) -> Result<()> {
        let done = || done(&self.state.lock()).then_some(());
        let waited = wait_until(env, &self.changed, deadline, done).await;
        waited.ok_or_else(|| timed_out("a change of names", "removals before it to be answered"))
    }

    /// What was agreed is over: another start of the server, or another session.
    pub fn forget(&self) {
        self.state.lock().slots.clear();
    }

    /// Removals that programs have been told of and that are not answered.
    pub fn unanswered(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// Returns when one more may go behind, at once where none may because the slot is not this one's alone.
    pub async fn until_room(&self, env: &Env, slot: Slot, deadline: Deadline) -> Result<()> {
        if self.count.load(SeqCst) < UNANSWERED_MAX {
            return Ok(());
        }
        self.until(env, deadline, |state| self.count.load(SeqCst) < UNANSWERED_MAX || state.alone(slot).is_none()).await
    }

    /// A removal may go behind in the slot, as far as that is for the slot to say.
    fn begin(&self, core: &Arc<Core>, slot: Slot, of: (SessionId, MembershipEpoch)) -> Option<UnderWay> {
        let mut state = self.state.lock();
        let number = state.alone(slot).filter(|mine| (mine.session, mine.epoch) == of)?.number;
        if self.count.load(SeqCst) >= UNANSWERED_MAX {
            return None;
        }
        state.last_removal += 1;
        let removal = state.last_removal;
        state.unanswered.entry(slot).or_default().insert(removal);
        self.count.fetch_add(1, SeqCst);
        Some(UnderWay { core: core.clone(), slot, removal, number })
    }

    /// It has been sent. False if the slot was left or lost meanwhile: then its program is to wait for the answer.
    fn may_tell(&self, under_way: &UnderWay, now: Monotonic) -> bool {
        let mut state = self.state.lock();
        let is_same = |mine: &&mut Mine| mine.stage == Stage::Alone && mine.number == under_way.number;
        let Some(mine) = state.slots.get_mut(&under_way.slot).filter(is_same) else { return false };
        (mine.used, mine.count) = (now, mine.count + 1);
        if mine.count >= WORTH {
            state.worth_it = Some(now);
        }
        true
    }

    /// A name was removed in the directory. Gives the number under which its slot is to be asked for, if it is.
    fn removed_one(&self, dir: InodeId, (session, epoch): (SessionId, MembershipEpoch), now: Monotonic) -> Option<u64> {
        let slot = dir.slot();
        let mut state = self.state.lock();
        let before = match state.row {
            Some((of, count, at)) if of == dir && now.since(at) < ROW_PAUSE => count,
            _ => 0,
        };
        state.row = Some((dir, before + 1, now));
        let quiet = state.refused.get(&slot).is_none_or(|at| now.since(*at) >= REFUSED);
        let room = state.slots.len() < SLOTS_MAX;
        let goes_on = state.worth_it.is_some_and(|at| now.since(at) < ROW_PAUSE);
        let enough = if goes_on { 1 } else { IN_A_ROW };
        if before + 1 < enough || !quiet || !room || state.slots.contains_key(&slot) {
            return None;
        }
        state.last += 1;
        let number = state.last;
        state.slots.insert(slot, Mine { number, session, epoch, stage: Stage::Asked, used: now, count: 0 });
        Some(number)
    }

    /// False if it is not wanted any more.
    fn given(&self, slot: Slot, number: u64, of: (SessionId, MembershipEpoch), now: Monotonic) -> bool {
        let mut state = self.state.lock();
        let is_asked =
            |mine: &&mut Mine| mine.number == number && mine.stage == Stage::Asked && (mine.session, mine.epoch) == of;
        let Some(mine) = state.slots.get_mut(&slot).filter(is_asked) else { return false };
        (mine.stage, mine.used) = (Stage::Alone, now);
        true
    }

    fn refused(&self, slot: Slot, number: u64, now: Monotonic) {
        let mut state = self.state.lock();
        if state.slots.get(&slot).is_some_and(|mine| mine.number == number) {
            state.slots.remove(&slot);
        }
        state.refused.retain(|_, at| now.since(*at) < REFUSED);
        state.refused.insert(slot, now);
    }

    /// True for who is to look for idle slots from now on.
    fn is_to_be_swept(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_swept, true)
    }

    /// Slots in which nothing was removed for a while, and nothing is on its way: they are this one's no more. `None`: there is none left
    /// to look at.
    fn idle(&self, now: Monotonic) -> Option<BTreeMap<MembershipEpoch, Vec<(Slot, u64)>>> {
        let mut state = self.state.lock();
        let State { slots, unanswered, is_swept, .. } = &mut *state;
        if slots.is_empty() {
            *is_swept = false;
            return None;
        }
        let mut idle: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let is_idle = |slot: &Slot, mine: &mut Mine| {
            mine.stage == Stage::Alone && now.since(mine.used) >= IDLE && !unanswered.contains_key(slot)
        };
        for (slot, mine) in slots.extract_if(.., is_idle) {
            idle.entry(mine.epoch).or_default().push((slot, mine.number));
        }
        Some(idle)
    }

    /// Nothing new goes behind in the slot. Gives what is to be said when nothing is on its way; `None` if that is going to be said.
    fn leaves(&self, slot: Slot, epoch: MembershipEpoch) -> Option<(u64, MembershipEpoch)> {
        let mut state = self.state.lock();
        let last = state.last;
        match state.slots.get_mut(&slot) {
            Some(mine) if mine.stage == Stage::Leaving => None,
            Some(mine) => {
                mine.stage = Stage::Leaving;
                Some((mine.number, mine.epoch))
            }
            // It has not heard so, or gave a slot that was given up here.
            None => Some((last, epoch)),
        }
    }

    fn has_left(&self, slot: Slot, number: u64) {
        let mut state = self.state.lock();
        if state.slots.get(&slot).is_some_and(|mine| mine.number == number) {
            state.slots.remove(&slot);
        }
    }
}

impl Core {
    /// Removes the name behind its program, if it is as good as removed. `None` if it has to be asked.
    pub async fn remove_behind(&self, trace: TraceId, parent: InodeId, name: &Name) -> Option<Result<()>> {
        let core = self.this.upgrade()?;
        let session = self.session.id();
        let under_way = self.behind.begin(&core, parent.slot(), (session, self.route.epoch()))?;
        let id = self.cache.removable(parent, name, self.now())?;
        let message = Unlink { parent: self.cache.existing(parent).ok()?, name: name.clone(), open_here: false };
        // In this order: what has been created in between is open.
        let may_be_created = self.may_be_created(parent, name);
        let is_open = self.inodes.get(id).is_some() || !self.inodes.held(&[id]).is_empty();
        if may_be_created || is_open || !self.may_keep(&message.clone().wrap()) {
            return None;
        }
        let (op, name) = (Op { deadline: Deadline::after(&self.env, PATIENCE), trace }, name.clone());
        let mut removal = Box::pin(async move { core.removed((parent, name, id), message, session, op).await });
        // On its way before the program hears of it: who is killed then has sent it.
        if let Poll::Ready(done) = removal.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        // A server that begins anew is sent what is on its way when nothing more is told here (`replay`): this is, or it is not told.
        if !self.behind.may_tell(&under_way, self.now()) {
            return Some(removal.await);
        }
        self.counters.removed_behind.fetch_add(1, Relaxed);
        self.spawn_for("removal", trace, async move {
            if let Err(error) = removal.await {
                tracing::error!(%error, inode = id.0, "a file that was removed here is still there");
                under_way.core.requests.lost_one();
                under_way.core.counters.changes_lost.fetch_add(1, Relaxed);
            }
            drop(under_way);
        });
        Some(Ok(()))
    }

    async fn removed(
        self: Arc<Self>,
        (parent, name, id): (InodeId, Name, InodeId),
        message: Unlink,
        session: SessionId,
        op: Op,
    ) -> Result<()> {
        let asking = self.cache.removing_behind(parent, &name, id);
        match self.call_behind(message, session, op).await {
            Ok(answer) => {
                let ticket = asking.ticket;
                self.cache.learn(asking, ticket, self.now(), &[Learnt::Removed(parent, &name, &answer.dir)]);
                self.lost_name(parent, &name, &answer.attr);
                Ok(())
            }
            Err(error) => {
                drop(asking);
                self.cache.name_changed(parent, &name);
                // Its directory went as a whole, or it was answered before and that is not known any more.
                if matches!(error.code, Code::NotFound | Code::Stale) { Ok(()) } else { Err(error) }
            }
        }
    }

    /// A name was removed in the directory, and that was waited for.
    pub fn removed_one(&self, dir: InodeId) {
        let (of, now) = ((self.session.id(), self.route.epoch()), self.now());
        // Where several serve nobody works alone.
        if self.config.kept_bytes == 0 || self.route.is_several() {
            return;
        }
        let Some(number) = self.behind.removed_one(dir, of, now) else { return };
        let Some(core) = self.this.upgrade() else { return };
        self.env.spawn("working alone", async move { core.work_alone(dir.slot(), number, of).await });
    }

    async fn work_alone(self: Arc<Self>, slot: Slot, number: u64, of: (SessionId, MembershipEpoch)) {
        let taken = self.call(TakeSlot { slot, number }, self.own_op()).await;
        match taken {
            Ok(Some(epoch)) if (self.session.id(), epoch) == of && self.behind.given(slot, number, of, self.now()) => {}
            Ok(None) => return self.behind.refused(slot, number, self.now()),
            // It may be given, or was for a start of the server that is over.
            other => {
                tracing::debug!(?other, "a slot was not given");
                self.behind.refused(slot, number, self.now());
                return self.say_left_slots(of.1, vec![(slot, number)]).await;
            }
        }
        if !self.behind.is_to_be_swept() {
            return;
        }
        let stop = self.stop.listen();
        while let Some(idle) = self.behind.idle(self.now()) {
            for (epoch, slots) in idle {
                self.say_left_slots(epoch, slots).await;
            }
            tokio::select! {
                biased;
                () = self.env.sleep(IDLE / 2) => {}
                () = stop.wait() => return,
            }
        }
    }

    /// Somebody else wants it.
    pub fn asked_to_leave_slot(self: &Arc<Self>, slot: Slot) {
        let core = self.clone();
        self.env.spawn("leaving a slot", async move { core.leave_slot(slot).await });
    }

    async fn leave_slot(&self, slot: Slot) {
        let Some((number, epoch)) = self.behind.leaves(slot, self.route.epoch()) else { return };
        let done = |state: &State| !state.unanswered.contains_key(&slot);
        while self.behind.until(&self.env, self.own_op().deadline, done).await.is_err() {
            if self.stop.is_over() {
                return;
            }
        }
        self.behind.has_left(slot, number);
        self.say_left_slots(epoch, vec![(slot, number)]).await;
    }

    /// What is not heard is asked for again when somebody wants it.
    async fn say_left_slots(&self, epoch: MembershipEpoch, slots: Vec<(Slot, u64)>) {
        if let Err(error) = self.call(LeaveSlots { epoch, slots }, self.own_op()).await {
            tracing::debug!(%error, "it was not heard that slots were left");
        }
    }
}
