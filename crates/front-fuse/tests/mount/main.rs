//! The door seen from the other side: real system calls on a mount of the model. Needs root and /dev/fuse.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod cache;
mod directories;
mod files;
mod lifecycle;
mod locks;
mod names;
mod sealed;
mod world;
mod xattrs;
