//! Directories whose listing a cache above may keep. Forgetting one here costs that cache a reading of it, nothing else.

use super::Ticket;
use crate::dirpages::Pages;
use braid_lease::Moment;
use braid_types::InodeId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Of all together: 262,144 names of some 40 bytes are 10 MiB.
const NAMES_MAX: usize = 256 << 10;
const DIRS_MAX: usize = 64 << 10;

struct Listing {
    since: Ticket,
    /// Names and attributes that came with it are not shown for longer without asking; to read it once more brings them all, and to look
    /// each up does not.
    until: Moment,
    /// Keeps the offsets that the cache above has.
    pages: Arc<Mutex<Pages>>,
    names: usize,
}

#[derive(Default)]
pub struct Listings {
    dirs: HashMap<InodeId, Listing>,
    names: usize,
}

impl Listings {
    pub fn get(&self, dir: InodeId) -> Option<Ticket> {
        self.dirs.get(&dir).map(|listing| listing.since)
    }

    pub fn is_fresh(&self, dir: InodeId, now: Moment) -> bool {
        self.dirs.get(&dir).is_some_and(|listing| now < listing.until)
    }

    pub fn insert(&mut self, dir: InodeId, since: Ticket, until: Moment, pages: Arc<Mutex<Pages>>) {
        self.remove(dir);
        if self.dirs.len() >= DIRS_MAX {
            drop(self.clear());
        }
        self.dirs.insert(dir, Listing { since, until, pages, names: 0 });
    }

    /// It has been read to its end. Where that is too much to be remembered, all begins anew.
    pub fn ended(&mut self, dir: InodeId) {
        let Some(listing) = self.dirs.get_mut(&dir) else { return };
        let names = listing.pages.lock().names();
        self.names = (self.names + names).saturating_sub(std::mem::replace(&mut listing.names, names));
        if self.names > NAMES_MAX {
            drop(self.clear());
        }
    }

    pub fn remove(&mut self, dir: InodeId) {
        self.names -= self.dirs.remove(&dir).map_or(0, |listing| listing.names);
    }

    pub fn clear(&mut self) -> impl Iterator<Item = InodeId> + use<> {
        self.names = 0;
        std::mem::take(&mut self.dirs).into_keys()
    }
}
