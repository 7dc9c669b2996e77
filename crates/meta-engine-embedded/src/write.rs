use crate::ordered::Looker;
use crate::room::Weight;
use crate::rows::{Tables, check_keys};
use braid_meta_engine::{Awaited, Counts, EngineError, Key, Lock, Overlay, Page, Row, ScanRange, Table, Tx};
use braid_types::{RowChange, RowChanges};
use heed::RwTxn;

/// One operation's transaction inside the group's LMDB transaction: it sees the operations before it, and its
/// own writes stay in the overlay until [`WriteTx::apply`].
pub struct WriteTx<'a, 'e> {
    txn: &'a mut RwTxn<'e>,
    tables: &'a Tables,
    overlay: Overlay,
    /// Rows of numbers, after what was added to them: of [`WriteTx::apply`].
    added: Vec<(Key, Row)>,
    pub looker: Looker<'a>,
    pub round_trips: u64,
}

impl<'a, 'e> WriteTx<'a, 'e> {
    pub fn new(txn: &'a mut RwTxn<'e>, tables: &'a Tables, looker: Looker<'a>) -> Self {
        WriteTx { txn, tables, overlay: Overlay::default(), added: Vec::new(), looker, round_trips: 0 }
    }

    /// The first row it writes.
    pub fn written(&self) -> Option<Key> {
        self.overlay.first().cloned()
    }

    /// The rows it writes, but for those it adds to: what they are is nobody's.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.overlay.writes().map(|(key, _)| key)
    }

    /// What it changes, for a copy.
    pub fn record(&self, changes: &mut RowChanges) {
        for (key, pending) in self.overlay.writes() {
            changes.push(RowChange { table: key.table() as u8, key: key.bytes(), row: pending.row.as_deref() });
        }
        for (key, row) in &self.added {
            changes.push(RowChange { table: key.table() as u8, key: key.bytes(), row: Some(row) });
        }
    }

    pub fn wrote(&self) -> bool {
        !self.overlay.is_empty()
    }

    /// Whether the writes may be applied, asked before the first is: after this only the store can fail.
    pub fn check(&self) -> Result<(), EngineError> {
        check_keys(&self.overlay)?;
        self.overlay.check_inserts(|key| Ok(self.tables.get(self.txn, key)?.is_some()))
    }

    /// What the writes would add and remove.
    pub fn weight(&self) -> Result<Weight, EngineError> {
        let mut weight = Weight::default();
        for (key, pending) in self.overlay.writes() {
            let old = self.tables.get(self.txn, key)?.map(<[u8]>::len);
            weight.count(key.bytes().len(), old, pending.row.as_ref().map(Vec::len));
        }
        Ok(weight)
    }

    /// Writes to the LMDB transaction and tells how many bytes. An error leaves that in an unknown state.
    pub fn apply(&mut self) -> Result<usize, EngineError> {
        let mut bytes = 0;
        for (key, pending) in self.overlay.writes() {
            match &pending.row {
                Some(row) => {
                    bytes += key.bytes().len() + row.len();
                    self.tables.put(self.txn, key, row)?;
                }
                None => self.tables.delete(self.txn, key)?,
            }
        }
        self.added = self.overlay.added(|key| Ok(self.tables.get(self.txn, key)?.map(<[u8]>::to_vec)))?;
        for (key, row) in &self.added {
            bytes += key.bytes().len() + row.len();
            self.tables.put(self.txn, key, row)?;
        }
        Ok(bytes)
    }

    fn page(&mut self, table: Table, range: ScanRange<'_>, limit: usize) -> Result<Page, EngineError> {
        self.round_trips += 1;
        self.tables.page(self.txn, &self.overlay, table, &range, limit)
    }
}

impl Tx for WriteTx<'_, '_> {
    fn get<'a>(&'a mut self, keys: &'a [Key], _lock: Lock) -> Awaited<'a, Vec<Option<Row>>> {
        self.round_trips += 1;
        self.looker.keys(keys);
        Awaited::ready(self.tables.get_all(self.txn, &self.overlay, keys))
    }

    fn scan<'a>(&'a mut self, prefix: &'a Key, after: Option<&'a Key>, limit: usize, _lock: Lock) -> Awaited<'a, Page> {
        self.looker.partition(prefix.table(), prefix.partition());
        Awaited::ready(self.page(prefix.table(), ScanRange::prefix(prefix, after), limit))
    }

    fn scan_table<'a>(&'a mut self, table: Table, after: Option<&'a Key>, limit: usize) -> Awaited<'a, Page> {
        self.looker.table(table);
        Awaited::ready(self.page(table, ScanRange::table(table, after), limit))
    }

    fn put(&mut self, key: Key, row: Row) {
        self.looker.keys([&key]);
        self.overlay.put(key, row);
    }

    fn insert(&mut self, key: Key, row: Row) {
        self.looker.keys([&key]);
        self.overlay.insert(key, row);
    }

    fn delete(&mut self, key: Key) {
        self.looker.keys([&key]);
        self.overlay.delete(key);
    }

    fn add(&mut self, key: Key, by: Counts) {
        self.overlay.add(key, by);
    }
}
