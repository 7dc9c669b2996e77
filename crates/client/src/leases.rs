//! What slot holders say: one call of this client waits at each for orders; what is revoked is dropped here and, by the
//! watcher, in the kernel, and then acknowledged to whoever revoked it.
//!
//! Promises: each hears what is its own to hear, in the order in which it came about, and waits for no other; what one was to be told that is
//! a member no more nobody is told.

use crate::cache::Task;
use crate::core::Core;
use crate::files::{mode_of, state_of};
use crate::route::Seat;
use crate::wait::Deadline;
use braid_api::lease::{Acknowledge, LeaseKey, Listen, Order, Orders, Reassert, Term, YieldFiles};
use braid_api::meta::LeaseState;
use braid_api::{Code, Manner, Result, Shown, Watcher};
use braid_env::Monotonic;
use braid_lease::{Generation, Key, Moment, Renewal, RevocationId, Seen};
use braid_types::{InodeId, LeaseGen, MemberId, MembershipEpoch};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// How long one call waits for orders.
const LISTEN: Duration = Duration::from_secs(10);
/// Its answer is that much later at the most.
const LATE: Duration = Duration::from_secs(2);
/// For what was just revoked the next listening waits so long, and says that it is dropped: a message less for each change of what a mount
/// caches. A kernel forgets a name in some 20 µs, unless it has its directory locked.
const ALONG: Duration = Duration::from_millis(1);
/// After a failure.
const PAUSE: Duration = Duration::from_millis(100);
/// The kernel has forgotten by then, or it is asked again.
const FORGET: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Leases {
    watcher: Mutex<Option<Arc<dyn Watcher>>>,
    tasks: Mutex<VecDeque<Task>>,
    told: Notify,
    /// Another start of the server has been noticed.
    renew: Notify,
}

fn key_of(key: LeaseKey) -> Key {
    match key {
        LeaseKey::Dir(id) => Key::Dir(id),
        LeaseKey::Name(id, name) => Key::Name(id, name),
        LeaseKey::Attr(id) => Key::Attr(id),
    }
}

/// What one member is to be told.
#[derive(Default)]
struct ToSay {
    revocations: Vec<u64>,
    files: Vec<(InodeId, LeaseGen, LeaseState)>,
    closed: BTreeSet<InodeId>,
    round: Option<u64>,
}

impl ToSay {
    fn of(tasks: Vec<Task>) -> ToSay {
        let mut to_say = ToSay::default();
        for task in tasks {
            match task {
                Task::Dropped(_, revocation) => to_say.revocations.push(revocation.0),
                Task::Reassert(_, round) => to_say.round = Some(round),
                Task::Yield { inode, generation, mode, .. } => {
                    to_say.files.push((inode, LeaseGen(generation.0), state_of(mode)));
                }
                Task::SayHandles(inode) => _ = to_say.closed.insert(inode),
                // To nobody.
                _ => {}
            }
        }
        to_say
    }
}

impl Leases {
    pub fn watch(&self, watcher: Arc<dyn Watcher>) {
        *self.watcher.lock() = Some(watcher);
    }

    /// The session should be renewed at once: others, and changes of this client's own, wait until it has said what it holds.
    pub fn say_soon(&self) {
        self.renew.notify_one();
    }

    /// Returns when the session should be renewed at once.
    pub async fn renewal_due(&self) {
        self.renew.notified().await;
    }

    pub fn watcher(&self) -> Option<Arc<dyn Watcher>> {
        self.watcher.lock().clone()
    }

    /// To be done one after the other.
    pub fn add(&self, tasks: Vec<Task>) {
        if !tasks.is_empty() {
            self.tasks.lock().extend(tasks);
            self.told.notify_one();
        }
    }
}

