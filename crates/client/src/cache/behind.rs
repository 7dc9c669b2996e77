//! Names that are removed before that is answered: what is shown meanwhile.
//!
//! Promises: the name is not shown any more, and nothing is shown of the file. The directory has times that are above all
//! it had, and below what the server will say: what is shown of them never goes back.

use super::{Asking, Cache, Maps, Ticket, moment};
use braid_api::meta::DirAfter;
use braid_env::Monotonic;
use braid_lease::Key;
use braid_types::{InodeId, Name, Slot, Timestamp};
use std::sync::atomic::Ordering::SeqCst;

impl Maps {
    /// What the server says of a removal that was expected. Answers come in any order.
    pub(super) fn removed(&mut self, dir: InodeId, name: &Name, after: &DirAfter) {
        self.forget_absence(dir, name);
        self.whole.has_lost(dir, name);
        if let (Some(attr), Some(known)) = (&after.attr, self.attrs.get(&dir))
            && attr.ctime > known.ctime
        {
            *known = *attr;
            self.guessed.remove(&dir);
        }
    }
}

impl Cache {
    /// The file that the name stands for, if it is known so well that its removal can only succeed, and is all there is to know: it has no
    /// other name, and is of the directory's slot.
    pub fn removable(&self, parent: InodeId, name: &Name, now: Monotonic) -> Option<InodeId> {
        let mut maps = self.maps.lock();
        let id = *maps.names.get(&(parent, name.clone()))?;
        let attr = *maps.attrs.get(&id)?;
        let keys = [Key::Name(parent, name.clone()), Key::Attr(id)];
        let is_simple = !attr.is_dir() && !attr.sealed && attr.nlink == 1 && id.slot() == parent.slot();
        let is_sure =
            keys.iter().all(|key| !maps.is_changing(|| key.clone()) && maps.leases.may_serve(moment(now), key));
        if !(is_simple && is_sure) {
            return None;
        }
        // Nobody opens it without a message from here on; who has done so is known to be opening it.
        maps.kept.forget(id);
        Some(id)
    }

    /// From now on the name is not shown, and what is known of the file is asked for.
    pub fn removing_behind(&self, parent: InodeId, name: &Name, id: InodeId) -> Asking<'_> {
        let mut asking = self.change(vec![Key::Name(parent, name.clone()), Key::Attr(id)]);
        let mut maps = self.maps.lock();
        maps.names.remove(&(parent, name.clone()));
        maps.forget_absence(parent, name);
        // Listings, and answers about the directory that are on their way, are of before.
        let now = self.moment.fetch_add(1, SeqCst) + 1;
        self.stripe(parent).fetch_max(now, SeqCst);
        if let Some(dir) = maps.attrs.get(&parent) {
            let next = Timestamp(dir.ctime.max(dir.mtime).0 + 1);
            (dir.mtime, dir.ctime) = (next, next);
            maps.guessed.insert(parent);
        }
        drop(maps);
        asking.ticket = Ticket(now);
        asking
    }

    /// All removals in the slot are answered: what is still expected there is asked for.
    pub fn no_more_guesses(&self, slot: Slot) {
        let mut maps = self.maps.lock();
        let guessed: Vec<InodeId> = maps.guessed.iter().filter(|dir| dir.slot() == slot).copied().collect();
        for dir in guessed {
            maps.guessed.remove(&dir);
            self.change_under(&mut maps, dir);
        }
    }
}
