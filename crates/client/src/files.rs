//! File leases: operations on a file's bytes begin under one, and a recall ends them, flushes, and gives it up
//! (docs/design/0005-leases.md *Files*).
//!
//! Promises: bytes are buffered and pages shown only under a lease; when a lease is given up everything written under it is
//! stable at the data servers, size and times are in the row, and neither this client nor the kernel above shows a page of it.
//! Nobody waits for a lease beyond an operation's deadline.
//!
//! The kernel holds a page locked while it asks for it, and a notification that drops pages waits for that lock. So while pages are
//! dropped what the kernel asks for is still served, under the lease that is about to end; afterwards the gate is shut, and what was
//! served meanwhile is dropped once more.

use crate::believed::keeps_pages;
use crate::cache::Task;
use crate::core::{Core, Op};
use crate::handles::FileHandle;
use crate::inode::Inode;
use crate::map::file_name;
use crate::shared::asked;
use crate::wait::timed_out;
use braid_api::meta::{FileLease, LeaseState, OpenFile};
use braid_api::{Code, Error, Result, Retry, trace};
use braid_lease::{Generation, Mode, Moment, Seen, Ticket, Want};
use braid_types::{ByteRange, InodeId, MemberId};
use parking_lot::Mutex;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Before a lease that was refused is asked for again.
const AGAIN: Duration = Duration::from_millis(50);
/// Whoever waits looks again after this, whatever was missed.
pub const LOOK_AGAIN: Duration = Duration::from_secs(1);
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Operations begin as the lease allows.
    #[default]
    Open,
    /// It is being given up, and the kernel is dropping pages: what it asks for is served.
    Draining,
    /// The same where nobody has anything to write: it may be read by others as well, so nothing is written any more.
    Reading,
    /// Nothing begins.
    Shut,
}

#[derive(Default)]
struct Gate {
    stage: Stage,
    /// Operations under the lease.
    running: u32,
    /// Bytes that were served while the kernel dropped pages.
    served: Option<ByteRange>,
    /// Why it cannot be had.
    failed: Option<Error>,
}

#[derive(Default)]
pub struct Files {
    gates: Mutex<HashMap<InodeId, Gate>>,
    /// A gate has opened, a lease has come, an operation has ended.
    pub changed: Notify,
    /// The next moment of the leases has come nearer.
    pub timer: Notify,
    making: Mutex<Making>,
    /// Of these it is not known yet what servers have of what was written before their leases were lost.
    adrift: Mutex<BTreeSet<InodeId>>,
    /// Reads and writes that wait for a lease and for which the kernel may keep pages locked.
    locking: Mutex<BTreeMap<u64, Locking>>,
    /// Files that are being given up, and the recall that has come for each since that began.
    recalled: Mutex<BTreeMap<InodeId, Option<Recall>>>,
}

/// A recall that is to be carried out.
#[derive(Clone, Copy, Debug)]
pub struct Recall {
    pub generation: Generation,
    pub to: Mode,
    pub locks: bool,
}

/// Which pages of its range a kernel keeps locked until a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// What is read is not up to date until it is here.
    AllPages,
    /// Of what is written, the last one if it is not up to date.
    LastPage,
}

#[derive(Clone, Copy, Debug)]
pub struct Locking {
    pub inode: InodeId,
    pub range: ByteRange,
    pub locks: Locks,
}

/// One of them, until dropped.
struct WaitsLocking<'a>(&'a Files, u64);

impl Drop for WaitsLocking<'_> {
    fn drop(&mut self) {
        self.0.locking.lock().remove(&self.1);
    }
}

/// Files are being made whose ids are not known here yet: a recall of one may come before the answer that grants it.
#[derive(Default)]
struct Making {
    last: u64,
    under_way: BTreeSet<u64>,
    /// The last recall of each file, and the last of them that had been asked for by then: no later one has its file from before.
    recalled: BTreeMap<InodeId, (Generation, u64)>,
}

/// One that is being made, until dropped.
pub struct Made<'a>(&'a Files, u64);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let mut making = self.0.making.lock();
        making.under_way.remove(&self.1);
        let oldest = making.under_way.first().copied().unwrap_or(u64::MAX);
        making.recalled.retain(|_, (_, last)| *last >= oldest);
    }
}

