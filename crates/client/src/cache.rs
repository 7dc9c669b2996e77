//! What the client remembers of the namespace: attributes and names while their grant lasts, and where rows
//! were last seen.
//!
//! Promises: nothing is shown after its grant; a change made here is seen at once. An answer that was on its way
//! while this client changed the same inode or directory is not kept: whoever asks draws a [`Ticket`] first, and
//! a change in between makes it void.

use crate::lru::Lru;
use braid_api::meta::{Grant, InodeRef};
use braid_api::{Code, Error, Result};
use braid_env::Monotonic;
use braid_types::{Attr, InodeId, Name, Timestamp, TruncGen};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

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

struct Maps {
    attrs: Lru<InodeId, (Attr, Monotonic)>,
    names: Lru<(InodeId, Name), (Option<InodeId>, Monotonic)>,
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

pub fn until(now: Monotonic, grant: Grant) -> Monotonic {
    now + Duration::from_millis(grant.ms.into())
}

impl Cache {
    pub fn new(entries_max: usize) -> Self {
        let maps = Maps {
            attrs: Lru::new(entries_max),
            names: Lru::new(entries_max),
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
        let moment = self.moment.fetch_add(1, SeqCst) + 1;
        self.stripe(id).fetch_max(moment, SeqCst);
        maps.attrs.remove(&id);
        overtaken
    }

    pub fn attr(&self, id: InodeId, now: Monotonic) -> Option<(Attr, Duration)> {
        let mut maps = self.maps.lock();
        let &mut (attr, until) = maps.attrs.get(&id)?;
        if until <= now {
            maps.attrs.remove(&id);
            return None;
        }
        Some((attr, until.since(now)))
    }

    pub fn keep_attr(&self, attr: &Attr, ticket: Ticket, now: Monotonic, grant: Grant) {
        let mut maps = self.maps.lock();
        let keep = grant.ms > 0 && self.valid(attr.id, ticket);
        maps.dirs.insert(attr.id, attr.is_dir());
        if keep {
            maps.attrs.insert(attr.id, (*attr, until(now, grant)));
        }
    }

    pub fn is_dir(&self, id: InodeId) -> Option<bool> {
        if id == InodeId::ROOT { Some(true) } else { self.maps.lock().dirs.get(&id).copied() }
    }

    /// The inode behind a name, its absence, or that it is not known.
    pub fn name(&self, parent: InodeId, name: &Name, now: Monotonic) -> Option<(Option<InodeId>, Duration)> {
        let key = (parent, name.clone());
        let mut maps = self.maps.lock();
        let &mut (id, until) = maps.names.get(&key)?;
        if until <= now {
            maps.names.remove(&key);
            return None;
        }
        Some((id, until.since(now)))
    }

    /// The answer to a lookup asked for when `ticket` of the parent was drawn.
    pub fn keep_name(
        &self,
        parent: InodeId,
        name: &Name,
        id: Option<InodeId>,
        ticket: Ticket,
        now: Monotonic,
        grant: Grant,
    ) {
        let mut maps = self.maps.lock();
        if !self.valid(parent, ticket) {
            return;
        }
        if let Some(id) = id {
            maps.places.insert(id, (parent, name.clone()));
        }
        if grant.ms > 0 {
            maps.names.insert((parent, name.clone()), (id, until(now, grant)));
        }
    }

    /// This client changed what the name stands for: the directory's attributes are void as well.
    pub fn name_changed(&self, parent: InodeId, name: &Name) {
        self.maps.lock().names.remove(&(parent, name.clone()));
        self.changed(parent);
    }

    /// As [`Cache::name_changed`], to a new inode, by a request sent when `ticket` was drawn.
    pub fn named(&self, parent: InodeId, name: &Name, attr: &Attr, grant: Grant, ticket: Ticket, now: Monotonic) {
        self.maps.lock().names.remove(&(parent, name.clone()));
        self.keep_name(parent, name, Some(attr.id), ticket, now, grant);
        self.changed(parent);
        self.keep_attr(attr, ticket, now, grant);
    }

    pub fn place(&self, id: InodeId, place: Option<(InodeId, Name)>) {
        if let Some(place) = place {
            self.maps.lock().places.insert(id, place);
        }
    }

    pub fn drop_place(&self, id: InodeId, parent: InodeId, name: &Name) {
        let mut maps = self.maps.lock();
        if maps.places.get(&id).is_some_and(|place| place.0 == parent && place.1 == *name) {
            maps.places.remove(&id);
        }
    }

    /// Ids are never reused, so it stays so.
    pub fn gone(&self, id: InodeId) {
        self.maps.lock().gone.insert(id, ());
    }

    /// The inode for a request, unless it has gone.
    pub fn existing(&self, id: InodeId) -> Result<InodeRef> {
        if self.maps.lock().gone.get(&id).is_some() {
            return Err(Error::new(Code::Stale, format_args!("inode {id}"), "its last name was removed"));
        }
        Ok(self.inode(id))
    }

    pub fn inode(&self, id: InodeId) -> InodeRef {
        InodeRef { id, hint: self.maps.lock().places.get(&id).cloned() }
    }

    /// The state of the file's bytes this client (and the kernel above it) last saw.
    pub fn saw(&self, attr: &Attr) {
        self.maps.lock().stamps.insert(attr.id, Stamp::from(attr));
    }

    /// The answer to a change of this client's own: if the bytes are as last seen, only the rest is new.
    pub fn own_change(&self, attr: &Attr) {
        if let Some(stamp) = self.maps.lock().stamps.get(&attr.id)
            && stamp.same_bytes(attr)
        {
            stamp.ctime = attr.ctime;
        }
    }

    pub fn seen(&self, id: InodeId) -> Option<Stamp> {
        self.maps.lock().stamps.get(&id).copied()
    }

    /// The session was lost, and every grant with it.
    pub fn clear(&self) {
        let mut maps = self.maps.lock();
        maps.attrs.clear();
        maps.names.clear();
        let moment = self.moment.fetch_add(1, SeqCst) + 1;
        self.changes.iter().for_each(|stripe| stripe.store(moment, SeqCst));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::{DeviceId, FileKind, Mode};

    fn attr(id: u64) -> Attr {
        let t = Timestamp(0);
        let id = InodeId(id);
        Attr {
            id,
            kind: FileKind::File,
            mode: Mode(0),
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: DeviceId(0),
            size: 0,
            blocks: 0,
            atime: t,
            mtime: t,
            ctime: t,
            btime: t,
            trunc_gen: TruncGen(0),
            xattrs: false,
        }
    }

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    #[test]
    fn nothing_outlives_its_grant() {
        let cache = Cache::new(10);
        let (id, name) = (InodeId(5), "a".parse().unwrap());
        cache.keep_attr(&attr(5), cache.ticket(), at(0), Grant { ms: 100 });
        cache.keep_name(InodeId(1), &name, None, cache.ticket(), at(0), Grant { ms: 100 });
        assert_eq!(cache.attr(id, at(40)).unwrap().1, Duration::from_millis(60));
        assert_eq!(cache.name(InodeId(1), &name, at(40)), Some((None, Duration::from_millis(60))));
        assert!(cache.attr(id, at(100)).is_none() && cache.name(InodeId(1), &name, at(100)).is_none());
        cache.keep_attr(&attr(5), cache.ticket(), at(0), Grant { ms: 0 });
        assert!(cache.attr(id, at(0)).is_none());
    }

    #[test]
    fn an_own_change_of_mode_is_no_change_of_bytes() {
        let cache = Cache::new(10);
        cache.saw(&attr(5));
        let chmod = Attr { ctime: Timestamp(9), ..attr(5) };
        cache.own_change(&chmod);
        assert_eq!(cache.seen(InodeId(5)), Some(Stamp::from(&chmod)));
        cache.own_change(&Attr { size: 1, ..chmod });
        assert_eq!(cache.seen(InodeId(5)), Some(Stamp::from(&chmod)));
    }

    #[test]
    fn an_answer_overtaken_by_a_change_is_not_kept() {
        let cache = Cache::new(10);
        let ticket = cache.ticket();
        cache.changed(InodeId(5));
        cache.keep_attr(&attr(5), ticket, at(0), Grant { ms: 100 });
        assert!(cache.attr(InodeId(5), at(1)).is_none());
    }
}
