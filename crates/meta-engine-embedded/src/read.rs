use crate::ordered::Looker;
use crate::rows::Tables;
use braid_meta_engine::{Counts, EngineError, Key, Lock, Overlay, Page, Row, ScanRange, Table, Tx};
use heed::{RoTxn, WithoutTls};
use std::future::{Future, ready};

/// A transaction that only reads, of one snapshot.
pub struct ReadTx<'a> {
    snapshot: RoTxn<'a, WithoutTls>,
    tables: &'a Tables,
    pub looker: Looker<'a>,
    /// Always empty.
    overlay: Overlay,
    /// The first row that was to be written.
    pub refused: Option<Key>,
    pub round_trips: u64,
}

impl<'a> ReadTx<'a> {
    pub fn new(snapshot: RoTxn<'a, WithoutTls>, tables: &'a Tables, looker: Looker<'a>) -> Self {
        ReadTx { snapshot, tables, looker, overlay: Overlay::default(), refused: None, round_trips: 0 }
    }

    fn page(&mut self, table: Table, range: ScanRange<'_>, limit: usize) -> Result<Page, EngineError> {
        self.round_trips += 1;
        self.tables.page(&self.snapshot, &self.overlay, table, &range, limit)
    }
}

impl Tx for ReadTx<'_> {
    fn get(&mut self, keys: &[Key], _lock: Lock) -> impl Future<Output = Result<Vec<Option<Row>>, EngineError>> + Send {
        self.round_trips += 1;
        self.looker.keys(keys);
        ready(self.tables.get_all(&self.snapshot, &self.overlay, keys))
    }

    fn scan(
        &mut self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
        _lock: Lock,
    ) -> impl Future<Output = Result<Page, EngineError>> + Send {
        self.looker.partition(prefix.table(), prefix.partition());
        ready(self.page(prefix.table(), ScanRange::prefix(prefix, after), limit))
    }

    fn scan_table(
        &mut self,
        table: Table,
        after: Option<&Key>,
        limit: usize,
    ) -> impl Future<Output = Result<Page, EngineError>> + Send {
        self.looker.table(table);
        ready(self.page(table, ScanRange::table(table, after), limit))
    }

    fn put(&mut self, key: Key, _row: Row) {
        self.refused.get_or_insert(key);
    }

    fn insert(&mut self, key: Key, _row: Row) {
        self.refused.get_or_insert(key);
    }

    fn delete(&mut self, key: Key) {
        self.refused.get_or_insert(key);
    }

    fn add(&mut self, key: Key, _by: Counts) {
        self.refused.get_or_insert(key);
    }
}
