//! The version of what is on the disk. Rows have versions of their own; this one is of tables and keys.

use crate::rows::Rows;
use braid_meta_engine::EngineError;
use heed::RwTxn;

/// 1: a database `table-NN` for each `Table`, its key the row's bytes, and the database `format`.
/// 2: the same, with a log and a checkpoint beside it while it is open (docs/formats/metadata-log.md): a program that knows only 1 would
/// open it without them. One of format 1 becomes one of 2 by being opened.
pub const FORMAT: u32 = 2;

pub const DATABASE: &str = "format";
const KEY: &[u8] = b"version";

/// Writes the version into an empty store; refuses a newer one before anything is touched.
pub fn check(format: &Rows<'_>, txn: &mut RwTxn<'_>) -> Result<(), heed::Result<EngineError>> {
    let stored = format.get(txn, KEY).map_err(Err)?.map(|bytes| bytes.try_into().map(u32::from_be_bytes));
    match stored {
        Some(Ok(FORMAT)) => Ok(()),
        None | Some(Ok(1)) => format.put(txn, KEY, &FORMAT.to_be_bytes()).map_err(Err),
        Some(Ok(newer)) if newer > FORMAT => {
            Err(Ok(EngineError::Newer(format!("its format is {newer}, this program knows formats up to {FORMAT}"))))
        }
        other => Err(Ok(EngineError::Storage(format!("the format version {other:?} makes no sense")))),
    }
}
