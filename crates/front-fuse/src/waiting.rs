//! What programs wait for: requests of the kernel whose answers are not at hand, with who made them.
//!
//! A request that is answered in place is in no table. One that is not enters it when it first has to wait, and leaves it with its
//! answer.

use crate::convert::inode_of;
use braid_api::admin::Waiting;
use braid_fuse_kernel::{Operation, Request};
use braid_types::{InodeId, TraceId};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What waits shorter is not worth showing.
const SHOWN_FROM: Duration = Duration::from_secs(1);

/// One request, as it came.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asking {
    trace: TraceId,
    /// `read of`, `create in`.
    what: &'static str,
    inode: InodeId,
    /// The thread that made it.
    thread: u32,
}

thread_local! {
    static ASKING: Cell<Asking> = Cell::default();
}

impl Asking {
    pub fn of(request: &Request<'_>) -> Asking {
        let (what, inode) = (name_of(&request.operation), inode_of(request.nodeid));
        Asking { trace: TraceId(request.unique), what, inode, thread: request.pid }
    }

    /// Until another is entered, what this thread does is for this request.
    pub fn enter(self) {
        ASKING.set(self);
    }
}

/// Requests that wait.
#[derive(Clone, Default)]
pub struct WaitingRequests(Arc<Mutex<BTreeMap<u64, (Asking, Instant)>>>);

struct Entered<'a>(&'a WaitingRequests, u64);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(&self.1);
    }
}

impl WaitingRequests {
    /// `answering`, in the table from when it first has to wait. For the request that this thread has entered.
    pub(crate) async fn noted(self, asking: Asking, answering: impl Future<Output = ()>) {
        let mut answering = pin!(answering);
        let mut entered = None;
        poll_fn(|cx| {
            let polled = answering.as_mut().poll(cx);
            if polled.is_pending() && entered.is_none() {
                self.0.lock().insert(asking.trace.0, (asking, Instant::now()));
                entered = Some(Entered(&self, asking.trace.0));
            }
            polled
        })
        .await;
    }

    pub(crate) fn asking() -> Asking {
        ASKING.get()
    }

    /// Those that have waited for more than a second.
    pub fn list(&self) -> Vec<Waiting> {
        let now = Instant::now();
        let waited = |since: &Instant| now.saturating_duration_since(*since);
        let all: Vec<(Asking, Duration)> =
            self.0.lock().values().map(|(asking, since)| (*asking, waited(since))).collect();
        all.into_iter()
            .filter(|(_, waited)| *waited >= SHOWN_FROM)
            .map(|(asking, waited)| told(asking, waited))
            .collect()
    }
}

fn told(asking: Asking, waited: Duration) -> Waiting {
    let Asking { trace, what, inode, thread } = asking;
    let program = (thread != 0).then(|| program(thread));
    let by = match &program {
        Some((process, name)) if name.is_empty() => format!(" by process {process}"),
        Some((process, name)) => format!(" by process {process} ({name})"),
        // Written back, or read ahead.
        None => " by the kernel".to_owned(),
    };
    Waiting {
        since_ms: waited.as_millis() as u64,
        trace,
        process: program.map(|(process, _)| process),
        inodes: vec![inode],
        ..Waiting::new(format!("{what} inode {inode}{by}"), "its answer")
    }
}

/// As the system call is called.
fn name_of(operation: &Operation<'_>) -> &'static str {
    match operation {
        Operation::Lookup { .. } => "lookup in",
        Operation::Getattr { .. } | Operation::Statx { .. } => "stat of",
        Operation::Setattr(change) if change.size.is_some() => "truncate of",
        Operation::Setattr(change) if change.mode.is_some() => "chmod of",
        Operation::Setattr(change) if change.uid.is_some() || change.gid.is_some() => "chown of",
        Operation::Setattr(_) => "utimens of",
        Operation::Readlink => "readlink of",
        Operation::Symlink { .. } => "symlink in",
        Operation::Mknod { .. } => "mknod in",
        Operation::Mkdir { .. } => "mkdir in",
        Operation::Unlink { .. } => "unlink in",
        Operation::Rmdir { .. } => "rmdir in",
        Operation::Rename { .. } => "rename in",
        Operation::Link { .. } => "link in",
        Operation::Open { .. } => "open of",
        Operation::Read { .. } => "read of",
        Operation::Write(_) => "write of",
        Operation::Statfs => "statfs at",
        Operation::Release(_) | Operation::Releasedir(_) | Operation::Flush { .. } => "close of",
        Operation::Fsync { .. } | Operation::Fsyncdir { .. } => "fsync of",
        Operation::Setxattr { .. } => "setxattr of",
        Operation::Getxattr { .. } => "getxattr of",
        Operation::Listxattr { .. } => "listxattr of",
        Operation::Removexattr { .. } => "removexattr of",
        Operation::Opendir { .. } => "opendir of",
        Operation::Readdir { .. } | Operation::Readdirplus { .. } => "readdir of",
        Operation::Getlk(_) | Operation::Setlk(_) | Operation::Setlkw(_) => "lock on",
        Operation::Create { .. } => "create in",
        Operation::Tmpfile { .. } => "O_TMPFILE in",
        Operation::Fallocate { .. } => "fallocate of",
        Operation::Lseek { .. } => "lseek of",
        Operation::CopyFileRange(_) => "copy_file_range from",
        Operation::Syncfs => "syncfs at",
        _ => "request on",
    }
}

/// The process a thread belongs to, and what it is called. The thread itself, if it is gone or cannot be looked at.
fn program(thread: u32) -> (u32, String) {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let process = field("Tgid:").and_then(|id| id.parse().ok()).unwrap_or(thread);
    (process, field("Name:").unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_request_is_listed_while_it_waits_with_the_process_that_made_it() {
        let all = WaitingRequests::default();
        let thread = std::thread::spawn(|| std::fs::read_link("/proc/thread-self").unwrap());
        let thread = thread.join().unwrap().file_name().unwrap().to_string_lossy().parse().unwrap_or(0);
        let asking = Asking { trace: TraceId(7), what: "read of", inode: InodeId(5), thread: std::process::id() };
        let mut over = false;
        {
            let mut waits = pin!(all.clone().noted(
                asking,
                poll_fn(|_| if std::mem::replace(&mut over, true) { Poll::Ready(()) } else { Poll::Pending })
            ));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(waits.as_mut().poll(&mut cx).is_pending());
            assert_eq!(all.0.lock().len(), 1);
            assert!(all.list().is_empty(), "not for a moment");
            assert!(waits.as_mut().poll(&mut cx).is_ready());
        }
        assert!(all.0.lock().is_empty());
        let told = told(asking, Duration::from_secs(3));
        assert_eq!((told.process, told.since_ms, told.inodes), (Some(std::process::id()), 3_000, vec![InodeId(5)]));
        let by = format!("read of inode 5 by process {} (", std::process::id());
        assert!(told.who.starts_with(&by), "{}", told.who);
        // A thread that is gone is told by its own number.
        assert_eq!(program(thread).0, thread);
    }

    #[test]
    fn what_is_ready_at_once_or_given_up_is_in_no_table() {
        let all = WaitingRequests::default();
        let asking = Asking::default();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(all.clone().noted(asking, async {})).as_mut().poll(&mut cx).is_ready());
        assert!(all.0.lock().is_empty());
        let mut waits = Box::pin(all.clone().noted(asking, std::future::pending()));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        assert_eq!(all.0.lock().len(), 1);
        drop(waits);
        assert!(all.0.lock().is_empty());
        assert_eq!(told(asking, Duration::ZERO).process, None);
    }
}
