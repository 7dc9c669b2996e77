//! What each call of [`braid_api::FileSystem`] does.

mod attr;
mod dir;
mod life;
mod lock;
mod names;
mod open;
mod paths;
mod read_write;
mod seal;
mod space;
mod xattr;
