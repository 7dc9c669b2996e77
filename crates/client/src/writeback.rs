//! The second timer: files that are dirty for long are saved, the oldest first when memory is short, and tried again for as
//! long as the client lives, whether or not somebody has them open; reads are reported when nothing else had reason to.

use crate::body::Body;
use crate::commit::Reach;
use crate::core::{Core, Op};
use crate::inode::Inode;
use braid_api::meta::{CommitContent, CommitFile};
use braid_env::Monotonic;
use braid_types::{InodeId, Timestamp};
use std::sync::{Arc, Weak};

/// Reads remembered; more are reported at once.
const ATIMES_MAX: usize = 10_000;

impl Core {
    pub fn keep_writing_back(self: &Arc<Self>) {
        let (weak, env, stop) = (Arc::downgrade(self), self.env.clone(), self.stop.listen());
        let pause = self.config.write_back_after / 4;
        self.env.spawn("write back", async move {
            loop {
                // Idle clients do not wake.
                let Some(core) = Weak::upgrade(&weak) else { return };
                let idle = !core.write_back_due();
                tokio::select! {
                    biased;
                    () = core.wake.notified(), if idle => {}
                    () = env.sleep(pause), if !idle => {}
                    () = stop.wait() => return,
                }
            }
        });
    }

    /// Starts what is due. False if nothing is left that could become due.
    fn write_back_due(self: &Arc<Self>) -> bool {
        let now = self.now();
        let mut waiting = false;
        for inode in self.inodes.all() {
            let (since, retry_at) = {
                let state = inode.state.lock();
                if state.is_clean() {
                    continue;
                }
                (state.dirty_since.unwrap_or(now), state.retry_at.unwrap_or(now))
            };
            waiting = true;
            if now.since(since) >= self.config.write_back_after && retry_at <= now {
                self.save_in_background(&inode);
            }
        }
        self.report_atimes(now) || waiting
    }

    /// Saves the file unless that is being done.
    pub fn save_in_background(self: &Arc<Self>, inode: &Arc<Inode>) {
        if inode.order.try_lock().is_err() {
            return;
        }
        let (core, inode) = (self.clone(), inode.clone());
        let trace = inode.state.lock().written_by;
        self.spawn_for("save", trace, async move {
            let op = core.own_op();
            let Ok(order) = inode.order.try_lock() else { return };
            core.save_ordered(&inode, op).await;
            drop(order);
            core.after_save(&inode);
        });
    }

    /// Sends what the file has in the buffer, behind whatever saves or changes it now: that may have begun before the last write, which
    /// would wait for the timer then. Its row follows with the timer, or with close: a message for each time the buffer is full is saved.
    pub fn send_next(self: &Arc<Self>, inode: &Arc<Inode>) {
        if std::mem::replace(&mut inode.state.lock().send_waits, true) {
            return;
        }
        let (core, inode) = (self.clone(), inode.clone());
        let trace = inode.state.lock().written_by;
        self.spawn_for("send", trace, async move {
            let op = core.own_op();
            let order = core.env.timeout(op.deadline.left(&core.env), inode.order.lock()).await;
            // What is written from now on is of another.
            inode.state.lock().send_waits = false;
            let Ok(order) = order else { return };
            let op = core.own_op();
            if matches!(inode.state.lock().body, Body::Inline(_)) {
                core.save_ordered(&inode, op).await;
            } else if let Err(error) = core.send_ordered(&inode, op).await {
                tracing::warn!(%error, inode = inode.id.0, "could not be sent yet");
            }
            drop(order);
            core.after_save(&inode);
        });
    }

    async fn save_ordered(self: &Arc<Self>, inode: &Arc<Inode>, op: Op) {
        if let Err(error) = self.commit_ordered(inode, Reach::Answered, op).await {
            tracing::warn!(%error, inode = inode.id.0, "could not be saved yet");
        }
    }

