//! Room under quotas for what makes a file longer, asked of the metadata server before bytes are taken into the buffer
//! (docs/design/0024-quotas.md): a quota is told by the write, and not by a later fsync or close.
//!
//! Costs nothing where nobody who pays for the file has a quota: the answer to its open says so. Else one message for each doubling of
//! the file, up to [`AHEAD_MAX`] at once, and one when it is closed.

use crate::core::{Core, Op};
use crate::inode::{FileState, Inode};
use braid_api::Result;
use braid_api::meta::{ReturnRoom, TakeRoom};
use std::sync::Arc;

const AHEAD_MIN: u64 = 1 << 20;
const AHEAD_MAX: u64 = 64 << 20;
/// The answer when there is no quota any more.
const UNLIMITED: u64 = u64::MAX;

impl FileState {
    /// An answer says up to where the file is paid for. One to a reader does not say.
    pub fn hear_room(&mut self, room: Option<u64>) {
        if room.is_some() {
            self.paid = room;
        }
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
        let ahead = end.clamp(AHEAD_MIN, AHEAD_MAX);
        let take = TakeRoom { inode: self.cache.inode(inode.id), until: end, wish: end.saturating_add(ahead) };
        let paid = self.call(take, op).await?;
        inode.state.lock().paid = (paid != UNLIMITED).then_some(paid);
        Ok(())
    }

    /// The last handle that may write is closed. Nobody waits for it: it goes back with the session at the latest.
    pub fn stop_paying(self: &Arc<Self>, inode: &Arc<Inode>) {
        {
            let mut state = inode.state.lock();
            let size = state.size;
            if state.writers > 0 || state.paid.is_none_or(|paid| paid <= size) {
                return;
            }
            state.paid = Some(size);
        }
        let (core, back) = (self.clone(), ReturnRoom { inodes: vec![self.cache.inode(inode.id)] });
        self.env.spawn("room under a quota", async move {
            if let Err(error) = core.call(back, core.own_op()).await {
                tracing::debug!(%error, "room under a quota goes back with the session");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_asked_for_beyond_what_is_paid_and_what_is_there() {
        let mut state = FileState::new(crate::cache::tests::attr(1));
        (state.size, state.attr.size) = (100, 50);
        assert!(!state.lacks_room(u64::MAX), "without a quota");
        state.hear_room(Some(200));
        state.hear_room(None);
        assert!(!state.lacks_room(200) && state.lacks_room(201));
        state.forget_room(10);
        assert!(!state.lacks_room(100) && state.lacks_room(101));
    }
}
