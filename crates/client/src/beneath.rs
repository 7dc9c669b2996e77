//! Sealed files that a cache above reads without asking: the file of a data server on this host that has exactly their bytes
//! (docs/design/0015-sealed-files.md).
//!
//! Promises: a file that is given has, up to its end and while the file stays sealed, the bytes and the length of what was opened: all of it was
//! compared with its checksums while it was the server's valid copy. Before it is given the metadata server knows that this client holds
//! the file, and until nothing above reads it any more it is told nothing else.
//!
//! What makes that hold: a seal changes the time of change, so what was verified under one seal is not used under another.

use crate::core::{Core, Op};
use crate::inode::{FileState, Inode};
use crate::lru::Lru;
use crate::map::key;
use braid_api::data::OpenLocal;
use braid_api::meta::{Cuts, HoldSealed, LeaveSealed};
use braid_api::{Error, HandleId, Result};
use braid_types::{Attr, ChunkIndex, InodeId, SlotSet, Timestamp};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Notify;

/// Files that stay verified when nobody reads them, with a descriptor each.
const VERIFIED_MAX: usize = 64;
/// An open waits so long for a file to be verified, which at the 1 GB/s of a disk are 2 GiB; what takes longer is for the next open.
const OPEN_WAITS: Duration = Duration::from_secs(2);
/// Before what could not be said is said again.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Beneath {
    state: Mutex<State>,
    /// A hold has been asked for and is there, or will not be.
    changed: Notify,
}

struct State {
    /// The last number of a hold.
    last: u64,
    held: BTreeMap<InodeId, Held>,
    /// Under which time of change, and the file.
    verified: Lru<InodeId, (Timestamp, Arc<OwnedFd>)>,
}

struct Held {
    number: u64,
    /// Of the inode, when the file was verified.
    ctime: Timestamp,
    /// None while it is being asked for.
    file: Option<Arc<OwnedFd>>,
    /// Somebody wants it unsealed: it is not given any more.
    leaving: bool,
}

impl Default for Beneath {
    fn default() -> Self {
        let state = State { last: 0, held: BTreeMap::new(), verified: Lru::new(VERIFIED_MAX) };
        Beneath { state: Mutex::new(state), changed: Notify::new() }
    }
}

/// What is known without waiting.
enum Known {
    Given(Arc<OwnedFd>),
    /// Not at the moment.
    No,
    BeingAsked,
    /// The caller asks, under this number, and says what became of it.
    Ask(u64),
}

impl Beneath {
    fn look(&self, id: InodeId, ctime: Timestamp) -> Known {
        let mut state = self.state.lock();
        match state.held.get(&id) {
            Some(Held { file: None, .. }) => Known::BeingAsked,
            Some(Held { leaving: true, .. }) => Known::No,
            Some(Held { file: Some(file), ctime: of, .. }) if *of == ctime => Known::Given(file.clone()),
            // Of another seal, of before this client's session was lost.
            Some(_) => Known::No,
            None => {
                state.last += 1;
                let number = state.last;
                state.held.insert(id, Held { number, ctime, file: None, leaving: false });
                Known::Ask(number)
            }
        }
    }

    /// What became of it; without a file it is not held after all.
    fn asked(&self, id: InodeId, number: u64, file: Option<&Arc<OwnedFd>>) {
        let mut state = self.state.lock();
        match (state.held.get_mut(&id).filter(|held| held.number == number), file) {
            (Some(held), Some(file)) => held.file = Some(file.clone()),
            (Some(_), None) => _ = state.held.remove(&id),
            (None, _) => {}
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// For a metadata server that holds these slots, after a start of it.
    pub fn all(&self, slots: &SlotSet) -> Vec<(InodeId, u64)> {
        let state = self.state.lock();
        let held = state.held.iter().filter(|(id, _)| slots.has(id.slot()));
        held.map(|(id, held)| (*id, held.number)).collect()
    }

    pub fn len(&self) -> usize {
        self.state.lock().held.len()
    }
}

/// Withdraws what was asked for, unless it is kept.
struct Asking<'a> {
    core: &'a Arc<Core>,
    id: InodeId,
    number: u64,
    /// The server may have it on record.
    said: bool,
    file: Option<Arc<OwnedFd>>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Asking { core, id, number, said, file } = self;
        core.beneath.asked(*id, *number, file.as_ref());
        if *said && file.is_none() {
            core.say_left(vec![(*id, *number)]);
        }
    }
}

