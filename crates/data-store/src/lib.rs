//! Chunks of bytes on one disk, or in memory.
//!
//! Promises: a byte that is read is a byte that was written, or an error names the block that cannot prove it; what
//! [`ChunkStore::sync`] covered survives a power cut; what was not covered is old, new or torn after one, and reads
//! without an error; a copy's record speaks of nothing that is not on stable storage, and what may differ from it is named;
//! a store that cannot keep its word for a chunk refuses that chunk rather than guess.
//!
//! Leaves to others: who may write (owners, epochs, leases), where copies are, what a file is. Calls block and may
//! come from any thread; [`ChunkStore::read_cached`] alone never waits for the disk.

mod checksum;
pub mod conformance;
mod disk;
mod error;
mod identity;
mod memory;
mod store;

pub use checksum::record_sum;
pub use disk::{DiskStore, StoreOptions, spare_bytes};
pub use error::{BadBlockCause, Result, StoreError};
pub use identity::{FORMAT_VERSION, StoreIdentity};
pub use memory::MemoryStore;
pub use store::{
    ChunkHead, ChunkStat, ChunkStore, Cuts, Damage, DamagedPart, Examined, Extent, FoundCopy, RecordMark, ScrubCursor,
    ScrubStep, StoreUsage, Synced, WriteInfo, Written,
};
