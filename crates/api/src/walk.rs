//! A path that a client walks which keeps what it learns, in one message for all of it that is not known there.
//!
//! Promises: each name that is granted stands for what the answer says until it is revoked, as one of a `Lookup` does; attributes are granted of what
//! the path leads to and of nothing on the way, since a directory's change with everything that is made in it. Symbolic links are not followed.

use crate::meta::Resolved;
use braid_types::{InodeId, Name};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Walk {
    pub from: InodeId,
    pub path: Vec<Name>,
    /// The attributes of what it leads to are to be kept as well.
    pub attr: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Walked {
    pub found: Resolved,
    /// Of each component that was found: what it stands for may be kept.
    pub names: Vec<bool>,
    /// Of the last of them: its attributes may be.
    pub attr: bool,
    /// Of the one after them, the last of the path: that nothing has its name may be.
    pub absence: bool,
}
