use crate::door::Door;
use crate::handles::handle;
use crate::stats::Stats;
use braid_api::{Code, Error, FileSystem, LockKind, LockRequest, LockSpace, Result};
use braid_fuse_kernel as kernel;
use braid_fuse_kernel::Reply;
use braid_types::{ByteRange, InodeId};

/// The kernel's last byte of a lock to the end of the file.
const OFFSET_MAX: u64 = i64::MAX as u64;

fn lock_request(asked: &kernel::LockRequest) -> Result<LockRequest> {
    let kind = match asked.lock.kind as i32 {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(Code::Invalid.into()),
    };
    let space = if asked.flock { LockSpace::Flock } else { LockSpace::Posix };
    let end = if asked.lock.end >= OFFSET_MAX { u64::MAX } else { asked.lock.end + 1 };
    if asked.flock {
        return Ok(LockRequest {
            space,
            owner: asked.owner,
            pid: asked.lock.pid,
            kind,
            range: ByteRange::new(0, u64::MAX),
        });
    }
    if asked.lock.start > asked.lock.end {
        return Err(Code::Invalid.into());
    }
    let range = ByteRange::new(asked.lock.start, end);
    Ok(LockRequest { space, owner: asked.owner, pid: asked.lock.pid, kind, range })
}

fn found_lock(found: Option<LockRequest>) -> kernel::Lock {
    let Some(lock) = found else {
        return kernel::Lock { kind: libc::F_UNLCK as u32, ..kernel::Lock::default() };
    };
    let kind = if lock.kind == LockKind::Read { libc::F_RDLCK } else { libc::F_WRLCK };
    let end = (lock.range.end - 1).min(OFFSET_MAX);
    kernel::Lock { start: lock.range.start, end, kind: kind as u32, pid: lock.pid }
}

impl<F: FileSystem> Door<F> {
    pub fn get_lock(&self, reply: Reply, asked: &kernel::LockRequest) {
        let (fs, fh, lock) = (self.fs.clone(), handle(asked.fh), lock_request(asked));
        let call = async move { fs.get_lock(fh, lock?).await };
        self.answer(reply, call, |reply, found| reply.lock(&found_lock(found)));
    }

    /// With `wait`, the request's number, until it is granted or interrupted.
    pub fn set_lock(&self, reply: Reply, id: InodeId, asked: &kernel::LockRequest, wait: Option<u64>) {
        let (fs, fh, lock) = (self.fs.clone(), handle(asked.fh), lock_request(asked));
        if let Ok(LockRequest { space: LockSpace::Posix, owner, kind, .. }) = lock
            && kind != LockKind::Unlock
        {
            // Before the answer: the process may close the file as soon as it has the lock.
            self.handles.took_lock(asked.fh, id, owner);
        }
        let interrupts = self.interrupts.clone();
        let call = async move {
            let Some(unique) = wait else { return fs.set_lock(fh, lock?, false).await };
            let granted = interrupts.until(unique, fs.set_lock(fh, lock?, true)).await;
            granted.unwrap_or(Err(Error::bare(Code::Interrupted)))
        };
        self.answer(reply, call, |reply, ()| reply.ok());
    }

    pub fn interrupt(&self, reply: Reply, unique: u64) {
        Stats::add(&self.stats.interrupts, 1);
        self.interrupts.interrupt(unique);
        reply.none();
    }
}
