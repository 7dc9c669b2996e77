use braid_fuse_kernel::{Config, InitFlags, MountOptions};

/// Who keeps fcntl and flock locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// This machine's kernel: fast, and unseen by other mounts.
    Kernel,
    /// The file system: every mount sees them.
    #[default]
    FileSystem,
}

/// Who clears setuid and setgid when somebody without privilege writes, truncates or changes the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KillPrivileges {
    /// The kernel asks for `security.capability` before each write and sends a change of attributes when needed.
    Kernel,
    /// The door, which asks once a handle: 4 KiB writes are 1.5 times as fast, 1 MiB ones twice (dd on the model).
    /// Capabilities that another mount gives a file while it is open here stay until it is opened again.
    #[default]
    Door,
}

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// Shown by `mount` as the source.
    pub source: String,
    pub read_only: bool,
    pub allow_other: bool,
    /// Threads that read requests. They answer what is at hand; what is not at hand goes to the runtime, but for reads of a data server's
    /// files on this host: for these all threads but one may wait for the disk. Measured: 4 with a queue each served 46 k creates and
    /// 119 k opens a second.
    pub threads: usize,
    /// Largest write and read: 1 MiB is the kernel's limit (256 pages) and where throughput stops rising.
    pub write_bytes_max: u32,
    /// Read-ahead: 128 KiB, the kernel's default, halves sequential reads (measured: 1.9 against 3.1 GB/s).
    pub read_ahead_bytes: u32,
    /// Requests nobody waits for (read-ahead, write-back) under way: 64 x 1 MiB fills a 10 Gbit/s link for 50 ms; the
    /// kernel's 12 leaves it idle between answers.
    pub background_max: u16,
    /// An open with O_TRUNC truncates in the same request. That saves one request for each file that is overwritten, but
    /// with O_RDONLY|O_TRUNC it comes before the kernel sees that the file is a running program: the open then fails
    /// with ETXTBSY and the program is gone.
    pub truncate_in_open: bool,
    pub locks: LockMode,
    pub kill_privileges: KillPrivileges,
    /// The kernel reads files that cannot change without asking, where the file system knows the file beneath. It must be allowed to
    /// administer the system, and to Linux the mount lies on another file system then, as an overlay does.
    pub passthrough: bool,
    /// Requests come by io_uring where root has switched that on in the kernel (docs/design/0001-own-fuse-channel.md).
    pub io_uring: bool,
    /// What the file system keeps of written bytes at most: memory for more is given back.
    pub kept_bytes: u64,
}

impl Default for MountConfig {
    fn default() -> Self {
        MountConfig {
            source: "braid".to_owned(),
            read_only: false,
            allow_other: true,
            threads: 8,
            write_bytes_max: 1 << 20,
            read_ahead_bytes: 1 << 20,
            background_max: 64,
            truncate_in_open: false,
            locks: LockMode::default(),
            kill_privileges: KillPrivileges::default(),
            passthrough: true,
            io_uring: true,
            kept_bytes: 256 << 20,
        }
    }
}

impl MountConfig {
    pub(crate) fn options(&self) -> MountOptions {
        MountOptions {
            fsname: self.source.clone(),
            allow_other: self.allow_other,
            read_only: self.read_only,
            ..MountOptions::default()
        }
    }

    pub(crate) fn protocol(&self) -> Config {
        let mut config = Config {
            max_write: self.write_bytes_max,
            max_readahead: self.read_ahead_bytes,
            read_ahead_kb: Some(self.read_ahead_bytes / 1024),
            kept_bytes: self.kept_bytes,
            max_background: self.background_max,
            // From three quarters on the kernel calls the device congested.
            congestion_threshold: self.background_max - self.background_max / 4,
            ..Config::default()
        };
        // The file system says when cached pages are void. Else the kernel would drop a file's pages whenever its mtime
        // has changed, and this mount's own writes change it too.
        config = config.with(InitFlags::EXPLICIT_INVAL_DATA);
        if !self.truncate_in_open {
            config = config.without(InitFlags::ATOMIC_O_TRUNC);
        }
        if self.locks == LockMode::FileSystem {
            config = config.with(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS);
        }
        if self.passthrough {
            config = config.with(InitFlags::PASSTHROUGH);
        }
        if self.io_uring {
            config = config.with(InitFlags::OVER_IO_URING);
        }
        if self.kill_privileges == KillPrivileges::Door {
            config = config.with(InitFlags::HANDLE_KILLPRIV_V2);
        }
        config
    }
}
