//! What is held of files, under the lock of the rest.

use super::{Cache, Ticket, mode_of_file, moment};
use crate::inode::Inode;
use braid_env::Monotonic;
use braid_lease::{Generation, KeyRef, Mode, Moment, Want};
use braid_types::{Attr, InodeId, MemberId};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// A file that may be opened without a question.
pub struct Known {
    pub attr: Attr,
    /// Of the lease it is held under: a map that was given with another may be old.
    pub number: Generation,
    /// What was kept of it, if it is not open.
    pub kept: Option<Arc<Inode>>,
    /// When this was so.
    ticket: Ticket,
}

impl Cache {
    /// An operation on the file's bytes may begin.
    pub fn may_use(&self, inode: InodeId, want: Want, now: Monotonic) -> bool {
        self.maps.lock().leases.of(inode).is_some_and(|held| held.may_use(moment(now), inode, want).is_some())
    }

    /// All that an open would be told of the file, if a handle that wants this may be given out now. What was kept is in nobody's table from
    /// here on: once it is in one again, [`Cache::is_still_known`] is to be asked.
    pub fn known(&self, inode: InodeId, want: Want, now: Monotonic) -> Option<Known> {
        let mut maps = self.maps.lock();
        if maps.gone.get(&inode).is_some() || maps.is_changing(KeyRef::Attr(inode)) {
            return None;
        }
        // Its name may be going.
        let place = maps.places.get(&inode).cloned();
        if place.is_some_and(|(dir, name)| maps.is_changing(KeyRef::Name(dir, &name))) {
            return None;
        }
        let number = maps.leases.of(inode)?.held_as(moment(now), inode, want)?;
        let attr = *maps.attrs.get(&inode)?;
        if !maps.leases.may_serve(moment(now), KeyRef::Attr(inode)) {
            return None;
        }
        let ticket = Ticket(self.moment.load(SeqCst));
        Some(Known { attr, number, kept: maps.kept.take(inode, number), ticket })
    }

    /// Nobody has changed the file since, here or elsewhere, and this client is not about to.
    pub fn is_still_known(&self, inode: InodeId, known: &Known, want: Want, now: Monotonic) -> bool {
        let maps = self.maps.lock();
        let held_as = maps.leases.of(inode).and_then(|held| held.held_as(moment(now), inode, want));
        let is_same = held_as == Some(known.number);
        is_same && self.valid(inode, known.ticket) && !maps.is_changing(KeyRef::Attr(inode))
    }

    /// The file was closed and all of it is saved. `number`: of the lease that its map came with; `bytes`: of it in the map; `ticket`: drawn
    /// while it was in a table.
    pub fn keep_file(&self, inode: Arc<Inode>, (number, bytes): (Generation, usize), ticket: Ticket, now: Monotonic) {
        let mut maps = self.maps.lock();
        let id = inode.id;
        let held_as = maps.leases.of(id).and_then(|held| held.held_as(moment(now), id, Want::Read));
        let is_same = held_as == Some(number);
        let untouched = self.valid(id, ticket) && !maps.is_changing(KeyRef::Attr(id));
        if is_same && untouched && maps.gone.get(&id).is_none() {
            let forgotten = maps.kept.insert(inode, number, bytes);
            drop(maps);
            drop(forgotten);
        }
    }

    /// Something with an unknown name was replaced: it may be any of these.
    pub fn forget_kept(&self) {
        let forgotten = std::mem::take(&mut self.maps.lock().kept);
        drop(forgotten);
    }

    /// Others write it at the same time.
    pub fn is_shared(&self, inode: InodeId) -> bool {
        mode_of_file(&self.maps.lock(), inode) == Mode::Sync
    }

    /// Some lease on the file is held, or was when its time ended.
    pub fn holds_file(&self, inode: InodeId) -> bool {
        mode_of_file(&self.maps.lock(), inode) != Mode::None
    }

    /// The token that a change of its bytes carries, if one may be sent now.
    pub fn may_send(&self, inode: InodeId, now: Monotonic) -> Option<Generation> {
        self.maps.lock().leases.of(inode)?.may_send(moment(now), inode)
    }

    /// The lease is held, though it may be on its way out.
    pub fn has_file(&self, inode: InodeId, want: Want, now: Monotonic) -> bool {
        self.maps.lock().leases.of(inode).is_some_and(|held| held.has(moment(now), inode, want))
    }

    /// Locks on the file may be granted here now.
    pub fn may_lock(&self, inode: InodeId, now: Monotonic) -> bool {
        self.maps.lock().leases.of(inode).is_some_and(|held| held.may_lock(moment(now), inode))
    }

    /// The slot holder leaves the file's locks to this client, or did until what it is about to be told.
    pub fn grants_locks(&self, inode: InodeId) -> bool {
        self.maps.lock().leases.of(inode).is_some_and(|held| held.grants_locks(inode))
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
        self.maps.lock().leases.of(inode).is_some_and(|held| held.is_flushing(inode))
    }

    /// Files that are held and that the holder is to be told of. Those that are not `needed` are given up with that.
    pub fn reassertion(&self, holder: MemberId, needed: impl Fn(InodeId) -> bool) -> Vec<(InodeId, Mode)> {
        let mut maps = self.maps.lock();
        let (kept, gone): (Vec<_>, Vec<_>) =
            maps.leases.reassertion(holder).into_iter().partition(|(inode, _)| needed(*inode));
        gone.into_iter().for_each(|(inode, _)| maps.leases.forget_file(inode));
        kept
    }

    /// When [`Seen::Tick`] is due.
    pub fn wakeup(&self) -> Option<Moment> {
        self.maps.lock().leases.wakeup()
    }
}
