//! What the client remembers of the namespace: attributes and names while it has a lease on them, and where rows
//! were last seen.
//!
//! Promises: nothing is shown without its lease; a change made here is seen at once. An answer that was on its way
//! while this client changed the same inode or directory, or while it was revoked, is not kept: whoever asks says so
//! first ([`Cache::ask`]), and a change in between makes it void.

mod behind;
mod events;
mod files;
mod kept;
mod learnt;
mod listings;
#[cfg(test)]
mod several;
#[cfg(test)]
pub mod tests;
mod ways;
mod whole;

pub use learnt::Learnt;
pub use listings::{KnownPage, ListingId};
pub use ways::Way;

use crate::lru::Lru;
use behind::Guess;
use braid_api::meta::InodeRef;
use braid_api::{Code, Error, Result, Shown};
use braid_env::Monotonic;
use braid_lease::{Generation, Key, KeyRef, Limits, ManyHoldings, Mode, Moment, RevocationId, Roster, Want};
use braid_types::{Attr, InodeId, MemberId, MembershipEpoch, Name, SlotSet, Timestamp, TruncGen};
use hashbrown::{Equivalent, HashMap};
use kept::Kept;
use listings::Listings;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use whole::Whole;

const STRIPES: usize = 1024;

/// What tells one state of a file's bytes from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub size: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub trunc_gen: TruncGen,
}

impl Stamp {
    /// The bytes are as they were, whatever became of mode, owner and names.
    fn same_bytes(&self, attr: &Attr) -> bool {
        *self == Stamp { ctime: self.ctime, ..Stamp::from(attr) }
    }
}

impl From<&Attr> for Stamp {
    fn from(attr: &Attr) -> Stamp {
        Stamp { size: attr.size, mtime: attr.mtime, ctime: attr.ctime, trunc_gen: attr.trunc_gen }
    }
}

/// A moment among the changes made here; an answer asked for before a later change is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// An answer is on its way that may be kept. Dropped without [`Cache::learn`], nothing of it is.
pub struct Asking<'a> {
    cache: &'a Cache,
    pub ticket: Ticket,
    /// Its holder is asked, and nothing that another grants is kept: under which epoch that was granted the answer does not say.
    about: InodeId,
    lease: Option<braid_lease::Ticket>,
    /// What it changes.
    changing: Vec<Key>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let (lease, changing) = (self.lease.take(), std::mem::take(&mut self.changing));
        let mut maps = self.cache.maps.lock();
        maps.no_longer(&changing);
        // A change that was given up may have been made: what was known of it before is asked for again.
        for key in changing {
            match key {
                Key::Attr(id) => self.cache.change_under(&mut maps, id),
                Key::Name(dir, name) => {
                    maps.names.remove(&At(dir, &name));
                    maps.forget_absence(dir, &name);
                }
                Key::Dir(_) => {}
            }
        }
        if let Some(ticket) = lease {
            maps.leases.answered(Moment::default(), ticket, Vec::new());
        }
    }
}

/// What making or removing a name changes, besides what it stands for.
pub fn entry_keys(parent: InodeId, name: &Name) -> Vec<Key> {
    vec![Key::Name(parent, name.clone()), Key::Attr(parent)]
}

/// What slot holders want of this client.
#[derive(Debug)]
pub enum Task {
    /// A cache above must let go of it.
    Forget(Vec<Shown>),
    /// To be said to this holder when all that was to be forgotten before is.
    Dropped(MemberId, RevocationId),
    /// The same of slots, said to nobody else than [`Cache::dropped`].
    DroppedSlots(u64),
    /// All has been forgotten, and that is to be said.
    Acknowledge,
    /// To be said to this holder: what is held.
    Reassert(MemberId, u64),
    /// A file lease is to be asked for.
    Take { ticket: braid_lease::Ticket, inode: InodeId, want: Want },
    /// Or given up, down to this.
    Flush {
        inode: InodeId,
        generation: Generation,
        to: Mode,
        /// Locks may go on being granted here.
        locks: bool,
    },
    /// To be said to this holder.
    Yield { to: MemberId, inode: InodeId, generation: Generation, mode: Mode },
    /// To be said: what is open for writing has become less.
    SayHandles(InodeId),
    /// The pages of these files may not be shown any more.
    ForgetPages(Vec<InodeId>),
    /// What was written to it under a lease that is lost may never be saved.
    Fail(InodeId),
    /// There is a newer roster, of this epoch at least.
    Learn(MembershipEpoch),
    /// To be renewed at now.
    Renew(MemberId),
}

