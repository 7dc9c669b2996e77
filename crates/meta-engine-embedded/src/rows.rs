//! Reading and writing rows in an LMDB transaction.

use crate::error::store_error;
use braid_meta_engine::{EngineError, Key, Overlay, Page, Row, ScanRange, Table};
use heed::types::Bytes;
use heed::{Database, RoTxn, RwTxn};
use std::ops::Bound;

/// One LMDB database of uninterpreted rows.
pub type Rows<'e> = Database<'e, Bytes, Bytes>;

/// LMDB's own bound; the tables need 271.
const KEY_BYTES_MAX: usize = 511;

/// The database of each table.
#[derive(Clone, Copy)]
pub struct Tables(pub [Rows<'static>; Table::ALL.len()]);

impl Tables {
    pub fn name(table: Table) -> String {
        format!("table-{:02}", table as u8)
    }

    pub fn of(&self, table: Table) -> &Rows<'static> {
        // `Table::ALL` is in the order of the numbers, which begin with 1.
        &self.0[table as usize - 1]
    }

    pub fn get<'t>(&self, txn: &'t RoTxn<'_>, key: &Key) -> Result<Option<&'t [u8]>, EngineError> {
        self.of(key.table()).get(txn, key.bytes()).map_err(|error| store_error("reading a row", error))
    }

    /// The rows of `keys` as a transaction with these writes sees them.
    pub fn get_all(&self, txn: &RoTxn<'_>, overlay: &Overlay, keys: &[Key]) -> Result<Vec<Option<Row>>, EngineError> {
        let get = |key: &Key| match overlay.get(key) {
            Some(written) => Ok(written.cloned()),
            None => Ok(self.get(txn, key)?.map(<[u8]>::to_vec)),
        };
        keys.iter().map(get).collect()
    }

    /// A page as a transaction with these writes sees it.
    pub fn page(
        &self,
        txn: &RoTxn<'_>,
        overlay: &Overlay,
        table: Table,
        range: &ScanRange<'_>,
        limit: usize,
    ) -> Result<Page, EngineError> {
        let failed = |error| store_error("scanning rows", error);
        let bounds = (range.start(), Bound::Unbounded);
        let stored = self.of(table).range(txn, &bounds).map_err(failed)?;
        let stored = stored
            .map(|row| row.map_err(failed))
            .take_while(|row| row.as_ref().map_or(true, |(key, _)| range.holds_bytes(key)))
            .map(|row| {
                let (key, row) = row?;
                let short = || EngineError::Storage(format!("a key of {table:?} has {} bytes", key.len()));
                Ok((Key::from_bytes(table, key).ok_or_else(short)?, row.to_vec()))
            });
        overlay.merge(range, limit, stored)
    }

    pub fn put(&self, txn: &mut RwTxn<'_>, key: &Key, row: &[u8]) -> Result<(), EngineError> {
        self.of(key.table()).put(txn, key.bytes(), row).map_err(|error| store_error("writing a row", error))
    }

    pub fn delete(&self, txn: &mut RwTxn<'_>, key: &Key) -> Result<(), EngineError> {
        let deleted = self.of(key.table()).delete(txn, key.bytes());
        deleted.map(drop).map_err(|error| store_error("removing a row", error))
    }

    /// Pages that hold rows now; the rest of the file can be used again.
    pub fn pages(&self, txn: &RoTxn<'_>) -> Result<u64, EngineError> {
        self.pages_of(txn, &Table::ALL)
    }

    /// Pages that hold rows of these tables.
    pub fn pages_of(&self, txn: &RoTxn<'_>, tables: &[Table]) -> Result<u64, EngineError> {
        let mut pages = 0;
        for table in tables {
            let stat = self.of(*table).stat(txn).map_err(|error| store_error("counting pages", error))?;
            pages += (stat.branch_pages + stat.leaf_pages + stat.overflow_pages) as u64;
        }
        Ok(pages)
    }
}

/// LMDB would take no longer key, and say so only by failing.
pub fn check_keys(overlay: &Overlay) -> Result<(), EngineError> {
    match overlay.writes().find(|(key, _)| key.bytes().len() > KEY_BYTES_MAX) {
        Some((key, _)) => Err(EngineError::Storage(format!("a key is longer than {KEY_BYTES_MAX} bytes: {key:?}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_numbered_without_gaps() {
        assert!(Table::ALL.iter().enumerate().all(|(place, table)| *table as usize == place + 1));
    }
}
