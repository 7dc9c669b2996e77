//! The kernel side of FUSE: `/dev/fuse`, its protocol, and mounting.
//!
//! Knows requests and answers, nothing of what a file system does with them. A [`Channel`] is a mount, [`serve`] starts threads
//! that hand each [`Request`] with its [`Reply`] to a [`Dispatch`], a [`Notifier`] tells the kernel what to forget. Why BraidFS
//! has its own is in `docs/design/0001-own-fuse-channel.md`.
//!
//! Nothing here waits for the file system: a reply may be given later, from any thread. Bytes from the kernel never make this
//! crate panic.

mod abi;
mod attr;
mod buffers;
mod channel;
mod decode;
mod device;
mod dir;
mod fields;
mod fusermount;
mod init;
mod mount;
mod mountinfo;
mod notify;
mod passthrough;
mod reply;
mod request;
mod ring;
mod session;
mod slot;

pub use abi::{ROOT_ID, open_flags};
pub use attr::{Attr, AttrOut, EntryOut, StatfsOut, StatxOut, Timestamp};
pub use buffers::Payload;
pub use channel::Channel;
pub use dir::{DirBuffer, DirPlusBuffer};
pub use init::{Config, InitFlags, Negotiated};
pub use mount::{MountOptions, clear_killed_mount, clear_stale_mount, mount_identity};
pub use mountinfo::{DeviceNumber, set_read_ahead_kb};
pub use notify::Notifier;
pub use passthrough::BackingFile;
pub use reply::{OpenOut, Reply};
pub use request::{
    CopyFileRange, Forget, Lock, LockRequest, Operation, Release, Request, SecurityContext, SetAttr, SetTime, Write,
};
pub use session::{Dispatch, Session, serve};
