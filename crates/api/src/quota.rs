//! Quotas: who is charged for what is stored, how much, and how much may be.

use crate::meta::InodeRef;
use braid_types::{InodeId, Name};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who is charged: a directory with a quota for all that is below it (the root directory is always charged), the owner, the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Payer {
    Dir(InodeId),
    User(u32),
    Group(u32),
}

impl fmt::Display for Payer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payer::Dir(InodeId::ROOT) => f.write_str("the root directory"),
            Payer::Dir(id) => write!(f, "directory {id}"),
            Payer::User(id) => write!(f, "user {id}"),
            Payer::Group(id) => write!(f, "group {id}"),
        }
    }
}

/// What a payer may have; `None`: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub inodes: Option<u64>,
    pub bytes: Option<u64>,
}

impl Limits {
    pub fn is_none(&self) -> bool {
        self.inodes.is_none() && self.bytes.is_none()
    }
}

/// What a payer has: inodes, and the sizes of files. Below 0 only where rows are damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub inodes: i64,
    pub bytes: i64,
}

/// A payer's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub payer: Payer,
    pub usage: Usage,
    /// `None`: it has no quota.
    pub limits: Option<Limits>,
    /// A tree is being counted under it, or no longer: so many inodes of it since this server began.
    pub counting: Option<u64>,
}

/// An account whose usage is not what the rows of its inodes sum up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Miscount {
    pub payer: Payer,
    pub recorded: Usage,
    pub counted: Usage,
}

/// A directory that is still to be summed up, after this name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToSum {
    pub dir: InodeId,
    pub after: Option<Name>,
}

/// What is no directory, one or many, as far as their sizes are saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// What quotas count.
    pub bytes: u64,
    /// What programs see: sizes, and blocks of 512 bytes.
    pub size: u64,
    pub blocks: u64,
}

impl Weight {
    pub fn add(&mut self, other: Weight) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.size = self.size.saturating_add(other.size);
        self.blocks = self.blocks.saturating_add(other.blocks);
    }
}

/// What a part of a tree has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub directories: u64,
    /// Whatever is no directory and has one name.
    pub files: u64,
    /// Of these.
    pub weight: Weight,
    /// What has several names, once for each name that was met.
    pub several: Vec<(InodeId, Weight)>,
    /// What is left to ask for; empty: all of it is summed up.
    pub waiting: Vec<ToSum>,
}

/// Asks for room to write a file up to this size, and if there is so much up to another; answered by up to where, or by the greatest number
/// if nobody who pays for the file has a quota of bytes (any more). [`crate::Code::QuotaExceeded`] if there is too little.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakeRoom {
    pub inode: InodeRef,
    pub until: u64,
    pub wish: u64,
}

/// Of these files no more is written now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReturnRoom {
    pub inodes: Vec<InodeRef>,
}

impl ReturnRoom {
    pub const MAX: usize = 1024;
}