impl Core {
    /// The answer to a renewal that was asked for at `asked`.
    pub fn heard_term(&self, asked: Monotonic, lease: Duration, term: Option<Term>) {
        let Some(Term { member, epoch, alone, prolonged, reassert, anew }) = term else { return };
        if alone {
            self.serves_alone(member, epoch);
        }
        let renewal = Renewal { asked: Moment(asked.0), term: lease, prolonged, epoch, reassert, anew };
        let tasks = self.cache.renewed(self.now(), member, renewal);
        self.carry_out(tasks);
        // It may bring the next moment nearer.
        self.files.timer.notify_one();
        self.files.tell();
    }

    /// What is over by its time is forgotten.
    pub fn pass_time(&self) {
        self.hear(Seen::Tick);
    }

    /// Hears what a member revokes, as long as it is one.
    pub fn keep_listening(self: &Arc<Self>, seat: Arc<Seat>) {
        let (weak, env) = (Arc::downgrade(self), self.env.clone());
        let (stop, gone) = (self.stop.listen(), seat.gone.listen());
        self.env.spawn("listening", async move {
            loop {
                let Some(core) = Weak::upgrade(&weak) else { return };
                let heard = tokio::select! {
                    biased;
                    heard = core.listen(&seat) => heard,
                    () = gone.wait() => return,
                    () = stop.wait() => return,
                };
                drop(core);
                if let Err(error) = heard {
                    tracing::debug!(%error, member = seat.id.0, "nothing was heard of a slot holder");
                    tokio::select! {
                        biased;
                        () = env.sleep(PAUSE) => {}
                        () = gone.wait() => return,
                        () = stop.wait() => return,
                    }
                }
            }
        });
    }

