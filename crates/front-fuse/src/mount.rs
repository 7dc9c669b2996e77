use crate::config::MountConfig;
use crate::door::Door;
use crate::invalidator::Invalidator;
use crate::passing::Passing;
use crate::stats::Stats;
use crate::waiting::WaitingRequests;
use braid_api::FileSystem;
use braid_fuse_kernel::{Channel, Session, clear_stale_mount, serve};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::runtime::Handle;

/// A file system that is mounted. Dropping it takes the mount out of sight at once; programs that still use it are
/// served as long as this process runs. On SIGTERM call [`Mount::unmount`]: a process that ends without it leaves a
/// mount that answers ENOTCONN, which the next start clears.
pub struct Mount {
    session: Session,
    runtime: Handle,
    stats: Arc<Stats>,
    waiting: WaitingRequests,
    passing: Arc<Passing>,
}

/// Mounts `fs` at `path`; what a killed process left there is cleared first. Calls that have to wait go on as tasks of
/// `runtime`, which must have its timers on.
pub fn mount<F: FileSystem>(
    fs: Arc<F>,
    runtime: Handle,
    path: impl AsRef<Path>,
    config: &MountConfig,
) -> io::Result<Mount> {
    let path = path.as_ref();
    if clear_stale_mount(path)? {
        tracing::info!(path = %path.display(), "a mount without a server was cleared");
    }
    mount_anew(fs.clone(), &runtime, path, config).or_else(|error| {
        if !config.io_uring {
            return Err(error);
        }
        let without = MountConfig { io_uring: false, ..config.clone() };
        // If it is something else it fails once more.
        let mounted = mount_anew(fs, &runtime, path, &without);
        if mounted.is_ok() {
            tracing::warn!(%error, "the kernel's requests cannot come over io_uring: they come by /dev/fuse");
        }
        mounted
    })
}

fn mount_anew<F: FileSystem>(fs: Arc<F>, runtime: &Handle, path: &Path, config: &MountConfig) -> io::Result<Mount> {
    let door = Arc::new(Door::new(fs, runtime.clone()));
    let (stats, waiting, passing) = (door.stats.clone(), door.waiting.clone(), door.passing.clone());
    let channel = Channel::mount(path, &config.options())?;
    let session = serve(channel, &config.protocol(), config.threads, door)?;
    Ok(Mount { session, runtime: runtime.clone(), stats, waiting, passing })
}

impl Mount {
    pub fn mount_point(&self) -> PathBuf {
        self.session.mount_point().to_owned()
    }

    /// What tells the kernel to forget.
    pub fn notifier(&self) -> Invalidator {
        Invalidator::new(self.session.notifier(), self.runtime.clone(), self.stats.clone())
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Opens of files that the kernel reads without asking from then on.
    pub fn passed_through(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let passing = self.passing.clone();
        move || passing.opens.load(Relaxed)
    }

    /// Requests that wait, and who made them.
    pub fn waiting(&self) -> WaitingRequests {
        self.waiting.clone()
    }

    /// The end on request: unmounts, or, while programs use the mount, takes it out of sight.
    pub fn unmount(&mut self) -> io::Result<()> {
        match self.session.unmount() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => self.session.detach(),
            other => other,
        }
    }

    /// Fails every request under way and to come: the last resort, when the file system does not answer any more.
    pub fn abort(&mut self) -> io::Result<()> {
        self.session.abort()
    }

    /// Waits until somebody unmounts.
    pub fn join(self) {
        self.session.join();
    }
}
