//! What is held of files, under the lock of the rest.

use super::{Cache, moment};
use crate::inode::Inode;
use braid_env::Monotonic;
use braid_lease::{Generation, Key, Mode, Moment, Want};
use braid_types::{Attr, InodeId};
use std::sync::Arc;

/// A file that may be opened without a question.
pub struct Known {
    pub attr: Attr,
    /// Of the lease it is held under: a map that was given with another may be old.
    pub number: Generation,
    /// What was kept of it, if it is not open.
    pub kept: Option<Arc<Inode>>,
}

impl Cache {
    /// An operation on the file's bytes may begin.
    pub fn may_use(&self, inode: InodeId, want: Want, now: Monotonic) -> bool {
        self.maps.lock().leases.may_use(moment(now), inode, want).is_some()
    }

    /// All that an open would be told of the file, if a handle that wants this may be given out now.
    pub fn known(&self, inode: InodeId, want: Want, now: Monotonic) -> Option<Known> {
        let mut maps = self.maps.lock();
        if maps.gone.get(&inode).is_some() || maps.is_changing(|| Key::Attr(inode)) {
            return None;
        }
        let number = maps.leases.held_as(moment(now), inode, want)?;
        let attr = *maps.attrs.get(&inode)?;
        if !maps.leases.may_serve(moment(now), &Key::Attr(inode)) {
            return None;
        }
        Some(Known { attr, number, kept: maps.kept.take(inode, number) })
    }

    /// The file was closed and all of it is saved. `number`: of the lease that its map came with; `bytes`: of it in the map.
    pub fn keep_file(&self, inode: Arc<Inode>, number: Generation, bytes: usize, now: Monotonic) {
        let mut maps = self.maps.lock();
        if maps.leases.held_as(moment(now), inode.id, Want::Read) == Some(number) && maps.gone.get(&inode.id).is_none()
        {
            maps.kept.insert(inode, number, bytes);
        }
    }

    /// Others write it at the same time.
    pub fn is_shared(&self, inode: InodeId) -> bool {
        self.maps.lock().leases.file(inode).0 == Mode::Sync
    }

    /// Some lease on the file is held, or was when its time ended.
    pub fn holds_file(&self, inode: InodeId) -> bool {
        self.maps.lock().leases.file(inode).0 != Mode::None
    }

    /// The token that a change of its bytes carries, if one may be sent now.
    pub fn may_send(&self, inode: InodeId, now: Monotonic) -> Option<Generation> {
        self.maps.lock().leases.may_send(moment(now), inode)
    }

    /// The lease is held, though it may be on its way out.
    pub fn has_file(&self, inode: InodeId, want: Want, now: Monotonic) -> bool {
        self.maps.lock().leases.has(moment(now), inode, want)
    }

    /// Locks on the file may be granted here now.
    pub fn may_lock(&self, inode: InodeId, now: Monotonic) -> bool {
        self.maps.lock().leases.may_lock(moment(now), inode)
    }

    /// The slot holder leaves the file's locks to this client, or did until what it is about to be told.
    pub fn grants_locks(&self, inode: InodeId) -> bool {
        self.maps.lock().leases.grants_locks(inode)
    }

    /// The answer to a recall gives up more than it asks for.
    pub fn keep_at_most(&self, inode: InodeId, number: Generation, to: Mode) {
        self.maps.lock().leases.keep_at_most(inode, number, to);
    }

    /// What is held was granted once more.
    pub fn said_again(&self, inode: InodeId, mode: Mode, generation: Generation, token: Generation) {
        self.maps.lock().leases.said_again(inode, mode, generation, token);
    }

    /// A recall of the file is being carried out.
    pub fn is_flushing(&self, inode: InodeId) -> bool {
        self.maps.lock().leases.is_flushing(inode)
    }

    /// Files that are held, to be told to a new slot holder. Those that are not `needed` are given up with that.
    pub fn reassertion(&self, needed: impl Fn(InodeId) -> bool) -> Vec<(InodeId, Mode)> {
        let mut maps = self.maps.lock();
        let (kept, gone): (Vec<_>, Vec<_>) =
            maps.leases.reassertion().into_iter().partition(|(inode, _)| needed(*inode));
        gone.into_iter().for_each(|(inode, _)| maps.leases.forget_file(inode));
        kept
    }

    /// When [`Seen::Tick`] is due.
    pub fn wakeup(&self) -> Option<Moment> {
        self.maps.lock().leases.wakeup()
    }
}
