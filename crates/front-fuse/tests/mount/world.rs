use braid_env::Env;
use braid_front_fuse::{Mount, MountConfig, mount};
use braid_model::{Clock, Model};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::Runtime;

/// No test takes longer; one that does is stuck, and its mount is aborted so that nothing hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted model.
pub struct World {
    pub dir: PathBuf,
    pub model: Arc<Model>,
    pub runtime: Runtime,
    pub mounted: Mount,
}

impl World {
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Runs `test` on a mount of a new model whose answers may be kept for `valid`.
pub fn with_world(config: MountConfig, valid: Duration, test: impl FnOnce(&World) + Send + 'static) {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("not tested: needs root and /dev/fuse");
        return;
    }
    let here = tempfile::tempdir().expect("a directory to mount at");
    let dir = here.path().to_owned();
    // Other users must get there.
    rustix::fs::chmod(&dir, rustix::fs::Mode::from(0o755)).expect("chmod");
    let runtime = Runtime::new().expect("a runtime");
    let clock = Env::os().clock;
    let model = Arc::new(Model::new(Clock::outside(move || clock.wall())).with_valid(valid));
    let mounted = mount(model.clone(), runtime.handle().clone(), &dir, &config).expect("a mount");
    let world = Arc::new(World { dir, model, runtime, mounted });
    let (send, receive) = mpsc::channel();
    let running = world.clone();
    std::thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| test(&running)));
        drop(running);
        let _ = send.send(result);
    });
    let result = receive.recv_timeout(PATIENCE);
    // The mount goes even if the test is stuck in it; what is left of the test then fails.
    let _ = rustix::mount::unmount(here.path(), rustix::mount::UnmountFlags::DETACH);
    match result {
        Ok(Ok(())) => drop(world),
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => {
            // Dropping the runtime would wait for the threads that are stuck.
            std::mem::forget(world);
            panic!("not over after {PATIENCE:?}");
        }
    }
}

pub fn on_mount(test: impl FnOnce(&World) + Send + 'static) {
    with_world(MountConfig::default(), Duration::from_secs(1), test);
}

pub fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(-1),
    }
}

/// The result of a system call that returns -1.
pub fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn open(path: &Path, flags: i32) -> io::Result<File> {
    let access = flags & libc::O_ACCMODE;
    let mut options = File::options();
    options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY).mode(0o644);
    options.custom_flags(flags & !(libc::O_ACCMODE | libc::O_CREAT | libc::O_EXCL));
    if flags & libc::O_CREAT != 0 {
        if flags & libc::O_EXCL != 0 {
            options.create_new(true)
        } else {
            options.create(true)
        };
    }
    options.open(path)
}

/// Runs `act` on a thread of its own that is user `uid` with `gid` and further `groups`. The raw system calls change
/// the one thread only.
pub fn as_user<T: Send>(uid: u32, gid: u32, groups: &[u32], act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: the calls take numbers and an array that outlives them.
            unsafe {
                checked(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr())).expect("setgroups");
                checked(libc::syscall(libc::SYS_setresgid, gid, gid, gid)).expect("setresgid");
                checked(libc::syscall(libc::SYS_setresuid, uid, uid, uid)).expect("setresuid");
            }
            act()
        });
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
