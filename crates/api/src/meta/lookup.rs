//! Questions about names and directories, and about room.
use super::{Grant, InodeRef, OpenAnswer};
use crate::Code;
use crate::Error;
use braid_types::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lookup {
    pub parent: InodeId,
    pub name: Name,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookupAnswer {
    pub attr: Option<Attr>,
    pub grant: Grant,
}

/// A lookup of who is about to read what it finds, most likely: a file comes with all that an open of it would be told, if nobody has to be
/// asked for that. A session that holds the file already is told nothing anew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookToOpen {
    pub parent: InodeId,
    pub name: Name,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookedToOpen {
    pub found: LookupAnswer,
    pub opened: Option<Box<OpenAnswer>>,
}

/// Of who reads the files of a directory one after the other: what an open for reading would be told of each, under the rules of [`LookToOpen`];
/// `None` where somebody would have to be asked, where anything is wrong, and after [`OpenAhead::BYTES_MAX`] of answers. More than
/// [`OpenAhead::MAX`] are refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenAhead {
    pub inodes: Vec<InodeId>,
}

impl OpenAhead {
    pub const MAX: usize = 64;
    /// Half of what the body of a message may have (1 MiB): what comes last may be a file of 64 KiB or a map of 256 chunks.
    pub const BYTES_MAX: usize = 512 << 10;
}

/// Attributes of several names of one directory: one message and one round trip to the database, one more if some of
/// the files have several links. For whoever knows names already and keeps nothing: the answer grants nothing. More than
/// [`StatNames::MAX`] are refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatNames {
    pub parent: InodeId,
    pub names: Vec<Name>,
}

impl StatNames {
    /// Their answer is about 100 bytes each: 100 KiB.
    pub const MAX: usize = 1024;
}

/// Resolves a path of components from `from` in one message; for `braid fs` and native doors. Symbolic links in
/// the middle are not followed: the answer says where one stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resolve {
    pub from: InodeId,
    pub path: Vec<Name>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resolved {
    /// Attributes of each component found, in order.
    pub attrs: Vec<Attr>,
    /// Components that were not resolved, because one before is missing or is no directory.
    pub rest: u32,
}

impl Resolved {
    /// Where `path` led from `from`, with the place of its row.
    pub fn end(&self, from: InodeId, path: &[Name]) -> InodeRef {
        let Some(last) = self.attrs.last() else { return from.into() };
        let parent = self.attrs.iter().rev().nth(1).map_or(from, |attr| attr.id);
        InodeRef { id: last.id, hint: path.last().map(|name| (parent, name.clone())) }
    }

    /// Why components are left.
    pub fn why_short(&self) -> Error {
        self.why_short_at(format!("component {} of the path", self.attrs.len() + 1))
    }

    /// The same, with another word for the first of them.
    pub fn why_short_at(&self, at: impl std::fmt::Display) -> Error {
        match self.attrs.last() {
            Some(attr) if attr.kind == FileKind::Symlink => {
                Error::new(Code::NotDirectory, at, "the one before is a symbolic link, which is not followed here")
            }
            Some(attr) if attr.kind != FileKind::Directory => {
                Error::new(Code::NotDirectory, at, "the one before is a file")
            }
            _ => Error::new(Code::NotFound, at, ""),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadLink {
    pub inode: InodeRef,
}

/// One page of a directory in byte order of names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadDir {
    pub inode: InodeId,
    pub after: Option<Name>,
    pub limit: u32,
    /// With attributes; else the attributes of files with several links are not looked up.
    pub plus: bool,
    /// But for those of these inodes: names and attributes of them are known to who asks, under leases. In order.
    pub knows: Vec<InodeId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirPage {
    pub entries: Vec<(Name, InodeId, FileKind, Option<Attr>)>,
    pub more: bool,
    /// Of each entry; empty if nothing is granted.
    pub grants: Vec<Grant>,
    /// What is in the directory is leased, from the moment of this page on: granted with the first alone.
    pub listing: bool,
}

/// How much room there is: of the file system, and to what this is, or is made in it, no more than the directories with quotas above it
/// leave. 0: of the file system alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetStatFs {
    pub of: InodeId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatFsAnswer {
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub files: u64,
    pub files_free: u64,
    /// Some directory may have a quota: the answer holds for what was asked about alone.
    pub limited: bool,
}
