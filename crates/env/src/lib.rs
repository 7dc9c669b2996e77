//! Everything that comes from outside: clock, randomness, disk, network, tasks.
//!
//! Servers and clients receive an [`Env`] and touch the outside through nothing else, so that the same code
//! runs on the operating system ([`os`]) and in the simulator, whose world is a seed. The LMDB crate behind the
//! engine trait is the one exception. Timers are tokio's in both worlds; the simulator pauses and steps them.

mod board;
mod clock;
mod disk;
pub mod os;
pub mod outcome;
mod random;
mod read_only;
pub mod simdisk;
mod spawn;
mod transport;
mod waiting;

pub use board::{Board, BoardView};
pub use clock::{Clock, Monotonic};
pub use disk::{Disk, DiskDirEntry, DiskFile, DiskLock, DiskSpace, OpenMode};
pub use random::Random;
pub use spawn::{Spawn, TaskHandle};
pub use transport::{Address, AddressError, Connection, FILES_OF_A_TICKET_MAX, Listener, Tickets, Transport};
pub use waiting::{WaitPlace, may_wait_during};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The outside world of one process. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub disk: Arc<dyn Disk>,
    pub transport: Arc<dyn Transport>,
    pub spawner: Arc<dyn Spawn>,
}

/// A wait that ended because its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline passed")]
pub struct TimedOut;

impl Env {
    /// Starts a task that runs until it ends or the process does. `name` is shown in diagnostics.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> TaskHandle {
        self.spawner.spawn(name, Box::pin(task))
    }

    /// Runs `work`, which may block on the disk, on the I/O threads. The result is lost only if the process
    /// is going down, when the future never ends; callers hold a deadline anyway.
    pub async fn blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (send, receive) = tokio::sync::oneshot::channel();
        // What it logs belongs to the request it works for.
        let span = tracing::Span::current();
        self.spawner.run_blocking(Box::new(move || {
            let _ = send.send(span.in_scope(work));
        }));
        match receive.await {
            Ok(value) => value,
            Err(_) => std::future::pending().await,
        }
    }

    pub async fn sleep(&self, duration: std::time::Duration) {
        self.clock.sleep(duration).await;
    }

    /// `future`, but no longer than `duration`.
    pub async fn timeout<T>(
        &self,
        duration: std::time::Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, TimedOut> {
        tokio::select! {
            biased;
            value = future => Ok(value),
            () = self.clock.sleep(duration) => Err(TimedOut),
        }
    }
}