/// A place of a name to look for.
#[derive(Hash)]
struct At<'a>(InodeId, &'a Name);

impl Equivalent<(InodeId, Name)> for At<'_> {
    fn equivalent(&self, (dir, name): &(InodeId, Name)) -> bool {
        self.0 == *dir && self.1 == name
    }
}

struct Maps {
    /// What may be shown. The values below are there only while their lease was kept.
    leases: ManyHoldings,
    attrs: Lru<InodeId, Attr>,
    names: Lru<(InodeId, Name), InodeId>,
    /// Names that stand for nothing, by directory: a directory's lease covers them all.
    absent: BTreeMap<InodeId, BTreeSet<Name>>,
    absences: usize,
    /// A cache above may know absences that are not in `absent` any more.
    absent_elsewhere: bool,
    /// Directories whose listing a cache above may have, and it is right.
    listings: Listings,
    whole: Whole,
    entries_max: usize,
    /// Changes of this client on their way: others may see them before it hears that they are done, so it asks as well.
    under_way: HashMap<Key, u32>,
    /// Directories in which names are being removed, of which the server has not answered yet.
    guessed: BTreeMap<InodeId, Guess>,
    /// Files of whose attributes nothing was changed or revoked since they were closed.
    kept: Kept,
    places: Lru<InodeId, (InodeId, Name)>,
    stamps: Lru<InodeId, Stamp>,
    /// Lost their last name and are not open here: for this client they do not exist, whoever else still has them open.
    gone: Lru<InodeId, ()>,
    /// Whether it is a directory, which never changes.
    dirs: Lru<InodeId, bool>,
}

pub struct Cache {
    maps: Mutex<Maps>,
    /// Counts changes.
    moment: AtomicU64,
    /// The moment of the last change, by inode; several share one.
    changes: Vec<AtomicU64>,
}

fn moment(now: Monotonic) -> Moment {
    Moment(now.0)
}

/// As what the file is held, whether or not it may be used now.
fn mode_of_file(maps: &Maps, inode: InodeId) -> Mode {
    maps.leases.of(inode).map_or(Mode::None, |held| held.file(inode).0)
}

impl Maps {
    fn no_longer(&mut self, changing: &[Key]) {
        for key in changing {
            if let Some(count) = self.under_way.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.under_way.remove(key);
                }
            }
        }
    }

    fn is_changing(&self, key: KeyRef<'_>) -> bool {
        !self.under_way.is_empty() && self.under_way.contains_key(&key)
    }

    fn forget_absence(&mut self, parent: InodeId, name: &Name) {
        if let Some(names) = self.absent.get_mut(&parent)
            && names.remove(name)
        {
            self.absences -= 1;
            if names.is_empty() {
                self.absent.remove(&parent);
            }
        }
    }

    fn is_kept_absent(&self, parent: InodeId, name: &Name) -> bool {
        self.absent.get(&parent).is_some_and(|names| names.contains(name))
    }

    /// Nothing has the name, while the directory's lease is held.
    fn lacks(&self, parent: InodeId, name: &Name) -> bool {
        // What is shown of snapshots is in no listing.
        let is_listed = !braid_api::snapshots::is_unlisted(name);
        self.is_kept_absent(parent, name) || is_listed && self.whole.lacks(parent, name)
    }

    fn keep_absence(&mut self, parent: InodeId, name: &Name) {
        if self.absences >= self.entries_max {
            self.absent.clear();
            (self.absences, self.absent_elsewhere) = (0, true);
        }
        if self.absent.entry(parent).or_default().insert(name.clone()) {
            self.absences += 1;
        }
    }

    /// Forgets what a key covers; gives what a cache above may show of it.
    fn forget(&mut self, key: &Key, shown: &mut Vec<Shown>) {
        match key {
            Key::Dir(dir) => {
                let names = self.absent.remove(dir).unwrap_or_default();
                self.absences -= names.len();
                shown.extend(names.into_iter().map(|name| Shown::Entry(*dir, name)));
                if self.absent_elsewhere {
                    shown.push(Shown::Entries);
                }
                self.whole.forget(*dir);
                if self.listings.revoke(*dir) {
                    shown.push(Shown::Listing(*dir));
                }
            }
            Key::Name(dir, name) => {
                self.names.remove(&At(*dir, name));
                shown.push(Shown::Entry(*dir, name.clone()));
            }
            Key::Attr(id) => {
                self.attrs.remove(id);
                self.kept.forget(*id);
                shown.push(Shown::Attr(*id));
            }
        }
    }

    fn forget_all(&mut self) {
        self.attrs.clear();
        self.kept.clear();
        self.names.clear();
        self.absent.clear();
        self.whole.clear();
        (self.absences, self.absent_elsewhere) = (0, false);
    }

    /// Forgets what is in these slots. Of absences that a cache above alone knows it is not known where they are.
    fn forget_slots(&mut self, slots: &SlotSet) {
        let stays = |id: &InodeId| !slots.has(id.slot());
        self.attrs.retain(|id, _| stays(id));
        self.kept.retain(stays);
        self.names.retain(|(dir, _), _| stays(dir));
        self.absent.retain(|dir, _| stays(dir));
        self.absences = self.absent.values().map(BTreeSet::len).sum();
        self.whole.retain(stays);
    }
}

