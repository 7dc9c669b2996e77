//! Room under quotas for what makes a file longer, asked of the metadata server before bytes are taken into the buffer
//! (docs/design/0024-quotas.md): a quota is told by the write, and not by a later fsync or close.
//!
//! Costs nothing where nobody who pays for the file has a quota: the answer to its open says so. Else one message for each doubling of
//! the file, up to [`AHEAD_MAX`] at once, and one when it is closed.

use crate::core::{Core, Op};
use crate::inode::{FileState, Inode};
use crate::wait::{timed_out, wait_until};
use braid_api::Result;
use braid_api::meta::{OpenAnswer, ReturnRoom, TakeRoom};
use braid_types::InodeId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

const AHEAD_MIN: u64 = 1 << 20;
const AHEAD_MAX: u64 = 64 << 20;
/// The answer when there is no quota any more.
const UNLIMITED: u64 = u64::MAX;

/// Files whose room is on its way back. Not in their states: the last handle is closed, and a file is forgotten then.
#[derive(Default)]
pub struct Returns {
    under_way: Mutex<HashMap<InodeId, u32>>,
    answered: Notify,
}

impl Returns {
    fn begin(&self, id: InodeId) {
        *self.under_way.lock().entry(id).or_default() += 1;
    }

    fn end(&self, id: InodeId) {
        let mut under_way = self.under_way.lock();
        if let Some(count) = under_way.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&id);
            }
        }
        drop(under_way);
        self.answered.notify_waiters();
    }

    pub fn is_under_way(&self, id: InodeId) -> bool {
        self.under_way.lock().contains_key(&id)
    }
}

impl FileState {
    /// An answer says up to where the file is paid for. One to a reader does not say.
    pub fn hear_room(&mut self, answer: &OpenAnswer) {
        if let Some(room) = answer.room {
            self.paid = Some(room);
            self.room_noted |= answer.created && room > 0;
        }
    }

    /// What was heard may be from before room went back.
    pub fn doubt_room(&mut self) {
        self.paid = self.paid.map(|paid| paid.min(self.size));
    }

    /// The file was cut: nothing is paid for beyond its end.
    pub fn forget_room(&mut self, size: u64) {
        self.paid = self.paid.map(|_| size);
    }

    /// It is to become so long: what is missing.
    fn lacks_room(&self, end: u64) -> bool {
        self.paid.is_some_and(|paid| end > paid.max(self.attr.size).max(self.size))
    }
}

impl Core {
    /// Sees that the file may become so long.
    pub async fn pay(self: &Arc<Self>, inode: &Arc<Inode>, end: u64, op: Op) -> Result<()> {
        if !inode.state.lock().lacks_room(end) {
            return Ok(());
        }
        // A return that comes to the server behind this would take away what is granted here.
        let none = || (!self.returns.is_under_way(inode.id)).then_some(());
        if wait_until(&self.env, &self.returns.answered, op.deadline, none).await.is_none() {
            let cause = "room that it gave back under a quota is not answered for";
            return Err(timed_out(format_args!("file {}", inode.id), cause));
        }
        let ahead = end.clamp(AHEAD_MIN, AHEAD_MAX);
        let take = TakeRoom { inode: self.cache.inode(inode.id), until: end, wish: end.saturating_add(ahead) };
        let paid = self.call(take, op).await?;
        let mut state = inode.state.lock();
        state.paid = (paid != UNLIMITED).then_some(paid);
        state.room_noted |= state.paid.is_some();
        Ok(())
    }

    /// The last handle that may write is closed. Nobody waits for it: it goes back with the session at the latest.
    pub fn stop_paying(self: &Arc<Self>, inode: &Arc<Inode>) {
        // First, so that an open which is not seen here sees it.
        self.returns.begin(inode.id);
        if !self.may_return(inode) {
            self.returns.end(inode.id);
            return;
        }
        let (core, id, back) = (self.clone(), inode.id, ReturnRoom { inodes: vec![self.cache.inode(inode.id)] });
        self.env.spawn("room under a quota", async move {
            if let Err(error) = core.call(back, core.own_op()).await {
                tracing::debug!(%error, "room under a quota goes back with the session");
            }
            core.returns.end(id);
        });
    }

    /// Nobody writes or is about to, and there is something to go back: room, or the server's note that there was some.
    fn may_return(&self, inode: &Inode) -> bool {
        // In this order: who opens it counts as a writer before it has ceased to open.
        if self.inodes.is_opening_to_write(inode.id) {
            return false;
        }
        let mut state = inode.state.lock();
        let size = state.size;
        if state.writers > 0 || (!state.room_noted && state.paid.is_none_or(|paid| paid <= size)) {
            return false;
        }
        state.paid = state.paid.map(|_| size);
        state.room_noted = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(room: Option<u64>, created: bool) -> OpenAnswer {
        OpenAnswer { room, created, ..crate::inode::tests::answer(b"", 1) }
    }

    #[test]
    fn room_is_asked_for_beyond_what_is_paid_and_what_is_there() {
        let mut state = FileState::new(crate::cache::tests::attr(1));
        (state.size, state.attr.size) = (100, 50);
        assert!(!state.lacks_room(u64::MAX), "without a quota");
        state.hear_room(&answer(Some(200), false));
        state.hear_room(&answer(None, false));
        assert!(!state.lacks_room(200) && state.lacks_room(201));
        state.doubt_room();
        assert!(!state.lacks_room(100) && state.lacks_room(101), "room that may have gone back");
        state.hear_room(&answer(Some(200), false));
        state.forget_room(10);
        assert!(!state.lacks_room(100) && state.lacks_room(101));
        assert!(!state.room_noted, "the server has no note of a file that was there");
        state.hear_room(&answer(Some(0), true));
        assert!(!state.room_noted, "nor of no room");
        state.hear_room(&answer(Some(200), true));
        assert!(state.room_noted);
    }

    #[test]
    fn a_return_is_under_way_until_the_last_is_answered() {
        let returns = Returns::default();
        returns.begin(InodeId(7));
        returns.begin(InodeId(7));
        returns.end(InodeId(7));
        assert!(returns.is_under_way(InodeId(7)) && !returns.is_under_way(InodeId(8)));
        returns.end(InodeId(7));
        assert!(!returns.is_under_way(InodeId(7)));
    }
}
