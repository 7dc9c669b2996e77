//! What goes with a lease that is lost (docs/design/0011-what-a-lost-session-takes.md).
//!
//! Promises: nothing that was written under a lease which this client has no more is sent, committed, repeated or shown. Handles of a
//! file of which something is lost that way fail from then on, each call, until they are closed; who opens it again finds what others
//! find. A file of which nothing is lost goes on.
//!
//! Order: the leases go first, so that no operation begins; then what files have here, each under its lock; then the new session
//! is anybody's. So whoever takes the session's token, and then finds under the file's lock that what it is about to send is still
//! there, sends it under the session it was written under, which data servers refuse if that has ended.

use crate::body::Body;
use crate::cache::Task;
use crate::core::{Core, Op};
use crate::files::Pass;
use crate::handles::FileHandle;
use crate::inode::{FileState, Inode};
use crate::map::file_name;
use crate::retain::{ChunkKey, Has};
use crate::servers::Lane;
use crate::wait::Deadline;
use braid_api::data::SyncChunks;
use braid_api::meta::{Content, GetMap};
use braid_api::{Code, Error, Result, Retry};
use braid_lease::Seen;
use braid_types::InodeId;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Between two attempts to hear from a server what it has.
const ASK_AGAIN: Duration = Duration::from_millis(200);

pub fn lost(what: impl std::fmt::Display, bytes: u64) -> Error {
    let cause =
        format!("{bytes} bytes and what else was not saved went with the session, which was silent for too long");
    Error::new(Code::WriteLost, what, cause)
}

impl FileState {
    /// The lease is lost. Gives the bytes that are lost with it, if anything that was changed here was not saved.
    fn lose_lease(&mut self) -> Option<u64> {
        let bytes = (!self.is_clean()).then(|| self.buffered());
        self.lapses += 1;
        self.version += 1;
        drop((std::mem::take(&mut self.dirty), std::mem::take(&mut self.inflight)));
        self.full.clear();
        self.unused.clear();
        (self.unsaved, self.dirty_since, self.retry_at, self.mtime) = (false, None, None, None);
        (self.rewrite_inline, self.inline_row, self.moved_end) = (false, false, 0);
        (self.sent_end, self.stored_end, self.size) = (0, 0, self.attr.size);
        // What the file is now says its map, which is fetched before anything else.
        self.stale = true;
        self.blocks.clear();
        match &mut self.body {
            Body::Inline(inline) => inline.clear(),
            Body::Chunked(table) => table.slots.retain(|_, slot| slot.fresh.is_none()),
        }
        bytes
    }
}