    async fn send_ordered(self: &Arc<Self>, inode: &Arc<Inode>, op: Op) -> braid_api::Result<()> {
        self.fresh(inode, op).await?;
        self.send_all(inode, op).await
    }

    /// A file nobody has open is forgotten when it is saved. What cannot be saved yet stays in the write buffer, as of a file
    /// that is open, and is tried again: whoever closed it was told, and others still see it here.
    fn after_save(&self, inode: &Inode) {
        self.update(inode, |state| self.let_go(state));
        self.forget_if_unused(inode.id);
    }

    /// Memory is short: the files that are dirty longest are sent.
    pub fn relieve(self: &Arc<Self>) {
        let mut dirty: Vec<(Option<Monotonic>, Arc<Inode>)> = Vec::new();
        for inode in self.inodes.all() {
            let state = inode.state.lock();
            let unsent = !state.dirty.is_empty() || matches!(state.body, Body::Inline(_));
            if unsent && !state.is_clean() {
                dirty.push((state.dirty_since, inode.clone()));
            }
        }
        dirty.sort_by_key(|(since, _)| *since);
        let enough = self.memory.buffered.used() / 2;
        let mut started = 0;
        for (_, inode) in dirty {
            started += inode.state.lock().charged;
            self.save_in_background(&inode);
            if started >= enough {
                return;
            }
        }
    }

    /// A read happened; under relatime it is remembered if it has to be.
    pub fn note_read(&self, inode: &Inode) {
        // What is in a snapshot has the times that it had.
        if !self.config.atime || inode.id.is_in_snapshot() {
            return;
        }
        let attr = {
            let state = inode.state.lock();
            state.shown(&state.attr)
        };
        let (now, wall) = (self.now(), self.env.clock.wall());
        let mut atimes = self.atimes.lock();
        let known = atimes.get(&inode.id).map_or(attr.atime, |(atime, _)| attr.atime.max(*atime));
        if wall > known && braid_posix::times::atime_is_due(known, attr.mtime, attr.ctime, wall) {
            atimes.entry(inode.id).or_insert((wall, now)).0 = wall;
            drop(atimes);
            self.wake.notify_one();
        }
    }

    /// The metadata server knows this read now.
    pub fn reported_atime(&self, id: InodeId, atime: Option<Timestamp>) {
        let mut atimes = self.atimes.lock();
        if atime.is_some() && atimes.get(&id).map(|(atime, _)| *atime) == atime {
            atimes.remove(&id);
        }
    }

    fn report_atimes(self: &Arc<Self>, now: Monotonic) -> bool {
        let atimes = self.atimes.lock();
        let many = atimes.len() > ATIMES_MAX;
        let old = |since: Monotonic| many || now.since(since) >= self.config.atime_after;
        let due: Vec<InodeId> = atimes.iter().filter(|(_, (_, since))| old(*since)).map(|(&id, _)| id).collect();
        let waiting = !atimes.is_empty();
        drop(atimes);
        if !due.is_empty() {
            let core = self.clone();
            self.env.spawn("report reads", async move {
                for id in due {
                    core.report_atime(id, core.own_op()).await;
                }
            });
        }
        waiting
    }

    pub async fn report_atime(&self, id: InodeId, op: Op) {
        let Some((atime, _)) = self.atimes.lock().remove(&id) else { return };
        let trunc_gen = match self.inodes.get(id).map(|inode| inode.state.lock().attr.trunc_gen) {
            Some(trunc_gen) => trunc_gen,
            None => match self.cache.seen(id) {
                Some(stamp) => stamp.trunc_gen,
                None => return,
            },
        };
        let message = CommitFile {
            inode: self.cache.inode(id),
            trunc_gen,
            size: 0,
            mtime: None,
            atime: Some(atime),
            content: CommitContent::Unchanged,
            cuts_applied: Default::default(),
            kill_privileges: false,
            unused: Vec::new(),
        };
        if let Err(error) = self.call(message, op).await {
            tracing::debug!(%error, inode = id.0, "a read was not recorded");
        }
        self.cache.changed(id);
    }
}
