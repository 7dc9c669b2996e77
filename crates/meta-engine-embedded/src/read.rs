use crate::ordered::Looker;
use crate::rows::Tables;
use braid_meta_engine::{Awaited, Counts, EngineError, Key, Lock, Overlay, Page, Row, ScanRange, Table, Tx};
use heed::{RoTxn, WithoutTls};

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
    fn get<'a>(&'a mut self, keys: &'a [Key], _lock: Lock) -> Awaited<'a, Vec<Option<Row>>> {
        self.round_trips += 1;
        self.looker.keys(keys);
        Awaited::ready(self.tables.get_all(&self.snapshot, &self.overlay, keys))
    }

    fn scan<'a>(&'a mut self, prefix: &'a Key, after: Option<&'a Key>, limit: usize, _lock: Lock) -> Awaited<'a, Page> {
        self.looker.partition(prefix.table(), prefix.partition());
        Awaited::ready(self.page(prefix.table(), ScanRange::prefix(prefix, after), limit))
    }

    fn scan_table<'a>(&'a mut self, table: Table, after: Option<&'a Key>, limit: usize) -> Awaited<'a, Page> {
        self.looker.table(table);
        Awaited::ready(self.page(table, ScanRange::table(table, after), limit))
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
