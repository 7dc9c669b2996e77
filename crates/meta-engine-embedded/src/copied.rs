//! What a copy of the rows elsewhere needs of this store: its position, its base, and a way to load it.

use crate::engine::EmbeddedEngine;
use crate::error::store_error;
use crate::store::Store;
use braid_meta_engine::{BasePage, Copied, EngineError, Key, Outlet, Table};
use braid_types::{MetaPosition, RowChange, RowChanges};
use heed::{RoTxn, RwTxn};
use std::ops::Bound;
use std::sync::Arc;

/// In the database `format`, beside the version.
const POSITION: &[u8] = b"position";
const SET: &[u8] = b"copies";

impl Store {
    pub fn put_position(&self, txn: &mut RwTxn<'_>, at: MetaPosition) -> Result<(), EngineError> {
        self.format.put(txn, POSITION, &at.to_bytes()).map_err(|error| store_error("writing the position", error))
    }

    fn get_position(&self, txn: &RoTxn<'_>) -> Result<MetaPosition, EngineError> {
        let stored = self.format.get(txn, POSITION).map_err(|error| store_error("reading the position", error))?;
        let Some(bytes) = stored else { return Ok(MetaPosition::default()) };
        let bytes = bytes
            .try_into()
            .map_err(|_| EngineError::Storage(format!("the position of the metadata has {} bytes", bytes.len())))?;
        Ok(MetaPosition::from_bytes(bytes))
    }

    fn fill(&self, txn: &RoTxn<'_>, from: Option<(u8, Vec<u8>)>, bytes_max: usize) -> Result<BasePage, EngineError> {
        let failed = |error| store_error("reading rows for a copy", error);
        let (first, key) = from.unwrap_or((Table::ALL[0] as u8, Vec::new()));
        let mut page = BasePage { at: self.get_position(txn)?, ..BasePage::default() };
        let mut rows = RowChanges::default();
        for table in Table::ALL.into_iter().filter(|table| *table as u8 >= first) {
            // A store knows no empty key, not even as a bound.
            let start = match table as u8 == first && !key.is_empty() {
                true => Bound::Included(key.as_slice()),
                false => Bound::Unbounded,
            };
            for row in self.tables.of(table).range(txn, &(start, Bound::Unbounded)).map_err(failed)? {
                let (key, row) = row.map_err(failed)?;
                if rows.len() >= bytes_max {
                    page.next = Some((table as u8, key.to_vec()));
                    page.rows = rows.into_bytes();
                    return Ok(page);
                }
                rows.push(RowChange { table: table as u8, key, row: Some(row) });
            }
        }
        page.rows = rows.into_bytes();
        Ok(page)
    }

    pub fn load_changes(&self, txn: &mut RwTxn<'_>, changes: &[u8]) -> Result<(), EngineError> {
        for change in RowChanges::read(changes) {
            let spoilt = || EngineError::Storage("these are no changes of rows".into());
            let change = change.map_err(|_| spoilt())?;
            let table = Table::from_number(change.table);
            let unknown = || EngineError::Newer(format!("there are rows of table {}", change.table));
            let key = Key::from_bytes(table.ok_or_else(unknown)?, change.key).ok_or_else(spoilt)?;
            match change.row {
                Some(row) => self.tables.put(txn, &key, row)?,
                None => self.tables.delete(txn, &key)?,
            }
        }
        Ok(())
    }
}

impl Copied for EmbeddedEngine {
    fn position(&self) -> Result<MetaPosition, EngineError> {
        let now = self.store().snapshot()?;
        self.store().get_position(&now)
    }

    fn stored_set(&self) -> Result<Option<Vec<u8>>, EngineError> {
        let stored = self.store().snapshot()?;
        let set = self.store().format.get(&stored, SET).map_err(|error| store_error("reading the copy set", error))?;
        Ok(set.map(<[u8]>::to_vec))
    }

    fn store_set(&self, set: &[u8]) -> Result<(), EngineError> {
        let failed = |error| store_error("storing the copy set", error);
        let mut txn = self.store().env.write_txn().map_err(failed)?;
        self.store().format.put(&mut txn, SET, set).map_err(failed)?;
        txn.commit().map_err(failed)?;
        // The log has groups alone.
        self.store().journal.checkpoint(&self.store().env)
    }

    fn copy_to(&self, outlet: Arc<Outlet>) {
        self.begin_copying(outlet);
    }

    fn base_page(&self, from: Option<(u8, Vec<u8>)>, bytes_max: usize) -> Result<BasePage, EngineError> {
        let now = self.store().snapshot()?;
        self.store().fill(&now, from, bytes_max)
    }

    fn load(&self, changes: &[u8], at: MetaPosition) -> Result<(), EngineError> {
        let failed = |error| store_error("loading rows of a copy", error);
        let mut txn = self.store().env.write_txn().map_err(failed)?;
        self.store().load_changes(&mut txn, changes)?;
        self.store().put_position(&mut txn, at)?;
        txn.commit().map_err(failed)?;
        self.store().journal.checkpoint(&self.store().env)
    }
}
