//! A request about what a path leads to, in one message: the server resolves the path and goes on as if the request had come with
//! what it found.
//!
//! Promises: a change takes effect once, as any under its request id, also if its path leads elsewhere when it is repeated. It is
//! durable when it is answered, never early: a client that keeps changes for a server that starts again has to know the inode.
//! Symbolic links on the way are not followed: the answer says where one stands. Between the walk and the request the tree may
//! change, as it may between two messages; what is done is done to the inode that was found.

use crate::meta::*;
use crate::{Carries, Code, Error, Result, messages};
use braid_types::{InodeId, Name};
use serde::{Deserialize, Serialize};

/// `then` with what the paths lead to from `from`: for requests about an inode the inode, for those about a name the directory it is
/// in. [`Then::Rename`] has two (the directories), [`Then::Link`] two (the directory, the inode). The inodes in the request itself are not read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AtPath {
    pub from: InodeId,
    pub paths: Vec<Vec<Name>>,
    pub then: Then,
}

#[allow(
    clippy::large_enum_variant,
    reason = "nearly every answer is the large one: a box would be an allocation a message"
)]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reached {
    Done(ThenAnswer),
    /// This path does not lead to anything, or not without following a link: nothing was done.
    Short {
        path: u32,
        found: Resolved,
    },
}

messages! {
    Then, ThenAnswer:
    GetAttr -> AttrAnswer;
    ChangeAttr -> AttrAnswer;
    ReadLink -> bytes::Bytes;
    MakeNode -> EntryAnswer;
    CreateFile -> OpenAnswer;
    OpenFile -> OpenAnswer;
    GetMap -> MapAnswer;
    Unlink -> UnlinkAnswer;
    RemoveDir -> UnlinkAnswer;
    Rename -> RenameAnswer;
    Link -> EntryAnswer;
    ReadDir -> DirPage;
    GetXattr -> bytes::Bytes;
    SetXattr -> ();
    ListXattr -> Vec<bytes::Bytes>;
    RemoveXattr -> ();
    PutFile -> EntryAnswer;
    GetPolicy -> PolicyAnswer;
    SetPolicy -> ();
}

/// Each message's way to the request of its name and back.
macro_rules! each {
    ($($name:ident)*) => {
        impl Then {
            fn request(self) -> MetaRequest {
                match self { $(Then::$name(m) => MetaRequest::$name(m),)* }
            }
        }

        impl ThenAnswer {
            /// `None` for the answer to a message that does not go by path.
            pub fn of(answer: MetaAnswer) -> Option<ThenAnswer> {
                Some(match answer { $(MetaAnswer::$name(a) => ThenAnswer::$name(a),)* _ => return None })
            }
        }
    };
}

each! {
    GetAttr ChangeAttr ReadLink MakeNode CreateFile OpenFile GetMap Unlink RemoveDir Rename Link ReadDir GetXattr SetXattr ListXattr
    RemoveXattr PutFile GetPolicy SetPolicy
}

impl Then {
    /// Paths that belong to it.
    pub fn paths(&self) -> usize {
        match self {
            Then::Rename(_) | Then::Link(_) => 2,
            _ => 1,
        }
    }

    pub fn is_mutation(&self) -> bool {
        match self {
            Then::OpenFile(open) => open.truncate,
            other => !MetaRequest::QUESTIONS.contains(&other.name()),
        }
    }

    /// The request about `first`, and `second` where it has two paths.
    pub fn about(mut self, first: InodeRef, second: InodeRef) -> MetaRequest {
        match &mut self {
            Then::GetAttr(m) => m.inode = first,
            Then::ChangeAttr(m) => m.inode = first,
            Then::ReadLink(m) => m.inode = first,
            Then::MakeNode(m) => m.parent = first,
            Then::CreateFile(m) => m.parent = first,
            Then::OpenFile(m) => m.inode = first,
            Then::GetMap(m) => m.inode = first,
            Then::Unlink(m) => m.parent = first,
            Then::RemoveDir(m) => m.parent = first,
            Then::Rename(m) => (m.from, m.to) = (first, second),
            Then::Link(m) => (m.parent, m.inode) = (first, second),
            Then::ReadDir(m) => m.inode = first.id,
            Then::GetXattr(m) => m.inode = first,
            Then::SetXattr(m) => m.inode = first,
            Then::ListXattr(m) => m.inode = first,
            Then::RemoveXattr(m) => m.inode = first,
            Then::PutFile(m) => m.parent = first,
            Then::GetPolicy(m) => m.inode = first,
            Then::SetPolicy(m) => m.inode = first,
        }
        self.request()
    }
}

impl AtPath {
    pub fn new<M: Carries<Then, ThenAnswer>>(path: Vec<Name>, then: M) -> AtPath {
        AtPath { from: InodeId::ROOT, paths: vec![path], then: then.wrap() }
    }

    /// For the requests with two.
    pub fn two<M: Carries<Then, ThenAnswer>>(first: Vec<Name>, second: Vec<Name>, then: M) -> AtPath {
        AtPath { from: InodeId::ROOT, paths: vec![first, second], then: then.wrap() }
    }
}

impl Reached {
    /// The answer to `M`, if its path led somewhere.
    ///
    /// # Errors
    /// `NotFound` or `NotDirectory` if it did not; `BadMessage` if the answer is that of another message.
    pub fn of<M: Carries<Then, ThenAnswer>>(self) -> Result<M::Answer> {
        match self {
            Reached::Done(answer) => M::unwrap(answer).ok_or_else(|| Error::bare(Code::BadMessage)),
            Reached::Short { found, .. } => Err(found.why_short()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_by_path_is_a_message_of_the_same_name() {
        for name in Then::NAMES {
            assert!(MetaRequest::NAMES.contains(name), "{name}");
        }
    }

    #[test]
    fn a_request_is_about_what_its_paths_lead_to() {
        let (dir, other) = (InodeRef::from(InodeId(7)), InodeRef::from(InodeId(8)));
        let name = |name: &str| name.parse::<Name>().unwrap();
        let rename = Rename {
            from: InodeRef::default(),
            from_name: name("a"),
            to: InodeRef::default(),
            to_name: name("b"),
            mode: RenameKind::NoReplace,
            open_here: false,
        };
        let then: Then = Carries::<Then, ThenAnswer>::wrap(rename);
        assert_eq!((then.paths(), then.is_mutation()), (2, true));
        let MetaRequest::Rename(rename) = then.about(dir.clone(), other) else { panic!() };
        assert_eq!((rename.from.id, rename.to.id), (InodeId(7), InodeId(8)));
        let then: Then = Carries::<Then, ThenAnswer>::wrap(OpenFile { truncate: true, ..OpenFile::default() });
        assert_eq!((then.paths(), then.is_mutation()), (1, true));
        assert!(then.about(dir.clone(), dir).is_mutation());
    }
}
