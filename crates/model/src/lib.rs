//! A small, obvious POSIX file system in memory: what it does is what every door and the real client must do.
//!
//! [`Model`] implements `braid_api::FileSystem` under one mutex, so every call is atomic. It checks no permissions
//! (the kernel does, see design.md §8), keeps everything for ever valid and never loses anything. By default its clock
//! is a counter, so that one stream of operations always gives one result.
//!
//! [`stream`] makes streams of operations from a seed, and [`compare()`] drives two file systems with one stream and
//! reports the first difference. [`linear`] looks for one order that explains concurrent operations on one of [`objects`].

mod clock;
mod compare;
mod content;
mod inode;
pub mod linear;
mod locks;
mod model;
pub mod objects;
mod ops;

mod state;
pub mod stream;
mod world;

pub use clock::Clock;
pub use compare::{Report, Summary, compare, compare_stream};
pub use content::Content;
pub use model::Model;
