use crate::caller::caller;
use crate::convert;
use crate::door::Door;
use crate::handles::handle;
use crate::passing::Purpose;
use crate::privileges::kill_privileges;
use braid_api::{FileSystem, LockKind, LockRequest, LockSpace};
use braid_fuse_kernel::{Reply, Request};
use braid_types::{ByteRange, InodeId};

fn unlock_all(owner: u64) -> LockRequest {
    let (space, kind, range) = (LockSpace::Posix, LockKind::Unlock, ByteRange::new(0, u64::MAX));
    LockRequest { space, owner, pid: 0, kind, range }
}

impl<F: FileSystem> Door<F> {
    pub fn open(&self, request: &Request<'_>, reply: Reply, id: InodeId, flags: u32, kill: bool) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        // O_CREAT and O_EXCL are over when a file is opened by its number.
        let purpose = Purpose::of(flags);
        let flags = braid_api::OpenFlags { exclusive: false, ..convert::open_flags(flags) };
        // The kernel leaves the truncation to this call, and with it what a truncation does to privileges; `kill` tells of
        // it only where the door was asked to see to all of them.
        let kill = flags.truncate && (kill || cx.uid != 0);
        let (privileges, passing) = (self.privileges.clone(), self.passing.clone());
        let call = async move {
            if flags.truncate {
                privileges.before_change(&*fs, &cx, id, None).await?;
            }
            let opened = fs.open(&cx, id, flags).await?;
            if kill {
                kill_privileges(&*fs, &cx, id, Some(opened.handle)).await?;
            }
            Ok(passing.open(&*fs, id, &opened, flags, purpose).await)
        };
        self.answer(reply, call, |reply, open| reply.open(open));
    }

    /// A descriptor was closed: what close waits for, and the end of the process's fcntl locks on the file.
    pub fn flush(&self, reply: Reply, id: InodeId, fh: u64, lock_owner: u64) {
        let (fs, handles) = (self.fs.clone(), self.handles.clone());
        let call = async move {
            let flushed = fs.flush(handle(fh)).await;
            let twin = match handles.twin(fh) {
                Some(twin) => fs.flush(twin).await,
                None => Ok(()),
            };
            if handles.forget_owner(id, lock_owner) {
                fs.set_lock(handle(fh), unlock_all(lock_owner), false).await?;
            }
            flushed.and(twin)
        };
        self.answer(reply, call, |reply, ()| reply.ok());
    }

    pub fn fsync(&self, reply: Reply, fh: u64, data_only: bool) {
        let (fs, twin) = (self.fs.clone(), self.handles.twin(fh));
        let call = async move {
            if let Some(twin) = twin {
                fs.fsync(twin, data_only).await?;
            }
            fs.fsync(handle(fh), data_only).await
        };
        self.answer(reply, call, |reply, ()| reply.ok());
    }

    /// Of a file or a directory.
    pub fn release(&self, reply: Reply, fh: u64) {
        self.privileges.released(fh);
        self.passing.released(fh, &self.runtime);
        let (fs, twin, owners) = (self.fs.clone(), self.handles.forget_twin(fh), self.handles.forget_handle(fh));
        let call = async move {
            for owner in owners {
                // A lock that cannot be given back ends with the session; the handle must end now.
                if let Err(error) = fs.set_lock(handle(fh), unlock_all(owner), false).await {
                    tracing::warn!(%error, "locks of a closed file were not released");
                }
            }
            if let Some(twin) = twin {
                fs.release(twin).await;
            }
            fs.release(handle(fh)).await;
            Ok(())
        };
        self.answer(reply, call, |reply, ()| reply.ok());
    }
}