/// An operation under a file's lease, until dropped.
pub struct Pass<'a> {
    files: &'a Files,
    inode: InodeId,
    /// Of the file, when it was given: see `lost`.
    pub lapses: u64,
    /// Others write at the same time: see `shared`.
    pub shared: bool,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut gates = self.files.gates.lock();
        if let Some(gate) = gates.get_mut(&self.inode) {
            gate.running -= 1;
            match gate.stage {
                Stage::Open if gate.running == 0 => drop(gates.remove(&self.inode)),
                Stage::Open => {}
                Stage::Draining | Stage::Reading | Stage::Shut => {
                    drop(gates);
                    self.files.changed.notify_waiters();
                }
            }
        }
    }
}

impl Files {
    pub fn set(&self, inode: InodeId, stage: Stage) {
        let mut gates = self.gates.lock();
        let gate = gates.entry(inode).or_default();
        gate.stage = stage;
        if stage == Stage::Open && gate.running == 0 {
            gates.remove(&inode);
        }
        drop(gates);
        self.changed.notify_waiters();
    }

    /// To be held from before a file is asked for until its lease has been heard of.
    pub fn making(&self) -> Made<'_> {
        let mut making = self.making.lock();
        making.last += 1;
        let number = making.last;
        making.under_way.insert(number);
        Made(self, number)
    }

    /// True if the file is not being given up yet: the caller does it. Else whoever does goes on with this one, the last that has come:
    /// two at once would open and shut each other's gate.
    pub fn begin_to_give_up(&self, inode: InodeId, recall: Recall) -> bool {
        match self.recalled.lock().entry(inode) {
            Entry::Vacant(entry) => {
                entry.insert(None);
                true
            }
            Entry::Occupied(mut entry) => {
                entry.insert(Some(recall));
                false
            }
        }
    }

    /// With what it goes on. If with nothing, the file is not being given up any more.
    pub fn next_to_give_up(&self, inode: InodeId) -> Option<Recall> {
        let mut recalled = self.recalled.lock();
        let next = recalled.get_mut(&inode).and_then(Option::take);
        if next.is_none() {
            recalled.remove(&inode);
        }
        next
    }

    pub fn is_idle(&self, inode: InodeId) -> bool {
        self.gates.lock().get(&inode).is_none_or(|gate| gate.running == 0)
    }

    pub fn take_served(&self, inode: InodeId) -> Option<ByteRange> {
        self.gates.lock().get_mut(&inode).and_then(|gate| gate.served.take())
    }

    /// Whoever waits for this file's lease is told; if nobody does, nothing is remembered.
    fn fail(&self, inode: InodeId, error: Error) {
        if let Some(gate) = self.gates.lock().get_mut(&inode) {
            gate.failed = Some(error);
        }
        self.changed.notify_waiters();
    }

    pub fn tell(&self) {
        self.changed.notify_waiters();
    }

    fn wait_locking(&self, inode: InodeId, range: ByteRange, locks: Locks) -> WaitsLocking<'_> {
        let mut locking = self.locking.lock();
        let number = locking.last_key_value().map_or(0, |(last, _)| last + 1);
        locking.insert(number, Locking { inode, range, locks });
        WaitsLocking(self, number)
    }

    /// Those of the file.
    pub fn locking(&self, inode: InodeId) -> Vec<Locking> {
        self.locking.lock().values().filter(|one| one.inode == inode).copied().collect()
    }

    pub fn is_adrift(&self, inode: InodeId) -> bool {
        self.adrift.lock().contains(&inode)
    }
}

pub fn mode_of(state: LeaseState) -> Mode {
    match state {
        LeaseState::None => Mode::None,
        LeaseState::Shared => Mode::Shared,
        LeaseState::Sync => Mode::Sync,
        LeaseState::Exclusive => Mode::Exclusive,
    }
}

pub fn state_of(mode: Mode) -> LeaseState {
    match mode {
        Mode::None => LeaseState::None,
        Mode::Shared => LeaseState::Shared,
        Mode::Sync => LeaseState::Sync,
        Mode::Exclusive => LeaseState::Exclusive,
    }
}

