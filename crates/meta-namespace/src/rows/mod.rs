//! What the rows of design.md §4 hold, and their bytes.
//!
//! Promises: a row's first byte is the version of its format; what an older version wrote is read, what a newer
//! one wrote is refused; bytes that are no row give an error that names the key, never a panic.

mod container;
mod handover;
mod inode;
pub mod keys;
mod lead;
mod policy;
mod quota;
mod rebalance;
mod roster;
mod session;
mod snapshot;
mod tree_change;

pub use container::{ChunkRow, ContainerRow, CopiesRow, MovesRow, ReclaimRow, ServerRow, SpareRow};
pub use handover::{HandoverRow, RestoredRow};
pub use inode::{Entry, IdRow, InlineState, Inode, OrphanRow, SealedCount, flags};
pub use lead::LeadRow;
pub use policy::{PolicyRow, SpreadRow};
pub use quota::{AnyLimitRow, Charge, LimitRow, RestampRow};
pub use rebalance::{MoveRow, RebalanceRow};
pub use roster::RosterRow;
pub use session::{RequestRow, SessionRow};
pub use snapshot::{HandleRow, KeptInode, OldRow, SnapshotEntry, SnapshotsRow};
pub use tree_change::{ChangeRow, LeftRow};

use crate::OpError;
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Row};
use serde::{Serialize, de::DeserializeOwned};

/// A row type, with the version of its format.
pub trait RowFormat: Serialize + DeserializeOwned {
    const VERSION: u8 = 1;

    /// What the inode in it costs, if there is one in it.
    fn charge(&self) -> Option<Charge> {
        None
    }

    fn encode(&self) -> Row {
        // Serializing our own plain structs to memory cannot fail; an empty row would be refused by `decode`.
        postcard::to_extend(self, vec![Self::VERSION]).unwrap_or_default()
    }

    /// A row of an older version, if this one still reads it.
    fn decode_older(version: u8, body: &[u8]) -> Option<Result<Self, postcard::Error>> {
        let _ = (version, body);
        None
    }

    fn decode(key: &Key, row: &[u8]) -> Result<Self, OpError> {
        let damaged = |e: postcard::Error| {
            Error::new(Code::Internal, format_args!("{key:?}"), format_args!("damaged row: {e}")).into()
        };
        match row.split_first() {
            Some((&version, body)) if version == Self::VERSION => postcard::from_bytes(body).map_err(damaged),
            Some((&version, body)) if version < Self::VERSION => match Self::decode_older(version, body) {
                Some(row) => row.map_err(damaged),
                None => Err(Error::new(
                    Code::Internal,
                    format_args!("{key:?}"),
                    format_args!("damaged row: no known format {version}"),
                )
                .into()),
            },
            Some((&version, _)) if version > Self::VERSION => Err(Error::new(
                Code::Newer,
                format_args!("{key:?}"),
                format_args!("row format {version}, this version knows {}", Self::VERSION),
            )
            .into()),
            _ => Err(Error::new(Code::Internal, format_args!("{key:?}"), "damaged row: no known format").into()),
        }
    }
}
