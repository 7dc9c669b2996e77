//! Names that are removed before that is answered: what is shown meanwhile.
//!
//! Promises: the name is not shown any more, and nothing is shown of the file. The directory's times are a nanosecond above those that it had,
//! and what the server says is above that, as clocks go on: what is shown of them does not go back. A cache above keeps none of it until the last
//! removal is answered.

use super::{Asking, At, Cache, Maps, Ticket, moment};
use braid_api::meta::DirAfter;
use braid_env::Monotonic;
use braid_lease::{Key, KeyRef};
use braid_types::{Attr, InodeId, Name, Slot, Timestamp};
use std::sync::atomic::Ordering::SeqCst;

/// What is known of a directory of which not all removals are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guess {
    /// Its times are this client's.
    Own,
    /// They are the server's, after some of the removals: the last of them, when all are answered.
    Told,
}

impl Maps {
    /// What the server says of a removal that was expected. Answers come in any order.
    pub(super) fn removed(&mut self, dir: InodeId, name: &Name, after: &DirAfter) {
        self.forget_absence(dir, name);
        // A new file of that name may be on its way.
        if !self.is_changing(KeyRef::Name(dir, name)) {
            self.whole.has_lost(dir, name);
        }
        if let (Some(attr), Some(known)) = (&after.attr, self.attrs.get(&dir))
            && attr.ctime > known.ctime
        {
            *known = *attr;
            self.guessed.entry(dir).and_modify(|guess| *guess = Guess::Told);
        }
    }
}

impl Cache {
    /// The file that the name stands for, if it is known so well that its removal can only succeed, and is all there is to know: it has no
    /// other name, and is of the directory's slot.
    pub fn removable(&self, parent: InodeId, name: &Name, now: Monotonic) -> Option<InodeId> {
        let mut maps = self.maps.lock();
        let id = *maps.names.get(&At(parent, name))?;
        let attr = *maps.attrs.get(&id)?;
        let keys = [KeyRef::Name(parent, name), KeyRef::Attr(id)];
        let is_simple = !attr.is_dir() && !attr.sealed && attr.nlink == 1 && id.slot() == parent.slot();
        let is_sure = keys.iter().all(|key| !maps.is_changing(*key) && maps.leases.may_serve(moment(now), *key));
        if !(is_simple && is_sure) {
            return None;
        }
        // Nobody opens it without a message from here on; who has done so is known to be opening it.
        maps.kept.forget(id);
        Some(id)
    }

    /// From now on the name is not shown, and what is known of the file is asked for.
    pub fn removing_behind(&self, parent: InodeId, name: &Name, id: InodeId) -> Asking<'_> {
        let mut asking = self.change(parent, vec![Key::Name(parent, name.clone()), Key::Attr(id)]);
        let mut maps = self.maps.lock();
        maps.names.remove(&At(parent, name));
        maps.forget_absence(parent, name);
        // Listings, and answers about the directory that are on their way, are of before.
        let now = self.moment.fetch_add(1, SeqCst) + 1;
        self.stripe(parent).fetch_max(now, SeqCst);
        if let Some(dir) = maps.attrs.get(&parent) {
            dir.ctime = Timestamp(dir.ctime.0 + 1);
            dir.mtime = dir.mtime.max(dir.ctime);
            maps.guessed.insert(parent, Guess::Own);
        }
        drop(maps);
        asking.ticket = Ticket(now);
        asking
    }

    /// All removals in the slot are answered: what nobody has told is asked for.
    pub fn no_more_guesses(&self, slot: Slot) {
        let mut maps = self.maps.lock();
        let over: Vec<(InodeId, Guess)> = maps.guessed.extract_if(.., |dir, _| dir.slot() == slot).collect();
        for (dir, guess) in over {
            if guess == Guess::Own {
                self.change_under(&mut maps, dir);
            }
        }
    }

    /// What an answer tells of a directory, but for what this client has changed there since.
    pub fn not_before_guess(&self, attr: &Attr) -> Attr {
        let mut maps = self.maps.lock();
        if !maps.guessed.contains_key(&attr.id) {
            return *attr;
        }
        let known = maps.attrs.get(&attr.id).copied();
        known.filter(|known| known.ctime > attr.ctime).unwrap_or(*attr)
    }
}
