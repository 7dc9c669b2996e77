//! The statements that write what a transaction has buffered, in the order of keys, as their locks are taken.

use crate::literal::{push_bytes, push_key, push_list, push_number};
use crate::schema::{check_size, name};
use braid_meta_engine::{Counts, EngineError, Key, Overlay, Row, Table};
use std::collections::BTreeSet;

/// A statement takes no further row after so many, or so many bytes of text: the database parses it as a whole.
const ROWS_MAX: usize = 1000;
const BYTES_MAX: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// There must be no such row.
    Insert,
    Upsert,
    Delete,
    /// Its numbers are added to those that are there.
    Add,
}

/// One statement and the rows it is about.
#[derive(Debug)]
pub(crate) struct Write {
    pub text: String,
    pub keys: Vec<Key>,
    kind: Kind,
}

/// `absent` are the rows that the transaction was told are not there when it asked with a lock. A row that is not there cannot
/// be locked, so it is the primary key that says whether that still holds: what is put in their place is inserted. They
/// need no removal either: a row that has come since comes after this transaction.
pub(crate) fn writes(overlay: &Overlay, absent: &BTreeSet<Key>) -> Result<Vec<Write>, EngineError> {
    let mut writes = Vec::new();
    for (key, pending) in overlay.writes() {
        let is_absent = absent.contains(key);
        match &pending.row {
            Some(row) if pending.must_be_absent || is_absent => push(&mut writes, Kind::Insert, key, Some(row))?,
            Some(row) => push(&mut writes, Kind::Upsert, key, Some(row))?,
            None if pending.must_be_absent => {
                // Inserted and removed again: that it was not there is still to be proved.
                push(&mut writes, Kind::Insert, key, Some(&Row::new()))?;
                push(&mut writes, Kind::Delete, key, None)?;
            }
            None if is_absent => {}
            None => push(&mut writes, Kind::Delete, key, None)?,
        }
    }
    // The last, as others wait for them.
    for (key, by) in overlay.adds() {
        push(&mut writes, Kind::Add, key, Some(&by.to_row()))?;
    }
    writes.iter_mut().for_each(Write::finish);
    Ok(writes)
}

fn push(writes: &mut Vec<Write>, kind: Kind, key: &Key, row: Option<&Row>) -> Result<(), EngineError> {
    check_size(key, row.map_or(&[], |row| row.as_slice()))?;
    match writes.last_mut().filter(|write| write.takes(kind, key)) {
        Some(write) => write.text.push(','),
        None => writes.push(Write { text: Write::begin(kind, key), keys: Vec::new(), kind }),
    }
    let Some(write) = writes.last_mut() else { return Ok(()) };
    match row {
        Some(row) => {
            write.text.push('(');
            push_number(&mut write.text, key.partition());
            write.text.push(',');
            push_bytes(&mut write.text, key.rest());
            write.text.push(',');
            push_bytes(&mut write.text, row);
            write.text.push(')');
        }
        None => push_bytes(&mut write.text, key.rest()),
    }
    write.keys.push(key.clone());
    Ok(())
}

impl Write {
    fn begin(kind: Kind, key: &Key) -> String {
        match kind {
            Kind::Insert | Kind::Upsert | Kind::Add => {
                format!("INSERT INTO {} (part,rest,val) VALUES ", name(key.table()))
            }
            Kind::Delete => format!("DELETE FROM {} WHERE part={} AND rest IN (", name(key.table()), key.partition()),
        }
    }

    /// Whether this row can be in the statement. One that removes is of one partition, as inside it the database goes through
    /// its partitions in an order of its own.
    fn takes(&self, kind: Kind, key: &Key) -> bool {
        let same = |of: &Key| {
            of.table() == key.table() && (kind != Kind::Delete || of.partition() == key.partition()) && of != key
        };
        self.kind == kind
            && self.keys.len() < ROWS_MAX
            && self.text.len() < BYTES_MAX
            && self.keys.last().is_some_and(same)
    }

    fn finish(&mut self) {
        match self.kind {
            Kind::Insert => {}
            Kind::Upsert => self.text.push_str(" ON DUPLICATE KEY UPDATE val=VALUES(val)"),
            Kind::Delete => self.text.push(')'),
            Kind::Add => self.text.push_str(&format!(
                " ON DUPLICATE KEY UPDATE val=CONCAT(SUBSTRING(val,1,1),{},{})",
                sum(2),
                sum(2 + Counts::DIGITS)
            )),
        }
    }

    /// Which of the rows that were to be new are there, the first of them.
    pub fn which_is_there(&self) -> String {
        let table = self.keys.first().map_or(Table::Globals, Key::table);
        let mut text = format!("SELECT part,rest FROM {} WHERE (part,rest) IN (", name(table));
        push_list(&mut text, &self.keys, push_key);
        text.push_str(") ORDER BY part,rest LIMIT 1");
        text
    }
}

/// The number that begins at this byte of a row of numbers, with what is added to it.
fn sum(at: usize) -> String {
    let (digits, bias) = (Counts::DIGITS, Counts::BIAS);
    let number = |of: &str| format!("CAST(SUBSTRING({of},{at},{digits}) AS DECIMAL(31,0))");
    format!("LPAD({}+{}-{bias},{digits},'0')", number("val"), number("VALUES(val)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(part: u64, rest: &str) -> Key {
        Key::new(Table::Inodes, part, rest.as_bytes())
    }

    fn texts(overlay: &Overlay, absent: &[Key]) -> Vec<String> {
        let writes = writes(overlay, &absent.iter().cloned().collect()).unwrap();
        writes.into_iter().map(|write| write.text).collect()
    }

    #[test]
    fn runs_of_one_kind_are_one_statement() {
        let mut overlay = Overlay::default();
        overlay.insert(key(1, "a"), vec![1]);
        overlay.put(key(1, "b"), vec![2]);
        overlay.put(key(2, "c"), vec![3]);
        overlay.delete(key(2, "d"));
        overlay.delete(key(2, "e"));
        overlay.delete(key(3, "f"));
        let expected = [
            "INSERT INTO inodes (part,rest,val) VALUES (1,X'61',X'01')",
            "INSERT INTO inodes (part,rest,val) VALUES (1,X'62',X'02'),(2,X'63',X'03') ON DUPLICATE KEY UPDATE val=VALUES(val)",
            "DELETE FROM inodes WHERE part=2 AND rest IN (X'64',X'65')",
            "DELETE FROM inodes WHERE part=3 AND rest IN (X'66')",
        ];
        assert_eq!(texts(&overlay, &[]), expected);
    }

    #[test]
    fn what_was_locked_and_absent_is_inserted() {
        let mut overlay = Overlay::default();
        overlay.put(key(1, "a"), vec![1]);
        overlay.delete(key(1, "b"));
        assert_eq!(
            texts(&overlay, &[key(1, "a"), key(1, "b")]),
            ["INSERT INTO inodes (part,rest,val) VALUES (1,X'61',X'01')"]
        );
    }

    #[test]
    fn what_came_and_went_still_proves_absence() {
        let mut overlay = Overlay::default();
        overlay.insert(key(1, "a"), vec![1]);
        overlay.delete(key(1, "a"));
        let expected = [
            "INSERT INTO inodes (part,rest,val) VALUES (1,X'61',X'')",
            "DELETE FROM inodes WHERE part=1 AND rest IN (X'61')",
        ];
        assert_eq!(texts(&overlay, &[]), expected);
    }
}
