//! Taking, freeing and testing locks: here where the slot holder leaves it to this client, else there.

use crate::core::Core;
use crate::locks::{Answered, Asked, Step};
use crate::wait::timed_out;
use braid_api::lease::{LeaveLock, LockReply, SetLock, TestLock};
use braid_api::{Code, Error, HandleId, LockKind, LockRequest, LockSpace, Result};
use braid_types::{ByteRange, InodeId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Between two attempts to free a lock at a slot holder that does not answer.
const AGAIN: Duration = Duration::from_millis(500);
/// Whoever waits looks again after this, whatever was missed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

fn freed(request: &LockRequest) -> LockRequest {
    LockRequest { kind: LockKind::Unlock, ..*request }
}

impl Core {
    pub async fn get_lock(self: &Arc<Self>, file: InodeId, request: LockRequest) -> Result<Option<LockRequest>> {
        if request.kind == LockKind::Unlock {
            // Nothing stands in its way.
            return Ok(None);
        }
        let (held, all) = self.locks.test(&self.cache, self.now(), file, &request);
        if all || held.is_some() {
            return Ok(held);
        }
        let found = self.call(TestLock { inode: file, lock: request }, self.own_op()).await?;
        // The number of a process of another machine would be taken for one of this.
        Ok(found.lock.map(|lock| if found.own { lock } else { LockRequest { pid: 0, ..lock } }))
    }

    /// Waits until granted, or as long as the caller does.
    pub async fn set_lock(
        self: &Arc<Self>,
        (file, handle): (InodeId, HandleId),
        request: LockRequest,
        wait: bool,
    ) -> Result<()> {
        let op = self.own_op();
        loop {
            let changed = self.locks.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the look, so that nothing between the two is missed.
            changed.as_mut().enable();
            match self.locks.begin(&self.cache, self.now(), (file, handle), &request, wait) {
                Step::Done(result) => return result,
                Step::Queued(queued) => {
                    let _waiting =
                        self.waits.enter(&self.env, format_args!("inode {file}"), "a lock of this mount").of(file);
                    if queued.granted().await? {
                        return Ok(());
                    }
                }
                Step::Ask(asked) => {
                    let (tell, told) = oneshot::channel();
                    let core = self.clone();
                    self.spawn_for("asking for a lock", op.trace, async move {
                        core.lock_elsewhere((file, handle), request, wait, asked, tell).await;
                    });
                    let _waiting = self.waits.enter(&self.env, format_args!("inode {file}"), "a lock").of(file);
                    return told.await.map_err(|_| Error::bare(Code::Interrupted))?;
                }
                Step::Later => {
                    let left = op.deadline.left(&self.env);
                    if left.is_zero() && !wait {
                        return Err(timed_out(format_args!("a lock on inode {file}"), "the metadata server"));
                    }
                    let _waiting =
                        self.waits.enter(&self.env, format_args!("inode {file}"), "the metadata server").of(file);
                    let _ = self.env.timeout(LOOK_AGAIN, changed).await;
                }
            }
        }
    }

    /// Asks the slot holder until it has answered, or nobody wants to know: then what it granted is freed.
    async fn lock_elsewhere(
        self: Arc<Self>,
        at: (InodeId, HandleId),
        request: LockRequest,
        wait: bool,
        mut asked: Asked,
        mut tell: oneshot::Sender<Result<()>>,
    ) {
        let file = at.0;
        if request.kind == LockKind::Unlock {
            self.unlock_elsewhere(file, request, asked).await;
            let _ = tell.send(Ok(()));
            return;
        }
        let stop = self.stop.listen();
        let wait_ms = wait.then_some((self.config.attempt / 2).as_millis() as u32);
        let answer = loop {
            let message = SetLock { op: asked.op, done: self.locks.done(), inode: file, lock: request, wait_ms };
            let answer = tokio::select! {
                biased;
                answer = self.call(message, self.own_op()) => answer,
                () = tell.closed() => Err(Error::bare(Code::Interrupted)),
                () = stop.wait() => Err(Error::bare(Code::Interrupted)),
            };
            match answer {
                Ok(LockReply::Waiting) => {}
                Ok(LockReply::Granted) => {
                    if self.locks.taken(at, &request, asked) == Answered::Taken {
                        if tell.send(Ok(())).is_err() {
                            self.free_later(file, freed(&request));
                        }
                        return;
                    }
                    while self.locks.said(file).is_none() && !self.stop.is_over() {
                        self.env.sleep(AGAIN).await;
                    }
                    asked.said = self.locks.said(file).unwrap_or_default();
                }
                // Whoever waits for a lock does so until it is interrupted.
                Err(error) if wait && error.code != Code::Interrupted && !tell.is_closed() => {
                    tracing::debug!(%error, inode = file.0, "a lock is waited for");
                    self.env.sleep(AGAIN).await;
                }
                answer => break answer,
            }
        };
        match answer {
            Ok(reply) => {
                self.locks.not_taken(file, asked);
                let code = if reply == LockReply::Deadlock { Code::Deadlock } else { Code::WouldBlock };
                let _ = tell.send(Err(Error::bare(code)));
            }
            Err(error) => {
                let _ = tell.send(Err(error));
                self.leave_elsewhere(file, request, asked).await;
            }
        }
    }

    /// Nobody waits for it any more, and it may have been granted.
    async fn leave_elsewhere(self: &Arc<Self>, file: InodeId, request: LockRequest, asked: Asked) {
        let stop = self.stop.listen();
        let token = self.session.token();
        while self.session.id() == token.session {
            let message = LeaveLock { op: asked.op, done: self.locks.done() };
            let answer = tokio::select! {
                biased;
                answer = self.call_at(file, message, self.own_op()) => answer,
                () = stop.wait() => break,
            };
            match answer {
                Ok(LockReply::Granted) => {
                    self.unlock_elsewhere(file, freed(&request), asked).await;
                    return;
                }
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(%error, inode = file.0, "a lock that is not wanted any more was not given up yet");
                    self.env.sleep(AGAIN).await;
                }
            }
        }
        self.locks.not_taken(file, asked);
    }

    /// A lock that is not freed would be held for as long as this client lives: asked for until it is answered, or the session of it
    /// has ended.
    async fn unlock_elsewhere(self: &Arc<Self>, file: InodeId, request: LockRequest, asked: Asked) {
        let stop = self.stop.listen();
        let session = self.session.id();
        while self.session.id() == session {
            let done = self.locks.done();
            let message = SetLock { op: asked.op, done, inode: file, lock: freed(&request), wait_ms: None };
            let answer = tokio::select! {
                biased;
                answer = self.call(message, self.own_op()) => answer,
                () = stop.wait() => break,
            };
            match answer {
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(%error, inode = file.0, "a lock was not freed yet");
                    self.env.sleep(AGAIN).await;
                }
            }
        }
        self.locks.not_taken(file, asked);
    }

    /// Frees locks whose owner waits for nothing.
    pub fn free_later(self: &Arc<Self>, file: InodeId, request: LockRequest) {
        let core = self.clone();
        self.env.spawn("freeing locks", async move {
            if let Err(error) = core.set_lock((file, HandleId(0)), request, false).await {
                tracing::warn!(%error, inode = file.0, "locks were not freed");
            }
        });
    }

    /// The open file that took flock locks was closed. Whoever closed it does not wait for a metadata server that is away.
    pub async fn free_flock(self: &Arc<Self>, file: InodeId, owner: u64) {
        let range = ByteRange::new(0, u64::MAX);
        let request = LockRequest { space: LockSpace::Flock, owner, pid: 0, kind: LockKind::Unlock, range };
        let (tell, told) = oneshot::channel();
        let core = self.clone();
        self.env.spawn("freeing locks", async move {
            if let Err(error) = core.set_lock((file, HandleId(0)), request, false).await {
                tracing::warn!(%error, inode = file.0, "locks were not freed");
            }
            let _ = tell.send(());
        });
        let _ = self.env.timeout(LOOK_AGAIN, told).await;
    }

    /// Programs that relied on locks which are another's by now are told by the next use of their handles.
    pub fn locks_lost(&self, handles: BTreeSet<HandleId>) {
        for id in handles {
            if let Ok(file) = self.handles.file(id) {
                tracing::warn!(inode = file.inode.id.0, "locks were lost with the session: their handle fails");
                file.lose_locks();
            }
        }
    }
}
