//! What answers tell.

use crate::dirpages::Pages;
use braid_api::meta::DirAfter;
use braid_lease::Key;
use braid_types::{Attr, InodeId, Name};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What an answer says, and whether it was granted with it.
#[derive(Clone, Copy)]
pub enum Learnt<'a> {
    Attr(&'a Attr, bool),
    /// What a name stands for, if for anything.
    Name(InodeId, &'a Name, Option<InodeId>, bool),
    /// This client took the name away.
    Gone(InodeId, &'a Name),
    /// The same of a name of which nothing has been shown since [`super::Cache::removing_behind`], and what the directory was then.
    Removed(InodeId, &'a Name, &'a DirAfter),
    /// A directory is new, so that nothing is in it.
    Empty(InodeId, bool),
    /// This client changed what is in a directory: what that is now, if it was told.
    Dir(InodeId, &'a DirAfter),
    /// The first page of a directory that a cache above keeps, and the offsets by which it does.
    /// The last says which listing it is of, 0 if it is of none that may be kept.
    Listing(InodeId, bool, &'a Arc<Mutex<Pages>>, &'a AtomicU64),
}

impl Learnt<'_> {
    /// It came with a lease: [`Learnt::key`] is one.
    pub fn is_granted(&self) -> bool {
        match *self {
            Learnt::Attr(_, granted)
            | Learnt::Name(_, _, _, granted)
            | Learnt::Listing(_, granted, ..)
            | Learnt::Empty(_, granted) => granted,
            Learnt::Dir(_, after) => after.granted,
            Learnt::Gone(..) | Learnt::Removed(..) => false,
        }
    }

    pub fn key(&self) -> Option<Key> {
        let key = match *self {
            Learnt::Attr(attr, _) => Key::Attr(attr.id),
            Learnt::Name(parent, _, None, _) | Learnt::Listing(parent, ..) | Learnt::Empty(parent, _) => {
                Key::Dir(parent)
            }
            Learnt::Name(parent, name, Some(_), _) => Key::Name(parent, name.clone()),
            Learnt::Dir(dir, _) => Key::Attr(dir),
            Learnt::Gone(..) | Learnt::Removed(..) => return None,
        };
        self.is_granted().then_some(key)
    }
}
