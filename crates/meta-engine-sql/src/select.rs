//! The statements that read, and what comes back.

use crate::literal::{push_bytes, push_key, push_list, push_number};
use crate::schema::name;
use braid_meta_engine::{EngineError, Key, Lock, Row, ScanRange, Table};
use mysql_async::Value;
use std::fmt::Write;
use std::ops::Bound;

/// Keys in one list. MariaDB turns longer ones (over 1,000 by default) into a join with a table of its own.
const KEYS_MAX: usize = 500;

/// A row as the driver gives it.
pub(crate) type Cells = Vec<Value>;

/// Rows of any keys, unlocked, in a single statement, because a statement sees one moment. `keys` are sorted.
pub(crate) fn plain(keys: &[Key]) -> String {
    let mut text = String::new();
    let groups = keys.chunk_by(|a, b| a.table() == b.table()).flat_map(|group| group.chunks(KEYS_MAX));
    let several = groups.clone().nth(1).is_some();
    for (number, group) in groups.enumerate() {
        text.push_str(if number > 0 { " UNION ALL " } else { "" });
        text.push_str(if several { "(" } else { "" });
        let table = group[0].table();
        let _ = write!(text, "SELECT {},part,rest,val FROM {} WHERE (part,rest) IN (", table as u8, name(table));
        push_list(&mut text, group, push_key);
        text.push_str(if several { "))" } else { ")" });
    }
    text
}

/// Rows of any keys, locked: a statement for each partition of each table, because inside one statement the database goes
/// through its partitions in an order of its own, and locks are taken in the order of keys. `keys` are sorted, `lock` says how each is
/// locked.
pub(crate) fn locked(keys: &[Key], lock: impl Fn(&Key) -> Lock) -> Vec<String> {
    let kind = |key: &Key| (key.table(), key.partition(), lock(key));
    let same = |a: &Key, b: &Key| kind(a) == kind(b);
    let groups = keys.chunk_by(same).flat_map(|group| group.chunks(KEYS_MAX));
    let statement = |group: &[Key]| {
        let (table, part, lock) = kind(&group[0]);
        let mut text = String::new();
        let _ =
            write!(text, "SELECT {},part,rest,val FROM {} WHERE part={part} AND rest IN (", table as u8, name(table));
        push_list(&mut text, group, |text, key: &Key| push_bytes(text, key.rest()));
        text.push(')');
        text.push_str(suffix(lock));
        text
    };
    groups.map(statement).collect()
}

/// Rows of one partition whose rest begins like `prefix`'s.
pub(crate) fn scan(prefix: &Key, after: Option<&Key>, rows_max: u64, lock: Lock) -> String {
    let mut text = String::new();
    let part = prefix.partition();
    // A long list: what is the same in each row is left out.
    let _ = write!(text, "SELECT rest,val FROM {} WHERE part={part}", name(prefix.table()));
    match ScanRange::prefix(prefix, after).start() {
        // Behind the partition there is nothing of it.
        Bound::Excluded(start) if !start.starts_with(&part.to_be_bytes()) => text.push_str(" AND FALSE"),
        Bound::Excluded(start) => push_bound(&mut text, " AND rest>", start),
        Bound::Included(start) if start.len() > 8 => push_bound(&mut text, " AND rest>=", start),
        _ => {}
    }
    if let Some(end) = after_prefix(prefix.rest()) {
        text.push_str(" AND rest<");
        push_bytes(&mut text, &end);
    }
    let _ = write!(text, " ORDER BY rest LIMIT {rows_max}{}", suffix(lock));
    text
}

/// The start of a range inside the partition.
fn push_bound(text: &mut String, compare: &str, start: &[u8]) {
    text.push_str(compare);
    push_bytes(text, start.get(8..).unwrap_or_default());
}

/// Rows of all partitions, in the order of keys.
pub(crate) fn whole(table: Table, after: Option<&Key>, rows_max: u64) -> String {
    let mut text = String::new();
    let _ = write!(text, "SELECT {},part,rest,val FROM {}", table as u8, name(table));
    if let Some(after) = after {
        let part = after.partition();
        let _ = write!(text, " WHERE part>{part} OR (part={part} AND rest>");
        push_bytes(&mut text, after.rest());
        text.push(')');
    }
    let _ = write!(text, " ORDER BY part,rest LIMIT {rows_max}");
    text
}

/// The smallest bytes greater than all that begin with `prefix`; `None` if there are none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

