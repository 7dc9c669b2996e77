use crate::convert::node_of;
use crate::stats::Stats;
use braid_fuse_kernel::Notifier;
use braid_types::{ByteRange, InodeId, Name};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long an entry invalidation may wait for the kernel's directory lock (design.md §4 *Kernel notifications*).
const ENTRY_PATIENCE: Duration = Duration::from_millis(20);

/// The same while only directories are read, which waits for nobody. A program that lists a directory takes its lock again at
/// once; to end all names then, because room is needed for leases, cost a lookup for each of 100,000 names just listed.
const LISTING_PATIENCE: Duration = Duration::from_secs(1);

/// How long a thread that has its answer may take to run. Longer than a scheduler lets one wait (a time slice is 4 ms or less; this is for
/// 25 others before it); shorter than anybody notices.
const LOOKUP_PATIENCE: Duration = Duration::from_millis(100);

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

#[derive(Default)]
struct Progress {
    done: AtomicUsize,
    given_up: AtomicBool,
}

impl Invalidator {
    pub(crate) fn new(notifier: Notifier, runtime: Handle, stats: Arc<Stats>) -> Self {
        Invalidator { notifier, runtime, stats }
    }

    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Attributes alone. Gives the inodes that the kernel does not know, or not yet.
    pub async fn attributes(&self, ids: Vec<InodeId>) -> io::Result<Vec<InodeId>> {
        self.send(move |notifier| {
            let mut unknown = Vec::new();
            for id in ids {
                if !notifier.inval_inode(node_of(id), -1, 0)? {
                    unknown.push(id);
                }
            }
            Ok(unknown)
        })
        .await
    }

    /// Attributes of directories and what is kept of what is in them, by one thread: there may be one for each directory that was ever
    /// listed. Of what the kernel does not know it shows nothing.
    pub async fn listings(&self, ids: Vec<InodeId>) -> io::Result<()> {
        self.send(move |notifier| {
            ids.into_iter().for_each(|id| _ = notifier.inval_inode(node_of(id), 0, 0));
            Ok(())
        })
        .await
    }

    /// Attributes and the pages of `range`; changed pages are written back first, and mappings of them end.
    pub async fn pages(&self, id: InodeId, range: ByteRange) -> io::Result<()> {
        let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
        // 0 is "to the end".
        let len = if range.end > i64::MAX as u64 { 0 } else { range.len() as i64 };
        self.send(move |notifier| notifier.inval_inode(node_of(id), offset, len).map(drop)).await
    }

    /// Names, whether they were there or not, by one thread: a thread for each took 30 µs of 33. If the kernel holds a
    /// directory's lock for longer than 20 ms (for a request that may wait for this very answer; 1 s while there is `no_such`), all
    /// names are ended instead; before Linux 6.16 that is `Unsupported`.
    pub async fn entries(&self, names: Vec<(InodeId, Name)>, no_such: impl Fn() -> bool) -> io::Result<()> {
        let progress = Arc::new(Progress::default());
        let told = progress.clone();
        let entries = self.send(move |notifier| {
            for (parent, name) in names {
                notifier.inval_entry(node_of(parent), name.as_bytes())?;
                told.done.fetch_add(1, Relaxed);
                if told.given_up.load(Relaxed) {
                    break;
                }
            }
            Ok(())
        });
        let mut entries = std::pin::pin!(entries);
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            tokio::select! {
                biased;
                done = &mut entries => return done,
                () = tokio::time::sleep(ENTRY_PATIENCE) => {}
            }
            match progress.done.load(Relaxed) {
                done if done == seen => {
                    if no_such() && since.elapsed() < LISTING_PATIENCE {
                        continue;
                    }
                    progress.given_up.store(true, Relaxed);
                    return self.all_entries();
                }
                done => (seen, since) = (done, Instant::now()),
            }
        }
    }

    /// Returns when no answer to a lookup in these directories is on its way, or after 100 ms: a lookup that waits for another mount may
    /// wait for this very answer. (To forget a name, the kernel takes the lock it holds during a lookup; no name has a slash in it.)
    pub async fn lookups_end(&self, dirs: BTreeSet<InodeId>) {
        let over = self.send(move |notifier| {
            // A directory that the kernel does not know has none.
            dirs.into_iter().for_each(|dir| _ = notifier.inval_entry(node_of(dir), b"/"));
            Ok(())
        });
        if let Ok(Err(error)) = tokio::time::timeout(LOOKUP_PATIENCE, over).await {
            tracing::debug!(%error, "the kernel does not say whether lookups are over");
        }
    }

    /// As [`Invalidator::entries`], for one name that was removed: watchers are told.
    pub async fn removed(&self, parent: InodeId, child: InodeId, name: Name) -> io::Result<()> {
        let delete = self.send(move |notifier| notifier.delete(node_of(parent), node_of(child), name.as_bytes()));
        tokio::select! {
            biased;
            done = delete => done,
            () = tokio::time::sleep(ENTRY_PATIENCE) => self.all_entries(),
        }
    }

    /// A file that nobody uses, with its names; before Linux 6.18 with this one. Nobody waits for it.
    pub fn leave(&self, id: InodeId, name: Option<(InodeId, Name)>) {
        let notifier = self.notifier.clone();
        self.runtime.spawn_blocking(move || {
            let left = match (notifier.prune(node_of(id)), name) {
                (Err(error), Some((parent, name))) if error.kind() == io::ErrorKind::Unsupported => {
                    notifier.inval_entry(node_of(parent), name.as_bytes())
                }
                (pruned, _) => pruned,
            };
            if let Err(error) = left {
                tracing::debug!(%error, "the kernel forgets no file");
            }
        });
    }

    /// Every name at once: each is asked for again at its next use.
    pub fn all_entries(&self) -> io::Result<()> {
        Stats::add(&self.stats.epochs_ended, 1);
        self.notifier.inc_epoch()
    }

    /// The notifications go on if their caller does not wait for the end.
    async fn send<T: Send + 'static>(
        &self,
        notify: impl FnOnce(&Notifier) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let notifier = self.notifier.clone();
        match self.runtime.spawn_blocking(move || notify(&notifier)).await {
            Ok(done) => done,
            Err(stopped) => Err(io::Error::other(stopped)),
        }
    }
}
