//! A snapshot: a read transaction while it is young, which costs nothing, and then a copy of what that sees.
//!
//! Pages that are freed while a read transaction is open cannot be used again, and the file grows. So whoever is done within
//! `read_age_max` is served from the transaction, and whoever is not moves to a copy, in pieces, with each of its own calls.

use crate::engine::EmbeddedEngine;
use crate::error::store_error;
use crate::frozen::{Copier, View};
use crate::store::Store;
use braid_meta_engine::{EngineError, Key, Overlay, Page, Row, ScanRange, Snapshot, Table, not_asked_for};
use std::sync::Arc;
use std::time::Instant;

/// The order of the fields is the order they are closed in: the store, with its lock, last.
struct EmbeddedSnapshot {
    copier: Option<Copier>,
    view: View,
    /// Since when the store's own pages are held; `None`: they are not.
    since: Option<Instant>,
    asked: Vec<Table>,
    store: Arc<Store>,
}

impl EmbeddedEngine {
    pub(crate) async fn take_snapshot(&self, tables: &[Table]) -> Result<Box<dyn Snapshot>, EngineError> {
        // What was answered early is not committed before this.
        self.flush().await?;
        let store = self.store_of_snapshot();
        let txn = store.env.clone().static_read_txn().map_err(|error| store_error("beginning a snapshot", error))?;
        let view = View { txn, tables: store.tables };
        let since = Some(Instant::now());
        let snapshot = EmbeddedSnapshot { copier: None, view, since, asked: tables.to_vec(), store };
        // Where copies are kept elsewhere, what is committed here may not be there yet: it is shown to nobody before.
        self.flush().await?;
        Ok(Box::new(snapshot))
    }
}

impl EmbeddedSnapshot {
    fn check(&mut self, table: Table) -> Result<(), EngineError> {
        self.tick()?;
        self.asked.contains(&table).then_some(()).ok_or_else(|| not_asked_for(table))
    }

    fn page(&mut self, table: Table, range: &ScanRange<'_>, limit: usize) -> Result<Page, EngineError> {
        self.check(table)?;
        self.view.tables.page(&self.view.txn, &Overlay::default(), table, range, limit)
    }
}

impl Snapshot for EmbeddedSnapshot {
    fn get(&mut self, key: &Key) -> Result<Option<Row>, EngineError> {
        self.check(key.table())?;
        Ok(self.view.tables.get(&self.view.txn, key)?.map(<[u8]>::to_vec))
    }

    fn scan(&mut self, prefix: &Key, after: Option<&Key>, limit: usize) -> Result<Page, EngineError> {
        self.page(prefix.table(), &ScanRange::prefix(prefix, after), limit)
    }

    fn scan_table(&mut self, table: Table, after: Option<&Key>, limit: usize) -> Result<Page, EngineError> {
        self.page(table, &ScanRange::table(table, after), limit)
    }

    fn tick(&mut self) -> Result<(), EngineError> {
        if self.since.is_none_or(|since| since.elapsed() < self.store.options.read_age_max) {
            return Ok(());
        }
        let mut copier = match self.copier.take() {
            Some(copier) => copier,
            None => Copier::begin(&self.store, &self.view, &self.asked)?,
        };
        if copier.step(&self.view)? {
            self.view = copier.finish()?;
            self.since = None;
        } else {
            self.copier = Some(copier);
        }
        Ok(())
    }
}
