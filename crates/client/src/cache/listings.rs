//! Directories whose listing a cache above may keep. Forgetting one here costs that cache a reading of it, nothing else.

use super::{At, Cache, Ticket, moment};
use crate::dirpages::{PAGE_ENTRIES, Pages};
use braid_api::meta::DirPage;
use braid_env::Monotonic;
use braid_lease::{KeyRef, Mode, Moment};
use braid_types::{Attr, INLINE_BYTES_MAX, InodeId, Name, SlotSet};
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Of all together: 262,144 names of some 40 bytes are 10 MiB.
const NAMES_MAX: usize = 256 << 10;
const DIRS_MAX: usize = 64 << 10;

/// One time for which what is in a directory was leased and did not change here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingId(u64);

impl ListingId {
    pub fn from_learnt(number: u64) -> Option<Self> {
        (number > 0).then_some(ListingId(number))
    }
}

struct Listing {
    id: u64,
    /// Nothing was changed here since.
    since: Ticket,
    /// Names and attributes that came with it are not shown for longer without asking; to read it once more brings them all, and to look
    /// each up does not.
    until: Moment,
    /// Keeps the offsets that the cache above has.
    pages: Arc<Mutex<Pages>>,
    names: usize,
    /// What `..` stands for, once it was asked for.
    parent: Option<InodeId>,
}

/// What of it may come with its map: of a large file nothing.
fn inline_at_most(attr: &Attr) -> u64 {
    if attr.size <= u64::from(INLINE_BYTES_MAX) { attr.size } else { 0 }
}

/// A page of a directory that is known here, as the metadata server would give it.
pub struct KnownPage {
    pub entries: DirPage,
    pub ticket: Ticket,
    /// Of the first page: the listing it begins.
    pub listing: Option<ListingId>,
}

#[derive(Default)]
pub struct Listings {
    dirs: HashMap<InodeId, Listing>,
    names: usize,
    last: u64,
    /// Directories that were opened or begun anew since they were last told to be forgotten: a cache above may have some of them.
    above: HashSet<InodeId>,
    /// What was in directories when they were last asked for, whatever has become of it.
    seen: HashMap<InodeId, Vec<Name>>,
    seen_names: usize,
}

impl Listings {
    /// With what is in hand of it by now; gives its number.
    pub fn insert(&mut self, dir: InodeId, known: bool, since: Ticket, until: Moment, pages: Arc<Mutex<Pages>>) -> u64 {
        let before = self.dirs.get(&dir).filter(|_| known).map(|listing| (listing.id, listing.since, listing.parent));
        self.remove(dir);
        if self.dirs.len() >= DIRS_MAX {
            self.forget_all();
        }
        let (id, since, parent) = before.unwrap_or_else(|| {
            self.last += 1;
            (self.last, since, None)
        });
        self.dirs.insert(dir, Listing { id, since, until, pages, names: 0, parent });
        self.count(dir);
        id
    }

    pub fn since(&self, dir: InodeId) -> Option<Ticket> {
        self.dirs.get(&dir).map(|listing| listing.since)
    }

    /// More of it has been read. Where all together are too many to be remembered, all begins anew.
    pub fn count(&mut self, dir: InodeId) {
        let Some(listing) = self.dirs.get_mut(&dir) else { return };
        let names = listing.pages.lock().names();
        self.names = (self.names + names).saturating_sub(std::mem::replace(&mut listing.names, names));
        if self.names > NAMES_MAX {
            self.forget_all();
        }
    }

    pub fn remove(&mut self, dir: InodeId) {
        self.names -= self.dirs.remove(&dir).map_or(0, |listing| listing.names);
    }

    /// All that was in it.
    fn saw(&mut self, dir: InodeId, names: Vec<Name>) {
        self.has_not_seen(dir);
        if self.seen.len() >= DIRS_MAX || self.seen_names + names.len() > NAMES_MAX {
            self.seen.clear();
            self.seen_names = 0;
        }
        self.seen_names += names.len();
        self.seen.insert(dir, names);
    }

