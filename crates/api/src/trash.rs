//! Where removed things wait: `/.braid/trash/UID/ITEM/NAME`.
//!
//! An item is a directory of its own, made when something is put into the trash, with the path it had in an attribute and nothing else in it.
//! So nothing of what is put there changes but its place, and everything a program may do with a directory it may do there. Whose trash it
//! is nobody else may enter: what lay in a directory that only one user could enter may itself be open to all.

/// From the root directory: the directory with one for each user, named by number.
pub const PLACE: [&str; 2] = [".braid", "trash"];

/// Of an item: the path from which it came.
pub const FROM: &[u8] = b"user.braid.trash.from";
