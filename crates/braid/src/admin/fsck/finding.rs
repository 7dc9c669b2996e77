//! What a check found: codes that stay, what is wrong, where, and what a repair would do or did.

use braid_api::admin::Repair;
use braid_types::{ChunkId, ServerId};
use serde::Serialize;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        /// Kinds of faults. 1xx: names and inodes, 2xx: rows that say where an inode is, counts, and rows beside it, 3xx: rows of
        /// chunks, 4xx: chunks at data servers. The codes are for scripts and stay.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault { $($(#[$doc])* $name,)* }

        impl Fault {
            #[cfg(test)]
            pub const ALL: &[Fault] = &[$(Fault::$name),*];

            pub fn code(self) -> &'static str {
                match self { $(Fault::$name => $code,)* }
            }
        }
    };
}

faults! {
    /// A name leads to no inode.
    NoInode = "F101";
    /// The attributes of one inode lie in two rows.
    TwoRows = "F102";
    /// The directory of an entry does not exist.
    NoDirectory = "F103";
    /// A directory lies below itself.
    Circle = "F104";
    /// An inode has no name.
    NoName = "F105";
    /// An inode without a name is not on the list of what is to be freed.
    NotFreed = "F106";
    /// The list of unlinked files has one that is not unlinked, or does not exist.
    WrongOrphan = "F107";
    /// The root directory has no row.
    NoRoot = "F108";
    /// The row is missing that says where an inode is.
    NoIdRow = "F201";
    /// That row says something wrong.
    WrongIdRow = "F202";
    /// That row leads nowhere, and the inode is nowhere else.
    IdRowNowhere = "F203";
    /// A link count is wrong.
    Links = "F211";
    /// A directory's row counts other entries or subdirectories than there are.
    Counts = "F212";
    /// What is charged to a directory, a user or a group is not what they have.
    Usage = "F213";
    /// Inline bytes without an inode.
    InlineWithoutFile = "F221";
    /// Extended attributes without an inode.
    XattrsWithoutInode = "F222";
    /// A quota without an inode.
    QuotaWithoutInode = "F223";
    /// A policy without an inode.
    PolicyWithoutInode = "F224";
    /// A chunk row without a file.
    ChunkWithoutFile = "F301";
    /// Two rows name one chunk.
    ChunkTwice = "F302";
    /// A chunk of a file waits to be freed, or may be given to another file.
    ChunkToBeFreed = "F303";
    /// A chunk's container has no row.
    NoContainer = "F304";
    /// A container's chain names a server that does not exist.
    NoServer = "F305";
    /// A data server does not have a chunk that it should have.
    ChunkLost = "F401";
    /// A data server has a chunk that no row names.
    Garbage = "F402";
    /// A chunk holds bytes beyond the size of its file.
    BeyondSize = "F403";
    /// A data server has a chunk that belongs on others.
    WrongServer = "F404";
    /// Bytes of a chunk are missing at a data server, or do not match their checksums.
    ChunkDamaged = "F405";
    /// The file at a data server that says what a chunk is cannot be used, so that nothing of the chunk can be read.
    HeaderDamaged = "F406";
}

/// What can be done about a fault.
#[derive(Clone, Debug)]
pub enum Remedy {
    Row(Repair),
    /// Delete a chunk at a data server.
    Delete(ServerId, ChunkId),
    /// Take the files of a damaged chunk out of a data server's store, and keep them.
    SetAside(ServerId, ChunkId),
    /// Nothing by itself: says what a person can do.
    ByHand(&'static str),
}

#[derive(Clone, Debug)]
pub struct Finding {
    pub fault: Fault,
    pub what: String,
    /// A path, if one can be built, else which inode, chunk or container.
    pub place: String,
    pub remedy: Remedy,
    /// What a repair did.
    pub done: Option<String>,
}

impl Finding {
    pub fn new(fault: Fault, place: impl Into<String>, what: impl Into<String>, remedy: Remedy) -> Self {
        Finding { fault, what: what.into(), place: place.into(), remedy, done: None }
    }

    pub fn line(&self) -> String {
        let Finding { fault, place, what, .. } = self;
        format!("{} {place}: {what}; {}", fault.code(), self.remedy_text())
    }

    fn remedy_text(&self) -> String {
        match (&self.done, &self.remedy) {
            (Some(done), _) => format!("repaired: {done}"),
            (None, Remedy::Row(repair)) => format!("--repair {}", intent(repair)),
            (None, Remedy::Delete(server, chunk)) => format!("--repair deletes chunk {chunk} at data server {server}"),
            (None, Remedy::SetAside(server, chunk)) => {
                format!("--repair moves the files of chunk {chunk} to `aside` in the directory of data server {server}")
            }
            (None, Remedy::ByHand(what)) => format!("not repaired by itself: {what}"),
        }
    }

    pub fn shown(&self) -> Shown<'_> {
        Shown {
            code: self.fault.code(),
            place: &self.place,
            what: &self.what,
            remedy: self.remedy_text(),
            repaired: self.done.is_some(),
        }
    }
}

/// A finding as `--json` prints it.
#[derive(Serialize)]
pub struct Shown<'a> {
    code: &'static str,
    place: &'a str,
    what: &'a str,
    remedy: String,
    repaired: bool,
}

fn intent(repair: &Repair) -> String {
    match repair {
        Repair::Links { .. } => "sets what the row counts to what there is".to_owned(),
        Repair::FileLinks { names: 0, inode, .. } => format!("gives it the name /#{inode}"),
        Repair::FileLinks { names, .. } => format!("sets the link count to {names}"),
        Repair::IdRow { .. } => "writes where it is".to_owned(),
        Repair::DropIdRow { .. } | Repair::DropChunkRow { .. } | Repair::ForgetChunkRow { .. } => {
            "drops the row".to_owned()
        }
        Repair::DropSideRows(_) => "drops the rows".to_owned(),
        Repair::DropEntry { .. } => "removes the name".to_owned(),
        Repair::Duplicate { .. } => "keeps the row that the inode's id leads to".to_owned(),
        Repair::Reattach { inode } => format!("moves it to /#{inode}"),
        Repair::MoveEntry { .. } => "moves it into the root directory as #INODE".to_owned(),
        Repair::Size { size, .. } | Repair::RaiseSize { to: size, .. } => format!("sets the size to {size}"),
        Repair::MakeOrphan { .. } => "lists it to be freed".to_owned(),
        Repair::DropOrphan { .. } => "takes it from the list".to_owned(),
        Repair::Usage(_) => "sets it to what was counted".to_owned(),
        Repair::KeepChunk { .. } => "leaves the chunk with its file".to_owned(),
    }
}
