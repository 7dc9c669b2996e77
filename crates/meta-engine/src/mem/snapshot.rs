use super::store::Rows;
use crate::{EngineError, Key, Overlay, Page, Row, ScanRange, Snapshot, Table, not_asked_for};
use std::ops::Bound;

/// Rows as they were.
pub(super) struct MemSnapshot {
    tables: Vec<Table>,
    rows: Rows,
}

impl MemSnapshot {
    pub fn new(tables: &[Table], rows: &Rows) -> Self {
        let asked = rows.iter().filter(|(key, _)| tables.contains(&key.table()));
        MemSnapshot { tables: tables.to_vec(), rows: asked.map(|(key, row)| (key.clone(), row.clone())).collect() }
    }

    fn check(&self, table: Table) -> Result<(), EngineError> {
        self.tables.contains(&table).then_some(()).ok_or_else(|| not_asked_for(table))
    }

    fn page(&self, table: Table, range: ScanRange<'_>, limit: usize) -> Result<Page, EngineError> {
        self.check(table)?;
        let rows = self.rows.range::<Key, _>((range.start_key().as_ref(), Bound::Unbounded));
        let rows = rows.take_while(|(key, _)| range.holds(key)).map(|(key, row)| Ok((key.clone(), row.clone())));
        Overlay::default().merge(&range, limit, rows)
    }
}

impl Snapshot for MemSnapshot {
    fn get(&mut self, key: &Key) -> Result<Option<Row>, EngineError> {
        self.check(key.table())?;
        Ok(self.rows.get(key).cloned())
    }

    fn scan(&mut self, prefix: &Key, after: Option<&Key>, limit: usize) -> Result<Page, EngineError> {
        self.page(prefix.table(), ScanRange::prefix(prefix, after), limit)
    }

    fn scan_table(&mut self, table: Table, after: Option<&Key>, limit: usize) -> Result<Page, EngineError> {
        self.page(table, ScanRange::table(table, after), limit)
    }
}
