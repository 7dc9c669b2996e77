use crate::asked::Asked;
use crate::convert::inode_of;
use crate::ends::Ends;
use crate::errno::errno_of;
use crate::handles::Handles;
use crate::interrupts::Interrupts;
use crate::invalidator::Invalidator;
use crate::paged::Paged;
use crate::passing::Passing;
use crate::privileges::Privileges;
use crate::run::{Then, run};
use crate::stats::Stats;
use crate::told::Told;
use crate::waiting::{Asking, WaitingRequests};
use crate::watcher::{KernelWatcher, OnItsWay, Replies};
use braid_api::{Error, FileSystem, Result, trace};
use braid_fuse_kernel::{Dispatch, Forget, InitFlags, Negotiated, Notifier, Operation, Reply, Request};
use braid_types::TraceId;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::runtime::Handle;

/// The file system seen by the kernel: takes requests apart and hands them to `ops`.
pub struct Door<F> {
    pub fs: Arc<F>,
    pub runtime: Handle,
    /// So many threads that serve requests may wait for a disk: one is left to serve each processor.
    wait_places: AtomicUsize,
    pub stats: Arc<Stats>,
    pub handles: Arc<Handles>,
    pub interrupts: Arc<Interrupts>,
    pub replies: Arc<Replies>,
    pub paged: Arc<Paged>,
    pub asked: Arc<Asked>,
    pub told: Arc<Told>,
    pub ends: Arc<Ends>,
    pub passing: Arc<Passing>,
    pub waiting: WaitingRequests,
    pub privileges: Arc<Privileges>,
    /// Negotiated: the kernel leaves it to the door to take privileges away.
    pub kills_privileges: AtomicBool,
    /// Negotiated: the kernel sends the group that counts with each create.
    pub groups_sent: AtomicBool,
}

impl<F: FileSystem> Door<F> {
    pub fn new(fs: Arc<F>, runtime: Handle) -> Self {
        let asked: Arc<Asked> = Arc::default();
        Door {
            fs,
            runtime,
            wait_places: AtomicUsize::new(0),
            stats: Arc::default(),
            handles: Arc::default(),
            interrupts: Arc::default(),
            replies: Arc::default(),
            paged: Arc::default(),
            ends: Arc::new(Ends::new(asked.clone())),
            asked,
            told: Arc::default(),
            passing: Arc::default(),
            waiting: WaitingRequests::default(),
            privileges: Arc::default(),
            kills_privileges: AtomicBool::new(false),
            groups_sent: AtomicBool::new(false),
        }
    }

    /// Makes `call` and answers with what `tell` makes of its result, or with its error.
    pub fn answer<T: Send + 'static>(
        &self,
        reply: Reply,
        call: impl Future<Output = Result<T>> + Send + 'static,
        tell: impl FnOnce(Reply, T) + Send + 'static,
    ) {
        self.answer_as(self.replies.begin(), reply, call, tell);
    }

    /// The same of bytes that are read.
    pub fn answer_read<T: Send + 'static>(
        &self,
        reply: Reply,
        call: impl Future<Output = Result<T>> + Send + 'static,
        tell: impl FnOnce(Reply, T) + Send + 'static,
    ) {
        self.answer_then(self.replies.begin(), reply, call, tell, Then::IsTask);
    }

    /// The same of an answer that has been counted.
    pub fn answer_as<T: Send + 'static>(
        &self,
        on_its_way: OnItsWay,
        reply: Reply,
        call: impl Future<Output = Result<T>> + Send + 'static,
        tell: impl FnOnce(Reply, T) + Send + 'static,
    ) {
        self.answer_then(on_its_way, reply, call, tell, Then::Waits);
    }

    fn answer_then<T: Send + 'static>(
        &self,
        on_its_way: OnItsWay,
        reply: Reply,
        call: impl Future<Output = Result<T>> + Send + 'static,
        tell: impl FnOnce(Reply, T) + Send + 'static,
        then: Then,
    ) {
        let stats = self.stats.clone();
        let answering = async move {
            let answer = call.await;
            // Until the kernel has it.
            let reply = reply.holding(on_its_way);
            match answer {
                Ok(value) => tell(reply, value),
                Err(error) => refuse(&stats, reply, &error),
            }
        };
        let noted = self.waiting.clone().noted(WaitingRequests::asking(), answering);
        let done =
            run(&self.runtime, self.wait_places.load(Ordering::Relaxed), trace::under(trace::current(), noted), then);
        if !done {
            Stats::add(&self.stats.waited, 1);
        }
    }

    /// Privileges, unless the kernel sees to them.
    pub fn privileges_if_ours(&self) -> Option<Arc<Privileges>> {
        self.kills_privileges.load(Ordering::Relaxed).then(|| self.privileges.clone())
    }

    /// Answers what could not even be asked.
    pub fn refuse(&self, reply: Reply, error: &Error) {
        refuse(&self.stats, reply, error);
    }
}

fn refuse(stats: &Stats, reply: Reply, error: &Error) {
    Stats::add(&stats.errors, 1);
    let errno = errno_of(error.code);
    if errno == libc::EIO {
        // The program sees EIO only; here is what it means.
        tracing::warn!(%error, "a file operation failed");
    }
    reply.error(errno);
}

