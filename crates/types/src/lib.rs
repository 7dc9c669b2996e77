//! The nouns of BraidFS: ids, epochs, versions, ranges, names, attributes, policies; rules between time limits.
//!
//! Promises: every type here is plain data without I/O, clock or randomness; two quantities that could be
//! confused (an inode id and a chunk id, a chain epoch and an owner term) are different types; a value that
//! exists is valid (a [`Name`] cannot hold `/`, a [`Policy`] cannot ask for 0 copies). Everything but a [`Rule`] is
//! `serde`, because the same types travel in messages and lie in rows.

mod acl_change;
mod attr;
mod ids;
mod meta_copies;
mod mode_change;
mod name;
mod policy;
mod range;
mod report;
mod rule;
mod slot_set;
mod time;
mod version;

pub use acl_change::{AclChange, AclEdit, AclPermissions, AclWho};
pub use attr::{Attr, DeviceId, FileKind, MODE_MASK, Mode};
pub use ids::{
    ChunkId, ChunkIndex, ClusterId, ContainerId, InodeId, MemberId, RequestId, SLOT_BITS, SLOT_COUNT, ServerId,
    SessionId, Slot, SnapshotHandle, TraceId,
};
pub use meta_copies::{
    CopySet, CopyStanding, KeeperReport, MetaPosition, MetaTerm, NoChanges, RowChange, RowChanges, Voter,
};
pub use mode_change::{ModeChange, ModeClause};
pub use name::{NAME_BYTES_MAX, Name, NameError};
pub use policy::{Durability, Layout, Medium, Policy, PolicyError};
pub use range::ByteRange;
pub use report::{ReportAsk, ReportPart, Tally};
pub use rule::{BrokenRule, Rule};
pub use slot_set::SlotSet;
pub use time::Timestamp;
pub use version::{
    ChainEpoch, LayoutGen, LeaderEpoch, LeaseGen, MembershipEpoch, OwnerTerm, SessionEpoch, Token, TruncGen, Version,
};

/// Bytes in a chunk unless the policy says otherwise (design.md §1): 64 MiB.
pub const CHUNK_BYTES_DEFAULT: u64 = 64 << 20;
/// Chunks that share one container, its chain and its epoch (design.md §1).
pub const CONTAINER_CHUNKS_MAX: u32 = 256;
/// Bytes covered by one checksum, and the grain of maps of invalid blocks.
pub const BLOCK_BYTES: u64 = 4096;
/// Bytes kept inline beside the inode's row unless the policy says otherwise; to be revised by measurement.
pub const INLINE_BYTES_DEFAULT: u32 = 16 << 10;
/// The most a policy may keep inline.
pub const INLINE_BYTES_MAX: u32 = 64 << 10;
/// Of that, what databases keep in memory unless the policy says less (HopsFS: 1 KiB).
pub const INLINE_SMALL_BYTES_MAX: u16 = 1 << 10;
/// Largest file: 2^63 - 1 bytes, what `off_t` can address.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;
