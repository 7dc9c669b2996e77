use braid_api::{Code, HandleId, LockKind, LockRequest, LockSpace, Result};
use braid_posix::locks::{Flavour, Lock, LockTable, Outcome, Ticket};
use braid_types::InodeId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The tables of locks and who waits for them.
pub struct Locks {
    spaces: [Mutex<Space>; 2],
}

struct Space {
    table: LockTable<InodeId, u64>,
    waiting: HashMap<Ticket, Waiting>,
    /// flock owners by the handle they came through, which ends them.
    by_handle: HashMap<HandleId, Vec<u64>>,
}

enum Waiting {
    Queued(Option<Waker>),
    Granted,
}

impl Space {
    fn new(flavour: Flavour) -> Mutex<Self> {
        Mutex::new(Space { table: LockTable::new(flavour), waiting: HashMap::new(), by_handle: HashMap::new() })
    }

    fn grant(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            if let Some(Waiting::Queued(Some(waker))) = self.waiting.insert(ticket, Waiting::Granted) {
                waker.wake();
            }
        }
    }
}

impl Default for Locks {
    fn default() -> Self {
        Locks { spaces: [Space::new(Flavour::Posix), Space::new(Flavour::Flock)] }
    }
}

fn lock_of(request: &LockRequest) -> Lock<u64> {
    Lock { owner: request.owner, pid: request.pid, exclusive: request.kind == LockKind::Write, range: request.range }
}

impl Locks {
    fn space(&self, space: LockSpace) -> &Mutex<Space> {
        match space {
            LockSpace::Posix => &self.spaces[0],
            LockSpace::Flock => &self.spaces[1],
        }
    }

    pub fn test(&self, id: InodeId, request: &LockRequest) -> Option<LockRequest> {
        if request.kind == LockKind::Unlock {
            return None;
        }
        let held = self.space(request.space).lock().table.test(id, &lock_of(request))?;
        let kind = if held.exclusive { LockKind::Write } else { LockKind::Read };
        Some(LockRequest { space: request.space, owner: held.owner, pid: held.pid, kind, range: held.range })
    }

    pub async fn set(&self, handle: HandleId, id: InodeId, request: LockRequest, wait: bool) -> Result<()> {
        let ticket = {
            let mut space = self.space(request.space).lock();
            if request.kind == LockKind::Unlock {
                let granted = space.table.release(id, request.owner, request.range);
                space.grant(granted);
                return Ok(());
            }
            let (outcome, granted) = space.table.acquire(id, lock_of(&request), wait);
            space.grant(granted);
            if request.space == LockSpace::Flock {
                space.by_handle.entry(handle).or_default().push(request.owner);
            }
            match outcome {
                Outcome::Granted => return Ok(()),
                Outcome::WouldBlock => return Err(Code::WouldBlock.into()),
                Outcome::Deadlock => return Err(Code::Deadlock.into()),
                Outcome::Waiting(ticket) => {
                    space.waiting.insert(ticket, Waiting::Queued(None));
                    ticket
                }
            }
        };
        Wait { space: self.space(request.space), id, request, ticket, done: false }.await;
        Ok(())
    }

    /// The handle was closed.
    pub fn released(&self, handle: HandleId, id: InodeId) {
        let mut space = self.space(LockSpace::Flock).lock();
        for owner in space.by_handle.remove(&handle).into_iter().flatten() {
            let granted = space.table.release_owner(id, owner);
            space.grant(granted);
        }
    }
}

/// Waits for a ticket; dropped before its time, it leaves the queue.
struct Wait<'a> {
    space: &'a Mutex<Space>,
    id: InodeId,
    request: LockRequest,
    ticket: Ticket,
    done: bool,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let space = self.space;
        let mut space = space.lock();
        match space.waiting.get_mut(&self.ticket) {
            Some(Waiting::Queued(waker)) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(Waiting::Granted) | None => {
                space.waiting.remove(&self.ticket);
                self.done = true;
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut space = self.space.lock();
        space.waiting.remove(&self.ticket);
        let (waited, mut granted) = space.table.cancel(self.id, self.ticket);
        if !waited {
            // Granted in the same instant: nobody will ever learn that it was, so it is given back.
            granted = space.table.release(self.id, self.request.owner, self.request.range);
        }
        space.grant(granted);
    }
}
