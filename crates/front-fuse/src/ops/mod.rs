//! The requests, each translated to one call of the file system.

mod attr;
mod create;
mod data;
mod dir;
mod entry;
mod flags;
mod lock;
mod open;
mod xattr;
