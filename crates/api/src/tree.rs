//! chmod -R, chown -R and setfacl -R, as one change of a directory and all that is below it.

use crate::meta::InodeRef;
use braid_types::{AclChange, InodeId, ModeChange, RequestId, SessionId};
use serde::{Deserialize, Serialize};

/// What they do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeChange {
    /// Not of symbolic links.
    pub mode: Option<ModeChange>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Nor this.
    pub acl: Option<AclChange>,
}

/// Begins such a change of a directory and all that is below it. The directory itself is changed when it is answered; all below it comes to be,
/// whoever serves then, and whether or not anybody waits for it: [`crate::admin::AdminQuery::TreeOp`] says how far it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeTree {
    pub dir: InodeRef,
    pub change: TreeChange,
}

/// Names such a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TreeOp {
    /// The directory.
    pub top: InodeId,
    /// Who asked for it, and by which request.
    pub session: SessionId,
    pub request: RequestId,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeOpStatus {
    /// Directories that are known and not looked through; 0: all is done.
    pub waiting: u64,
    /// When all is done, a page of what was left as it is. It is kept for an hour.
    pub left: Vec<LeftInDir>,
    /// What to ask for next, if there is more of that.
    pub next: Option<Vec<u8>>,
}

/// What was left as it is in a directory, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftInDir {
    /// The directory's path, from the root.
    pub dir: Vec<Vec<u8>>,
    pub sealed: Vec<Vec<u8>>,
    /// Its access list would have names and no mask, or is damaged.
    pub refused: Vec<Vec<u8>>,
}
