//! What a lease is on, and the numbers of what is under way.

use braid_types::{InodeId, Name, Slot};

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

impl Key {
    /// The slot whose holder keeps the leases on it.
    pub fn slot(&self) -> Slot {
        match self {
            Key::Dir(id) | Key::Name(id, _) | Key::Attr(id) => id.slot(),
        }
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