impl FileHandle {
    /// Bytes of the file were lost since it was opened: it is of no more use, and each call says so.
    pub fn check(&self) -> Result<()> {
        let state = self.inode.state.lock();
        match (&state.loss, state.losses == self.losses) {
            (Some(error), false) => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

impl Pass<'_> {
    /// The lease that it is for is lost, whether or not there is another now.
    pub fn is_over(&self, state: &FileState) -> bool {
        state.lapses != self.lapses
    }

    /// To be asked under the lock under which something is changed.
    pub fn check(&self, state: &FileState) -> Result<()> {
        match self.is_over(state) {
            true => Err(over(format!("inode {}", state.attr.id))),
            false => Ok(()),
        }
    }
}

/// An operation that has changed nothing yet begins again.
pub fn over(who: impl std::fmt::Display) -> Error {
    Error::new(Code::StaleLease, who, "its lease was lost with the session")
}

impl Core {
    /// The session has ended, and with it all it was granted. To be called before another is anybody's.
    pub fn lose_session(&self) {
        self.behind.forget();
        let mut tasks = self.cache.on(self.now(), None, Seen::SessionLost);
        // Of all files at once, below.
        tasks.retain(|task| !matches!(task, Task::Fail(_)));
        self.carry_out(tasks);
        for inode in self.inodes.all() {
            self.lose_file(&inode);
        }
        self.locks_lost(self.locks.lose_all());
        self.servers.lanes().iter().for_each(|lane| lane.retained(|retain| retain.lose_leases()));
        self.look_at_adrift();
    }

    /// The lease of one file is lost, and others may have changed it since.
    pub fn lose_lease(self: &Arc<Self>, id: InodeId) {
        if let Some(inode) = self.inodes.get(id) {
            self.lose_file(&inode);
        }
        self.servers.lanes().iter().for_each(|lane| lane.retained(|retain| retain.lose_lease(id)));
        self.look_at_adrift();
        self.look_for_adrift();
    }

    fn lose_file(&self, inode: &Inode) {
        self.update(inode, |state| {
            let Some(buffered) = state.lose_lease() else { return };
            // What a server has of it is in the file, or not, as others find it.
            let lanes = self.servers.lanes();
            let retained = lanes.iter().map(|lane| lane.retained(|retain| retain.forget_file(inode.id)));
            self.mark_lost(state, buffered + retained.sum::<u64>());
        });
    }

    /// Bytes of the file are lost, and its handles fail.
    fn mark_lost(&self, state: &mut FileState, bytes: u64) {
        let error = lost(format!("inode {}", state.attr.id), bytes);
        tracing::error!(inode = state.attr.id.0, bytes, "written bytes are lost with the session");
        self.counters.bytes_lost.fetch_add(bytes, Relaxed);
        self.counters.files_lost.fetch_add(1, Relaxed);
        (state.losses, state.loss) = (state.losses + 1, Some(error.clone()));
        // Whoever saves it next hears of what was lost while nobody had it open.
        match state.handles {
            0 => state.lose(error),
            _ => state.fail(error),
        }
        self.let_go(state);
    }

    /// Finds out what servers have of that which they had answered and which was not known to be stable when the session ended:
    /// it is never repeated. Until that is known nobody reads or writes these files here.
    pub fn look_for_adrift(self: &Arc<Self>) {
        for lane in self.servers.lanes() {
            if !lane.retained(|retain| retain.has_adrift()) {
                continue;
            }
            let (core, stop) = (self.clone(), self.stop.listen());
            self.env.spawn("what servers have of a lost session", async move {
                tokio::select! {
                    biased;
                    () = core.find_adrift(&lane) => {}
                    () = stop.wait() => {}
                }
            });
        }
    }

    async fn find_adrift(&self, lane: &Lane) {
        let op = self.own_op();
        let _waiting = self.waits.enter(&self.env, "files of a session that has ended", lane.name()).at(lane.id);
        for key in lane.retained(|retain| retain.adrift()) {
            let has = self.what_it_has(lane, &key, op).await.unwrap_or_else(|error| {
                tracing::warn!(%error, chunk = key.chunk.0, "it is not known what its server has");
                Has::Unknown
            });
            let bytes = lane.retained(|retain| retain.found(key.chunk, has));
            if let Some(bytes) = bytes {
                self.lose_adrift(key.inode, bytes);
            }
        }
        self.look_at_adrift();
        self.marks.notify_one();
    }

    /// What the server says of the chunk when it has made stable what it has of it.
    async fn what_it_has(&self, lane: &Lane, key: &ChunkKey, op: Op) -> Result<Has> {
        loop {
            let soon = Deadline::after(&self.env, self.config.attempt.min(op.deadline.left(&self.env)));
            let brief = Op { deadline: soon, ..op };
            let message = SyncChunks::of(vec![key.chunk]);
            match self.ask(lane, self.session.token(), message, Bytes::new(), brief).await {
                Ok((answer, _)) => return Ok(Has::All(answer.incarnation)),
                Err(error) if error.code == Code::ChunkUnknown => {
                    return Ok(if self.may_be_needed(key, op).await? { Has::Unknown } else { Has::Removed });
                }
                Err(error) if error.retry() == Retry::No || op.deadline.left(&self.env).is_zero() => return Err(error),
                Err(_) => {
                    // It may be elsewhere now, or its chain another.
                    let _ = self.refresh_servers(brief).await;
                    if let Some(container) = lane.container() {
                        let _ = self.refresh_container(container, brief).await;
                    }
                    self.env.sleep(ASK_AGAIN).await;
                }
            }
        }
    }

    /// The file's row names the chunk. Or another one that may have taken its place with what its server had then, which may have been
    /// less. Who has removed or emptied the file since has removed what was safe by then.
    async fn may_be_needed(&self, key: &ChunkKey, op: Op) -> Result<bool> {
        match self.call(GetMap { inode: self.cache.inode(key.inode), first: key.index }, op).await {
            Ok(answer) => {
                let any_moved = answer.map.layout_gen.0 > 0;
                Ok(match answer.map.content {
                    Content::Chunked(page) => {
                        page.chunks.iter().any(|at| at.chunk == key.chunk || (any_moved && at.index == key.index))
                    }
                    Content::Inline(_) => false,
                })
            }
            Err(error) if matches!(error.code, Code::NotFound | Code::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn lose_adrift(&self, id: InodeId, bytes: u64) {
        match self.inodes.get(id) {
            Some(inode) => self.update(&inode, |state| self.mark_lost(state, bytes)),
            None => {
                tracing::error!(inode = id.0, bytes, "written bytes of a closed file are lost with the session");
                self.counters.bytes_lost.fetch_add(bytes, Relaxed);
                self.counters.files_lost.fetch_add(1, Relaxed);
            }
        }
    }
}

/// Whether what a change of the file says is still so: to be asked under the session's token, see above.
pub fn still(inode: &Inode, lapses: u64) -> impl Fn() -> Result<()> + '_ {
    move || match inode.state.lock().lapses == lapses {
        true => Ok(()),
        false => Err(over(file_name(inode))),
    }
}
