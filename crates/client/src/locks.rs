//! Advisory locks. One mount keeps its own; the slot holder takes this place when several have to agree.

use braid_api::{Code, Error, LockKind, LockRequest, LockSpace, Result};
use braid_posix::locks::{Flavour, Lock, LockTable, Outcome, Ticket};
use braid_types::{ByteRange, InodeId};
use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::oneshot;

struct Space {
    table: LockTable<InodeId, u64>,
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
}

impl Space {
    fn new(flavour: Flavour) -> Mutex<Space> {
        Mutex::new(Space { table: LockTable::new(flavour), waiting: HashMap::new() })
    }

    fn wake(&mut self, granted: Vec<Ticket>) {
        for ticket in granted {
            if let Some(waiter) = self.waiting.remove(&ticket) {
                let _ = waiter.send(());
            }
        }
    }
}

pub struct Locks {
    posix: Mutex<Space>,
    flock: Mutex<Space>,
}

impl Default for Locks {
    fn default() -> Self {
        Locks { posix: Space::new(Flavour::Posix), flock: Space::new(Flavour::Flock) }
    }
}

/// A place in a queue, left when its caller is gone.
struct Queued<'a> {
    space: &'a Mutex<Space>,
    file: InodeId,
    owner: u64,
    range: ByteRange,
    ticket: Ticket,
    done: bool,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut space = self.space.lock();
        space.waiting.remove(&self.ticket);
        let (waited, mut granted) = space.table.cancel(self.file, self.ticket);
        if !waited {
            // It was granted in the same moment: nobody would ever free it.
            granted = space.table.release(self.file, self.owner, self.range);
        }
        space.wake(granted);
    }
}

fn as_lock(request: &LockRequest) -> Lock<u64> {
    let exclusive = request.kind == LockKind::Write;
    Lock { owner: request.owner, pid: request.pid, exclusive, range: request.range }
}

impl Locks {
    fn space(&self, space: LockSpace) -> &Mutex<Space> {
        match space {
            LockSpace::Posix => &self.posix,
            LockSpace::Flock => &self.flock,
        }
    }

    pub fn test(&self, file: InodeId, request: LockRequest) -> Option<LockRequest> {
        if request.kind == LockKind::Unlock {
            // Nothing stands in its way.
            return None;
        }
        let space = self.space(request.space).lock();
        let held = space.table.test(file, &as_lock(&request))?;
        let kind = if held.exclusive { LockKind::Write } else { LockKind::Read };
        Some(LockRequest { space: request.space, owner: held.owner, pid: held.pid, kind, range: held.range })
    }

    /// Waits until granted, or as long as the caller does.
    pub async fn set(&self, file: InodeId, request: LockRequest, wait: bool) -> Result<()> {
        let space = self.space(request.space);
        let (ticket, granted) = {
            let mut space = space.lock();
            if request.kind == LockKind::Unlock {
                let granted = space.table.release(file, request.owner, request.range);
                space.wake(granted);
                return Ok(());
            }
            let (outcome, others) = space.table.acquire(file, as_lock(&request), wait);
            space.wake(others);
            match outcome {
                Outcome::Granted => return Ok(()),
                Outcome::WouldBlock => return Err(Error::bare(Code::WouldBlock)),
                Outcome::Deadlock => return Err(Error::bare(Code::Deadlock)),
                Outcome::Waiting(ticket) => {
                    let (send, receive) = oneshot::channel();
                    space.waiting.insert(ticket, send);
                    (ticket, receive)
                }
            }
        };
        let mut queued = Queued { space, file, owner: request.owner, range: request.range, ticket, done: false };
        let answer = granted.await;
        queued.done = answer.is_ok();
        answer.map_err(|_| Error::bare(Code::Interrupted))
    }

    /// The open file that took flock locks was closed.
    pub fn release_flock(&self, file: InodeId, owner: u64) {
        let mut space = self.flock.lock();
        let granted = space.table.release_owner(file, owner);
        space.wake(granted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(owner: u64, kind: LockKind) -> LockRequest {
        LockRequest { space: LockSpace::Posix, owner, pid: 1, kind, range: ByteRange::new(0, 10) }
    }

    #[tokio::test]
    async fn a_waiter_that_goes_away_holds_nothing() {
        let locks = Locks::default();
        let file = InodeId(1);
        locks.set(file, request(1, LockKind::Write), false).await.unwrap();
        let refused = locks.set(file, request(2, LockKind::Read), false).await;
        assert_eq!(refused.unwrap_err().code, Code::WouldBlock);
        let gone = locks.set(file, request(2, LockKind::Write), true);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), gone).await.is_err());
        let third = locks.set(file, request(3, LockKind::Write), true);
        let (_, third) = tokio::join!(locks.set(file, request(1, LockKind::Unlock), false), third);
        third.unwrap();
        assert_eq!(locks.test(file, request(1, LockKind::Read)).unwrap().owner, 3);
    }
}
