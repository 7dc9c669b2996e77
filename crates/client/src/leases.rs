//! What the slot holder says: one call of this client waits there for orders; what is revoked is dropped here and, by the
//! watcher, in the kernel, and then acknowledged.

use crate::cache::Task;
use crate::core::Core;
use crate::files::{mode_of, state_of};
use braid_api::lease::{Acknowledge, LeaseKey, Listen, Order, Orders, Reassert, Term, YieldFiles};
use braid_api::meta::{LeaseState, MetaAnswer, MetaRequest};
use braid_api::{Carries, Code, Context, Error, Manner, Result, Shown, Watcher, When};
use braid_env::Monotonic;
use braid_lease::{Generation, Key, Moment, RevocationId, Seen};
use braid_types::{InodeId, LeaseGen, MemberId, MembershipEpoch};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// How long one call waits for orders.
const LISTEN: Duration = Duration::from_secs(10);
/// Its answer is that much later at the most.
const LATE: Duration = Duration::from_secs(2);
/// After a failure.
const PAUSE: Duration = Duration::from_millis(100);
/// The kernel has forgotten by then, or it is asked again.
const FORGET: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Leases {
    /// The slot holder's epoch, as heard last.
    epoch: Mutex<MembershipEpoch>,
    /// Which start of it that is.
    member: Mutex<MemberId>,
    watcher: Mutex<Option<Arc<dyn Watcher>>>,
    /// With the epoch they are of.
    tasks: Mutex<VecDeque<(MembershipEpoch, Task)>>,
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

impl Leases {
    pub fn watch(&self, watcher: Arc<dyn Watcher>) {
        *self.watcher.lock() = Some(watcher);
    }

    pub fn epoch(&self) -> MembershipEpoch {
        *self.epoch.lock()
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
            let epoch = *self.epoch.lock();
            self.tasks.lock().extend(tasks.into_iter().map(|task| (epoch, task)));
            self.told.notify_one();
        }
    }
}

impl Core {
    /// The answer to a renewal that was asked for at `asked`.
    pub fn heard_term(&self, asked: Monotonic, lease: Duration, term: Option<Term>) {
        let Some(Term { member, epoch, prolonged, reassert, .. }) = term else { return };
        let seen = Seen::Renewed { asked: Moment(asked.0), term: lease, prolonged, epoch, reassert };
        {
            let mut known = self.leases.epoch.lock();
            if *known != epoch {
                self.behind.forget();
            }
            if *known <= epoch {
                *self.leases.member.lock() = member;
            }
            *known = (*known).max(epoch);
        }
        self.hear(seen);
        self.files.tell();
    }

    /// What is over by its time is forgotten.
    pub fn pass_time(&self) {
        self.hear(Seen::Tick);
    }

