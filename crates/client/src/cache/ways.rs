//! How far a path leads by names that are known.

use super::{At, Cache, moment};
use braid_env::Monotonic;
use braid_lease::KeyRef;
use braid_types::{Attr, InodeId, Name};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// What so many names lead to.
    pub end: InodeId,
    pub names: usize,
    /// Nothing has the name after them.
    pub lacks: bool,
}

impl Cache {
    /// All of one moment. Attributes are not looked at: with those of a directory it is over whenever something is made in it.
    pub fn way(&self, from: InodeId, path: &[Name], now: Monotonic) -> Way {
        let (mut maps, now) = (self.maps.lock(), moment(now));
        let mut way = Way { end: from, names: 0, lacks: false };
        for name in path {
            let dir = way.end;
            if maps.is_changing(KeyRef::Name(dir, name)) {
                break;
            }
            match maps.names.get(&At(dir, name)).copied() {
                Some(id) if maps.leases.may_serve(now, KeyRef::Name(dir, name)) && maps.gone.get(&id).is_none() => {
                    way.end = id;
                    way.names += 1;
                }
                Some(_) => break,
                None => {
                    let lacks = maps.lacks(dir, name);
                    way.lacks = lacks && maps.leases.may_serve(now, KeyRef::Dir(dir));
                    break;
                }
            }
        }
        way
    }

    /// A name that leads to it is known.
    pub fn has_name(&self, id: InodeId, now: Monotonic) -> bool {
        let maps = &mut *self.maps.lock();
        let Some((dir, name)) = maps.places.get(&id) else { return false };
        let leads_there = maps.names.get(&At(*dir, name)) == Some(&mut { id });
        leads_there && maps.leases.may_serve(moment(now), KeyRef::Name(*dir, name))
    }

    /// What these are, which never changes.
    pub fn learn_kinds(&self, attrs: &[Attr]) {
        let mut maps = self.maps.lock();
        for attr in attrs {
            if maps.dirs.get(&attr.id).is_none() {
                maps.dirs.insert(attr.id, attr.is_dir());
            }
        }
    }
}
