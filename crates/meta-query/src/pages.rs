use crate::QueryError;
use crate::source::Source;
use braid_meta_engine::{Key, Row, Table};
use std::collections::VecDeque;

/// Rows in one page: some 100 KiB.
const ROWS: usize = 512;

enum From {
    Table(Table),
    Prefix(Key),
    Nothing,
}

/// Rows one after the other, read in pages.
pub struct Pages {
    from: From,
    rows_max: usize,
    page: VecDeque<(Key, Row)>,
    after: Option<Key>,
    more: bool,
}

impl Pages {
    fn new(from: From, rows_max: usize) -> Pages {
        let more = !matches!(from, From::Nothing);
        Pages { from, rows_max, page: VecDeque::new(), after: None, more }
    }

    pub fn whole(table: Table) -> Pages {
        Pages::new(From::Table(table), ROWS)
    }

    /// Rows of one partition whose key begins like this one.
    pub fn prefix(prefix: Key) -> Pages {
        Pages::new(From::Prefix(prefix), ROWS)
    }

    /// The same, of which many are open at once.
    pub fn short(prefix: Key) -> Pages {
        Pages::new(From::Prefix(prefix), ROWS / 8)
    }

    pub fn none() -> Pages {
        Pages::new(From::Nothing, 0)
    }

    /// A whole table, or one partition of it: `Some(None)` is none of them.
    pub fn of(table: Table, partition: Option<Option<u64>>) -> Pages {
        match partition {
            None => Pages::whole(table),
            Some(Some(partition)) => Pages::prefix(Key::new(table, partition, b"")),
            Some(None) => Pages::none(),
        }
    }

    pub fn next(&mut self, source: &mut Source) -> Result<Option<(Key, Row)>, QueryError> {
        if self.page.is_empty() && self.more {
            let page = match &self.from {
                From::Table(table) => source.scan_table(*table, self.after.as_ref(), self.rows_max)?,
                From::Prefix(prefix) => source.scan(prefix, self.after.as_ref(), self.rows_max)?,
                From::Nothing => return Ok(None),
            };
            self.more = page.more;
            self.after = page.rows.last().map(|(key, _)| key.clone());
            self.page = page.rows.into();
        }
        Ok(self.page.pop_front())
    }
}
