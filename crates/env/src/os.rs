//! The operating system behind [`crate::Env`]: Linux, tokio, a small pool of I/O threads.
//!
//! Promises: the monotonic clock counts suspension; randomness is seeded by the kernel and good enough for ids
//! that nobody may guess; disk calls are what their POSIX names say and no more; sockets do not delay small
//! messages; blocking work never runs on the threads that serve sockets.

mod clock;
mod disk;
mod handing;
mod pool;
mod random;
mod transport;

pub use clock::OsClock;
pub use disk::{OsDisk, OsFile};
pub use pool::{IO_THREADS_DEFAULT, OsSpawn};
pub use random::OsRandom;
pub use transport::OsTransport;

use crate::Env;
use std::sync::Arc;

/// The operating system with [`IO_THREADS_DEFAULT`] I/O threads.
pub fn env() -> Env {
    env_with(IO_THREADS_DEFAULT)
}

/// The operating system with `io_threads` (at least 1) threads for blocking work. Tasks run on the tokio runtime
/// this is called in, or else on the one each of them is spawned from.
pub fn env_with(io_threads: usize) -> Env {
    Env {
        clock: Arc::new(OsClock),
        random: Arc::new(OsRandom),
        disk: Arc::new(OsDisk),
        transport: Arc::new(OsTransport),
        spawner: Arc::new(OsSpawn::new(io_threads)),
    }
}

impl Env {
    /// See [`env`].
    pub fn os() -> Env {
        env()
    }
}
