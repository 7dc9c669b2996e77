//! The power-cut disk: a file system that forgets what was not synced when it is told to.
//!
//! `kill -9` keeps the kernel's page cache, so no test that only kills processes can find a missing fsync. Programs under test
//! run unchanged in the directory where a [`PowerCutDisk`] is mounted. [`PowerCutDisk::cut`] is the moment the power goes: all
//! open handles are dead, each write that no sync covered is kept, lost or torn between sectors, changes of names survive as the
//! drawn [`Order`] allows, and what is left is served to whoever opens it next. The same seed after the same requests gives
//! the same disk.
//!
//! It also lies about syncs, fails, fills up, is slow, or stops at a given change. Everything is in memory and ends with the
//! process that serves it. `docs/powercut.md` says what is modelled and what is not.

mod content;
mod control;
mod cut;
mod disk;
mod door;
mod faults;
mod image;
mod machine;
mod machine_names;
mod names;
mod node;
mod promises;
mod settle;
mod stats;

pub use control::{Control, ask};
pub use disk::{PowerCutDisk, Watchdog};
pub use faults::Options;
pub use promises::{Expect, Load, LoadReport, Verdict, check, load};
pub use settle::{Order, Tally};
pub use stats::{CutReport, Stats};
