//! The FUSE door: a [`FileSystem`](braid_api::FileSystem) as a directory of this machine.
//!
//! [`mount()`] takes any file system, [`MountConfig`] says how, [`Mount`] lives as long as the mount. The door translates
//! and decides nothing: names, numbers, flags, errors and times of the kernel on one side, `braid_api` on the other.
//! Permissions are the kernel's (`default_permissions` and POSIX ACLs); `errno` is the one place that knows errno.
//!
//! Promises: every request is answered once; an answer that is at hand costs no change of task (`run`), one that is
//! not never holds a FUSE thread; time-outs given to the kernel are those of the file system, never longer; a signal
//! ends a wait for a lock and nothing else. What POSIX asks and this door does not give is in `docs/posix.md`.

mod asked;
mod caller;
mod config;
mod convert;
mod door;
mod ends;
mod errno;
mod handles;
mod interrupts;
mod invalidator;
mod mount;
mod ops;
mod paged;
mod passing;
mod privileges;
mod run;
mod stats;
mod told;
mod waiting;
mod watcher;

pub use config::{KillPrivileges, LockMode, MountConfig};
pub use errno::errno_of;
pub use invalidator::Invalidator;
pub use mount::{Mount, mount};
pub use stats::Stats;
pub use waiting::WaitingRequests;
