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
    pub fn key(&self) -> Option<Key> {
        match *self {
            Learnt::Attr(attr, true) => Some(Key::Attr(attr.id)),
            Learnt::Name(parent, _, None, true) => Some(Key::Dir(parent)),
            Learnt::Name(parent, name, Some(_), true) => Some(Key::Name(parent, name.clone())),
            Learnt::Listing(dir, true, ..) | Learnt::Empty(dir, true) => Some(Key::Dir(dir)),
            Learnt::Dir(dir, DirAfter { granted: true, .. }) => Some(Key::Attr(dir)),
            Learnt::Attr(_, false)
            | Learnt::Name(_, _, _, false)
            | Learnt::Listing(_, false, ..)
            | Learnt::Gone(..)
            | Learnt::Removed(..)
            | Learnt::Empty(_, false)
            | Learnt::Dir(..) => None,
        }
    }
}