impl<F: FileSystem> Dispatch for Door<F> {
    fn init(&self, negotiated: &Negotiated, notifier: &Notifier) {
        // Before the first answer that may be kept.
        let invalidator = Invalidator::new(notifier.clone(), self.runtime.clone(), self.stats.clone());
        self.fs.watch(Arc::new(KernelWatcher::new(
            invalidator,
            self.replies.clone(),
            self.paged.clone(),
            self.asked.clone(),
            self.told.clone(),
            self.ends.clone(),
        )));
        if negotiated.flags.contains(InitFlags::PASSTHROUGH) {
            let fs = self.fs.clone();
            self.passing.begin(notifier.clone(), move |id| fs.left_beneath(id));
        }
        let sent = negotiated.flags.contains(InitFlags::CREATE_SUPP_GROUP);
        self.groups_sent.store(sent, Ordering::Relaxed);
        let ours = negotiated.flags.contains(InitFlags::HANDLE_KILLPRIV_V2);
        self.kills_privileges.store(ours, Ordering::Relaxed);
        self.wait_places.store(negotiated.threads - 1, Ordering::Relaxed);
        let io_uring = negotiated.flags.contains(InitFlags::OVER_IO_URING);
        tracing::info!(io_uring, "the kernel is connected");
        tracing::debug!(?negotiated);
    }

    fn dispatch(&self, request: Request<'_>, reply: Reply) {
        Stats::add(&self.stats.requests, 1);
        let _entered = trace::enter(TraceId(request.unique));
        Asking::of(&request).enter();
        tracing::debug!(trace = request.unique, inode = request.nodeid, "file operation");
        let id = inode_of(request.nodeid);
        match &request.operation {
            Operation::Lookup { name } => self.lookup(&request, reply, id, name),
            Operation::Forget { nlookup } => {
                self.forget(reply, &[Forget { nodeid: request.nodeid, nlookup: *nlookup }]);
            }
            Operation::BatchForget { forgets } => self.forget(reply, forgets),
            Operation::Getattr { fh } => self.get_attr(&request, reply, id, *fh),
            Operation::Statx { fh, .. } => self.statx(&request, reply, id, *fh),
            Operation::Setattr(change) => self.set_attr(&request, reply, id, change),
            Operation::Readlink => self.read_link(&request, reply, id),
            Operation::Statfs => self.statfs(&request, reply, id),
            Operation::Symlink { name, target } => self.symlink(&request, reply, id, name, target),
            Operation::Mknod { name, mode, umask, rdev } => {
                self.make_node(&request, reply, id, name, *mode, *umask, *rdev);
            }
            Operation::Mkdir { name, mode, umask } => {
                self.make_node(&request, reply, id, name, libc::S_IFDIR | mode & 0o7777, *umask, 0);
            }
            Operation::Unlink { name } => self.unlink(&request, reply, id, name),
            Operation::Rmdir { name } => self.remove_dir(&request, reply, id, name),
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(&request, reply, (id, name), (inode_of(*new_parent), new_name), *flags);
            }
            Operation::Link { nodeid, new_name } => self.link(&request, reply, inode_of(*nodeid), id, new_name),
            Operation::Open { flags, kill_suidgid } => self.open(&request, reply, id, *flags, *kill_suidgid),
            Operation::Create { name, flags, mode, umask, kill_suidgid: _ } => {
                self.create(&request, reply, id, name, *flags, *mode, *umask);
            }
            Operation::Tmpfile { flags, mode, umask, kill_suidgid: _ } => {
                self.make_temporary(&request, reply, id, *flags, *mode, *umask);
            }
            Operation::Read { fh, offset, size, .. } => self.read(reply, id, *fh, *offset, *size),
            Operation::Write(write) => self.write(&request, reply, id, write),
            Operation::Flush { fh, lock_owner } => self.flush(reply, id, *fh, *lock_owner),
            Operation::Fsync { fh, data_only } => self.fsync(reply, *fh, *data_only),
            Operation::Release(release) => self.release(reply, release.fh),
            Operation::Fallocate { fh, offset, length, mode } => {
                self.fallocate(&request, reply, id, *fh, (*offset, *length), *mode);
            }
            Operation::Lseek { fh, offset, whence } => self.seek(reply, *fh, *offset, *whence),
            Operation::CopyFileRange(copy) => self.copy_range(&request, reply, copy),
            Operation::Opendir { .. } => self.open_dir(&request, reply, id),
            Operation::Readdir { fh, offset, size } => self.read_dir(&request, reply, id, *fh, *offset, *size),
            Operation::Readdirplus { fh, offset, size } => {
                self.read_dir_plus(&request, reply, id, *fh, *offset, *size);
            }
            Operation::Releasedir(release) => self.release(reply, release.fh),
            Operation::Fsyncdir { fh, .. } => self.sync_dir(reply, *fh),
            Operation::Syncfs => self.sync_fs(reply),
            Operation::Getxattr { name, size } => self.get_xattr(&request, reply, id, name, *size),
            Operation::Setxattr { name, value, flags, acl_kill_sgid } => {
                self.set_xattr(&request, reply, id, name, value, *flags, *acl_kill_sgid);
            }
            Operation::Listxattr { size } => self.list_xattr(&request, reply, id, *size),
            Operation::Removexattr { name } => self.remove_xattr(&request, reply, id, name),
            Operation::Getlk(lock) => self.get_lock(reply, lock),
            Operation::Setlk(lock) => self.set_lock(reply, id, lock, None),
            Operation::Setlkw(lock) => self.set_lock(reply, id, lock, Some(request.unique)),
            Operation::Interrupt { unique } => self.interrupt(reply, *unique),
            Operation::Ioctl { cmd, data, .. } => self.ioctl(&request, reply, id, *cmd, data),
            // After this answer the kernel stops asking: it checks permissions itself, files are always ready, and
            // no file has block numbers.
            Operation::Access { .. } | Operation::Poll { .. } | Operation::Bmap { .. } => reply.error(libc::ENOSYS),
            Operation::Destroy => reply.ok(),
        }
    }
}
