//! The rules of POSIX that every implementation of the namespace shares, as pure functions and state machines.
//!
//! - [`acl`]: access control lists as the kernel writes them into `system.posix_acl_*`, how they follow chmod and how
//!   a new inode inherits them.
//! - [`acl_edit`]: what setfacl makes of them.
//! - [`create`]: owner, group and mode of what is created.
//! - [`mode`]: which privilege bits a write or a change of owner takes away.
//! - [`times`]: when a read is written down (relatime).
//! - [`locks`]: the table of range locks with its fair queue and its detection of deadlocks.
//!
//! Promises: no I/O, no clock, nothing that waits; bytes from outside are checked, never trusted; no permission is
//! checked here (that is the kernel's part, see design.md §8).

/// Names one file may have, as in ext4; a bound that programs have met before.
pub const LINKS_MAX: u32 = 65_000;

pub mod acl;
pub mod acl_edit;
pub mod create;
pub mod locks;
pub mod mode;
pub mod times;