    pub fn has_not_seen(&mut self, dir: InodeId) {
        self.seen_names -= self.seen.remove(&dir).map_or(0, |names| names.len());
    }

    fn forget_all(&mut self) {
        self.dirs.clear();
        self.names = 0;
    }

    /// What a cache above may have of the directory is void. True if it is to be told.
    pub fn revoke(&mut self, dir: InodeId) -> bool {
        self.remove(dir);
        self.above.remove(&dir)
    }

    /// The same of all in these slots; gives those of which it is to be told.
    pub fn revoke_slots(&mut self, slots: &SlotSet) -> Vec<InodeId> {
        self.dirs.retain(|dir, _| !slots.has(dir.slot()));
        self.names = self.dirs.values().map(|listing| listing.names).sum();
        self.above.extract_if(|dir| slots.has(dir.slot())).collect()
    }
}

impl Cache {
    /// A directory is opened. True if what a cache above has read of it may go on being shown.
    pub fn opens_listing(&self, dir: InodeId, now: Monotonic) -> bool {
        let unchanged = self.reads_listing(dir, now);
        let maps = self.maps.lock();
        unchanged && maps.listings.dirs.get(&dir).is_some_and(|listing| moment(now) < listing.until)
    }

    /// It is begun to be read. True if it is known to be as it was when its offsets were given.
    pub fn reads_listing(&self, dir: InodeId, now: Monotonic) -> bool {
        let maps = &mut *self.maps.lock();
        maps.listings.above.insert(dir);
        self.is_listed(maps, dir, now)
    }

    fn is_listed(&self, maps: &super::Maps, dir: InodeId, now: Monotonic) -> bool {
        let unchanged = maps.listings.since(dir).is_some_and(|since| self.valid(dir, since));
        unchanged && !maps.is_changing(KeyRef::Attr(dir)) && maps.leases.may_serve(moment(now), KeyRef::Dir(dir))
    }

    /// The page behind `after`, if every name and its attributes are known and leased. With the first one a listing begins, of which
    /// `begins` gives the offsets.
    pub fn known_page(
        &self,
        dir: InodeId,
        after: Option<&Name>,
        limit: usize,
        now: Monotonic,
        begins: Option<&Arc<Mutex<Pages>>>,
    ) -> Option<KnownPage> {
        let maps = &mut *self.maps.lock();
        let now = moment(now);
        if maps.is_changing(KeyRef::Attr(dir)) || !maps.leases.may_serve(now, KeyRef::Dir(dir)) {
            return None;
        }
        let mut names = maps.whole.names_after(dir, after)?;
        let mut entries = Vec::with_capacity(limit.min(PAGE_ENTRIES as usize));
        for name in names.by_ref().take(limit) {
            let id = *maps.names.get(&At(dir, name))?;
            let attr = *maps.attrs.get(&id)?;
            for key in [KeyRef::Name(dir, name), KeyRef::Attr(id)] {
                let is_changing = !maps.under_way.is_empty() && maps.under_way.contains_key(&key);
                if is_changing || !maps.leases.may_serve(now, key) {
                    return None;
                }
            }
            entries.push((name.clone(), id, attr.kind, Some(attr)));
        }
        let more = names.next().is_some();
        let ticket = Ticket(self.moment.load(SeqCst));
        let listing = begins.map(|pages| {
            let known = maps.listings.since(dir).is_some_and(|since| self.valid(dir, since));
            let until = now + maps.leases.left(now, dir);
            ListingId(maps.listings.insert(dir, known, ticket, until, pages.clone()))
        });
        let entries = DirPage { entries, more, grants: Vec::new(), listing: listing.is_some() };
        Some(KnownPage { entries, ticket, listing })
    }

    /// The directory was asked for, and this is all that is in it.
    pub fn saw_all(&self, dir: InodeId, page: &DirPage) {
        let names = page.entries.iter().map(|(name, ..)| name.clone()).collect();
        self.maps.lock().listings.saw(dir, names);
    }

