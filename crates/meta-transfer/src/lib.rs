//! The rows of one moment on their way: from a metadata server into a file, from a file or a server into another store.
//!
//! Promises: what is brought over is the rows of the source, no more and no fewer, whatever the target had; that is not believed
//! but looked at, row by row, by [`compare`]; what is there already is not written again, so a second pass costs what has changed; a
//! file that is cut off or damaged at any place is refused with that place ([`BackupReader`]), before anything of the damaged piece is
//! used. A target that is not whole says so itself ([`braid_meta_namespace::ops::handover`]), and is served by nobody.
//!
//! It leaves to others: where rows come from and that they are of one moment, and that nobody else changes the target.

mod error;
mod file;
mod merge;
mod restored;
mod source;

pub use error::TransferError;
pub use file::{About, BackupReader, BackupWriter, FORMAT};
pub use merge::{Counts, bring, compare};
pub use restored::settle_restored;
pub use source::{Batch, RowSource, StoredRows};
