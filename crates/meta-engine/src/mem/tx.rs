use super::store::Rows;
use crate::{Awaited, Counts, Dirty, EngineError, Key, Lock, Overlay, Page, Row, ScanRange, Table, Touched, Tx};
use std::ops::Bound;

/// A transaction over rows that nobody changes meanwhile: the store is locked while an operation runs.
pub(super) struct MemTx<'a> {
    rows: &'a Rows,
    dirty: &'a [&'a Dirty],
    owner: Option<u64>,
    pub touched: Touched,
    pub overlay: Overlay,
    /// Calls of `get` and scans so far.
    pub round_trips: u64,
}

impl<'a> MemTx<'a> {
    pub fn new(rows: &'a Rows, dirty: &'a [&'a Dirty], owner: Option<u64>) -> Self {
        MemTx { rows, dirty, owner, touched: Touched::default(), overlay: Overlay::default(), round_trips: 0 }
    }

    fn touch(&mut self, key: &Key) {
        let (owner, touched) = (self.owner, &mut self.touched);
        self.dirty.iter().for_each(|dirty| dirty.touch(key, owner, touched));
    }

    pub fn check_inserts(&self) -> Result<(), EngineError> {
        self.overlay.check_inserts(|key| Ok(self.rows.contains_key(key)))
    }

    fn page(&mut self, range: ScanRange<'_>, limit: usize) -> Result<Page, EngineError> {
        self.round_trips += 1;
        let stored = self
            .rows
            .range::<Key, _>((range.start_key().as_ref(), Bound::Unbounded))
            .take_while(|(key, _)| range.holds(key))
            .map(|(key, row)| Ok((key.clone(), row.clone())));
        self.overlay.merge(&range, limit, stored)
    }
}

impl Tx for MemTx<'_> {
    fn get<'a>(&'a mut self, keys: &'a [Key], _lock: Lock) -> Awaited<'a, Vec<Option<Row>>> {
        self.round_trips += 1;
        keys.iter().for_each(|key| self.touch(key));
        let get = |key| self.overlay.get(key).unwrap_or_else(|| self.rows.get(key)).cloned();
        Awaited::ready(Ok(keys.iter().map(get).collect()))
    }

    fn scan<'a>(&'a mut self, prefix: &'a Key, after: Option<&'a Key>, limit: usize, _lock: Lock) -> Awaited<'a, Page> {
        let (owner, touched) = (self.owner, &mut self.touched);
        self.dirty.iter().for_each(|dirty| dirty.touch_partition(prefix.table(), prefix.partition(), owner, touched));
        Awaited::ready(self.page(ScanRange::prefix(prefix, after), limit))
    }

    fn scan_table<'a>(&'a mut self, table: Table, after: Option<&'a Key>, limit: usize) -> Awaited<'a, Page> {
        let (owner, touched) = (self.owner, &mut self.touched);
        self.dirty.iter().for_each(|dirty| dirty.touch_table(table, owner, touched));
        Awaited::ready(self.page(ScanRange::table(table, after), limit))
    }

    fn put(&mut self, key: Key, row: Row) {
        self.touch(&key);
        self.overlay.put(key, row);
    }

    fn insert(&mut self, key: Key, row: Row) {
        self.touch(&key);
        self.overlay.insert(key, row);
    }

    fn delete(&mut self, key: Key) {
        self.touch(&key);
        self.overlay.delete(key);
    }

    fn add(&mut self, key: Key, by: Counts) {
        self.overlay.add(key, by);
    }
}
