//! The disk as its user holds it.

use crate::door::{Door, config};
use crate::faults::Options;
use crate::machine::Machine;
use crate::stats::{CutReport, Stats};
use braid_fuse_kernel::{Channel, MountOptions, Session, clear_stale_mount, serve};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// A mounted power-cut disk. Dropping it takes the mount away, whoever uses it, and with it all that was stored.
pub struct PowerCutDisk {
    machine: Arc<Mutex<Machine>>,
    /// `None` once it has ended.
    session: Arc<Mutex<Option<Session>>>,
    dir: PathBuf,
}

impl PowerCutDisk {
    /// Whether this process may mount: it is root, and there is a FUSE device. Tests say so and pass where it may not.
    pub fn is_available() -> bool {
        rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists()
    }

    /// Mounts an empty disk at `dir`.
    ///
    /// This process may use its files by calls. It must not map them: the kernel waits for this disk's answers while it holds the
    /// lock of the process's memory (at `munmap` of a mapping that was written), and a thread that would answer waits for
    /// that lock as soon as it allocates. LMDB belongs in another process, or the disk does (`braid-powercut`).
    pub fn mount(dir: impl AsRef<Path>, options: &Options) -> io::Result<Self> {
        let dir = dir.as_ref().canonicalize().or_else(|error| {
            // The mount of a process that was killed is in the way of looking at its directory.
            if clear_stale_mount(dir.as_ref())? { dir.as_ref().canonicalize() } else { Err(error) }
        })?;
        clear_stale_mount(&dir)?;
        let machine = Arc::new(Mutex::new(Machine::new(options)));
        let mount_options =
            MountOptions { fsname: "powercut".into(), subtype: "powercut".into(), ..MountOptions::default() };
        let channel = Channel::mount(&dir, &mount_options)?;
        let session = serve(channel, &config(), options.threads, Arc::new(Door { machine: machine.clone() }))?;
        Ok(Self { machine, session: Arc::new(Mutex::new(Some(session))), dir })
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The power goes and comes back.
    pub fn cut(&self, seed: u64) -> CutReport {
        self.machine.lock().cut(seed)
    }

    pub fn stats(&self) -> Stats {
        self.machine.lock().stats()
    }

    /// Syncs are answered with success and do nothing: what proves that a test would notice.
    pub fn lose_syncs(&self, on: bool) {
        self.machine.lock().faults.lose_syncs = on;
    }

    /// The next `count` writes fail with EIO and change nothing.
    pub fn fail_writes(&self, count: u64) {
        self.machine.lock().faults.failing_writes = count;
    }

    /// The next `count` syncs fail with EIO. As on Linux, what they were to write is not tried again.
    pub fn fail_syncs(&self, count: u64) {
        self.machine.lock().faults.failing_syncs = count;
    }

    /// How many bytes fit; writes and reservations beyond get ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.machine.lock().faults.capacity = bytes;
    }

    /// Each sync takes so long, and takes effect at the end of it.
    pub fn slow_syncs(&self, delay: Duration) {
        self.machine.lock().faults.sync_delay = delay;
    }

    /// After `changes` more changes (writes, syncs, names) everything fails with EIO until the next cut: for trying a cut at
    /// each step of an operation in turn.
    pub fn stop_after(&self, changes: Option<u64>) {
        self.machine.lock().faults.stop_after = changes;
    }

    /// Ends the disk by force after `limit` unless the guard is dropped before: whoever hangs in it gets an error.
    pub fn watchdog(&self, limit: Duration) -> io::Result<Watchdog> {
        let (alive, gone) = mpsc::channel();
        let session = Arc::downgrade(&self.session);
        thread::Builder::new().name("powercut-watchdog".into()).spawn(move || {
            if gone.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                tracing::error!(?limit, "the power-cut disk is ended by its watchdog");
                if let Some(Err(error)) = session.upgrade().map(|session| end(&session)) {
                    tracing::error!(%error, "and cannot be unmounted");
                }
            }
        })?;
        Ok(Watchdog { _alive: alive })
    }

    /// Takes the mount away, whoever uses it; those get errors.
    pub fn end(&self) -> io::Result<()> {
        end(&self.session)
    }
}

impl Drop for PowerCutDisk {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "the power-cut disk could not be unmounted");
        }
    }
}

fn end(session: &Mutex<Option<Session>>) -> io::Result<()> {
    session.lock().take().map_or(Ok(()), |mut session| session.abort())
}

/// See [`PowerCutDisk::watchdog`].
pub struct Watchdog {
    _alive: mpsc::Sender<()>,
}