impl Cache {
    pub fn new(entries_max: usize) -> Self {
        let maps = Maps {
            // Until it is heard who serves. Nothing is granted under this epoch.
            leases: ManyHoldings::new(&Limits::default(), Roster::alone(MembershipEpoch(0), MemberId(0))),
            absent: BTreeMap::new(),
            absences: 0,
            absent_elsewhere: false,
            listings: Listings::default(),
            whole: Whole::default(),
            entries_max,
            under_way: HashMap::new(),
            guessed: BTreeMap::new(),
            attrs: Lru::new(entries_max),
            names: Lru::new(entries_max),
            kept: Kept::default(),
            places: Lru::new(entries_max),
            stamps: Lru::new(entries_max),
            gone: Lru::new(entries_max),
            dirs: Lru::new(entries_max),
        };
        Cache {
            maps: Mutex::new(maps),
            moment: AtomicU64::new(0),
            changes: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn stripe(&self, id: InodeId) -> &AtomicU64 {
        // The low bits of an id are its directory's slot; the counter above tells siblings apart.
        &self.changes[((id.0 >> braid_types::SLOT_BITS) ^ id.0) as usize % STRIPES]
    }

    /// To be drawn before asking.
    pub fn ticket(&self) -> Ticket {
        // Under the lock, as changes are: a change is before the ticket with all it does, or after it.
        let _maps = self.maps.lock();
        Ticket(self.moment.load(SeqCst))
    }

    /// Nothing changed the inode (or the directory's entries) here since the ticket was drawn.
    pub fn valid(&self, id: InodeId, ticket: Ticket) -> bool {
        self.stripe(id).load(SeqCst) <= ticket.0
    }

    /// This client changes the inode (of a directory: its entries).
    pub fn changed(&self, id: InodeId) {
        self.changed_since(id, Ticket(u64::MAX));
    }

    /// As [`Cache::changed`]; true if another change came since the ticket was drawn.
    pub fn changed_since(&self, id: InodeId, ticket: Ticket) -> bool {
        let mut maps = self.maps.lock();
        let overtaken = !self.valid(id, ticket);
        self.change_under(&mut maps, id);
        overtaken
    }

    fn change_under(&self, maps: &mut Maps, id: InodeId) {
        let moment = self.moment.fetch_add(1, SeqCst) + 1;
        self.stripe(id).fetch_max(moment, SeqCst);
        maps.attrs.remove(&id);
        maps.kept.forget(id);
    }

    /// To be said before the inode, or a name in it, is asked for.
    pub fn ask(&self, about: InodeId) -> Asking<'_> {
        self.change(about, Vec::new())
    }

    /// The same of a change that is asked of the inode's holder: until it is answered nothing that is known of these keys is shown.
    pub fn change(&self, about: InodeId, changing: Vec<Key>) -> Asking<'_> {
        let mut maps = self.maps.lock();
        for key in &changing {
            *maps.under_way.entry(key.clone()).or_default() += 1;
            if let Key::Name(dir, name) = key {
                maps.whole.may_have(*dir, name);
            }
        }
        let lease = Some(maps.leases.ask(about));
        Asking { cache: self, ticket: Ticket(self.moment.load(SeqCst)), about, lease, changing }
    }