fn suffix(lock: Lock) -> &'static str {
    match lock {
        Lock::None => "",
        // Not FOR SHARE: MariaDB does not know it.
        Lock::Shared => " LOCK IN SHARE MODE",
        Lock::Exclusive => " FOR UPDATE",
    }
}

fn strange() -> EngineError {
    EngineError::Storage("the database answered with a row of another shape".into())
}

/// A row of [`scan`].
pub(crate) fn decode_in(prefix: &Key, mut cells: Cells) -> Result<(Key, Row), EngineError> {
    let row = bytes(cells.pop()).ok_or_else(strange)?;
    let rest = bytes(cells.pop()).ok_or_else(strange)?;
    Ok((Key::new(prefix.table(), prefix.partition(), &rest), row))
}

/// A row of the other statements.
pub(crate) fn decode(mut cells: Cells) -> Result<(Key, Row), EngineError> {
    let row = bytes(cells.pop()).ok_or_else(strange)?;
    let rest = bytes(cells.pop()).ok_or_else(strange)?;
    let part = number(cells.pop()).ok_or_else(strange)?;
    let table = number(cells.pop()).and_then(table_of).ok_or_else(strange)?;
    Ok((Key::new(table, part, &rest), row))
}

fn table_of(number: u64) -> Option<Table> {
    Table::ALL.into_iter().find(|table| *table as u64 == number)
}

pub(crate) fn bytes(value: Option<Value>) -> Option<Vec<u8>> {
    match value? {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// A number, which comes as digits.
pub(crate) fn number(value: Option<Value>) -> Option<u64> {
    match value? {
        Value::UInt(number) => Some(number),
        Value::Int(number) => number.try_into().ok(),
        Value::Bytes(digits) => std::str::from_utf8(&digits).ok()?.parse().ok(),
        _ => None,
    }
}

pub(crate) fn push_slots(text: &mut String, slots: impl IntoIterator<Item = u64>) {
    push_list(text, slots, push_number);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(table: Table, part: u64, rest: &str) -> Key {
        Key::new(table, part, rest.as_bytes())
    }

    #[test]
    fn unlocked_rows_come_by_one_statement() {
        let keys = [key(Table::Inodes, 1, "a"), key(Table::Inodes, 2, "b"), key(Table::Chunks, 1, "")];
        let expected = "SELECT 2,part,rest,val FROM inodes WHERE (part,rest) IN ((1,X'61'),(2,X'62'))";
        assert_eq!(plain(&keys[..2]), expected);
        let more =
            format!("({expected}) UNION ALL (SELECT 4,part,rest,val FROM chunks WHERE (part,rest) IN ((1,X'')))");
        assert_eq!(plain(&keys), more);
    }

    #[test]
    fn locks_go_partition_by_partition() {
        let keys = [key(Table::Inodes, 1, "a"), key(Table::Inodes, 1, "b"), key(Table::Inodes, 2, "a")];
        let statements = locked(&keys, |_| Lock::Shared);
        assert_eq!(statements.len(), 2);
        assert!(statements[0].ends_with("WHERE part=1 AND rest IN (X'61',X'62') LOCK IN SHARE MODE"));
    }

    #[test]
    fn a_scan_has_both_ends() {
        let text = |prefix: &Key, after: Option<&Key>| {
            let text = scan(prefix, after, 9, Lock::None);
            text.split_once("WHERE ").map(|(_, range)| range.to_owned()).unwrap_or_default()
        };
        let all = key(Table::Inodes, 5, "");
        assert_eq!(text(&all, None), "part=5 ORDER BY rest LIMIT 9");
        assert_eq!(text(&all, Some(&key(Table::Inodes, 5, ""))), "part=5 AND rest>X'' ORDER BY rest LIMIT 9");
        assert_eq!(text(&all, Some(&key(Table::Inodes, 4, "x"))), "part=5 ORDER BY rest LIMIT 9");
        assert_eq!(text(&all, Some(&key(Table::Inodes, 6, ""))), "part=5 AND FALSE ORDER BY rest LIMIT 9");
        let some = key(Table::Inodes, 5, "ab");
        assert_eq!(text(&some, None), "part=5 AND rest>=X'6162' AND rest<X'6163' ORDER BY rest LIMIT 9");
        assert_eq!(after_prefix(&[0xff, 0xff]), None);
        assert_eq!(after_prefix(&[1, 0xff]), Some(vec![2]));
    }
}