    async fn listen(&self, seat: &Seat) -> Result<()> {
        let (known, revocations) = (self.route.epoch(), seat.acks.take());
        let (member, wait_ms) = (seat.id, LISTEN.as_millis() as u32);
        let listen = Listen { member, epoch: known, wait_ms, revocations: revocations.clone() };
        let heard = self.say(seat, listen, LISTEN + LATE, Manner::Standing).await;
        let Orders { member: from, epoch, orders } = heard.inspect_err(|_| seat.acks.put_back(revocations))?;
        let goes_on = (from, epoch) == (seat.id, known);
        if goes_on {
            // Before any of it is carried out.
            seat.acks.expect(orders.iter().filter_map(|order| match order {
                Order::Revoke { revocation, .. } => Some(*revocation),
                _ => None,
            }));
        }
        if from == seat.id {
            orders.into_iter().for_each(|order| self.ordered(from, order));
        }
        if goes_on {
            let _ = self.env.timeout(ALONG, seat.acks.all_done()).await;
        } else {
            self.heard_of(epoch).await;
            self.env.sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Somebody answers under another epoch than is known here, or another start where one was that is.
    async fn heard_of(&self, epoch: MembershipEpoch) {
        match self.route.is_several() {
            false => self.leases.say_soon(),
            // It may not have heard yet what is known here.
            true if epoch < self.route.epoch() => {}
            true => self.learn_roster(Deadline::after(&self.env, LATE)).await,
        }
    }

    fn ordered(&self, from: MemberId, order: Order) {
        match order {
            Order::Revoke { revocation, keys } => {
                let keys = keys.into_iter().map(key_of).collect();
                let revocation = RevocationId(revocation);
                self.hear_from(Some(from), Seen::Revoke { revocation, keys, open: false });
            }
            Order::Recall { inode, generation, token, to, locks } => {
                let (generation, token) = (Generation(generation.0), Generation(token.0));
                self.hear_from(Some(from), Seen::Recall { inode, generation, token, to: mode_of(to), locks });
            }
            Order::Renew => {
                if let Some(core) = self.this.upgrade() {
                    core.asked_to_renew(from);
                }
            }
            Order::LeaveSlot { slot } => {
                if let Some(core) = self.this.upgrade() {
                    core.asked_to_leave_slot(slot);
                }
            }
            Order::Leave { inode } => {
                if let Some(core) = self.this.upgrade() {
                    core.asked_to_leave(inode);
                }
            }
        }
    }

    /// Has the kernel forget what is not to be shown any more, and says so.
    pub fn keep_dropping(self: &Arc<Self>) {
        let (weak, stop) = (Arc::downgrade(self), self.stop.listen());
        self.env.spawn("dropping", async move {
            loop {
                let Some(core) = Weak::upgrade(&weak) else { return };
                tokio::select! {
                    biased;
                    () = core.drop_some() => {}
                    () = stop.wait() => return,
                }
            }
        });
    }

    /// A revocation is carried out, by caches above as well. True if that is to be said. Whatever else is noticed with it, the end
    /// of the moment for which a file was kept among it, is carried out.
    fn has_dropped(&self, holder: MemberId, revocation: RevocationId) -> bool {
        let mut tasks = self.cache.on(self.now(), Some(holder), Seen::Dropped { revocation });
        let is_said = tasks.extract_if(.., |task| matches!(task, Task::Acknowledge)).count() > 0;
        self.carry_out(tasks);
        is_said
    }

    async fn drop_some(self: &Arc<Self>) {
        let tasks: Vec<Task> = self.leases.tasks.lock().drain(..).collect();
        if tasks.is_empty() {
            // A bound, so that a client that is given up without a word ends.
            let _ = self.env.timeout(LISTEN, self.leases.told.notified()).await;
            return;
        }
        let (mut shown, mut others) = (BTreeSet::new(), Vec::new());
        for task in tasks {
            match task {
                Task::Forget(what) => shown.extend(what),
                other => others.push(other),
            }
        }
        let watcher = self.leases.watcher.lock().clone().filter(|_| !shown.is_empty());
        if let Some(watcher) = watcher {
            let shown: Vec<Shown> = shown.into_iter().collect();
            while self.env.timeout(FORGET, watcher.forget(shown.clone())).await.is_err() {
                tracing::warn!("the kernel has not forgotten what is revoked yet");
            }
        }
        for seat in self.to_be_told(others) {
            if !self.route.is_several() {
                self.say_what_is_due(&seat).await;
                continue;
            }
            // One that does not answer is not waited for.
            let (core, stop) = (self.clone(), self.stop.listen());
            self.env.spawn("telling a slot holder", async move {
                tokio::select! {
                    biased;
                    () = core.say_what_is_due(&seat) => {}
                    () = stop.wait() => {}
                }
            });
        }
    }

    /// All that was to be forgotten is. Gives the members that are to be told something.
    fn to_be_told(&self, tasks: Vec<Task>) -> Vec<Arc<Seat>> {
        let mut due: BTreeMap<MemberId, Arc<Seat>> = BTreeMap::new();
        let roster = self.route.roster();
        for task in tasks {
            let to = match &task {
                Task::DroppedSlots(number) => {
                    self.carry_out(self.cache.dropped(*number));
                    None
                }
                // What is not heard is revoked again.
                Task::Dropped(holder, revocation) => self.has_dropped(*holder, *revocation).then_some(*holder),
                Task::Reassert(holder, _) => Some(*holder),
                // The one that holds the slot now hears what is held, and nothing of recalls before its time.
                Task::Yield { to, inode, .. } => Some(*to).filter(|to| roster.holder(inode.slot()) == *to),
                Task::SayHandles(inode) => Some(roster.holder(inode.slot())),
                // Carried out at once, see `carry_out` and `has_dropped`.
                _ => None,
            };
            if let Some(seat) = to.and_then(|to| self.route.seat(to)) {
                if matches!(&task, Task::Dropped(_, revocation) if seat.acks.takes(revocation.0)) {
                    continue;
                }
                seat.to_say.lock().push(task);
                due.insert(seat.id, seat);
            }
        }
        due.into_values().collect()
    }

    async fn say_what_is_due(&self, seat: &Seat) {
        let _one = seat.saying.lock().await;
        let ToSay { revocations, files, closed, round } = ToSay::of(std::mem::take(&mut *seat.to_say.lock()));
        let member = seat.id;
        // What is not heard is revoked again, and asked for again with the next renewal.
        if !revocations.is_empty()
            && let Err(error) = self.say(seat, Acknowledge { member, revocations }, LATE, Manner::Persistent).await
        {
            tracing::debug!(%error, "an acknowledgement was not heard");
        }
        if !files.is_empty() || !closed.is_empty() {
            self.say_yielded(seat, files, closed).await;
        }
        if let Some(round) = round {
            self.say_held(seat, round).await;
        }
    }

    async fn say_yielded(&self, seat: &Seat, files: Vec<(InodeId, LeaseGen, LeaseState)>, closed: BTreeSet<InodeId>) {
        let of_handles: BTreeSet<InodeId> = files.iter().map(|(inode, ..)| *inode).chain(closed).collect();
        let handles = of_handles.into_iter().filter_map(|inode| Some((inode, self.say_handles(inode)?))).collect();
        let handed = |(inode, recall, _): &(InodeId, LeaseGen, LeaseState)| {
            Some((*inode, self.locks.handing(*inode, Generation(recall.0))?))
        };
        let locks: Vec<_> = files.iter().filter_map(handed).collect();
        let handed: BTreeSet<InodeId> = locks.iter().map(|(inode, _)| *inode).collect();
        let (member, locks_done) = (seat.id, self.locks.done());
        let message = YieldFiles { member, files: files.clone(), locks, locks_done, handles };
        let told = files.into_iter().filter(|(inode, ..)| handed.contains(inode));
        let told = told.map(|(inode, recall, state)| (inode, Generation(recall.0), mode_of(state)));
        match self.say(seat, message, LATE, Manner::Persistent).await {
            Ok(()) => told.for_each(|(inode, recall, _)| self.locks.handed(inode, recall)),
            Err(error) => {
                tracing::debug!(%error, "it was not heard which files were given up");
                // They are recalled again; but locks wait here until it is heard who holds them, and nobody may want the file.
                let again: Vec<Task> =
                    told.map(|(inode, generation, mode)| Task::Yield { to: member, inode, generation, mode }).collect();
                if !again.is_empty() && !seat.gone.is_over() {
                    self.env.sleep(PAUSE).await;
                    self.leases.add(again);
                }
            }
        }
    }

    /// What is held of the member's slots.
    async fn say_held(&self, seat: &Seat, round: u64) {
        let (member, slots) = (seat.id, self.route.roster().slots_of(seat.id));
        let unstable = self.unstable_files();
        let held = self.cache.reassertion(member, |id| unstable.contains(&id) || self.inodes.get(id).is_some());
        let files: Vec<_> = held.into_iter().map(|(inode, mode)| (inode, state_of(mode))).collect();
        let (locks, locks_done) = (self.locks.say_all(member, &slots), self.locks.done());
        let sealed = self.beneath.all(&slots);
        let reassert = Reassert { member, round, files, locks, locks_done, sealed };
        match self.say(seat, reassert, LATE, Manner::Persistent).await {
            Ok(answer) => {
                for inode in answer.locks_lost {
                    self.locks_lost(self.locks.lose(inode));
                }
                self.locks.heard_all(member);
                answer.lost.into_iter().for_each(|inode| self.hear_from(Some(member), Seen::Lost { inode }));
                answer.held.into_iter().for_each(|(inode, lease)| self.heard_again(member, inode, lease));
            }
            Err(error) => {
                tracing::debug!(%error, "it was not heard what is held");
                if error.code == Code::StaleLease {
                    // It is asked under another number, which comes with a renewal.
                    return self.renew_at(member);
                }
                self.env.sleep(PAUSE).await;
                if !seat.gone.is_over() {
                    self.leases.add(vec![Task::Reassert(member, round)]);
                }
            }
        }
    }
}
