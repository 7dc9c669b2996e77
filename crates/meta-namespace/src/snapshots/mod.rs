//! Rows as they were (docs/design/0028-snapshots.md).
//!
//! No operation knows of snapshots. What changes rows passes [`Keeping`], which keeps each row as it was before its first change since
//! the newest snapshot of its root; what reads a snapshot has a transaction that shows the rows of then ([`AtSnapshot`]).
//!
//! Which rows: names, attributes, small files, attributes by name, policies, and where chunks are. Two kinds are told apart. An inode's
//! attributes say themselves under which snapshot they changed last, so that nothing has to be read to know whether they are as they
//! were; of all other rows that is known by whether they have been kept already.

mod keeping;
mod rules;
mod view;

pub use keeping::Keeping;
pub use view::{AtSnapshot, Moment};

use crate::OpError;
use crate::rows::{Entry, IdRow, Inode, RowFormat};
use braid_meta_engine::{EngineError, Key, Row, Table};

/// Is it as it was before, in a snapshot, though it is another by now?
pub(crate) fn is_kept(table: Table) -> bool {
    matches!(
        table,
        Table::Inodes
            | Table::InodeIds
            | Table::Chunks
            | Table::InlineSmall
            | Table::InlineLarge
            | Table::Xattrs
            | Table::Policies
    )
}

/// The inode in a row, if its attributes are in it.
pub(crate) fn inode_in(key: &Key, row: &Row) -> Result<Option<Inode>, OpError> {
    Ok(match key.table() {
        Table::Inodes => match Entry::decode(key, row)? {
            Entry::Here(inode) => Some(inode),
            Entry::Elsewhere { .. } => None,
        },
        Table::InodeIds => match IdRow::decode(key, row)? {
            IdRow::Attributes(inode) => Some(inode),
            IdRow::At { .. } => None,
        },
        _ => None,
    })
}

/// Rows that cannot be read are the engine's matter to whoever asked for something else.
fn damaged(error: OpError) -> EngineError {
    EngineError::Storage(error.0.to_string())
}
