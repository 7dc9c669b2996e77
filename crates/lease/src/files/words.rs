//! The words of file leases: what both ends and the messages between them use.

use crate::locks::{LockSpec, Space};
use braid_types::{InodeId, MembershipEpoch, Timestamp};

/// What a session may do with a file's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Nothing without asking.
    #[default]
    None,
    /// Cache pages.
    Shared,
    /// Read and write, caching nothing: every write reaches the owner before it returns.
    Sync,
    /// Cache, buffer writes, own size and times.
    Exclusive,
}

impl Mode {
    /// Everything this allows, `other` allows too.
    pub fn is_within(self, other: Mode) -> bool {
        self == Mode::None || self == other || other == Mode::Exclusive
    }

    /// Two sessions may have these at once.
    pub fn agrees_with(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::None, _) | (_, Mode::None) => true,
            (one, other) => one == other && one != Mode::Exclusive,
        }
    }

    /// Bytes may be changed under it.
    pub fn writes(self) -> bool {
        matches!(self, Mode::Sync | Mode::Exclusive)
    }

    /// It is enough for what is wanted.
    pub fn serves(self, want: Want) -> bool {
        match want {
            Want::Direct => self != Mode::None,
            Want::Read => matches!(self, Mode::Shared | Mode::Exclusive),
            Want::Write => self.writes(),
            Want::Once => self == Mode::Exclusive,
        }
    }
}

/// Orders everything a holder says about its file leases: the membership epoch, then a counter. Messages are told apart
/// by it, and one of them, the *token*, travels in data requests: all who may write a file at once have the same, and
/// whoever may write it next has a higher one. 24 bits of epochs and 40 bits of counter: 16 million changes of
/// membership, and under each 10,000 grants a second for three and a half years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

const COUNTER_BITS: u32 = 40;

impl Generation {
    /// Below all that is given out under this epoch, above all of older ones.
    pub fn begin(epoch: MembershipEpoch) -> Self {
        Generation(epoch.0 << COUNTER_BITS)
    }
}

/// What a session has open on a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handles {
    /// Rises with each change at the session, so that an older message changes nothing.
    pub seq: u64,
    pub open: bool,
    /// Some handle is open for writing through the page cache.
    pub cached_write: bool,
    /// Some handle is open for writing and asked for `sync`: O_DIRECT, a native door, a file marked shared.
    pub sync_write: bool,
}

impl Handles {
    pub fn writes(self) -> bool {
        self.cached_write || self.sync_write
    }

    pub fn any(self) -> bool {
        self.open || self.writes()
    }
}

/// What a session asks a file lease for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Want {
    /// Reading by handles that cache nothing: `sync` where others write and every writer can, else as `Read`.
    Direct,
    /// Reading, with pages cached.
    Read,
    /// Writing by handles that cache nothing: `sync` where others write and every writer can, else `exclusive`.
    Write,
    /// `exclusive`, whatever the others are: writing with a cache, one append, one truncate.
    Once,
}

/// Size and time that writes under `sync` gave a file, as far as the row may not have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grown {
    pub size: u64,
    pub mtime: Timestamp,
}

/// A lock that a session granted itself or says it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldLock {
    pub space: Space,
    pub lock: LockSpec,
}

impl HeldLock {
    /// Not both can be held.
    pub fn excludes(&self, other: &HeldLock) -> bool {
        self.space == other.space && self.lock.conflicts(&other.lock)
    }
}

/// What a session says it has of a file, after a change of holder or a silence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reasserted {
    pub inode: InodeId,
    pub mode: Mode,
    pub handles: Handles,
    /// Of writes under `sync`.
    pub grown: Option<Grown>,
    pub locks: Vec<HeldLock>,
}
