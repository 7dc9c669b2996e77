//! The door seen from the other side: real system calls on a mount of the model. Needs root and /dev/fuse.

mod access;
mod cache;
mod directories;
mod files;
mod lifecycle;
mod locks;
mod names;
mod world;
mod xattrs;
