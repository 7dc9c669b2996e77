//! What a lease is on, and the numbers of what is under way.

use braid_types::{InodeId, Name, Slot};
use hashbrown::Equivalent;
use std::sync::Arc;

/// What a lease of the namespace is on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A directory's listing: every entry, and the absence of every other name.
    Dir(InodeId),
    /// One entry of a directory: which inode it names. An absence is covered by [`Key::Dir`] alone.
    Name(InodeId, Name),
    /// An inode's attributes.
    Attr(InodeId),
}

/// A key to look for: a name in it is not copied. It has the hash of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyRef<'a> {
    Dir(InodeId),
    Name(InodeId, &'a Name),
    Attr(InodeId),
}

impl<'a> From<&'a Key> for KeyRef<'a> {
    fn from(key: &'a Key) -> Self {
        match key {
            Key::Dir(id) => KeyRef::Dir(*id),
            Key::Name(dir, name) => KeyRef::Name(*dir, name),
            Key::Attr(id) => KeyRef::Attr(*id),
        }
    }
}

impl KeyRef<'_> {
    pub fn slot(&self) -> Slot {
        match self {
            KeyRef::Dir(id) | KeyRef::Name(id, _) | KeyRef::Attr(id) => id.slot(),
        }
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self == KeyRef::from(key)
    }
}

impl Equivalent<Arc<Key>> for KeyRef<'_> {
    fn equivalent(&self, key: &Arc<Key>) -> bool {
        *self == KeyRef::from(&**key)
    }
}

impl Key {
    /// The slot whose holder keeps the leases on it.
    pub fn slot(&self) -> Slot {
        KeyRef::from(self).slot()
    }
}

/// A message the holder's server is answering; the server's own number, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// A change that was announced; unique among all metadata servers (server and its own number). `server` is one start of a
/// server, and its numbers rise: at a holder one that is not above all of its server's before it was overtaken, or is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnnouncementId {
    pub server: braid_types::MemberId,
    pub number: u64,
}

/// A revocation of leases of the namespace; the holder's own number, never used twice within a membership epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevocationId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    #[test]
    fn a_key_is_found_by_what_it_is_made_of() -> Result<(), braid_types::NameError> {
        let (dir, name): (_, Name) = (InodeId(7), "a name of some length".parse()?);
        let keys = [Key::Dir(dir), Key::Attr(dir), Key::Name(dir, name.clone())];
        let (mut table, mut shared) = (Table::default(), Table::default());
        for (key, at) in keys.iter().zip(0..) {
            table.insert(key.clone(), at);
            shared.insert(Arc::new(key.clone()), at);
        }
        let refs = [KeyRef::Dir(dir), KeyRef::Attr(dir), KeyRef::Name(dir, &name)];
        for ((key, key_ref), at) in keys.iter().zip(refs).zip(0..) {
            assert_eq!((table.get(&key_ref), shared.get(&key_ref)), (Some(&at), Some(&at)));
            assert_eq!((KeyRef::from(key), key_ref.slot()), (key_ref, dir.slot()));
        }
        assert_eq!(table.get(&KeyRef::Attr(InodeId(8))), None);
        Ok(())
    }
}
