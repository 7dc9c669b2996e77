//! The writes of a transaction before it commits, and how its reads see them.
//!
//! Every engine buffers writes (see [`Tx`](crate::Tx)), so what `insert` after `delete` means, or a scan over
//! rows that are half stored and half buffered, is decided here once.

use crate::{Counts, EngineError, Key, Page, Row, Table};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// What will happen to one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The store must hold no such row: the transaction's first write of it was an `insert`.
    pub must_be_absent: bool,
    /// `None` removes the row.
    pub row: Option<Row>,
}

/// Buffered writes in key order.
#[derive(Debug, Default)]
pub struct Overlay {
    writes: BTreeMap<Key, Pending>,
    /// A row that was inserted over one this transaction had written itself.
    clash: Option<Key>,
    /// What is added to rows of numbers.
    adds: BTreeMap<Key, Counts>,
}

impl Overlay {
    pub fn put(&mut self, key: Key, row: Row) {
        self.write(key, Some(row));
    }

    pub fn delete(&mut self, key: Key) {
        self.write(key, None);
    }

    pub fn insert(&mut self, key: Key, row: Row) {
        match self.writes.get_mut(&key) {
            Some(Pending { row: Some(_), .. }) => {
                self.clash.get_or_insert(key);
            }
            Some(pending) => pending.row = Some(row),
            None => {
                self.writes.insert(key, Pending { must_be_absent: true, row: Some(row) });
            }
        }
    }

    pub fn add(&mut self, key: Key, by: Counts) {
        self.adds.entry(key).or_default().add(by);
    }

    pub fn adds(&self) -> impl Iterator<Item = (&Key, &Counts)> {
        self.adds.iter()
    }

    /// The rows of numbers as they are after the transaction; `stored` gives them as they are before.
    pub fn added(
        &self,
        mut stored: impl FnMut(&Key) -> Result<Option<Row>, EngineError>,
    ) -> Result<Vec<(Key, Row)>, EngineError> {
        let added = |(key, by): (&Key, &Counts)| Ok((key.clone(), by.added_to(key, stored(key)?.as_deref())?));
        self.adds.iter().map(added).collect()
    }

    fn write(&mut self, key: Key, row: Option<Row>) {
        self.writes.entry(key).or_insert(Pending { must_be_absent: false, row: None }).row = row;
    }

    /// What this transaction made of the row; `None` if it did not touch it.
    pub fn get(&self, key: &Key) -> Option<Option<&Row>> {
        self.writes.get(key).map(|pending| pending.row.as_ref())
    }

    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.adds.is_empty()
    }

    /// One of the rows it writes or adds to.
    pub fn first(&self) -> Option<&Key> {
        self.writes.keys().next().or(self.adds.keys().next())
    }

    /// The writes in key order, for the commit.
    pub fn writes(&self) -> impl Iterator<Item = (&Key, &Pending)> {
        self.writes.iter()
    }

    /// [`EngineError::Exists`] if an insert met a row, here or in the store; to be asked before the commit.
    pub fn check_inserts(&self, mut stored: impl FnMut(&Key) -> Result<bool, EngineError>) -> Result<(), EngineError> {
        if let Some(key) = &self.clash {
            return Err(EngineError::Exists(key.clone()));
        }
        for (key, _) in self.writes.iter().filter(|(_, pending)| pending.must_be_absent) {
            if stored(key)? {
                return Err(EngineError::Exists(key.clone()));
            }
        }
        Ok(())
    }

    /// A page of what the transaction sees: `stored` (the rows of `range` in the store, in order, read no
    /// further than needed) with these writes on top. `more` is exact.
    pub fn merge(
        &self,
        range: &ScanRange<'_>,
        limit: usize,
        mut stored: impl Iterator<Item = Result<(Key, Row), EngineError>>,
    ) -> Result<Page, EngineError> {
        // Most scans are of a transaction that wrote nothing, and large.
        let mut page = Page::default();
        if self.is_empty() {
            for row in stored {
                let row = row?;
                if page.rows.len() == limit {
                    page.more = true;
                    break;
                }
                page.rows.push(row);
            }
            return Ok(page);
        }
        let mut mine = self
            .writes
            .range::<Key, _>((range.start_key().as_ref(), Bound::Unbounded))
            .take_while(|(key, _)| range.holds(key))
            .peekable();
        let mut theirs = stored.next().transpose()?;
        loop {
            // Less: the stored row comes first. Equal: the write hides it.
            let order = match (&theirs, mine.peek()) {
                (None, None) => return Ok(page),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((stored_key, _)), Some((key, _))) => stored_key.cmp(key),
            };
            let row = match order {
                Ordering::Less => theirs.take(),
                _ => mine.next().and_then(|(key, pending)| pending.row.clone().map(|row| (key.clone(), row))),
            };
            if row.is_some() && page.rows.len() == limit {
                page.more = true;
                return Ok(page);
            }
            page.rows.extend(row);
            if order != Ordering::Greater {
                theirs = stored.next().transpose()?;
            }
        }
    }
}

