//! A mount for a test, which never outlives it.

// Helpers of tests unwrap as the tests do.
#![allow(clippy::unwrap_used)]

use crate::memory::Memory;
use braid_fuse_kernel::{Channel, Config, InitFlags, MountOptions, Notifier, Session, serve};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

pub const LIMIT: Duration = Duration::from_secs(30);

/// What a test works with.
pub struct Fixture {
    pub point: PathBuf,
    pub memory: Arc<Memory>,
    pub notifier: Notifier,
    /// Not for waiting in: it is wanted to end what hangs.
    pub session: Arc<Mutex<Session>>,
}

pub fn mounted(config: &Config) -> Option<(tempfile::TempDir, Arc<Memory>, Session)> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("not tested: needs root and /dev/fuse");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::default());
    let channel = Channel::mount(dir.path(), &MountOptions::default()).unwrap();
    let session = serve(channel, &config.clone().with(InitFlags::OVER_IO_URING), 3, memory.clone()).unwrap();
    // Where root has switched it on, this is what is tested.
    let switch = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring").unwrap_or_default();
    let is_over_uring = session.negotiated().flags.contains(InitFlags::OVER_IO_URING);
    assert_eq!(is_over_uring, switch.trim() == "Y");
    Some((dir, memory, session))
}

/// Runs `work`; false when it does not end in time. A panic of `work` is passed on.
pub fn in_time(work: impl FnOnce() + Send + 'static) -> bool {
    let (send, receive) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        let _ = send.send(());
    });
    match receive.recv_timeout(LIMIT) {
        Err(mpsc::RecvTimeoutError::Timeout) => false,
        _ => worker.join().map(|()| true).unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

pub fn with_mount(config: Config, work: impl FnOnce(Fixture) + Send + 'static) {
    let Some((dir, memory, session)) = mounted(&config) else { return };
    let (point, notifier, session) = (dir.path().to_owned(), session.notifier(), Arc::new(Mutex::new(session)));
    let fixture = Fixture { point, memory: memory.clone(), notifier, session: session.clone() };
    if !in_time(move || work(fixture)) {
        let _ = session.lock().abort();
        panic!("no end within {LIMIT:?}");
    }
    session.lock().detach().unwrap();
    Arc::into_inner(session).unwrap().into_inner().join();
    assert_eq!(memory.destroyed.load(Ordering::Relaxed), 1);
}