    async fn say<M>(&self, message: M, deadline: Duration, manner: Manner) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        let request = message.wrap();
        let name = request.name();
        self.counters.message(name);
        let cx = Context { token: self.session.token(), deadline, when: When::Marked, manner, ..Context::default() };
        let answer = self.env.timeout(deadline, self.control.execute(cx, request)).await;
        let (answer, mark) = answer.map_err(|_| Error::new(Code::DeadlineExceeded, name, "no answer in time"))??;
        self.requests.observe(&mark);
        M::unwrap(answer).ok_or(Error::bare(Code::BadMessage))
    }

    /// Hears what is revoked.
    pub fn keep_listening(self: &Arc<Self>) {
        let (weak, env, stop) = (Arc::downgrade(self), self.env.clone(), self.stop.listen());
        self.env.spawn("listening", async move {
            loop {
                let Some(core) = Weak::upgrade(&weak) else { return };
                let heard = tokio::select! {
                    biased;
                    heard = core.listen() => heard,
                    () = stop.wait() => return,
                };
                drop(core);
                if let Err(error) = heard {
                    tracing::debug!(%error, "nothing was heard of the slot holder");
                    tokio::select! {
                        biased;
                        () = env.sleep(PAUSE) => {}
                        () = stop.wait() => return,
                    }
                }
            }
        });
    }

    async fn listen(&self) -> Result<()> {
        let known = *self.leases.epoch.lock();
        let member = *self.leases.member.lock();
        let listen = Listen { member, epoch: known, wait_ms: LISTEN.as_millis() as u32 };
        let Orders { member: from, epoch, orders } = self.say(listen, LISTEN + LATE, Manner::Standing).await?;
        if (from, epoch) != (member, known) {
            self.leases.say_soon();
            self.env.sleep(PAUSE).await;
            return Ok(());
        }
        for order in orders {
            match order {
                Order::Revoke { revocation, keys } => {
                    let keys = keys.into_iter().map(key_of).collect();
                    self.hear(Seen::Revoke { revocation: RevocationId(revocation), keys, open: false });
                }
                Order::Recall { inode, generation, token, to, locks } => {
                    let (generation, token) = (Generation(generation.0), Generation(token.0));
                    self.hear(Seen::Recall { inode, generation, token, to: mode_of(to), locks });
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
        Ok(())
    }

    async fn say_yielded(
        &self,
        epoch: MembershipEpoch,
        files: Vec<(InodeId, LeaseGen, LeaseState)>,
        closed: BTreeSet<InodeId>,
    ) {
        let of_handles: BTreeSet<InodeId> = files.iter().map(|(inode, ..)| *inode).chain(closed).collect();
        let handles = of_handles.into_iter().filter_map(|inode| Some((inode, self.say_handles(inode)?))).collect();
        let handed = |(inode, recall, _): &(InodeId, LeaseGen, LeaseState)| {
            Some((*inode, self.locks.handing(*inode, Generation(recall.0))?))
        };
        let locks: Vec<_> = files.iter().filter_map(handed).collect();
        let handed: BTreeSet<InodeId> = locks.iter().map(|(inode, _)| *inode).collect();
        let member = *self.leases.member.lock();
        let message = YieldFiles { member, files: files.clone(), locks, locks_done: self.locks.done(), handles };
        let told = files.into_iter().filter(|(inode, ..)| handed.contains(inode));
        let told = told.map(|(inode, recall, state)| (inode, Generation(recall.0), mode_of(state)));
        match self.say(message, LATE, Manner::Persistent).await {
            Ok(()) => told.for_each(|(inode, recall, _)| self.locks.handed(inode, recall)),
            Err(error) => {
                tracing::debug!(%error, "it was not heard which files were given up");
                // They are recalled again; but locks wait here until it is heard who holds them, and nobody may want the file.
                let again: Vec<Task> =
                    told.map(|(inode, generation, mode)| Task::Yield { inode, generation, mode }).collect();
                if !again.is_empty() && *self.leases.epoch.lock() == epoch {
                    self.env.sleep(PAUSE).await;
                    self.leases.add(again);
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
    fn has_dropped(&self, revocation: RevocationId) -> bool {
        let mut tasks = self.cache.on(self.now(), Seen::Dropped { revocation });
        let is_said = tasks.extract_if(.., |task| matches!(task, Task::Acknowledge)).count() > 0;
        self.carry_out(tasks);
        is_said
    }

    async fn drop_some(&self) {
        let tasks: Vec<(MembershipEpoch, Task)> = self.leases.tasks.lock().drain(..).collect();
        if tasks.is_empty() {
            // A bound, so that a client that is given up without a word ends.
            let _ = self.env.timeout(LISTEN, self.leases.told.notified()).await;
            return;
        }
        let (mut shown, mut dropped, mut round, mut yielded) = (BTreeSet::new(), Vec::new(), None, Vec::new());
        let mut closed = BTreeSet::new();
        for (of, task) in tasks {
            match task {
                Task::Forget(what) => shown.extend(what),
                Task::Dropped(revocation) => dropped.push((of, revocation)),
                Task::Reassert(number) => round = Some((of, number)),
                Task::Yield { inode, generation, mode } => {
                    yielded.push((of, (inode, LeaseGen(generation.0), state_of(mode))));
                }
                Task::SayHandles(inode) => _ = closed.insert(inode),
                // Carried out at once, see `carry_out` and `has_dropped`.
                Task::Acknowledge | Task::Take { .. } | Task::Flush { .. } | Task::ForgetPages(_) | Task::Fail(_) => {}
            }
        }
        let watcher = self.leases.watcher.lock().clone().filter(|_| !shown.is_empty());
        if let Some(watcher) = watcher {
            let shown: Vec<Shown> = shown.into_iter().collect();
            while self.env.timeout(FORGET, watcher.forget(shown.clone())).await.is_err() {
                tracing::warn!("the kernel has not forgotten what is revoked yet");
            }
        }
        let (epoch, member) = (*self.leases.epoch.lock(), *self.leases.member.lock());
        let revocations: Vec<u64> =
            dropped.into_iter().filter(|(of, r)| self.has_dropped(*r) && *of == epoch).map(|(_, r)| r.0).collect();
        // What is not heard is revoked again, and asked for again with the next renewal.
        if !revocations.is_empty()
            && let Err(error) = self.say(Acknowledge { member, revocations }, LATE, Manner::Persistent).await
        {
            tracing::debug!(%error, "an acknowledgement was not heard");
        }
        let files: Vec<_> = yielded.into_iter().filter(|(of, _)| *of == epoch).map(|(_, file)| file).collect();
        if !files.is_empty() || !closed.is_empty() {
            self.say_yielded(epoch, files, closed).await;
        }
        if let Some((_, round)) = round.filter(|(of, _)| *of == epoch) {
            let unstable = self.unstable_files();
            let held = self.cache.reassertion(|id| unstable.contains(&id) || self.inodes.get(id).is_some());
            let files: Vec<_> = held.into_iter().map(|(inode, mode)| (inode, state_of(mode))).collect();
            let (locks, locks_done) = (self.locks.say_all(), self.locks.done());
            let reassert =
                Reassert { member, round, files: files.clone(), locks, locks_done, sealed: self.beneath.all() };
            match self.say(reassert, LATE, Manner::Persistent).await {
                Ok(answer) => {
                    for inode in answer.locks_lost {
                        self.locks_lost(self.locks.lose(inode));
                    }
                    self.locks.heard_all();
                    let lost = files.iter().map(|(inode, _)| *inode);
                    let lost = lost.filter(|inode| answer.held.iter().all(|(held, _)| held != inode));
                    lost.for_each(|inode| self.hear(Seen::Lost { inode }));
                    answer.held.into_iter().for_each(|(inode, lease)| self.heard_again(inode, lease));
                }
                Err(error) => {
                    tracing::debug!(%error, "it was not heard what is held");
                    self.env.sleep(PAUSE).await;
                    if *self.leases.epoch.lock() == epoch {
                        self.leases.add(vec![Task::Reassert(round)]);
                    }
                }
            }
        }
    }
}
