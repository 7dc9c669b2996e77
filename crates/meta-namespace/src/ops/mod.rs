//! One file per operation. Messages of [`braid_api::meta`] implement [`crate::Mutation`] or [`crate::Query`]
//! here; what only the server itself does (sessions, reclaim, ids) has types of its own.

pub mod acl;
pub mod admin;
mod attr;
pub mod chains;
mod change_attr;
pub mod change_tree;
pub mod check;
mod commit;
pub mod content;
mod create;
mod drop_chunks;
mod entries;
mod free;
pub mod handover;
pub mod ids;
pub mod lead;
mod link;
pub mod lookup;
mod make_node;
pub mod mark_stable;
pub mod move_chunk;
pub mod open;
pub mod policy;
mod put_file;
pub mod quota;
mod read_dir;
pub mod rebalance;
pub mod reclaim;
mod remove_dir;
pub mod remove_tree;
pub mod rename;
pub mod repair;
pub mod restamp;
pub mod restored;
pub mod room;
pub mod roster;
mod seal;
pub mod servers;
pub mod session;
pub mod side;
pub mod sizes;
pub mod snapshot;
pub mod spares;
pub mod spread;
pub mod stand_for;
pub mod subtree_ops;
pub mod summary;
mod unlink;
mod xattr;

use crate::rows::keys;
use braid_api::meta::InodeRef;
use braid_meta_engine::Key;
use braid_types::{InodeId, Name};

/// The keys under which an inode is looked for first: see [`crate::Unit::find`].
pub(crate) fn keys_of(inode: &InodeRef) -> Vec<Key> {
    if inode.id == InodeId::ROOT {
        return vec![keys::root_entry()];
    }
    let mut wanted = vec![keys::inode_id(inode.id)];
    if let Some((parent, name)) = &inode.hint {
        wanted.push(keys::entry(*parent, name));
    }
    wanted
}

/// What an operation on a name reads first: the directory's row and the entry.
fn parent_and_entry(parent: &InodeRef, name: &Name) -> Vec<Key> {
    let mut wanted = keys_of(parent);
    wanted.push(keys::entry(parent.id, name));
    wanted
}
