use crate::convert::node_of;
use crate::stats::Stats;
use braid_fuse_kernel::Notifier;
use braid_types::{ByteRange, InodeId, Name};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How long an entry invalidation may wait for the kernel's directory lock (design.md §4 *Kernel notifications*).
const ENTRY_PATIENCE: Duration = Duration::from_millis(20);

/// Tells the kernel what to forget. Cheap to clone; each call returns when the kernel has done it.
///
/// The notifications are sent by threads of the runtime's blocking pool, which serve no request: the kernel may hold a
/// notification until a request under way is answered.
#[derive(Clone)]
pub struct Invalidator {
    notifier: Notifier,
    runtime: Handle,
    stats: Arc<Stats>,
}

impl Invalidator {
    pub(crate) fn new(notifier: Notifier, runtime: Handle, stats: Arc<Stats>) -> Self {
        Invalidator { notifier, runtime, stats }
    }

    /// Attributes alone.
    pub async fn attributes(&self, id: InodeId) -> io::Result<()> {
        self.send(move |notifier| notifier.inval_inode(node_of(id), -1, 0)).await
    }

    /// Attributes and the pages of `range`; changed pages are written back first, and mappings of them end.
    pub async fn pages(&self, id: InodeId, range: ByteRange) -> io::Result<()> {
        let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
        // 0 is "to the end".
        let len = if range.end > i64::MAX as u64 { 0 } else { range.len() as i64 };
        self.send(move |notifier| notifier.inval_inode(node_of(id), offset, len)).await
    }

    /// A name, whether it was there or not. If the kernel holds the directory's lock for longer than 20 ms (for a
    /// request that may wait for this very answer), all names are ended instead; before Linux 6.16 that is `Unsupported`.
    pub async fn entry(&self, parent: InodeId, name: Name) -> io::Result<()> {
        let entry = self.send(move |notifier| notifier.inval_entry(node_of(parent), name.as_bytes()));
        self.patiently(entry).await
    }

    /// As [`Invalidator::entry`], for a name that was removed: watchers are told.
    pub async fn removed(&self, parent: InodeId, child: InodeId, name: Name) -> io::Result<()> {
        let delete = self.send(move |notifier| notifier.delete(node_of(parent), node_of(child), name.as_bytes()));
        self.patiently(delete).await
    }

    /// Every name at once: each is asked for again at its next use.
    pub fn all_entries(&self) -> io::Result<()> {
        Stats::add(&self.stats.epochs_ended, 1);
        self.notifier.inc_epoch()
    }

    async fn patiently(&self, notification: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        tokio::select! {
            biased;
            done = notification => done,
            () = tokio::time::sleep(ENTRY_PATIENCE) => self.all_entries(),
        }
    }

    /// The notification goes on if its caller does not wait for the end.
    async fn send(&self, notify: impl FnOnce(&Notifier) -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let notifier = self.notifier.clone();
        match self.runtime.spawn_blocking(move || notify(&notifier)).await {
            Ok(done) => done,
            Err(stopped) => Err(io::Error::other(stopped)),
        }
    }
}