/// The rows a scan asks for.
#[derive(Clone, Copy, Debug)]
pub struct ScanRange<'a> {
    table: Table,
    prefix: &'a [u8],
    after: Option<&'a [u8]>,
}

impl<'a> ScanRange<'a> {
    /// The rows whose key begins with `prefix` and is greater than `after`.
    pub fn prefix(prefix: &'a Key, after: Option<&'a Key>) -> Self {
        debug_assert!(after.is_none_or(|after| after.table() == prefix.table()), "{prefix:?} after {after:?}");
        ScanRange { table: prefix.table(), prefix: prefix.bytes(), after: after.map(Key::bytes) }
    }

    /// The rows of `table` greater than `after`.
    pub fn table(table: Table, after: Option<&'a Key>) -> Self {
        debug_assert!(after.is_none_or(|after| after.table() == table), "{table:?} after {after:?}");
        ScanRange { table, prefix: &[], after: after.map(Key::bytes) }
    }

    /// Where to begin, as stored bytes.
    pub fn start(&self) -> Bound<&'a [u8]> {
        match self.after {
            Some(after) if after >= self.prefix => Bound::Excluded(after),
            // Stores know no empty key, not even as a bound.
            _ if self.prefix.is_empty() => Bound::Unbounded,
            _ => Bound::Included(self.prefix),
        }
    }

    /// Where to begin, as a key.
    pub fn start_key(&self) -> Bound<Key> {
        let smallest = || Key::new(self.table, 0, &[]);
        match self.start().map(|bytes| Key::from_bytes(self.table, bytes).unwrap_or_else(smallest)) {
            Bound::Unbounded => Bound::Included(smallest()),
            start => start,
        }
    }

    /// Whether a key at or after the start is still in the range.
    pub fn holds(&self, key: &Key) -> bool {
        key.table() == self.table && self.holds_bytes(key.bytes())
    }

    /// The same for stored bytes of this table.
    pub fn holds_bytes(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(rest: &str) -> Key {
        Key::new(Table::Inodes, 1, rest.as_bytes())
    }

    fn merged(overlay: &Overlay, stored: &[&str], limit: usize) -> (String, bool) {
        let prefix = key("");
        let stored = stored.iter().map(|rest| Ok((key(rest), b"old".to_vec())));
        let page = overlay.merge(&ScanRange::prefix(&prefix, None), limit, stored).expect("no error was fed");
        let names = page.rows.iter().map(|(key, row)| format!("{}={} ", key.rest().escape_ascii(), row.escape_ascii()));
        (names.collect(), page.more)
    }

    #[test]
    fn writes_hide_and_join_stored_rows() {
        let mut overlay = Overlay::default();
        overlay.put(key("a"), b"new".to_vec());
        overlay.put(key("c"), b"new".to_vec());
        overlay.delete(key("d"));
        overlay.put(Key::new(Table::Inodes, 2, b""), b"other".to_vec());
        let all = "a=new b=old c=new e=old ".to_owned();
        assert_eq!(merged(&overlay, &["b", "c", "d", "e"], 9), (all.clone(), false));
        assert_eq!(merged(&overlay, &["b", "c", "d", "e"], 4), (all, false));
        assert_eq!(merged(&overlay, &["b", "c", "d", "e"], 3), ("a=new b=old c=new ".to_owned(), true));
        assert_eq!(merged(&overlay, &["d"], 2), ("a=new c=new ".to_owned(), false));
    }

    #[test]
    fn an_insert_keeps_its_demand_through_later_writes() {
        let mut overlay = Overlay::default();
        overlay.insert(key("a"), vec![1]);
        overlay.put(key("a"), vec![2]);
        assert!(matches!(overlay.check_inserts(|_| Ok(true)), Err(EngineError::Exists(k)) if k == key("a")));
        assert!(overlay.check_inserts(|_| Ok(false)).is_ok());

        let mut overlay = Overlay::default();
        overlay.delete(key("a"));
        overlay.insert(key("a"), vec![1]);
        assert!(overlay.check_inserts(|_| Ok(true)).is_ok(), "the transaction removed the row itself");
        overlay.insert(key("a"), vec![2]);
        assert!(matches!(overlay.check_inserts(|_| Ok(false)), Err(EngineError::Exists(_))));
    }
}