    /// Of what was in the directory when it was last asked for, the inodes of which names and attributes are known and leased.
    pub fn known_in(&self, dir: InodeId, now: Monotonic) -> Vec<InodeId> {
        let maps = &mut *self.maps.lock();
        let now = moment(now);
        let Some(names) = maps.listings.seen.get(&dir) else { return Vec::new() };
        let known = names.iter().filter_map(|name| {
            let id = *maps.names.get(&At(dir, name))?;
            let attr = maps.attrs.get(&id)?;
            // Of one with several names it would be said which inode is known, and not by which of them.
            if attr.nlink > 1 && !attr.is_dir() {
                return None;
            }
            [KeyRef::Name(dir, name), KeyRef::Attr(id)].iter().all(|key| maps.leases.may_serve(now, *key)).then_some(id)
        });
        let mut known: Vec<InodeId> = known.collect();
        known.sort_unstable();
        known
    }

    /// Behind the file in the order of a listing, of a directory of which all names are known: files that are known and not held, so that who opens them
    /// has to ask. At most `count`, and as many as have `bytes` together.
    pub fn files_after(&self, file: InodeId, count: usize, bytes: usize) -> Vec<InodeId> {
        let maps = &mut *self.maps.lock();
        let Some((dir, name)) = maps.places.get(&file).cloned() else { return Vec::new() };
        let Some(names) = maps.whole.names_after(dir, Some(&name)) else { return Vec::new() };
        // What is asked for with them comes first.
        let first = maps.attrs.get(&file).map_or(0, |attr| inline_at_most(attr));
        let (mut found, mut left) = (Vec::new(), (bytes as u64).saturating_sub(first));
        // A directory in which nothing is to be asked for is not gone through again and again.
        for name in names.take(4 * count) {
            let attr = maps.names.get(&At(dir, name)).and_then(|id| maps.attrs.get(id)).copied();
            let Some(attr) = attr.filter(|attr| attr.is_file() && attr.nlink > 0) else { continue };
            if maps.leases.of(attr.id).is_some_and(|held| held.file(attr.id).0 != Mode::None) {
                continue;
            }
            left = left.saturating_sub(inline_at_most(&attr));
            if found.len() == count || left == 0 {
                break;
            }
            found.push(attr.id);
        }
        found
    }

    /// The listing that has been read of a directory and is still right, and what `..` stands for in it if that is known.
    pub fn listed(&self, dir: InodeId, now: Monotonic) -> Option<(ListingId, Option<InodeId>)> {
        let maps = &*self.maps.lock();
        let listing = maps.listings.dirs.get(&dir).filter(|_| self.is_listed(maps, dir, now))?;
        Some((ListingId(listing.id), listing.parent))
    }

    /// `..` of a directory was asked for while `of` was right.
    pub fn keep_parent(&self, dir: InodeId, of: ListingId, parent: InodeId) {
        if let Some(listing) = self.maps.lock().listings.dirs.get_mut(&dir).filter(|listing| listing.id == of.0) {
            listing.parent = Some(parent);
        }
    }

    /// A listing has come to its end. If it is still the same one it is kept, and `names` are all there are.
    pub fn end_listing(
        &self,
        dir: InodeId,
        id: ListingId,
        now: Monotonic,
        names: impl FnOnce() -> Option<Vec<Name>>,
    ) -> bool {
        let maps = &mut *self.maps.lock();
        let is_same = maps.listings.dirs.get(&dir).is_some_and(|listing| listing.id == id.0);
        if !is_same || !self.is_listed(maps, dir, now) {
            return false;
        }
        if let Some(names) = names() {
            maps.whole.insert(dir, names);
        }
        maps.listings.count(dir);
        true
    }

    pub fn count_listing(&self, dir: InodeId) {
        self.maps.lock().listings.count(dir);
    }

    /// `..` is another, if it is a directory.
    pub fn moved(&self, id: InodeId) {
        self.maps.lock().listings.remove(id);
    }
}
