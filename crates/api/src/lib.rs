//! The contracts at which the parts of BraidFS meet.
//!
//! - [`FileSystem`]: what a door (FUSE, HDFS, MPI-IO) may ask; `client` and `model` implement it.
//! - [`Namespace`]: what a client may ask a metadata server; the messages are in [`meta`].
//! - [`DataNode`]: what a client or a metadata server may ask a data server; the messages are in [`data`], those of chunks
//!   with several copies in [`copies`], those of copies of the metadata in [`meta_copies`].
//! - [`Error`] with its stable [`Code`]s: the only error that crosses a process boundary.
//!
//! Promises: servers never name each other nor the client, they meet here over `wire`; a message is only ever
//! extended at its end or by a new variant at the end of its enum, so that numbers on the wire stay.

pub mod admin;
mod at_path;
pub mod copies;
pub mod data;
pub mod erased;
mod error;
mod fs;
mod growing;
pub mod lease;
pub mod members;
mod message;
pub mod meta;
pub mod meta_copies;
mod moving;
pub mod quota;
mod route;
mod session;
pub mod slots;
pub mod snapshots;
mod sql;
pub mod trace;
pub mod trash;
mod tree;
mod waiting;
mod walk;

pub use data::{DataNode, DataPeers};
pub use erased::{AnyNode, AnyPeers};
pub use error::{Code, Error, Result, Retry};
pub use fs::{
    AttrReply, Caller, DirEntry, EntryReply, FallocateMode, FileSystem, HandleId, LockKind, LockRequest, LockSpace,
    LookupReply, NewNode, NodeKind, OpenFlags, Opened, OpenedDir, RenameMode, SeekWhence, SetAttr, Shown, StatFs,
    TimeOrNow, Watcher, XattrMode,
};
pub use message::{About, Carries, Context, Manner, When};
pub use meta::Namespace;
pub use route::GoesTo;

/// Version of the protocol; raised when an old peer could misunderstand. See `wire` for the hello.
pub const PROTOCOL_VERSION: u16 = 34;