/// The one chunk that has all of a file's bytes.
struct Whole {
    attr: Attr,
    size: u64,
    found: OpenLocal,
    policy: braid_types::Policy,
}

fn whole(id: InodeId, state: &FileState) -> Option<Whole> {
    let (size, policy) = (state.size, state.policy);
    let is_still = state.attr.sealed && state.is_clean() && !state.stale && state.writers == 0;
    if !is_still || size == 0 || size > policy.chunk_bytes || size != state.attr.size {
        return None;
    }
    let slot = state.body.slot(ChunkIndex(0)).filter(|slot| slot.fresh.is_none())?;
    let key = key(id, ChunkIndex(0), slot, &policy);
    let cuts: Cuts = state.chunk_cuts(ChunkIndex(0));
    let found = OpenLocal { chunk: key.chunk, container: key.container, cuts, copies: false };
    Some(Whole { attr: state.attr, size, found, policy })
}

impl Core {
    /// See [`braid_api::FileSystem::beneath`].
    pub async fn beneath(self: &Arc<Self>, handle: HandleId) -> Option<Arc<OwnedFd>> {
        let file = self.handles.file(handle).ok().filter(|file| !file.flags.write)?;
        let inode = file.inode.clone();
        let whole = whole(inode.id, &inode.state.lock()).filter(|_| self.config.local_reads)?;
        let (op, end) = (self.own_op(), self.now() + OPEN_WAITS);
        loop {
            let changed = self.beneath.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the look, so that nothing between the two is missed.
            changed.as_mut().enable();
            match self.beneath.look(inode.id, whole.attr.ctime) {
                Known::Given(file) => return Some(file),
                Known::No => return None,
                Known::Ask(number) => {
                    let given = self.ask_beneath(&inode, &whole, number, op).await;
                    let failed = |error: &Error| tracing::debug!(inode = inode.id.0, %error, "its reads ask");
                    return given.inspect_err(failed).ok().flatten();
                }
                Known::BeingAsked => {}
            }
            let left = end.since(self.now());
            if left.is_zero() || self.env.timeout(left, changed).await.is_err() {
                return None;
            }
        }
    }

    async fn ask_beneath(
        self: &Arc<Self>,
        inode: &Inode,
        whole: &Whole,
        number: u64,
        op: Op,
    ) -> Result<Option<Arc<OwnedFd>>> {
        let attr = &whole.attr;
        let mut asking = Asking { core: self, id: attr.id, number, said: false, file: None };
        let Some(file) = self.verified(inode, whole, op).await? else { return Ok(None) };
        asking.said = true;
        let held = self.call(HoldSealed { inode: self.cache.inode(attr.id), number }, op).await?;
        // Unsealed and sealed again meanwhile, it may have other bytes than those that were verified.
        if held.is_some_and(|held| held.ctime == attr.ctime && held.size == whole.size) {
            self.counters.beneath.fetch_add(1, Relaxed);
            asking.file = Some(file.clone());
            return Ok(Some(file));
        }
        Ok(None)
    }

