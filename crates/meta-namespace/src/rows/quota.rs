use super::{Entry, IdRow, Inode, RowFormat};
use braid_api::quota::{Limits, Payer};
use braid_types::InodeId;
use serde::{Deserialize, Serialize};

/// A quota. Of a directory also that it has one, which its own row says too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRow(pub Limits);

impl RowFormat for LimitRow {}

/// Whether somebody has a quota, for servers that do not set them. Only while none is being set it says that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnyLimitRow(pub bool);

impl RowFormat for AnyLimitRow {}

/// A directory whose entries may be charged to others than it is: they are looked through, a page at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestampRow {
    /// Go on after this name; empty: from the first.
    pub after: Vec<u8>,
    /// Directories with quotas that are charged for more, or for less, when it is done.
    pub roots: Vec<InodeId>,
}

impl RowFormat for RestampRow {}

/// What one inode costs, and whom. Each is charged for one inode and these bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    pub roots: Vec<InodeId>,
    pub uid: u32,
    pub gid: u32,
    pub bytes: u64,
}

impl Charge {
    /// Of one who owns as these do and lies where that one does.
    pub fn payers(&self) -> impl Iterator<Item = Payer> {
        let dirs = [InodeId::ROOT].into_iter().chain(self.roots.iter().copied()).map(Payer::Dir);
        dirs.chain([Payer::User(self.uid), Payer::Group(self.gid)])
    }
}

impl Inode {
    pub fn charge(&self) -> Charge {
        let bytes = if self.is_file() { self.size.max(self.room) } else { 0 };
        Charge { roots: self.quota_roots.clone(), uid: self.uid, gid: self.gid, bytes }
    }

    /// It is a directory with a quota of its own; the root directory has one in this sense without being named.
    pub fn is_quota_root(&self) -> bool {
        self.quota_roots.last() == Some(&self.id)
    }

    /// The directories with quotas that are charged for it where `above` are for its directory.
    pub fn roots_below(&self, above: &[InodeId]) -> Vec<InodeId> {
        let own = self.is_quota_root().then_some(self.id);
        above.iter().copied().chain(own).collect()
    }
}

impl Entry {
    pub fn charge(&self) -> Option<Charge> {
        match self {
            Entry::Here(inode) => Some(inode.charge()),
            Entry::Elsewhere { .. } => None,
        }
    }
}

impl IdRow {
    pub fn charge(&self) -> Option<Charge> {
        match self {
            IdRow::Attributes(inode) => Some(inode.charge()),
            IdRow::At { .. } => None,
        }
    }
}