    /// Keeps of an answer what was granted, if nothing came in between: since `ticket` in what was changed here, since it was
    /// asked for in what was revoked. Gives for how long a cache above may keep all of it.
    pub fn learn(&self, mut asking: Asking<'_>, ticket: Ticket, now: Monotonic, learnt: &[Learnt<'_>]) -> Duration {
        let mut maps = self.maps.lock();
        maps.no_longer(&std::mem::take(&mut asking.changing));
        let keys = learnt.iter().filter_map(Learnt::key).collect();
        let kept = asking.lease.take().map(|lease| maps.leases.answers(moment(now), lease, keys));
        // In the order of the keys.
        let mut kept = kept.unwrap_or_default().into_iter();
        let mut all = !learnt.is_empty();
        for item in learnt {
            let held = item.is_granted() && kept.next().unwrap_or_default();
            match *item {
                Learnt::Attr(attr, _) => {
                    if maps.dirs.get(&attr.id).is_none() {
                        maps.dirs.insert(attr.id, attr.is_dir());
                    }
                    // Two answers on their way may overtake each other; the metadata server never sets a ctime back.
                    let known = maps.attrs.get(&attr.id).map(|known| known.ctime);
                    let valid = self.valid(attr.id, ticket) && !maps.is_changing(KeyRef::Attr(attr.id));
                    let keep = held && valid && known.is_none_or(|known| known <= attr.ctime);
                    if keep {
                        match maps.attrs.get(&attr.id) {
                            Some(known) => *known = *attr,
                            None => maps.attrs.insert(attr.id, *attr),
                        }
                    } else if known.is_some_and(|known| known < attr.ctime) {
                        // Shown now, and not to be kept: what is older must not be shown after it.
                        maps.attrs.remove(&attr.id);
                    }
                    all &= keep && !maps.guessed.contains_key(&attr.id);
                }
                Learnt::Name(parent, name, id, _) => {
                    let valid = self.valid(parent, ticket) && !maps.is_changing(KeyRef::Name(parent, name));
                    if id.is_some() {
                        maps.whole.may_have(parent, name);
                    }
                    if let (Some(id), true) = (id, valid) {
                        if maps.places.get(&id).is_none_or(|(dir, known)| *dir != parent || known != name) {
                            maps.places.insert(id, (parent, name.clone()));
                        }
                        maps.forget_absence(parent, name);
                    }
                    match id {
                        Some(id) if held && valid => match maps.names.get(&At(parent, name)) {
                            Some(known) => *known = id,
                            None => maps.names.insert((parent, name.clone()), id),
                        },
                        None if held && valid => {
                            maps.names.remove(&At(parent, name));
                            maps.keep_absence(parent, name);
                        }
                        _ => {}
                    }
                    all &= held && valid;
                }
                Learnt::Empty(dir, _) => {
                    if held && self.valid(dir, ticket) && !maps.is_changing(KeyRef::Attr(dir)) {
                        maps.whole.insert(dir, []);
                    }
                }
                Learnt::Gone(dir, name) => {
                    maps.names.remove(&At(dir, name));
                    maps.forget_absence(dir, name);
                    if self.valid(dir, ticket) && !maps.is_changing(KeyRef::Name(dir, name)) {
                        maps.whole.has_lost(dir, name);
                    }
                }
                Learnt::Removed(dir, name, after) => maps.removed(dir, name, after),
                Learnt::Dir(dir, after) => {
                    let keep = held && self.valid(dir, ticket) && !maps.is_changing(KeyRef::Attr(dir));
                    self.change_under(&mut maps, dir);
                    if let (true, Some(attr)) = (keep, &after.attr) {
                        maps.attrs.insert(dir, *attr);
                    }
                }
                Learnt::Listing(dir, _, pages, id) => {
                    if held && self.valid(dir, ticket) && !maps.is_changing(KeyRef::Attr(dir)) {
                        // Of who began before nothing changes but that the cache above has it from two.
                        let known = maps.listings.since(dir).is_some_and(|since| self.valid(dir, since));
                        let until = moment(now) + maps.leases.left(moment(now), dir);
                        id.store(maps.listings.insert(dir, known, ticket, until, pages.clone()), SeqCst);
                    }
                }
            }
        }
        if all { maps.leases.left(moment(now), asking.about) } else { Duration::ZERO }
    }

    /// Attributes, and for how long a cache above may keep them.
    pub fn attr(&self, id: InodeId, now: Monotonic) -> Option<(Attr, Duration)> {
        let mut maps = self.maps.lock();
        if maps.is_changing(KeyRef::Attr(id)) {
            return None;
        }
        let attr = *maps.attrs.get(&id)?;
        // A cache above is not told when that is replaced.
        let left = if maps.guessed.contains_key(&id) { Duration::ZERO } else { maps.leases.left(moment(now), id) };
        maps.leases.may_serve(moment(now), KeyRef::Attr(id)).then_some((attr, left))
    }

    pub fn is_dir(&self, id: InodeId) -> Option<bool> {
        if id == InodeId::ROOT { Some(true) } else { self.maps.lock().dirs.get(&id).copied() }
    }

    /// The inode behind a name, its absence, or that it is not known.
    pub fn name(&self, parent: InodeId, name: &Name, now: Monotonic) -> Option<(Option<InodeId>, Duration)> {
        let mut maps = self.maps.lock();
        if maps.is_changing(KeyRef::Name(parent, name)) {
            return None;
        }
        let left = maps.leases.left(moment(now), parent);
        if let Some(id) = maps.names.get(&At(parent, name)).copied() {
            return maps.leases.may_serve(moment(now), KeyRef::Name(parent, name)).then_some((Some(id), left));
        }
        if !maps.lacks(parent, name) || !maps.leases.may_serve(moment(now), KeyRef::Dir(parent)) {
            return None;
        }
        // A cache above hears of it, and is told when it is over.
        if !maps.is_kept_absent(parent, name) {
            maps.keep_absence(parent, name);
        }
        Some((None, left))
    }

    /// There is no such name but what this client may be giving it just now.
    pub fn lacks_but_for_changes(&self, parent: InodeId, name: &Name, now: Monotonic) -> bool {
        let maps = self.maps.lock();
        maps.lacks(parent, name) && maps.leases.may_serve(moment(now), KeyRef::Dir(parent))
    }

    /// This client changed what the name stands for: the directory's attributes are void as well.
    pub fn name_changed(&self, parent: InodeId, name: &Name) {
        self.name_gone(parent, name);
        self.changed(parent);
    }

    /// The same, and what became of the directory is about to be learnt.
    pub fn name_gone(&self, parent: InodeId, name: &Name) {
        let mut maps = self.maps.lock();
        maps.names.remove(&At(parent, name));
        maps.forget_absence(parent, name);
    }

    pub fn place(&self, id: InodeId, place: Option<(InodeId, Name)>) {
        if let Some(place) = place {
            self.maps.lock().places.insert(id, place);
        }
    }

    /// In which it was found last.
    pub fn dir_of(&self, id: InodeId) -> Option<InodeId> {
        self.maps.lock().places.get(&id).map(|(dir, _)| *dir)
    }

    pub fn drop_place(&self, id: InodeId, parent: InodeId, name: &Name) {
        let mut maps = self.maps.lock();
        if maps.places.get(&id).is_some_and(|place| place.0 == parent && place.1 == *name) {
            maps.places.remove(&id);
        }
    }

    /// Ids are never reused, so it stays so, but for who was opening it meanwhile.
    pub fn gone(&self, id: InodeId) {
        let mut maps = self.maps.lock();
        maps.gone.insert(id, ());
        maps.kept.forget(id);
        maps.listings.remove(id);
        maps.listings.has_not_seen(id);
        maps.whole.forget(id);
    }

    /// It was opened: the answer was on its way when the last other handle was closed.
    pub fn not_gone(&self, id: InodeId) {
        self.maps.lock().gone.remove(&id);
    }

    /// The inode for a request, unless it has gone.
    pub fn existing(&self, id: InodeId) -> Result<InodeRef> {
        self.exists(id)?;
        Ok(self.inode(id))
    }

    pub fn exists(&self, id: InodeId) -> Result<()> {
        match self.maps.lock().gone.get(&id) {
            Some(()) => Err(Error::new(Code::Stale, format_args!("inode {id}"), "its last name was removed")),
            None => Ok(()),
        }
    }

    pub fn inode(&self, id: InodeId) -> InodeRef {
        InodeRef { id, hint: self.maps.lock().places.get(&id).cloned() }
    }

    /// The state of the file's bytes this client (and the kernel above it) last saw.
    pub fn saw(&self, attr: &Attr) {
        let maps = &mut *self.maps.lock();
        // Where others write as well, an attribute says nothing of what is cached.
        if mode_of_file(maps, attr.id) != Mode::Sync {
            maps.stamps.insert(attr.id, Stamp::from(attr));
        }
    }

    /// The answer to a change of this client's own: if the bytes are as last seen, only the rest is new.
    pub fn own_change(&self, attr: &Attr) {
        if let Some(stamp) = self.maps.lock().stamps.get(&attr.id)
            && stamp.same_bytes(attr)
        {
            stamp.ctime = attr.ctime;
        }
    }

    /// Pages that a cache above may have are not good any more.
    pub fn forget_seen(&self, id: InodeId) {
        self.maps.lock().stamps.remove(&id);
    }

    pub fn seen(&self, id: InodeId) -> Option<Stamp> {
        self.maps.lock().stamps.get(&id).copied()
    }
}