    /// The data file, if there is one on this host with exactly the file's bytes. `None` if there is not, or is not known in time.
    async fn verified(self: &Arc<Self>, inode: &Inode, whole: &Whole, op: Op) -> Result<Option<Arc<OwnedFd>>> {
        let (id, ctime, len) = (whole.attr.id, whole.attr.ctime, whole.size);
        if let Some((of, file)) = self.beneath.state.lock().verified.get(&id)
            && *of == ctime
        {
            return Ok(Some(file.clone()));
        }
        let route = self.route(&whole.policy, whole.found.container, op).await?;
        if !route.lane.may_be_beside(&self.config.host) {
            return Ok(None);
        }
        let token = self.data_token(&inode.state.lock(), &route);
        let message = OpenLocal { copies: route.lane.container().is_some(), ..whole.found.clone() };
        let hand_out = self.open_local(&route.lane, token, message, op).await?;
        let (core, env) = (self.clone(), self.env.clone());
        let verifying = async move {
            let clock = env.clock.clone();
            let file = env.blocking(move || hand_out.whole(len, || clock.now())).await?;
            // It goes on when an open does not wait for it any more.
            core.beneath.state.lock().verified.insert(id, (ctime, file.clone()));
            Some(file)
        };
        let (tell, told) = tokio::sync::oneshot::channel();
        self.spawn_for("verifying a sealed file", braid_api::trace::current(), async move {
            let _ = tell.send(verifying.await);
        });
        Ok(self.env.timeout(OPEN_WAITS, told).await.ok().and_then(|told| told.ok()).flatten())
    }

    /// Nothing above reads the file without asking any more.
    pub fn left_beneath(self: &Arc<Self>, id: InodeId) {
        let left = {
            let mut state = self.beneath.state.lock();
            let is_given = state.held.get(&id).is_some_and(|held| held.file.is_some());
            is_given.then(|| state.held.remove(&id)).flatten()
        };
        if let Some(held) = left {
            self.say_left(vec![(id, held.number)]);
        }
    }

    /// The metadata server wants a file to be left. Repeated by it until it hears of that.
    pub fn asked_to_leave(self: &Arc<Self>, id: InodeId) {
        let last = {
            let mut state = self.beneath.state.lock();
            let last = state.last;
            match state.held.get_mut(&id) {
                Some(held) => {
                    held.leaving = true;
                    None
                }
                // It has not heard so, or a hold that was given up came late.
                None => Some(last),
            }
        };
        match (last, self.leases.watcher()) {
            (Some(last), _) => self.say_left(vec![(id, last)]),
            (None, Some(watcher)) => watcher.leave(id, self.cache.inode(id).hint),
            (None, None) => {}
        }
    }

    fn say_left(self: &Arc<Self>, holds: Vec<(InodeId, u64)>) {
        let core = self.clone();
        self.env.spawn("leaving sealed files", async move {
            // What is not heard now is asked for again.
            if let Err(error) = core.call(LeaveSealed { holds }, core.own_op()).await {
                tracing::debug!(%error, "it was not heard that sealed files were left");
            }
        });
    }

    /// Under a new session everything is to be held anew. What was unsealed meanwhile is still read above, as it was.
    pub fn hold_again(self: &Arc<Self>) {
        let held: Vec<(InodeId, u64, Timestamp)> = {
            let state = self.beneath.state.lock();
            let given = state.held.iter().filter(|(_, held)| held.file.is_some());
            given.map(|(id, held)| (*id, held.number, held.ctime)).collect()
        };
        if held.is_empty() {
            return;
        }
        let core = self.clone();
        self.env.spawn("holding sealed files again", async move {
            for (id, number, ctime) in held {
                let op = core.own_op();
                let held = loop {
                    match core.call(HoldSealed { inode: core.cache.inode(id), number }, op).await {
                        Ok(held) => break held.is_some_and(|held| held.ctime == ctime),
                        Err(_) if !op.deadline.left(&core.env).is_zero() => core.env.sleep(PAUSE).await,
                        Err(_) => break false,
                    }
                };
                if !held {
                    tracing::error!(
                        inode = id.0,
                        "it was unsealed while this mount had lost its session: who has it open reads what was sealed until it is closed"
                    );
                    core.asked_to_leave(id);
                }
            }
        });
    }
}
