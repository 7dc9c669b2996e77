//! Connections that are ready for use, and what happens to one whose user has gone.
//!
//! A connection that comes back in the middle of a transaction is rolled back before anybody else gets it, without its user
//! waiting; one that comes back in the middle of a message is closed, which makes the database roll it back.

use crate::failure::{Cause, Failed};
use crate::options::SqlOptions;
use crate::session::{Done, Message, Session};
use crate::settle::Mark;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A connection is not used for longer: its row in `marks` lives longer by far, and a server that was drained is left.
const USED_FOR: Duration = Duration::from_secs(3600);

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Each has a row in `marks`.
    Transactions,
    Reading,
}

pub(crate) struct Pool {
    options: SqlOptions,
    /// Sent on each new connection before it is used, with its mark.
    set_up: Vec<String>,
    shared: Arc<Shared>,
}

struct Shared {
    /// The last to come back is the first to be taken: of many, few are kept warm.
    idle: Mutex<Vec<Session>>,
    users: Arc<Semaphore>,
    /// Which address new connections go to.
    address: AtomicUsize,
    through_proxy: bool,
}

impl Pool {
    pub fn new(options: SqlOptions, set_up: Vec<String>, address: usize) -> Pool {
        let shared = Shared {
            idle: Mutex::default(),
            users: Arc::new(Semaphore::new(options.connections_max)),
            address: AtomicUsize::new(address),
            through_proxy: options.through_proxy,
        };
        Pool { options, set_up, shared: Arc::new(shared) }
    }

    /// The server in use.
    pub fn address(&self) -> usize {
        self.shared.address.load(Relaxed)
    }

    /// A connection, when one is free.
    pub async fn lease(&self) -> Result<Lease, Cause> {
        let wait = timeout(self.options.give_up_after, self.shared.users.clone().acquire_owned());
        let busy = || Cause::NotNow(format!("all {} connections are busy", self.options.connections_max));
        let permit = wait.await.ok().and_then(Result::ok).ok_or_else(busy)?;
        self.take(Some(permit)).await
    }

    /// One beside the others: all of them may wait for what this one is to find out.
    pub async fn lease_for_settling(&self) -> Result<Lease, Cause> {
        self.take(None).await
    }

    /// A connection that is none of the pool's: for a snapshot, which is kept for long.
    pub async fn connect_apart(&self) -> Result<Session, Cause> {
        self.connect(self.address(), Use::Reading).await
    }

    async fn take(&self, permit: Option<OwnedSemaphorePermit>) -> Result<Lease, Cause> {
        let address = self.address();
        let idle = std::iter::from_fn(|| self.shared.idle.lock().pop());
        let young = |session: &Session| session.born.elapsed() < USED_FOR && session.address == address;
        let session = match idle.into_iter().find(young) {
            Some(session) => session,
            None => self.connect(address, Use::Transactions).await?,
        };
        Ok(Lease { session: Some(session), open: false, spent: false, permit, shared: self.shared.clone() })
    }

    /// To the server in use, or else to the next that answers, which then is the one in use.
    async fn connect(&self, first: usize, to: Use) -> Result<Session, Cause> {
        let all = self.options.addresses.len();
        let mut last = Cause::Lost("there is no server".into());
        for address in (first..first + all).map(|address| address % all) {
            match self.connect_to(address, to).await {
                Ok(session) => {
                    if address != first && self.shared.address.swap(address, Relaxed) != address {
                        tracing::warn!(server = %self.options.addresses[address], "another server is used from now on");
                    }
                    return Ok(session);
                }
                Err(cause) => last = cause,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, address: usize, to: Use) -> Result<Session, Cause> {
        let mut session = Session::connect(&self.options, address, true).await?;
        let mut message = Message::of(&self.set_up);
        if to == Use::Transactions {
            session.mark = Mark::new();
            message.push(&session.mark.create());
        } else if self.set_up.iter().any(|statement| statement.contains("idle_transaction_timeout")) {
            // Who reads an answer slowly holds no rows, and whoever asks for it ends it at a deadline.
            message.push("SET SESSION idle_transaction_timeout=0");
        }
        session.run(&message).await.map_err(|failed| failed.cause)?;
        Ok(session)
    }
}

/// A connection in use. However it is dropped, nobody meets what its user left.
pub(crate) struct Lease {
    session: Option<Session>,
    /// A transaction is open.
    open: bool,
    /// It is not to be used again.
    spent: bool,
    permit: Option<OwnedSemaphorePermit>,
    shared: Arc<Shared>,
}

impl Lease {
    /// Sends a message after which a transaction is open, or may be.
    pub async fn run_open(&mut self, message: &Message) -> Result<Vec<Done>, Failed> {
        self.open = true;
        self.run(message).await
    }

    /// Sends a message after which, if it succeeds, no transaction is open.
    pub async fn run_whole(&mut self, message: &Message) -> Result<Vec<Done>, Failed> {
        self.open = true;
        let done = self.run(message).await?;
        self.open = false;
        Ok(done)
    }

    /// Sends a message that leaves things as they are.
    pub async fn run(&mut self, message: &Message) -> Result<Vec<Done>, Failed> {
        let Some(session) = &mut self.session else {
            return Err(Failed { done: 0, cause: Cause::Lost("the connection was given back".into()) });
        };
        let ran = session.run(message).await;
        if let Err(failed) = &ran {
            // A proxy may have chosen another server for it since; and who does not serve now is not asked again.
            self.spent |= (failed.cause == Cause::Deadlock && self.shared.through_proxy)
                || matches!(failed.cause, Cause::NotNow(_) | Cause::Lost(_));
            if failed.cause.is_lost() {
                // The others went to the same server: each would cost an attempt to find out.
                let others = std::mem::take(&mut *self.shared.idle.lock());
                drop(others);
            }
        }
        ran
    }

    pub fn mark(&self) -> Mark {
        self.session.as_ref().map_or(Mark::none(), |session| session.mark)
    }

    /// A transaction with this mark has committed.
    pub fn set_mark(&mut self, mark: Mark) {
        if let Some(session) = &mut self.session {
            session.mark = mark;
        }
    }

    /// Nobody is to use the connection again.
    pub fn spend(&mut self) {
        self.spent = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        if self.spent || !session.is_usable() {
            return;
        }
        if !self.open {
            self.shared.idle.lock().push(session);
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, permit) = (self.shared.clone(), self.permit.take());
        runtime.spawn(async move {
            if session.run(&Message::of(["ROLLBACK"])).await.is_ok() {
                shared.idle.lock().push(session);
            }
            drop(permit);
        });
    }
}