fn granted(inode: InodeId, ticket: Option<Ticket>, lease: FileLease) -> Seen {
    let (generation, token) = (Generation(lease.generation.0), Generation(lease.token.0));
    Seen::Granted { ticket, inode, mode: mode_of(lease.state), generation, token, locks: lease.locks }
}

impl Core {
    // --- operations ---

    /// Waits for the right to read what others may write.
    pub async fn enter_read(self: &Arc<Self>, file: &FileHandle, range: ByteRange, op: Op) -> Result<Pass<'_>> {
        loop {
            let want = file.inode.state.lock().want_to_read(file.flags.direct);
            let locks = keeps_pages(file.flags).then_some(Locks::AllPages);
            match self.enter_with(&file.inode, want, range, locks, op).await {
                // Sealed since this was known last: then the right to write is not asked for, see `want_to_read`.
                Err(error) if error.code == Code::Sealed && !op.deadline.left(&self.env).is_zero() => {
                    self.refresh_map(&file.inode, op).await?;
                }
                entered => return entered,
            }
        }
    }

    /// Waits for the right to write, alone.
    pub async fn enter_write(self: &Arc<Self>, inode: &Arc<Inode>, range: ByteRange, op: Op) -> Result<Pass<'_>> {
        self.enter(inode, Want::Once, range, op).await
    }

    /// If that is held, and nobody else waits for it.
    pub fn pass(&self, inode: &Inode, want: Want, range: ByteRange) -> Option<Pass<'_>> {
        // Before the look at the lease, which is lost before this is raised.
        let lapses = inode.state.lock().lapses;
        let inode = inode.id;
        if self.files.is_adrift(inode) {
            return None;
        }
        let mut gates = self.files.gates.lock();
        let stage = gates.get(&inode).map_or(Stage::Open, |gate| gate.stage);
        let may = match stage {
            Stage::Open => self.cache.may_use(inode, want, self.now()),
            Stage::Reading if !matches!(want, Want::Read | Want::Direct) => false,
            Stage::Draining | Stage::Reading => self.cache.has_file(inode, want, self.now()),
            Stage::Shut => false,
        };
        if !may {
            return None;
        }
        let gate = gates.entry(inode).or_default();
        gate.running += 1;
        gate.failed = None;
        if matches!(stage, Stage::Draining | Stage::Reading) {
            let all = |served: ByteRange| ByteRange::new(served.start.min(range.start), served.end.max(range.end));
            gate.served = Some(gate.served.map_or(range, all));
        }
        Some(Pass { files: &self.files, inode, lapses, shared: self.cache.is_shared(inode) })
    }

    pub async fn enter(self: &Arc<Self>, inode: &Arc<Inode>, want: Want, range: ByteRange, op: Op) -> Result<Pass<'_>> {
        self.enter_with(inode, want, range, None, op).await
    }

    /// The same; `locks`: what the kernel may keep locked until it is answered.
    pub async fn enter_with(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        want: Want,
        range: ByteRange,
        locks: Option<Locks>,
        op: Op,
    ) -> Result<Pass<'_>> {
        let id = inode.id;
        if let Some(pass) = self.pass(inode, want, range) {
            return Ok(pass);
        }
        let what = match want {
            Want::Read | Want::Direct => "its lease for reading",
            Want::Write | Want::Once => "its lease for writing",
        };
        let _waiting = self.waits.enter(&self.env, file_name(inode), what).of(id);
        let _locking = locks.map(|locks| self.files.wait_locking(id, range, locks));
        // Remembers why it cannot be had, as long as somebody waits.
        self.files.gates.lock().entry(id).or_default().failed = None;
        loop {
            let changed = self.files.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the look, so that nothing between the two is missed.
            changed.as_mut().enable();
            if let Some(pass) = self.pass(inode, want, range) {
                return Ok(pass);
            }
            if let Some(error) = self.files.gates.lock().get_mut(&id).and_then(|gate| gate.failed.take()) {
                return Err(error);
            }
            let left = op.deadline.left(&self.env);
            if left.is_zero() {
                return Err(timed_out(file_name(inode), what));
            }
            self.hear(Seen::Need { inode: id, want });
            let _ = self.env.timeout(left.min(LOOK_AGAIN), changed).await;
        }
    }

    /// An open is about to be asked for: with its answer comes the lease, if this says so.
    pub fn begin_take(&self, inode: InodeId, want: Want) -> Option<Ticket> {
        let mut tasks = self.cache.on(self.now(), None, Seen::Need { inode, want });
        let own = tasks.extract_if(.., |task| matches!(task, Task::Take { .. })).last();
        self.carry_out(tasks);
        match own {
            Some(Task::Take { ticket, .. }) => Some(ticket),
            _ => None,
        }
    }

    /// What an open or create was granted.
    pub fn heard_lease(&self, inode: InodeId, ticket: Option<Ticket>, lease: FileLease) {
        match (ticket, lease.state) {
            (None, LeaseState::None) => {}
            // It was held already, and is known to the holder under a new number.
            (None, _) => {
                let generation = Generation(lease.generation.0);
                self.cache.said_again(inode, mode_of(lease.state), generation, Generation(lease.token.0));
            }
            (Some(ticket), LeaseState::None) => self.hear(Seen::Refused { ticket, inode }),
            (Some(_), _) => self.hear(granted(inode, ticket, lease)),
        }
        self.files.tell();
    }

    /// What was granted of a file that was not known when it was `asked` for, unless that was recalled before the answer came, or ended with its term
    /// since.
    pub fn heard_lease_of_new(
        &self,
        inode: InodeId,
        want: Want,
        lease: FileLease,
        asked: crate::cache::Ticket,
        _made: &Made<'_>,
    ) {
        // From here on a recall that overtakes the grant is noticed there.
        let take = self.begin_take(inode, want);
        let recalled = self.files.making.lock().recalled.get(&inode).copied();
        let is_recalled = recalled.is_some_and(|(recalled, _)| recalled > Generation(lease.generation.0));
        let is_over = is_recalled || !self.cache.valid(inode, asked);
        self.heard_lease(inode, take, if is_over { FileLease::default() } else { lease });
    }

    pub fn no_lease(&self, inode: InodeId, ticket: Option<Ticket>) {
        self.heard_lease(inode, ticket, FileLease::default());
    }

    // --- what the slot holder says ---

    /// Takes what happened here, or was answered by whoever holds the file, and carries out what it asks for.
    pub fn hear(&self, seen: Seen) {
        self.hear_from(None, seen);
    }

    /// The same of what a slot holder said of itself.
    pub fn hear_from(&self, holder: Option<MemberId>, seen: Seen) {
        // A recall may bring the next moment nearer.
        let is_timed = matches!(seen, Seen::Recall { .. });
        if let Seen::Recall { inode, generation, .. } = &seen {
            let mut making = self.files.making.lock();
            if !making.under_way.is_empty() {
                let now = making.last;
                let (last, since) = making.recalled.entry(*inode).or_default();
                (*last, *since) = ((*last).max(*generation), now);
            }
        }
        let began_sync = match &seen {
            Seen::Granted { inode, mode: Mode::Sync, .. } => Some(*inode),
            _ => None,
        };
        let tasks = self.cache.on(self.now(), holder, seen);
        began_sync.into_iter().for_each(|inode| self.begin_sync(inode));
        self.carry_out(tasks);
        if is_timed {
            self.files.timer.notify_one();
        }
    }

    pub fn carry_out(&self, tasks: Vec<Task>) {
        if tasks.is_empty() {
            return;
        }
        let Some(core) = self.this.upgrade() else { return };
        let mut told = Vec::new();
        for task in tasks {
            tracing::trace!(client = self.config.description, ?task, "of leases");
            match task {
                Task::Take { ticket, inode, want } => {
                    let core = core.clone();
                    // For the operation that needs it now.
                    self.spawn_for("taking a file lease", trace::current(), async move {
                        core.take_lease(inode, ticket, want).await;
                    });
                }
                Task::Flush { inode, generation, to, locks } => {
                    let recall = Recall { generation, to, locks };
                    // One that waits for its turn leaves the gate as the one under way has it.
                    if self.files.begin_to_give_up(inode, recall) {
                        self.files.set(inode, Stage::Draining);
                        let core = core.clone();
                        self.env.spawn("giving a file up", async move { core.give_up(inode, recall).await });
                    }
                }
                Task::ForgetPages(inodes) => {
                    let core = core.clone();
                    self.env.spawn("dropping pages", async move { core.drop_pages(inodes).await });
                }
                Task::Fail(inode) => {
                    tracing::warn!(inode = inode.0, "its lease is lost");
                    core.lose_lease(inode);
                    self.locks_lost(self.locks.lose(inode));
                }
                Task::Learn(epoch) => self.seek_roster(epoch),
                Task::Renew(member) => self.renew_at(member),
                other => told.push(other),
            }
        }
        self.leases.add(told);
    }

    /// An answer to what the slot holder asks this client again after a change.
    pub fn heard_again(&self, holder: MemberId, inode: InodeId, lease: FileLease) {
        self.hear_from(Some(holder), granted(inode, None, lease));
        self.files.tell();
    }

    /// Asks for a lease, and takes in what the file is under it.
    async fn take_lease(self: Arc<Self>, id: InodeId, ticket: Ticket, want: Want) {
        let op = self.own_op();
        let (version, seen) = (self.version_of(id), self.cache.ticket());
        let message = OpenFile { inode: self.cache.inode(id), want: asked(want), truncate: false };
        match self.call(message, op).await {
            Ok(answer) => {
                tracing::trace!(client = self.config.description, ?ticket, lease = ?answer.lease, "granted");
                if let Some(inode) = self.inodes.get(id) {
                    self.learn_containers(&answer);
                    self.update(&inode, |state| {
                        // A map that was fetched meanwhile may be the older of the two.
                        let has_moved = state.version != version;
                        state.adopt_open(&answer, version);
                        state.stale |= has_moved || !self.cache.valid(id, seen);
                    });
                }
                if answer.lease.state == LeaseState::None {
                    self.env.sleep(AGAIN).await;
                }
                self.heard_lease(id, Some(ticket), answer.lease);
            }
            Err(error) => {
                if error.retry() == Retry::No {
                    self.files.fail(id, error);
                } else {
                    tracing::debug!(%error, inode = id.0, "no lease");
                    self.env.sleep(AGAIN).await;
                }
                self.no_lease(id, Some(ticket));
            }
        }
    }

    /// Returns when it is known what servers have of what was written before the file's lease was lost.
    pub async fn until_known(&self, inode: &Inode, op: Op) -> Result<()> {
        let known = || (!self.files.is_adrift(inode.id)).then_some(());
        let known = crate::wait::wait_until(&self.env, &self.files.changed, op.deadline, known).await;
        known.ok_or_else(|| timed_out(file_name(inode), "what its data server has of it"))
    }

    /// To be called when what lanes have adrift is more or less.
    pub fn look_at_adrift(&self) {
        let mut adrift = self.files.adrift.lock();
        *adrift = self.servers.lanes().iter().flat_map(|lane| lane.retained(|retain| retain.adrift_files())).collect();
        drop(adrift);
        self.files.tell();
    }

    // --- time ---

    /// Notices the end of leases, and of the time for which each is kept.
    pub fn keep_time(self: &Arc<Self>) {
        let (weak, env, stop) = (Arc::downgrade(self), self.env.clone(), self.stop.listen());
        self.env.spawn("time of leases", async move {
            loop {
                let Some(core) = Weak::upgrade(&weak) else { return };
                let at = core.cache.wakeup();
                let left = at.map(|at| at.since(Moment(core.now().0)));
                if left == Some(Duration::ZERO) {
                    core.pass_time();
                    continue;
                }
                // A bound, so that a client that is given up without a word ends.
                let left = left.unwrap_or(Duration::MAX).min(Duration::from_secs(10));
                let timer = env.timeout(left, core.files.timer.notified());
                tokio::select! {
                    biased;
                    _ = timer => {}
                    () = stop.wait() => return,
                }
            }
        });
    }
}
